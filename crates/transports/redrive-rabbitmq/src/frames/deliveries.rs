//! The deliveries and the answers to `basic.get` that are taken off the stream, between it and their consumer.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use redrive_core::Bytes;
use redrive_core::transport::Origin;
use tokio::sync::Notify;

use super::ended::Ended;

/// A delivery as it was received.
#[derive(Debug)]
pub(crate) struct TakenDelivery {
    pub(crate) tag: u64,
    pub(crate) redelivered: bool,
    pub(crate) origin: Origin,
    /// The payload of the content header.
    pub(crate) header: Bytes,
    pub(crate) body: Bytes,
}

/// Where deliveries flow to as soon as they are read. Called by the task that reads the connection: it must not wait.
pub(crate) trait Sink: Send + Sync {
    /// Takes all of these deliveries, which are in the broker's order.
    fn take(&self, deliveries: &mut VecDeque<TakenDelivery>);
}

/// Deliveries between the stream and their consumer: at most as many as the prefetch.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

struct Waiting {
    deliveries: VecDeque<TakenDelivery>,
    /// Without one, deliveries wait to be taken.
    sink: Option<Arc<dyn Sink>>,
    /// That of the last delivery: usually also that of the next.
    origin: Origin,
    /// The answers to `basic.get` that nobody has taken yet, in the order of the requests.
    answers: VecDeque<Option<Got>>,
    ended: Option<Ended>,
}

/// The first message of a queue, and the number of those behind it.
pub(crate) type Got = (TakenDelivery, u32);

impl Queue {
    /// Creates the queue of a channel whose deliveries have this origin, but for exchange and routing key.
    pub(super) fn new(origin: Origin) -> Self {
        let waiting = Waiting {
            deliveries: VecDeque::new(),
            sink: None,
            origin,
            answers: VecDeque::new(),
            ended: None,
        };
        Self { waiting: Mutex::new(waiting), arrived: Notify::new() }
    }

    /// Returns the origin of these names; the same one while they stay the same.
    pub(super) fn origin(&self, exchange: &str, routing_key: &str) -> Origin {
        let mut waiting = self.waiting();
        if waiting.origin.exchange() != exchange || waiting.origin.routing_key() != routing_key {
            waiting.origin = waiting.origin.clone().published_to(exchange, routing_key);
        }
        waiting.origin.clone()
    }

    /// Lets the deliveries that are here, and all later ones, flow to this sink.
    pub(super) fn flow_to(&self, sink: Arc<dyn Sink>) {
        self.waiting().sink = Some(sink);
        self.wake();
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

    /// Passes on what was added: to the sink, or to the consumer that waits.
    pub(super) fn wake(&self) {
        let waiting = &mut *self.waiting();
        // Locked meanwhile: what another thread passes on must not overtake it.
        if let Some(sink) = waiting.sink.as_ref().filter(|_| !waiting.deliveries.is_empty()) {
            sink.take(&mut waiting.deliveries);
        }
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

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("deliveries", &self.deliveries.len())
            .field("answers", &self.answers.len())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(queue: &Queue, tag: u64) -> TakenDelivery {
        let origin = queue.origin("orders", "paid");
        TakenDelivery { tag, redelivered: false, origin, header: Bytes::new(), body: Bytes::new() }
    }

    fn queue() -> Queue {
        Queue::new(Origin::new("work", "", ""))
    }

    #[test]
    fn origins_follow_the_names_of_each_delivery() {
        let queue = queue();
        let names =
            |origin: &Origin| [origin.queue(), origin.exchange(), origin.routing_key()].map(str::to_owned);
        assert_eq!(names(&delivery(&queue, 1).origin), ["work", "orders", "paid"]);
        for [exchange, key] in [["orders", "sent"], ["returns", "sent"], ["", "work"], ["orders", "paid"]] {
            assert_eq!(names(&queue.origin(exchange, key)), ["work", exchange, key]);
        }
    }

    #[derive(Default)]
    struct Tags(Mutex<Vec<u64>>);

    impl Sink for Tags {
        fn take(&self, deliveries: &mut VecDeque<TakenDelivery>) {
            self.0.lock().extend(deliveries.drain(..).map(|taken| taken.tag));
        }
    }

    #[test]
    fn deliveries_flow_to_a_sink_in_their_order_once_all_of_a_read_is_there() {
        let (queue, tags) = (queue(), Arc::<Tags>::default());
        (1..=2).for_each(|tag| queue.push(delivery(&queue, tag)));
        queue.flow_to(tags.clone());
        assert_eq!(*tags.0.lock(), [1, 2]);
        (3..=4).for_each(|tag| queue.push(delivery(&queue, tag)));
        assert_eq!(*tags.0.lock(), [1, 2], "the read is not over");
        queue.wake();
        assert_eq!(*tags.0.lock(), [1, 2, 3, 4]);
        assert!(queue.is_empty());
    }
}
