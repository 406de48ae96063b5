//! The channel of deliveries, and their settlement on it.
//!
//! | module | does |
//! |---|---|
//! | [`ack_window`] | decides which acknowledgements to send, and when |
//! | [`channels`] | keeps the channels of one transport, and how often they were interrupted |
//! | [`last_sent`] | knows whether the broker may still be processing settlements |

mod ack_window;
mod channels;
mod last_sent;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use lapin::options::BasicQosOptions;
use parking_lot::{Mutex, MutexGuard};
use redrive_amqp091::{Basic, Method, basic};
use redrive_core::TransportError;
use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::transport::Origin;
use tokio::sync::Notify;

use crate::broker::Version;
use crate::connection::{Channel, Connection, while_open};
use crate::error;
use crate::frames::{DeliveryQueue, Got};
use ack_window::{Ack, AckWindow, Due};
pub(crate) use channels::DeliveryChannels;
use last_sent::LastSent;

/// How long a channel stays open after a [burst](LastSent::is_burst) of settlements.
const SETTLING: Duration = Duration::from_millis(250);
/// Number of requests in that time that show that the broker makes progress.
const STEPS: u32 = 5;
/// Time limit for the broker to answer.
const NO_PROGRESS: Duration = Duration::from_secs(10);

/// A channel with at most one subscription, its deliveries, and their settlements.
pub(crate) struct DeliveryChannel {
    /// Number of interruptions before this channel was opened.
    interruptions: u64,
    /// True once the end of this channel was counted as an interruption.
    counted: AtomicBool,
    channel: Channel,
    deliveries: DeliveryQueue,
    connection: Arc<Connection>,
    ended: AtomicBool,
    window: Mutex<AckWindow>,
    /// Notified when the first acknowledgement waits to be sent.
    waits: Arc<Notify>,
    /// When the last settlements were sent.
    sent: Mutex<LastSent>,
}

impl DeliveryChannel {
    /// Creates a channel on which an acknowledgement waits for others for at most `ack_within`.
    pub(crate) fn new(
        channel: Channel,
        deliveries: DeliveryQueue,
        connection: Arc<Connection>,
        prefetch: u16,
        ack_within: Duration,
        interruptions: u64,
    ) -> Arc<Self> {
        if ack_within.is_zero() {
            return Arc::new(Self::with(
                AckWindow::immediate(),
                channel,
                deliveries,
                connection,
                interruptions,
            ));
        }
        let window = AckWindow::new(prefetch);
        let delivery_channel = Arc::new(Self::with(window, channel, deliveries, connection, interruptions));
        let waits = Arc::clone(&delivery_channel.waits);
        tokio::spawn(send_in_time(Arc::downgrade(&delivery_channel), waits, ack_within));
        delivery_channel
    }

    /// Opens a channel without a subscription, on which every acknowledgement is sent immediately. The queue may be missing.
    pub(crate) async fn immediate(connection: Arc<Connection>) -> Result<Arc<Self>, TransportError> {
        let channel = connection.channel_to_ask().await?;
        let deliveries = DeliveryQueue::new(connection.own(&channel), Origin::new("", "", ""));
        Ok(Arc::new(Self::with(AckWindow::immediate(), channel, deliveries, connection, 0)))
    }

    fn with(
        window: AckWindow,
        channel: Channel,
        deliveries: DeliveryQueue,
        connection: Arc<Connection>,
        interruptions: u64,
    ) -> Self {
        Self {
            interruptions,
            counted: AtomicBool::new(false),
            channel,
            deliveries,
            connection,
            ended: AtomicBool::new(false),
            window: Mutex::new(window),
            waits: Arc::default(),
            sent: Mutex::default(),
        }
    }

    /// Returns the number of interruptions before this channel was opened.
    pub(crate) fn interruptions(&self) -> u64 {
        self.interruptions
    }

    /// Returns true once, after the channel ended: its deliveries may be redelivered.
    pub(crate) fn count_interruption(&self) -> bool {
        !self.is_live() && !self.counted.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Returns the deliveries of its subscription.
    pub(crate) fn deliveries(&self) -> &DeliveryQueue {
        &self.deliveries
    }

    /// Takes the first message of a queue, and the number of those behind it. All deliveries of the subscription that were sent before have
    /// arrived then.
    pub(crate) async fn get(&self, queue: &str) -> lapin::Result<Option<Got>> {
        while_open(&self.channel, self.deliveries.get(queue, false)).await
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.connection.epoch
    }

    /// Returns the version of the broker.
    pub(crate) fn version(&self) -> Option<Version> {
        self.connection.version
    }

    /// Returns true while deliveries of this channel can be settled.
    pub(crate) fn is_live(&self) -> bool {
        // A channel learns a moment later that its connection ended.
        !self.ended.load(Ordering::Acquire) && self.channel.status().connected() && self.connection.is_up()
    }

    /// Returns an error if deliveries of this channel can no longer be settled.
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        if self.is_live() {
            return Ok(());
        }
        Err(error::lost("its connection, channel or subscription ended"))
    }

    /// Stops settling on this channel: the broker has taken the deliveries back, or will.
    pub(crate) fn end(&self) {
        let mut window = self.window();
        // Earlier settlements may still arrive in time.
        let _ = self.send(&window.take_all());
        self.ended.store(true, Ordering::Release);
    }

    /// Returns true while a delivery with a tag up to `last` is unsettled.
    pub(crate) fn has_in_flight(&self, last: u64) -> bool {
        self.window().has_in_flight(last)
    }

    /// Sends the waiting acknowledgements.
    pub(crate) fn flush(&self) {
        let _ = self.send_all();
    }

    /// Waits until the broker had time to process the last settlements. Measures the broker's progress: a suspended machine would
    /// read them together with the end of the channel.
    pub(crate) async fn settle_down(&self) {
        self.flush();
        if !self.is_still_settling() {
            return;
        }
        let begun = Instant::now();
        for _ in 0..STEPS {
            tokio::time::sleep(SETTLING / STEPS).await;
            // A request that changes nothing for a channel that is about to close.
            let request = self.channel.basic_qos(1, BasicQosOptions { global: false });
            let answer = tokio::time::timeout(NO_PROGRESS, while_open(&self.channel, request)).await;
            if !matches!(answer, Ok(Ok(()))) {
                return;
            }
        }
        self.sent().forget(begun);
    }

    /// Gives back all unsettled deliveries, after [`end`](Self::end). Otherwise they would come back with the end of the channel:
    /// later, and on 4.3 counted as a failure.
    pub(crate) async fn give_back_all(&self) {
        self.give_back_up_to(0).await;
    }

    /// Gives back all unsettled deliveries up to this one, which is unsettled, on a channel that settles nothing else meanwhile; with 0,
    /// all.
    pub(crate) async fn give_back_up_to(&self, last: u64) {
        if !self.channel.status().connected() {
            return;
        }
        let nack = How::Nack { multiple: true, requeue: true };
        // If that fails, the broker takes them back with the channel.
        let _ = while_open(&self.channel, self.settle([(last, nack)])).await;
        self.note_sent();
    }

    /// Closes the channel, on a connection that others still use. When the broker answers, everything is settled or given back.
    pub(crate) async fn close(&self) {
        // If that fails, the channel is gone already.
        let _ = self.connection.with_timeout(self.channel.close(200, "OK".into())).await;
    }

    /// Settles a delivery. `None`: its acknowledgement is sent later, together with others. Otherwise it is being sent, and the
    /// future waits until it is written, so that a caller that fills the window does not outrun the connection.
    pub(crate) fn acknowledge(&self, tag: u64) -> Result<Option<Sending>, TransportError> {
        let mut window = self.window();
        self.check()?;
        let due = window.settle(tag);
        fail_point(FailPoint::AckHandedOver);
        match due {
            Due::Waits => {}
            Due::WaitsFirst => self.waits.notify_one(),
            Due::Now => return Ok(self.send(&window.take_due())),
        }
        Ok(None)
    }

    /// Waits until acknowledgements have left this process.
    pub(crate) async fn written(&self, sending: Sending) -> Result<(), TransportError> {
        let answer = while_open(&self.channel, sending).await;
        answer.map_err(|cause| error::lost(error::said(&cause)).with_source(cause))?;
        fail_point(FailPoint::AckWritten);
        Ok(())
    }

    /// Refuses a delivery. The refusal is passed to the channel at once, even without a runtime; the future waits until it is written.
    pub(crate) fn refuse(
        &self,
        tag: u64,
        refusal: Refusal,
    ) -> Result<impl Future<Output = Result<(), TransportError>> + Send + '_, TransportError> {
        let how = match refusal {
            Refusal::GiveBack => How::Nack { multiple: false, requeue: true },
            Refusal::DeadLetter => How::Nack { multiple: false, requeue: false },
            Refusal::Fail => How::Reject,
        };
        let sending = {
            let mut window = self.window();
            // A delivery that was given back with all others must not be refused: the broker would close the channel.
            self.check()?;
            window.settled_otherwise(tag);
            // While the window is locked, so that no acknowledgement can overtake it.
            self.settle([(tag, how)])
        };
        self.note_sent();
        fail_point(FailPoint::NackHandedOver);
        Ok(async move {
            let written = while_open(&self.channel, sending).await;
            fail_point(FailPoint::NackFlushed);
            match written {
                Ok(()) if self.is_live() => Ok(()),
                Ok(()) => Err(error::lost("its channel ended")),
                Err(cause) => Err(error::lost(error::said(&cause)).with_source(cause)),
            }
        })
    }

    /// Sends all waiting acknowledgements.
    fn send_all(&self) -> Option<Sending> {
        let mut window = self.window();
        self.send(&window.take_all())
    }

    /// Passes acknowledgements to the connection while the window is locked. The future is ready when they are written, and need not be
    /// awaited; there is none without acknowledgements.
    fn send(&self, acks: &[Ack]) -> Option<Sending> {
        if acks.is_empty() {
            return None;
        }
        let sending = self.settle(acks.iter().map(|&Ack { tag, multiple }| (tag, How::Ack { multiple })));
        for _ in acks {
            self.note_sent();
            fail_point(FailPoint::AckFlushed);
        }
        Some(sending)
    }

    /// Passes settlements to the connection at once, in one write: a write for each costs client and broker a system call for each.
    fn settle(&self, settlements: impl IntoIterator<Item = (u64, How)>) -> Sending {
        let channel = self.deliveries.channel();
        channel.write([frames(channel.number(), settlements)].into()).boxed()
    }

    fn window(&self) -> MutexGuard<'_, AckWindow> {
        self.window.lock()
    }

    fn note_sent(&self) {
        self.sent().note(Instant::now());
    }

    fn is_still_settling(&self) -> bool {
        self.sent().is_burst(Instant::now())
    }

    fn sent(&self) -> MutexGuard<'_, LastSent> {
        self.sent.lock()
    }
}

/// Kind of refusal. RabbitMQ 4.3 counts `basic.reject`, and does not count `basic.nack`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// It is redelivered.
    GiveBack,
    /// The broker dead-letters it.
    DeadLetter,
    /// It is redelivered, counted as failed: a queue with delayed retry holds it back.
    Fail,
}

/// How a delivery is settled, as AMQP names it.
#[derive(Clone, Copy, Debug)]
enum How {
    Ack { multiple: bool },
    Nack { multiple: bool, requeue: bool },
    Reject,
}

type Sending = futures::future::BoxFuture<'static, lapin::Result<()>>;

/// Returns the frames of these settlements, one behind the other.
fn frames(channel: u16, settlements: impl IntoIterator<Item = (u64, How)>) -> Bytes {
    let mut frames = BytesMut::new();
    for (delivery_tag, how) in settlements {
        let method = match how {
            How::Ack { multiple } => Basic::Ack(basic::Ack { delivery_tag, multiple }),
            How::Nack { multiple, requeue } => Basic::Nack(basic::Nack { delivery_tag, multiple, requeue }),
            How::Reject => Basic::Reject(basic::Reject { delivery_tag, requeue: true }),
        };
        Method::Basic(method).write_frame(channel, &mut frames);
    }
    frames.freeze()
}

/// Sends waiting acknowledgements once the first of them has waited for `within`, until the channel is dropped.
async fn send_in_time(channel: Weak<DeliveryChannel>, waits: Arc<Notify>, within: Duration) {
    loop {
        waits.notified().await;
        tokio::time::sleep(within).await;
        let Some(channel) = channel.upgrade() else { return };
        if let Some(sending) = channel.send_all() {
            // After an error the channel has ended, and unacknowledged deliveries are redelivered.
            let _ = channel.written(sending).await;
        }
    }
}

/// Closes the channel with its last user, but only after its settlements have reached the queue.
impl Drop for DeliveryChannel {
    fn drop(&mut self) {
        // Ends the task that sends in time.
        self.waits.notify_one();
        if !self.is_live() {
            return;
        }
        self.flush();
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

impl fmt::Debug for DeliveryChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeliveryChannel")
            .field("epoch", &self.epoch())
            .field("live", &self.is_live())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use redrive_amqp091::Frame;

    use super::*;

    #[test]
    fn settlements_that_are_written_at_once_keep_their_order() {
        let (ack, nack) = (How::Ack { multiple: true }, How::Nack { multiple: false, requeue: true });
        let mut written = BytesMut::from(&*frames(3, [(7, ack), (9, nack), (8, How::Reject)]));
        let frames = std::iter::from_fn(|| Frame::take(&mut written, usize::MAX).expect("a frame"));
        let methods = frames.map(|frame| {
            assert_eq!(frame.channel, 3);
            Method::decode(&frame.payload).expect("a method")
        });
        let expected = [
            Basic::Ack(basic::Ack { delivery_tag: 7, multiple: true }),
            Basic::Nack(basic::Nack { delivery_tag: 9, multiple: false, requeue: true }),
            Basic::Reject(basic::Reject { delivery_tag: 8, requeue: true }),
        ];
        assert_eq!(methods.collect::<Vec<_>>(), expected.map(Method::Basic));
    }
}
