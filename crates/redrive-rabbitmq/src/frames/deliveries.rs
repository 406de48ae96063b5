//! The deliveries and the answers to `basic.get` that are taken off the stream, between it and their consumer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use redrive_amqp091::{Method, ShortStr, basic};
use redrive_core::Bytes;
use tokio::sync::Notify;

use super::channels::OwnChannel;
use super::ended::Ended;

/// A delivery as it was received.
#[derive(Debug)]
pub(crate) struct TakenDelivery {
    pub(crate) tag: u64,
    pub(crate) redelivered: bool,
    pub(crate) source: Arc<Source>,
    /// The payload of the content header.
    pub(crate) header: Bytes,
    pub(crate) body: Bytes,
}

/// Where a message was published to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
}

/// Deliveries between the stream and their consumer: at most as many as the prefetch.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    deliveries: VecDeque<TakenDelivery>,
    /// That of the last delivery: usually also that of the next.
    source: Arc<Source>,
    /// The answers to `basic.get` that nobody has taken yet, in the order of the requests.
    answers: VecDeque<Option<Got>>,
    ended: Option<Ended>,
}

/// The first message of a queue, and the number of those behind it.
pub(crate) type Got = (TakenDelivery, u32);

impl Queue {
    /// Returns the source of these names; the same one while they stay the same.
    pub(super) fn source(&self, exchange: &str, routing_key: &str) -> Arc<Source> {
        let mut waiting = self.waiting();
        if waiting.source.exchange != exchange || waiting.source.routing_key != routing_key {
            waiting.source =
                Arc::new(Source { exchange: exchange.to_owned(), routing_key: routing_key.to_owned() });
        }
        Arc::clone(&waiting.source)
    }

    /// Adds a delivery, without waking the consumer.
    pub(super) fn push(&self, delivery: TakenDelivery) {
        self.waiting().deliveries.push_back(delivery);
    }

    /// Adds the answer to a `basic.get`, without waking the consumer. `None`: the queue is empty.
    pub(super) fn answer(&self, answer: Option<Got>) {
        self.waiting().answers.push_back(answer);
    }

    /// No further answer comes.
    pub(super) fn end(&self, why: Ended) {
        self.waiting().ended.get_or_insert(why);
        self.wake();
    }

    pub(super) fn wake(&self) {
        self.arrived.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A channel whose deliveries are taken and settled here: the consumer's end of their queue.
#[derive(Debug)]
pub(crate) struct DeliveryQueue {
    channel: OwnChannel,
    queue: Arc<Queue>,
}

impl DeliveryQueue {
    /// Takes the deliveries of this channel from now on.
    pub(crate) fn new(channel: OwnChannel) -> Self {
        let queue = channel.take_deliveries();
        Self { channel, queue }
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
            match &mut *self.queue.waiting() {
                Waiting { answers, .. } if !answers.is_empty() => return Ok(answers.pop_front().flatten()),
                Waiting { ended: Some(ended), .. } => return Err(ended.clone().into()),
                _ => {}
            }
            self.queue.arrived.notified().await;
        }
    }

    /// Waits until a delivery is there. Cancel safe.
    pub(crate) async fn arrived(&self) {
        while self.queue.waiting().deliveries.is_empty() {
            self.queue.arrived.notified().await;
        }
    }

    /// Removes the answers that nobody has taken.
    #[cfg(any(test, fuzzing))]
    pub(super) fn answers(&self) -> Vec<Option<Got>> {
        self.queue.waiting().answers.drain(..).collect()
    }

    /// Takes up to `most` deliveries that are there.
    pub(crate) fn take(&self, most: usize) -> impl Iterator<Item = TakenDelivery> {
        let mut waiting = self.queue.waiting();
        let all = &mut waiting.deliveries;
        let taken = if all.len() <= most { std::mem::take(all) } else { all.drain(..most).collect() };
        taken.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::OwnChannels;

    fn delivery(queue: &Queue, tag: u64) -> TakenDelivery {
        let source = queue.source("orders", "paid");
        TakenDelivery { tag, redelivered: false, source, header: Bytes::new(), body: Bytes::new() }
    }

    #[tokio::test]
    async fn a_consumer_is_woken_once_for_all_that_is_there() {
        let consumer = DeliveryQueue::new(OwnChannels::default().register(1));
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

    #[test]
    fn names_that_repeat_are_shared() {
        let queue = Queue::default();
        let (first, second) = (delivery(&queue, 1), delivery(&queue, 2));
        assert!(Arc::ptr_eq(&first.source, &second.source));
        assert_eq!(
            *queue.source("", "orders"),
            Source { exchange: String::new(), routing_key: "orders".into() }
        );
    }
}
