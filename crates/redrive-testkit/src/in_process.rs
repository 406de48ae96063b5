//! The in-process broker, on the clock of tokio.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redrive_core::{Message, Shelf, Shelves};
use redrive_memory::{MemoryBroker, MemoryShelves, QueuedMessage};
use tokio::time::{Instant, sleep};

use crate::record::{AttemptRecord, End, PublishedMessage};
use crate::recorder::{Clock, Recorder};
use crate::test_broker::TestBroker;

/// The in-process broker of a [`TestConsumer`](crate::TestConsumer).
#[derive(Debug)]
pub struct InProcess {
    broker: MemoryBroker,
    shelves: MemoryShelves,
    queue: String,
    began: Option<(Instant, SystemTime)>,
}

impl InProcess {
    pub(crate) fn new(broker: MemoryBroker, queue: &str) -> Self {
        let shelves = broker.shelves(queue);
        Self { broker, shelves, queue: queue.to_owned(), began: None }
    }

    pub(crate) fn broker(&self) -> &MemoryBroker {
        &self.broker
    }

    fn time(&self, time: SystemTime) -> Duration {
        self.began.and_then(|(_, began)| time.duration_since(began).ok()).unwrap_or_default()
    }
}

impl TestBroker for InProcess {
    fn begin(&mut self) {
        pause_time();
        self.began = Some((Instant::now(), self.broker.now()));
    }

    fn clock(&self) -> Clock {
        let began = self.began.map_or_else(Instant::now, |(began, _)| began);
        Arc::new(move || began.elapsed())
    }

    fn is_empty(&self, _sent: &[Message], _recorder: &Recorder) -> bool {
        self.broker.depth(&self.queue) == 0
    }

    /// Tokio's clock jumps to whatever is due first.
    async fn pass(&self, rest: Duration) {
        sleep(rest).await;
    }

    fn shelves(&self) -> &dyn Shelves {
        &self.shelves
    }

    async fn places(&self, _sent: &[Message], _attempts: &[AttemptRecord]) -> Vec<(End, Message)> {
        let shelf =
            |shelf, end| self.broker.shelf(&self.queue, shelf).into_iter().map(move |message| (end, message));
        let queued = self.broker.queued(&self.queue).into_iter().map(|queued| {
            let end = match queued.due_at {
                Some(due_at) => End::Waiting(self.time(due_at)),
                None if queued.in_flight => End::InFlight,
                None => End::Ready,
            };
            (end, queued.message)
        });
        let shelved = shelf(Shelf::DeadLetter, End::DeadLettered).chain(shelf(Shelf::Parking, End::Parked));
        queued.chain(shelved).collect()
    }

    fn published(&self) -> BTreeMap<String, Vec<PublishedMessage>> {
        let shown = |queued: QueuedMessage| PublishedMessage {
            message: queued.message,
            due: queued.due_at.map(|due_at| self.time(due_at)),
        };
        let others = self.broker.queues().into_iter().filter(|queue| *queue != self.queue);
        let published = others.map(|queue| {
            let messages: Vec<_> = self.broker.queued(&queue).into_iter().map(shown).collect();
            (queue, messages)
        });
        published.filter(|(_, messages)| !messages.is_empty()).collect()
    }
}

/// Pauses the clock unless it is paused already: a paused clock shows the same time twice.
fn pause_time() {
    let (virtual_now, real) = (Instant::now(), std::time::Instant::now());
    while real.elapsed() < Duration::from_micros(10) {
        std::hint::spin_loop();
    }
    if Instant::now() != virtual_now {
        tokio::time::pause();
    }
}
