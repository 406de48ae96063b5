//! The broker: any number of queues behind one lock, and a clock.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};
use redrive_core::{Message, Shelf, TransportError};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::options::MemoryOptions;
use crate::queue::{Owner, Queue};
use crate::state::State;

/// A broker in this process. Clones are the same broker. The first use of a queue's name creates the queue.
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
    /// The end of its wait on the broker's clock; `None` if it does not wait.
    pub due_at: Option<SystemTime>,
    /// True while a transport has it in flight.
    pub in_flight: bool,
}

/// A queue of a broker, looked up once.
#[derive(Debug)]
pub(crate) struct QueueHandle {
    pub(crate) broker: MemoryBroker,
    pub(crate) name: Arc<str>,
    place: usize,
}

#[derive(Debug)]
struct Shared {
    options: MemoryOptions,
    state: Mutex<State>,
    /// Notified of every change that may let a receiver receive.
    changed: Notify,
    /// The same moment on both clocks.
    started: (Instant, SystemTime),
    /// Distinguishes this broker from all others. Random: two brokers may start within one tick of the clock.
    nonce: u64,
}

impl MemoryBroker {
    /// Creates a broker without limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a broker with these limits.
    #[must_use]
    pub fn with(options: MemoryOptions) -> Self {
        Self { shared: Arc::new(Shared::new(options)) }
    }

    /// Publishes a message unchanged, as a publisher without redrive does. Needs neither a transport nor a runtime. Services
    /// publish with [`Memory::publisher`](crate::Memory::publisher).
    ///
    /// # Errors
    ///
    /// Fails if the queue is full.
    pub fn publish(&self, queue: &str, message: Message) -> Result<(), TransportError> {
        self.change(queue, |state| state.publish(message)).map_err(|refusal| refusal.on(queue))
    }

    /// Returns the number of messages in the queue: ready, waiting and in flight, without those on the shelves.
    #[must_use]
    pub fn depth(&self, queue: &str) -> usize {
        self.with_queue(queue, |state| state.depth())
    }

    /// Returns the number of messages that wait for their next attempt.
    #[must_use]
    pub fn waiting(&self, queue: &str) -> usize {
        self.with_queue(queue, |state| state.waiting(Instant::now()))
    }

    /// Returns the number of messages in flight.
    #[must_use]
    pub fn held(&self, queue: &str) -> usize {
        self.with_queue(queue, |state| state.in_flight())
    }

    /// Returns the messages on a shelf, oldest first.
    #[must_use]
    pub fn shelf(&self, queue: &str, shelf: Shelf) -> Vec<Message> {
        self.with_queue(queue, |state| state.shelf(shelf).iter().map(|entry| entry.message.clone()).collect())
    }

    /// Returns the names of all queues in alphabetical order. For tests.
    #[must_use]
    pub fn queues(&self) -> Vec<String> {
        self.lock().names()
    }

    /// Returns the messages of the queue in the order of delivery, without those on the shelves. The messages stay in the
    /// queue. For tests.
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
        let queued = self.with_queue(queue, |state| state.queued(now));
        let to_queued = |(message, due, in_flight): (Message, Option<Instant>, bool)| QueuedMessage {
            message,
            due_at: due.map(|due| self.time_of(due)),
            in_flight,
        };
        queued.into_iter().map(to_queued).collect()
    }

    /// Makes a queue writable or unwritable. An unwritable queue refuses every message, also one that is to wait. What is in it stays,
    /// and can be settled otherwise. For tests.
    pub fn set_queue_writable(&self, queue: &str, writable: bool) {
        self.change(queue, |state| state.set_writable(writable));
    }

    /// Makes a shelf writable or unwritable. An unwritable shelf refuses every message, like a broker whose disk is full. For
    /// tests.
    pub fn set_shelf_writable(&self, queue: &str, shelf: Shelf, writable: bool) {
        self.change(queue, |state| state.set_shelf_writable(shelf, writable));
    }

    /// Returns the time on this broker's clock, which is tokio's: a test can pause it.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.time_of(Instant::now())
    }

    pub(crate) fn time_of(&self, moment: Instant) -> SystemTime {
        let (instant, time) = self.shared.started;
        time + moment.saturating_duration_since(instant)
    }

    pub(crate) fn find(&self, name: String) -> QueueHandle {
        let place = self.lock().place_of(&name, &self.shared.options);
        QueueHandle { broker: self.clone(), name: name.into(), place }
    }

    /// Returns a new owner for deliveries of this queue.
    pub(crate) fn new_owner(&self, queue: &str) -> Owner {
        self.lock().new_owner(queue, &self.shared.options)
    }

    pub(crate) fn options(&self) -> &MemoryOptions {
        &self.shared.options
    }

    pub(crate) fn nonce(&self) -> u64 {
        self.shared.nonce
    }

    pub(crate) fn changed(&self) -> &Notify {
        &self.shared.changed
    }

    /// Changes a queue, and wakes all waiting receivers.
    pub(crate) fn change<T>(&self, queue: &str, work: impl FnOnce(&mut Queue) -> T) -> T {
        let result = self.with_queue(queue, work);
        self.shared.changed.notify_waiters();
        result
    }

    /// Calls `work` with a queue, without waking receivers: for work that makes no message available.
    pub(crate) fn with_queue<T>(&self, queue: &str, work: impl FnOnce(&mut Queue) -> T) -> T {
        work(self.lock().queue(queue, &self.shared.options))
    }

    /// Locks the state, for work on several queues.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is safe to use: no change of a queue can panic halfway.
        self.shared.state.lock()
    }
}

impl QueueHandle {
    /// Changes the queue, and wakes all waiting receivers.
    pub(crate) fn change<T>(&self, work: impl FnOnce(&mut Queue) -> T) -> T {
        let result = self.with(work);
        self.broker.shared.changed.notify_waiters();
        result
    }

    /// Calls `work` with the queue, without waking receivers.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Queue) -> T) -> T {
        work(self.broker.lock().queue_at(self.place))
    }
}

impl Shared {
    fn new(options: MemoryOptions) -> Self {
        Self {
            options,
            state: Mutex::default(),
            changed: Notify::new(),
            started: (Instant::now(), SystemTime::now()),
            nonce: RandomState::new().build_hasher().finish(),
        }
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self::new(MemoryOptions::new())
    }
}
