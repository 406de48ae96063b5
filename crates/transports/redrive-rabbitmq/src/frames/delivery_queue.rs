//! The consumer's end of the deliveries that are taken off the stream.

use std::sync::Arc;

use bytes::BytesMut;
use redrive_amqp091::{Method, ShortStr, basic};
use redrive_core::transport::Origin;

use super::channels::OwnChannel;
use super::deliveries::{Got, Queue, Sink, TakenDelivery};

/// A channel whose deliveries are taken and settled here: the consumer's end of their queue.
#[derive(Debug)]
pub(crate) struct DeliveryQueue {
    channel: OwnChannel,
    queue: Arc<Queue>,
}

impl DeliveryQueue {
    /// Takes the deliveries of this channel from now on; exchange and routing key of their origin come with each.
    pub(crate) fn new(channel: OwnChannel, origin: Origin) -> Self {
        let queue = channel.take_deliveries(origin);
        Self { channel, queue }
    }

    /// Lets the deliveries that are here, and all later ones, flow to this sink instead of waiting to be taken.
    pub(crate) fn flow_to(&self, sink: Arc<dyn Sink>) {
        self.queue.flow_to(sink);
    }

    /// Passes on at once what was read already.
    pub(crate) fn flush(&self) {
        self.queue.wake();
    }

    /// Returns the channel, on which its deliveries are settled.
    pub(crate) fn channel(&self) -> &OwnChannel {
        &self.channel
    }

    /// Takes the first message of a queue; `None` if there is none. Deliveries that were sent before are here then. Not cancel safe: the
    /// answer of a cancelled call is that of the next one.
    ///
    /// # Errors
    /// If the channel ends first.
    pub(crate) async fn get(&self, queue: &str, no_ack: bool) -> lapin::Result<Option<Got>> {
        let mut frame = BytesMut::new();
        let get = basic::Get { ticket: 0, queue: ShortStr::truncated(queue), no_ack };
        Method::from(get).write_frame(self.channel.number(), &mut frame);
        drop(self.channel.write([frame.freeze()].into()));
        loop {
            if let Some(answer) = self.queue.next_answer() {
                return Ok(answer?);
            }
            self.queue.woken().await;
        }
    }

    /// Waits until a delivery is there. Cancel safe.
    pub(crate) async fn arrived(&self) {
        while self.queue.is_empty() {
            self.queue.woken().await;
        }
    }

    /// Removes the answers that nobody has taken.
    #[cfg(any(test, fuzzing))]
    pub(super) fn answers(&self) -> Vec<Option<Got>> {
        self.queue.answers()
    }

    /// Takes up to `most` deliveries that are there.
    pub(crate) fn take(&self, most: usize) -> impl Iterator<Item = TakenDelivery> {
        self.queue.take(most).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::Bytes;

    use super::*;
    use crate::frames::OwnChannels;

    fn delivery(queue: &Queue, tag: u64) -> TakenDelivery {
        let origin = queue.origin("orders", "paid");
        TakenDelivery { tag, redelivered: false, origin, header: Bytes::new(), body: Bytes::new() }
    }

    #[tokio::test]
    async fn a_consumer_is_woken_once_for_all_that_is_there() {
        let consumer = DeliveryQueue::new(OwnChannels::default().register(1), Origin::new("orders", "", ""));
        let queue = Arc::clone(&consumer.queue);
        let mut arrived = std::pin::pin!(consumer.arrived());
        assert!(futures::FutureExt::now_or_never(&mut arrived).is_none());
        (1..=3).for_each(|tag| queue.push(delivery(&queue, tag)));
        assert!(
            futures::FutureExt::now_or_never(&mut arrived).is_none(),
            "not before all of a read is there"
        );
        queue.wake();
        assert!(futures::FutureExt::now_or_never(&mut arrived).is_some());
        let tags = |most| consumer.take(most).map(|taken| taken.tag).collect::<Vec<_>>();
        assert_eq!((tags(2), tags(2)), (vec![1, 2], vec![3]));
        assert!(futures::FutureExt::now_or_never(consumer.arrived()).is_none());
    }
}
