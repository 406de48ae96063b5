//! The channel that deliveries came on, and the right to settle them there.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use lapin::options::{BasicAckOptions, BasicNackOptions, BasicRejectOptions};
use lapin::{Acker, Channel};
use redrive_core::TransportError;
use redrive_core::fail_point::{FailPoint, fail_point};

use crate::connection::answered_on;
use crate::error;
use crate::version::Version;

/// RabbitMQ hands about 32 settlements of one channel on to a quorum queue at once, and forgets those that still wait
/// when the channel closes. After more than this many within a second, a channel stays open a while longer.
const BURST: usize = 16;
const BURST_WITHIN: Duration = Duration::from_secs(1);
const SETTLING: Duration = Duration::from_millis(250);

/// One subscription on one channel of one connection.
pub(crate) struct Session {
    channel: Channel,
    pub(crate) epoch: u64,
    pub(crate) version: Option<Version>,
    ended: AtomicBool,
    settled: Mutex<VecDeque<Instant>>,
}

impl Session {
    pub(crate) fn new(channel: Channel, epoch: u64, version: Option<Version>) -> Self {
        Self { channel, epoch, version, ended: AtomicBool::new(false), settled: Mutex::new(VecDeque::new()) }
    }

    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// True while settling a delivery of this session means something to the broker.
    pub(crate) fn is_live(&self) -> bool {
        !self.ended.load(Ordering::Acquire) && self.channel.status().connected()
    }

    /// From now on nothing of this session can be settled: the broker took the deliveries back, or is about to.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Waits until the broker had time to take in the last settlements.
    pub(crate) async fn settle_down(&self) {
        if let Some(rest) = self.still_settling() {
            tokio::time::sleep(rest).await;
        }
    }

    /// Gives back all that is still in somebody's hand, after [`end`](Self::end): left to the end of the channel it would
    /// count as a failure on 4.3.
    pub(crate) async fn give_back_all(&self) {
        if !self.channel.status().connected() {
            return;
        }
        let all = BasicNackOptions { requeue: true, multiple: true };
        // Where that fails the broker takes it back with the channel.
        let _ = answered_on(&self.channel, self.channel.basic_nack(0, all)).await;
    }

    fn note_settled(&self) {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if settled.len() > BURST {
            settled.pop_front();
        }
        settled.push_back(Instant::now());
    }

    fn still_settling(&self) -> Option<Duration> {
        let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, last) = (settled.front()?, settled.back()?);
        let burst = settled.len() > BURST && *last - *first < BURST_WITHIN;
        burst.then(|| SETTLING.checked_sub(last.elapsed())).flatten()
    }
}

/// The channel closes with its last user, but not on settlements that are still on their way into the queue.
impl Drop for Session {
    fn drop(&mut self) {
        if !self.is_live() {
            return;
        }
        if let (Some(rest), Ok(runtime)) = (self.still_settling(), tokio::runtime::Handle::try_current()) {
            let channel = self.channel.clone();
            runtime.spawn(async move {
                tokio::time::sleep(rest).await;
                drop(channel);
            });
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("epoch", &self.epoch)
            .field("live", &self.is_live())
            .finish_non_exhaustive()
    }
}

/// The right to settle one delivery. Dropped, it gives the delivery back.
#[must_use = "dropping the receipt gives the delivery back"]
pub struct Receipt {
    acker: Acker,
    session: Arc<Session>,
    settled: bool,
}

impl Receipt {
    pub(crate) fn new(acker: Acker, session: Arc<Session>) -> Self {
        Self { acker, session, settled: false }
    }

    /// Why the delivery cannot be settled any more, if it cannot.
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        if self.session.is_live() && self.acker.usable() {
            return Ok(());
        }
        Err(error::lost("its connection, channel or subscription ended"))
    }

    /// Removes the message.
    pub(crate) async fn ack(mut self) -> Result<(), TransportError> {
        self.check()?;
        self.settled = true;
        let ack = self.acker.ack(BasicAckOptions::default());
        fail_point(FailPoint::AckHandedOver);
        let answer = answered_on(self.session.channel(), ack).await;
        fail_point(FailPoint::AckFlushed);
        self.settled_with(answer)
    }

    /// Gives the delivery back (`requeue`), or has the broker dead-letter it. Always `basic.nack`: `basic.reject` is
    /// counted on 4.3.
    pub(crate) async fn nack(mut self, requeue: bool) -> Result<(), TransportError> {
        self.check()?;
        self.settled = true;
        let nack = self.acker.nack(BasicNackOptions { requeue, multiple: false });
        fail_point(FailPoint::NackHandedOver);
        let answer = answered_on(self.session.channel(), nack).await;
        fail_point(FailPoint::NackFlushed);
        self.settled_with(answer)
    }

    /// Gives the delivery back as failed: a quorum queue of 4.3 counts it, and holds it back if it is configured to.
    pub(crate) async fn reject_to_retry(mut self) -> Result<(), TransportError> {
        self.check()?;
        self.settled = true;
        let reject = self.acker.reject(BasicRejectOptions { requeue: true });
        fail_point(FailPoint::NackHandedOver);
        let answer = answered_on(self.session.channel(), reject).await;
        fail_point(FailPoint::NackFlushed);
        self.settled_with(answer)
    }

    /// The version of the broker that handed it out.
    pub(crate) fn version(&self) -> Option<Version> {
        self.session.version
    }

    fn settled_with(&self, answer: lapin::Result<bool>) -> Result<(), TransportError> {
        self.session.note_settled();
        match answer {
            Ok(true) if self.session.is_live() => Ok(()),
            Ok(_) => Err(error::lost("its channel ended")),
            Err(cause) => Err(error::lost(&cause).with_source(cause)),
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if self.settled || !self.session.is_live() {
            return;
        }
        // The first poll hands the frame to the connection's own task: no runtime is needed here.
        let giving_back = self.acker.nack(BasicNackOptions { requeue: true, multiple: false });
        let _ = giving_back.now_or_never();
        self.session.note_settled();
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("session", &self.session).finish_non_exhaustive()
    }
}
