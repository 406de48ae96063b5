//! Publishes messages to the queues of a broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use async_trait::async_trait;
use redrive_core::TransportError;
use redrive_core::shelves::REPORT_QUEUE_PREFIX;
use redrive_core::transport::{Outgoing, Publish};
use tokio::time::Instant;

use crate::broker::MemoryBroker;
use crate::error;

/// Publishes to one queue until its transport is closed.
#[derive(Debug)]
pub(crate) struct QueuePublisher {
    broker: MemoryBroker,
    queue: Arc<str>,
    closed: Arc<AtomicBool>,
}

impl QueuePublisher {
    pub(crate) fn new(broker: MemoryBroker, queue: Arc<str>, closed: Arc<AtomicBool>) -> Self {
        Self { broker, queue, closed }
    }
}

#[async_trait]
impl Publish for QueuePublisher {
    fn destination(&self) -> &str {
        &self.queue
    }

    fn to(&self, queue: &str) -> Arc<dyn Publish> {
        Arc::new(Self::new(self.broker.clone(), queue.into(), Arc::clone(&self.closed)))
    }

    async fn publish(&self, messages: Vec<Outgoing>) -> Vec<Result<(), TransportError>> {
        // No I/O yields here: without this call, a busy publisher would block other tasks.
        tokio::task::coop::consume_budget().await;
        if self.closed.load(Ordering::Acquire) {
            return messages.iter().map(|_| Err(TransportError::closed(&self.queue))).collect();
        }
        if self.queue.starts_with(REPORT_QUEUE_PREFIX) {
            let mut state = self.broker.lock();
            let report = |Outgoing { message, .. }: &Outgoing| state.report(&self.queue, message);
            let reported = messages.iter().map(report);
            return reported
                .map(|is_stored| is_stored.then_some(()).ok_or_else(|| error::no_collection(&self.queue)))
                .collect();
        }
        let now = Instant::now();
        self.broker.change(&self.queue, |queue| {
            let mut store = |Outgoing { message, wait, .. }| queue.publish_after(message, wait, now);
            let stored = messages.into_iter().map(&mut store);
            stored.map(|stored| stored.map_err(|refusal| refusal.on(&self.queue))).collect()
        })
    }

    fn now(&self) -> SystemTime {
        self.broker.now()
    }
}
