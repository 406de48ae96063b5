//! The channel that deliveries came on, and the right to settle them there.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures::FutureExt;
use lapin::Channel;
use lapin::options::{BasicAckOptions, BasicNackOptions, BasicQosOptions, BasicRejectOptions};
use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::{Origin, TransportError};
use tokio::sync::Notify;

use crate::acks::{Ack, Due, Window};
use crate::connection::{Live, answered_on};
use crate::error;
use crate::version::Version;

/// RabbitMQ hands about 32 settlements of one channel on to a quorum queue at once, and forgets those that still wait
/// when the channel closes. After more than this many within ten seconds, a channel stays open a while longer.
const BURST: usize = 16;
const BURST_WITHIN: Duration = Duration::from_secs(10);
const SETTLING: Duration = Duration::from_millis(250);
/// So often it is made sure meanwhile that the broker is not standing still.
const STEPS: u32 = 5;
/// A broker that does not answer for so long is not waited for.
const STANDS_STILL: Duration = Duration::from_secs(10);

/// One subscription on one channel of one connection. All settlements of the channel go through here, one at a time:
/// the client library sends what is handed to a channel in that order, as long as one hand does it.
pub(crate) struct Session {
    /// How many there were before it.
    interruptions: u64,
    /// It was counted as an interruption.
    counted: AtomicBool,
    channel: Channel,
    connection: Arc<Live>,
    ended: AtomicBool,
    window: Mutex<Window>,
    /// Something is settled that the broker was not told yet.
    waits: Arc<Notify>,
    sent: Mutex<VecDeque<Instant>>,
}

impl Session {
    /// A session in which acknowledgements wait for each other, for at most this long.
    pub(crate) fn new(
        channel: Channel,
        connection: Arc<Live>,
        prefetch: u16,
        ack_within: Duration,
        interruptions: u64,
    ) -> Arc<Self> {
        if ack_within.is_zero() {
            return Arc::new(Self::with(Window::at_once(), channel, connection, interruptions));
        }
        let session = Arc::new(Self::with(Window::new(prefetch), channel, connection, interruptions));
        let waits = Arc::clone(&session.waits);
        tokio::spawn(tell_in_time(Arc::downgrade(&session), waits, ack_within));
        session
    }

    /// A session in which every acknowledgement is sent at once.
    pub(crate) fn at_once(channel: Channel, connection: Arc<Live>) -> Arc<Self> {
        Arc::new(Self::with(Window::at_once(), channel, connection, 0))
    }

    fn with(window: Window, channel: Channel, connection: Arc<Live>, interruptions: u64) -> Self {
        Self {
            interruptions,
            counted: AtomicBool::new(false),
            channel,
            connection,
            ended: AtomicBool::new(false),
            window: Mutex::new(window),
            waits: Arc::default(),
            sent: Mutex::default(),
        }
    }

    /// How many interruptions there were before it.
    pub(crate) fn interruptions(&self) -> u64 {
        self.interruptions
    }

    /// True once, when it ended with deliveries that may come again.
    pub(crate) fn is_interruption(&self) -> bool {
        !self.is_live() && !self.counted.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The connection of the channel.
    pub(crate) fn connection(&self) -> &Live {
        &self.connection
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.connection.epoch
    }

    /// The version of the broker that it is with.
    pub(crate) fn version(&self) -> Option<Version> {
        self.connection.version
    }

    /// True while settling a delivery of this session means something to the broker.
    pub(crate) fn is_live(&self) -> bool {
        // When a connection ends its channels hear of it a moment later.
        !self.ended.load(Ordering::Acquire) && self.channel.status().connected() && self.connection.is_up()
    }

    /// Why nothing can be settled any more, if nothing can.
    fn check(&self) -> Result<(), TransportError> {
        if self.is_live() {
            return Ok(());
        }
        Err(error::lost("its connection, channel or subscription ended"))
    }

    /// From now on nothing of this session can be settled: the broker took the deliveries back, or is about to.
    pub(crate) fn end(&self) {
        let mut window = self.window();
        // What was settled before may still be in time.
        window.tell_all(|ack| drop(self.send(ack)));
        self.ended.store(true, Ordering::Release);
    }

    /// True while one of the deliveries up to this number is in somebody's hand.
    pub(crate) fn has_in_hand(&self, last: u64) -> bool {
        self.window().has_in_hand(last)
    }

    /// Sends the acknowledgements that wait.
    pub(crate) fn tell_all(&self) {
        self.window().tell_all(|ack| drop(self.send(ack)));
    }

    /// Waits until the broker had time to take in the last settlements. Its time, not ours: on a machine that stands still it
    /// would read them together with the end of the channel.
    pub(crate) async fn settle_down(&self) {
        self.tell_all();
        if !self.is_still_settling() {
            return;
        }
        for _ in 0..STEPS {
            tokio::time::sleep(SETTLING / STEPS).await;
            // A question to which the answer changes nothing for a channel that is about to close.
            let asking = self.channel.basic_qos(1, BasicQosOptions { global: false });
            let answer = tokio::time::timeout(STANDS_STILL, answered_on(&self.channel, asking)).await;
            if !matches!(answer, Ok(Ok(()))) {
                return;
            }
        }
    }

    /// Gives back all that is still in somebody's hand, after [`end`](Self::end): left to the end of the channel it would
    /// come later, and count as a failure on 4.3.
    pub(crate) async fn give_back_all(&self) {
        if !self.channel.status().connected() {
            return;
        }
        let all = BasicNackOptions { requeue: true, multiple: true };
        // Where that fails the broker takes it back with the channel.
        let _ = answered_on(&self.channel, self.channel.basic_nack(0, all)).await;
    }

    /// Done: the broker is told now, or soon, together with others.
    fn acknowledge(&self, tag: u64) -> Result<Option<Sending<'_>>, TransportError> {
        let mut window = self.window();
        self.check()?;
        let due = window.settle(tag);
        fail_point(FailPoint::AckHandedOver);
        let mut last = None;
        match due {
            Due::Waits => {}
            Due::WaitsFirst => self.waits.notify_one(),
            Due::Now => window.tell(|ack| last = Some(self.send(ack))),
        }
        Ok(last)
    }

    /// Waits until an acknowledgement has left this process.
    async fn written(&self, sending: Sending<'_>) -> Result<(), TransportError> {
        let answer = answered_on(&self.channel, sending).await;
        answer.map_err(|cause| error::lost(&cause).with_source(cause))?;
        fail_point(FailPoint::AckWritten);
        Ok(())
    }

    fn refuse(
        &self,
        tag: u64,
        refusal: Refusal,
    ) -> Result<impl Future<Output = lapin::Result<()>> + Send + '_, TransportError> {
        let nack =
            |requeue| self.channel.basic_nack(tag, BasicNackOptions { requeue, multiple: false }).boxed();
        let mut sending = match refusal {
            Refusal::GivenBack => nack(true),
            Refusal::DeadLettered => nack(false),
            Refusal::Failed => self.channel.basic_reject(tag, BasicRejectOptions { requeue: true }).boxed(),
        };
        let sent = {
            let mut window = self.window();
            // What was given back with all others is not to be refused: the broker closes the channel over that.
            self.check()?;
            window.told(tag);
            // The first poll hands it to the channel: no acknowledgement can pass it.
            (&mut sending).now_or_never()
        };
        self.note_sent();
        fail_point(FailPoint::NackHandedOver);
        Ok(async move {
            let answer = match sent {
                Some(answer) => answer,
                None => answered_on(&self.channel, sending).await,
            };
            fail_point(FailPoint::NackFlushed);
            answer
        })
    }

    /// Hands it to the channel. The answer comes when it was written; it need not be waited for.
    fn send(&self, Ack { tag, multiple }: Ack) -> Sending<'_> {
        let mut sending = self.channel.basic_ack(tag, BasicAckOptions { multiple }).boxed();
        let sent = (&mut sending).now_or_never();
        self.note_sent();
        fail_point(FailPoint::AckFlushed);
        // It may be written already.
        sent.map_or(sending, |answer| std::future::ready(answer).boxed())
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_sent(&self) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.len() > BURST {
            sent.pop_front();
        }
        sent.push_back(Instant::now());
    }

    fn is_still_settling(&self) -> bool {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.len() > BURST && sent.front().is_some_and(|first| first.elapsed() < BURST_WITHIN)
    }
}

/// How a delivery is not acknowledged. `basic.reject` is counted on 4.3, `basic.nack` is not.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    GivenBack,
    /// By the broker.
    DeadLettered,
    /// And given back.
    Failed,
}

impl Refusal {
    fn of(requeue: bool) -> Self {
        if requeue { Self::GivenBack } else { Self::DeadLettered }
    }
}

type Sending<'a> = futures::future::BoxFuture<'a, lapin::Result<()>>;

/// Sends what waits once the first of it waited for `within`; as long as there is a session.
async fn tell_in_time(session: Weak<Session>, waits: Arc<Notify>, within: Duration) {
    loop {
        waits.notified().await;
        tokio::time::sleep(within).await;
        let Some(session) = session.upgrade() else { return };
        let mut last = None;
        session.window().tell_all(|ack| last = Some(session.send(ack)));
        if let Some(last) = last {
            // An error means that the session ended: what was not told comes again.
            let _ = session.written(last).await;
        }
    }
}

/// The channel closes with its last user, but not on settlements that are still on their way into the queue.
impl Drop for Session {
    fn drop(&mut self) {
        // Ends the task that tells in time.
        self.waits.notify_one();
        if !self.is_live() {
            return;
        }
        self.tell_all();
        if !self.is_still_settling() {
            return;
        }
        self.connection.settles_for(SETTLING);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let channel = self.channel.clone();
            runtime.spawn(async move {
                tokio::time::sleep(SETTLING).await;
                drop(channel);
            });
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("epoch", &self.epoch())
            .field("live", &self.is_live())
            .finish_non_exhaustive()
    }
}

/// The right to settle one delivery. Dropped, it gives the delivery back.
#[must_use = "dropping the receipt gives the delivery back"]
pub struct Receipt {
    tag: u64,
    session: Arc<Session>,
    settled: bool,
    /// False where the message was read without some of its headers: a copy would lose them.
    whole: bool,
    /// How the delivery came, as the broker told it.
    origin: Option<Origin>,
}

impl Receipt {
    pub(crate) fn new(tag: u64, session: Arc<Session>) -> Self {
        Self { tag, session, settled: false, whole: true, origin: None }
    }

    /// The same right, to a delivery that came this way.
    pub(crate) fn came_by(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// The same right, to a delivery that was read in part.
    pub(crate) fn for_a_part(mut self) -> Self {
        self.whole = false;
        self
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Why the delivery cannot be settled any more, if it cannot.
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        self.session.check()
    }

    /// Removes the message: the broker is told now, or within the time that acknowledgements may wait for each other. When
    /// it is told now, waits until that is written: who fills the window does not run ahead of the connection.
    pub(crate) async fn ack(mut self) -> Result<(), TransportError> {
        self.settled = true;
        match self.session.acknowledge(self.tag)? {
            None => Ok(()),
            Some(sending) => self.session.written(sending).await,
        }
    }

    /// Gives the delivery back (`requeue`), or has the broker dead-letter it.
    pub(crate) async fn nack(mut self, requeue: bool) -> Result<(), TransportError> {
        self.settled = true;
        self.refused(Refusal::of(requeue)).await
    }

    /// Gives the delivery back as failed: a quorum queue of 4.3 counts it, and holds it back if it is configured to.
    pub(crate) async fn reject_to_retry(mut self) -> Result<(), TransportError> {
        self.settled = true;
        self.refused(Refusal::Failed).await
    }

    /// The version of the broker that handed it out.
    pub(crate) fn version(&self) -> Option<Version> {
        self.session.version()
    }

    async fn refused(&self, refusal: Refusal) -> Result<(), TransportError> {
        match self.session.refuse(self.tag, refusal)?.await {
            Ok(()) if self.session.is_live() => Ok(()),
            Ok(()) => Err(error::lost("its channel ended")),
            Err(cause) => Err(error::lost(&cause).with_source(cause)),
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if self.settled || !self.session.is_live() {
            return;
        }
        // Handed to the channel; no runtime is needed for that.
        drop(self.session.refuse(self.tag, Refusal::GivenBack));
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("session", &self.session).finish_non_exhaustive()
    }
}
