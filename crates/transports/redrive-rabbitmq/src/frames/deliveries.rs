//! The deliveries and the answers to `basic.get` that are taken off the stream, between it and their consumer.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use redrive_core::Bytes;
use tokio::sync::Notify;

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

    /// Removes the first answer to a `basic.get`; `None` if none has come yet.
    pub(super) fn next_answer(&self) -> Option<Result<Option<Got>, Ended>> {
        let mut waiting = self.waiting();
        let answer = waiting.answers.pop_front().map(Ok);
        answer.or_else(|| waiting.ended.clone().map(Err))
    }

    /// Removes the answers that nobody has taken.
    #[cfg(any(test, fuzzing))]
    pub(super) fn answers(&self) -> Vec<Option<Got>> {
        self.waiting().answers.drain(..).collect()
    }

    /// Removes up to `most` deliveries.
    pub(super) fn take(&self, most: usize) -> VecDeque<TakenDelivery> {
        let all = &mut self.waiting().deliveries;
        if all.len() <= most { std::mem::take(all) } else { all.drain(..most).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting().deliveries.is_empty()
    }

    /// Resolves after the next [`wake`](Self::wake), or at once after one that nobody has seen. Cancel safe.
    pub(super) async fn woken(&self) {
        self.arrived.notified().await;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(queue: &Queue, tag: u64) -> TakenDelivery {
        let source = queue.source("orders", "paid");
        TakenDelivery { tag, redelivered: false, source, header: Bytes::new(), body: Bytes::new() }
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
