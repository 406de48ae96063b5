//! The broker: any number of queues behind one lock, and a clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use redrive_core::{Message, Shelf, TransportError};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::options::MemoryOptions;
use crate::queue::{Owner, Queue};
use crate::state::State;

/// A broker in this process. Clones are the same broker. A queue exists from the first time that it is named.
///
/// ```
/// use redrive_core::Message;
/// use redrive_memory::MemoryBroker;
///
/// let broker = MemoryBroker::new();
/// broker.publish("orders", Message::new("one")).unwrap();
/// let consumer = broker.transport("orders");
/// let competing = broker.transport("orders");
/// assert_eq!(broker.depth("orders"), 1);
/// # drop((consumer, competing));
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryBroker {
    shared: Arc<Shared>,
}

/// A message in a queue; see [`MemoryBroker::queued`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct QueuedMessage {
    /// The message.
    pub message: Message,
    /// When its wait is over, by the broker's clock; `None`: it does not wait.
    pub due_at: Option<SystemTime>,
    /// True while a transport has it in flight.
    pub in_flight: bool,
}

#[derive(Debug)]
struct Shared {
    options: MemoryOptions,
    state: Mutex<State>,
    /// Told about every change, by which somebody may receive who could not before.
    changed: Notify,
    began: (Instant, SystemTime),
    /// Distinguishes this broker from that of an earlier process.
    epoch: u128,
}

impl MemoryBroker {
    /// A broker without limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A broker with these limits.
    #[must_use]
    pub fn with(options: MemoryOptions) -> Self {
        Self { shared: Arc::new(Shared::new(options)) }
    }

    /// Puts a message into a queue as it is, as a publisher does that does not use redrive. Needs no transport, and no runtime.
    /// Services publish with [`Memory::publisher`](crate::Memory::publisher).
    ///
    /// # Errors
    ///
    /// When the queue is full.
    pub fn publish(&self, queue: &str, message: Message) -> Result<(), TransportError> {
        self.change(queue, |state| state.publish(message)).map_err(|refusal| refusal.on(queue))
    }

    /// How many messages the queue has: ready, waiting and held ones together, shelves not.
    #[must_use]
    pub fn depth(&self, queue: &str) -> usize {
        self.look(queue, |state| state.depth())
    }

    /// How many messages wait for their next attempt.
    #[must_use]
    pub fn waiting(&self, queue: &str) -> usize {
        self.look(queue, |state| state.waiting(Instant::now()))
    }

    /// How many messages are in the hand of a transport.
    #[must_use]
    pub fn held(&self, queue: &str) -> usize {
        self.look(queue, |state| state.held())
    }

    /// What rests on a shelf, oldest first.
    #[must_use]
    pub fn shelf(&self, queue: &str, shelf: Shelf) -> Vec<Message> {
        self.look(queue, |state| state.shelf(shelf).iter().map(|entry| entry.message.clone()).collect())
    }

    /// For tests: the names of all queues, in alphabetical order.
    #[must_use]
    pub fn queues(&self) -> Vec<String> {
        self.lock().names()
    }

    /// For tests: what the queue has, in the order in which it will be delivered. Messages stay where they are; shelves are
    /// left out.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redrive_core::TransportError> {
    /// use redrive_core::{Message, secs};
    /// use redrive_memory::Memory;
    ///
    /// let orders = Memory::new("orders");
    /// orders.publisher().to("reminders").publish_after(Message::new("pay"), secs(3600)).await?;
    /// let reminders = orders.broker().queued("reminders");
    /// assert_eq!(reminders[0].due_at, Some(orders.broker().now() + secs(3600)));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn queued(&self, queue: &str) -> Vec<QueuedMessage> {
        let now = Instant::now();
        let queued = self.look(queue, |state| state.queued(now));
        let shown = |(message, due, in_flight): (Message, Option<Instant>, bool)| QueuedMessage {
            message,
            due_at: due.map(|due| self.time_of(due)),
            in_flight,
        };
        queued.into_iter().map(shown).collect()
    }

    /// For tests: an unwritable shelf refuses whatever should be stored there, as a broker does whose disk is full.
    pub fn set_shelf_writable(&self, queue: &str, shelf: Shelf, writable: bool) {
        self.change(queue, |state| state.set_shelf_writable(shelf, writable));
    }

    /// The time on this broker's clock: tokio's, which a test can pause.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.time_of(Instant::now())
    }

    pub(crate) fn time_of(&self, moment: Instant) -> SystemTime {
        let (instant, time) = self.shared.began;
        time + moment.saturating_duration_since(instant)
    }

    /// A new owner of deliveries of this queue.
    pub(crate) fn admit(&self, queue: &str) -> Owner {
        self.lock().admit(queue, &self.shared.options)
    }

    pub(crate) fn options(&self) -> &MemoryOptions {
        &self.shared.options
    }

    pub(crate) fn epoch(&self) -> u128 {
        self.shared.epoch
    }

    pub(crate) fn changed(&self) -> &Notify {
        &self.shared.changed
    }

    /// Works on a queue, and wakes everybody who waits for something to receive.
    pub(crate) fn change<T>(&self, queue: &str, work: impl FnOnce(&mut Queue) -> T) -> T {
        let answer = self.look(queue, work);
        self.shared.changed.notify_waiters();
        answer
    }

    /// Works on a queue without anything to receive coming of it.
    pub(crate) fn look<T>(&self, queue: &str, work: impl FnOnce(&mut Queue) -> T) -> T {
        work(self.lock().queue(queue, &self.shared.options))
    }

    /// The whole state, for what concerns several queues.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of a queue is complete before anything in it could panic: the state is sound.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn new(options: MemoryOptions) -> Self {
        let began = SystemTime::now();
        Self {
            options,
            state: Mutex::default(),
            changed: Notify::new(),
            began: (Instant::now(), began),
            epoch: began.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis(),
        }
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self::new(MemoryOptions::new())
    }
}
