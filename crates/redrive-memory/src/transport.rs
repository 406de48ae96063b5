//! The transport: a consumer's end of a queue.

use std::sync::Arc;
use std::time::SystemTime;

use redrive_core::{
    Facts, Message, NativeDeadLetter, Needs, OpenError, Outline, Publisher, Rest, Settlement, Signal,
    Signals, Transport, TransportError,
};

use tokio::time::Instant;

use crate::broker::MemoryBroker;
use crate::options::MemoryOptions;
use crate::publish::QueuePublisher;
use crate::queue::Queue;
use crate::receive::{Intake, MemoryReceiver};
use crate::shelves::MemoryShelves;

/// A consumer's end of a queue on a [`MemoryBroker`]. Dropped without [`close`](Transport::close) it leaves
/// what is in flight with its receipts.
#[derive(Debug)]
pub struct Memory {
    intake: Arc<Intake>,
}

impl MemoryBroker {
    /// A new transport on this queue. Several on one queue are competing consumers: each message goes to one.
    #[must_use]
    pub fn transport(&self, queue: impl Into<String>) -> Memory {
        let queue = queue.into();
        let owner = self.admit(&queue);
        Memory { intake: Arc::new(Intake::new(self.clone(), queue, owner)) }
    }
}

impl Memory {
    /// A broker of its own, with one queue and no limits.
    #[must_use]
    pub fn new(queue: impl Into<String>) -> Self {
        MemoryBroker::new().transport(queue)
    }

    /// A broker of its own, with one queue and these limits.
    #[must_use]
    pub fn with(queue: impl Into<String>, options: MemoryOptions) -> Self {
        MemoryBroker::with(options).transport(queue)
    }

    /// The broker, to publish to and to look at.
    #[must_use]
    pub fn broker(&self) -> &MemoryBroker {
        &self.intake.broker
    }

    /// The name of the queue.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.intake.queue
    }

    /// Publishes to this queue; with [`to`](Publisher::to), to any other one.
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
        let closed = Arc::clone(&self.intake.closed);
        Publisher::new(QueuePublisher::new(
            self.intake.broker.clone(),
            Arc::clone(&self.intake.queue),
            closed,
        ))
    }

    /// Publishes a message to this queue: [`publisher`](Self::publisher), then [`Publisher::publish`].
    ///
    /// # Errors
    ///
    /// When the queue is full, or the transport closed.
    pub async fn publish(&self, message: Message) -> Result<(), TransportError> {
        self.publisher().publish(message).await
    }

    /// For operators: the shelves of this queue.
    #[must_use]
    pub fn shelves(&self) -> MemoryShelves {
        self.intake.broker.shelves(self.intake.queue.to_string())
    }

    /// For tests: what the death of the process does. Everything in flight goes back, counted; its receipts are
    /// worth nothing; there is nothing more to receive. Another transport on the same queue is the next process.
    pub fn crash(&self) {
        self.intake.end(|queue, tag| queue.give_back(tag, Instant::now()));
    }

    /// For tests: what a lost connection does. Everything in flight goes back, counted, and its receipts are worth
    /// nothing; receiving goes on.
    pub fn interrupt(&self) {
        if let Some(signals) = self.intake.signals() {
            // Its deliveries have the broker's numbers: which of them were never received need not be told.
            signals.send(Signal::Interrupted { unreceived: Vec::new() });
        }
        self.intake.give_back_all();
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts::new("memory");
        facts.limits.deliveries = self.intake.broker.options().delivery_limit;
        facts.dead_letter = NativeDeadLetter::LastResort;
        facts
    }
}

impl Transport for Memory {
    type Receiver = MemoryReceiver;

    fn queue(&self) -> &str {
        &self.intake.queue
    }

    fn publisher(&self) -> Publisher {
        Self::publisher(self)
    }

    async fn open(&self, needs: &Needs, signals: Signals) -> Result<(MemoryReceiver, Facts), OpenError> {
        let facts = self.facts();
        needs.check(&self.intake.queue, &facts)?;
        self.intake.open(needs.prefetch, signals)?;
        Ok((MemoryReceiver::new(Arc::clone(&self.intake)), facts))
    }

    async fn close(&self) {
        // In order, hence uncounted: nobody died of these.
        self.intake.end(Queue::release);
    }

    fn outline(&self, _needs: &Needs) -> Outline {
        let queue = Arc::clone(&self.intake.queue);
        Outline::new(self.facts()).resting(move |settlement| rest(&queue, settlement))
    }

    /// The broker is in this process: nothing is left to ask.
    async fn preflight(&self, needs: &Needs) -> Result<Outline, TransportError> {
        Ok(self.outline(needs))
    }

    fn now(&self) -> SystemTime {
        self.intake.broker.now()
    }
}

/// Where a settlement leaves its message.
fn rest(queue: &str, settlement: &Settlement) -> Rest {
    match settlement {
        Settlement::Complete => Rest::at("").by(["remove"]),
        Settlement::Shelve { shelf, .. } => Rest::at(format!("the {shelf} shelf of `{queue}`")).by(["move"]),
        Settlement::NativeDeadLetter => Rest::at(format!("the dead-letter shelf of `{queue}`")).by(["move"]),
        _ => Rest::at(format!("`{queue}`")).by(["replace"]),
    }
}
