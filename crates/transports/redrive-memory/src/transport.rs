//! The transport of a consumer.

use std::sync::Arc;
use std::time::SystemTime;

use redrive_core::transport::{
    Facts, NativeDeadLetter, Needs, OpenError, Outline, Rest, Settlement, Signal, Signals,
};
use redrive_core::{Message, Publisher, Transport, TransportError};

use tokio::time::Instant;

use crate::broker::MemoryBroker;
use crate::options::MemoryOptions;
use crate::publish::QueuePublisher;
use crate::queue::Queue;
use crate::receive::{MemoryReceiver, TransportState};
use crate::shelves::MemoryShelves;

/// The transport of one consumer to a queue on a [`MemoryBroker`]. If it is dropped without [`close`](Transport::close), the
/// receipts of deliveries in flight stay valid.
#[derive(Debug)]
pub struct Memory {
    shared: Arc<TransportState>,
}

impl MemoryBroker {
    /// Creates a transport for this queue. Several transports on one queue are competing consumers: each message goes to one.
    #[must_use]
    pub fn transport(&self, queue: impl Into<String>) -> Memory {
        let queue = queue.into();
        let owner = self.new_owner(&queue);
        Memory { shared: Arc::new(TransportState::new(self.find(queue), owner)) }
    }
}

impl Memory {
    /// Creates a broker without limits, and a transport for one of its queues.
    #[must_use]
    pub fn new(queue: impl Into<String>) -> Self {
        MemoryBroker::new().transport(queue)
    }

    /// Creates a broker with these limits, and a transport for one of its queues.
    #[must_use]
    pub fn with(queue: impl Into<String>, options: MemoryOptions) -> Self {
        MemoryBroker::with(options).transport(queue)
    }

    /// Returns the broker, to publish messages and to inspect queues.
    #[must_use]
    pub fn broker(&self) -> &MemoryBroker {
        &self.shared.queue.broker
    }

    /// Returns the name of the queue.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.shared.queue.name
    }

    /// Returns a publisher for this queue; [`to`](Publisher::to) returns one for any other queue.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use redrive_core::Message;
    /// use redrive_memory::Memory;
    ///
    /// let orders = Memory::new("orders");
    /// let publisher = orders.publisher();
    /// publisher.publish_after(Message::new("tomorrow"), Duration::from_secs(24 * 3600)).await?;
    /// publisher.to("invoices").publish(Message::new("89.00")).await?;
    /// for result in publisher.publish_all(["a lamp", "a chair"].map(Message::new)).await {
    ///     result?;
    /// }
    /// assert_eq!((orders.broker().depth("orders"), orders.broker().depth("invoices")), (3, 1));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        let closed = Arc::clone(&self.shared.closed);
        Publisher::new(QueuePublisher::new(
            self.shared.queue.broker.clone(),
            Arc::clone(&self.shared.queue.name),
            closed,
        ))
    }

    /// Publishes a message to this queue: [`publisher`](Self::publisher), then [`Publisher::publish`].
    ///
    /// # Errors
    ///
    /// Fails if the queue is full or the transport is closed.
    pub async fn publish(&self, message: Message) -> Result<(), TransportError> {
        self.publisher().publish(message).await
    }

    /// Returns the shelves of this queue. For operators.
    #[must_use]
    pub fn shelves(&self) -> MemoryShelves {
        self.shared.queue.broker.shelves(self.shared.queue.name.to_string())
    }

    /// Simulates the death of the process. All deliveries in flight are given back and count, their receipts become invalid, and
    /// nothing more is received. Another transport on the same queue stands for the next process. For tests.
    pub fn crash(&self) {
        self.shared.end(|queue, tag| queue.give_back(tag, Instant::now()));
    }

    /// Simulates a lost connection. All deliveries in flight are given back and count, and their receipts become invalid;
    /// receiving continues. For tests.
    pub fn interrupt(&self) {
        if let Some(signals) = self.shared.signals() {
            // Deliveries have the broker's numbers, so those that were never received need not be named.
            signals.send(Signal::Interrupted { unreceived: Vec::new() });
        }
        self.shared.give_back_all();
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts::new("memory");
        facts.limits.deliveries = self.shared.queue.broker.options().delivery_limit;
        facts.dead_letter = NativeDeadLetter::LastResort;
        facts
    }
}

impl Transport for Memory {
    type Receiver = MemoryReceiver;

    fn queue(&self) -> &str {
        &self.shared.queue.name
    }

    fn publisher(&self) -> Publisher {
        Self::publisher(self)
    }

    async fn open(&self, needs: &Needs, signals: Signals) -> Result<(MemoryReceiver, Facts), OpenError> {
        let facts = self.facts();
        needs.check(&self.shared.queue.name, &facts)?;
        self.shared.open(needs.prefetch, signals)?;
        Ok((MemoryReceiver::new(Arc::clone(&self.shared)), facts))
    }

    async fn close(&self) {
        // Released, so that they do not count: in an orderly end no process died of them.
        self.shared.end(Queue::release);
    }

    fn outline(&self, _needs: &Needs) -> Outline {
        let queue = Arc::clone(&self.shared.queue.name);
        Outline::new(self.facts()).resting(move |settlement| rest(&queue, settlement))
    }

    /// Returns the outline: the broker is in this process, so there is nothing else to check.
    async fn preflight(&self, needs: &Needs) -> Result<Outline, TransportError> {
        Ok(self.outline(needs))
    }

    fn now(&self) -> SystemTime {
        self.shared.queue.broker.now()
    }
}

/// Returns where a settlement leaves its message.
fn rest(queue: &str, settlement: &Settlement) -> Rest {
    match settlement {
        Settlement::Complete => Rest::at("").by(["remove"]),
        Settlement::Shelve { shelf, .. } => Rest::at(format!("the {shelf} shelf of `{queue}`")).by(["move"]),
        Settlement::NativeDeadLetter => Rest::at(format!("the dead-letter shelf of `{queue}`")).by(["move"]),
        _ => Rest::at(format!("`{queue}`")).by(["replace"]),
    }
}
