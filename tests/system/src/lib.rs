//! What the whole-system tests share.

mod combination;
pub mod delays;
pub mod fate;
pub mod fleet;
pub mod flow;
pub mod forger;
pub mod hostile;
pub mod load;
mod polling;
pub mod rabbit;
pub mod recorded;
pub mod service;
pub mod servicebus;
pub mod shared;
pub mod tcp_proxy;
pub mod verdict;
pub mod worker_log;

pub use combination::{Combination, within};
pub use delays::Delays;
pub use polling::poll_again;
pub use redrive::rabbitmq::QueueType;
pub use redrive_brokers::Version;

/// The id of the message that kills workers.
pub const KILLER: &str = "killer";
/// How often workers that are killed by messages let themselves be handed one.
pub const POISON_AFTER: u32 = 4;

use std::sync::{Arc, Mutex};

use redrive::memory::{Memory, MemoryBroker};
use redrive::{Delivery, Disposition, Event, Message, Observer, Shelf, header_names};
use tokio::sync::watch;

/// The queue of every test on the in-process broker.
pub const QUEUE: &str = "orders";

/// A broker with these messages waiting, and the transport of its queue.
#[must_use]
pub fn memory_with(messages: impl IntoIterator<Item = Message>) -> (MemoryBroker, Memory) {
    let transport = Memory::new(QUEUE);
    for message in messages {
        transport.broker().publish(QUEUE, message).expect("the queue has room");
    }
    (transport.broker().clone(), transport)
}

/// Messages with the ids `0`, `1`, …
pub fn numbered(count: usize) -> impl Iterator<Item = Message> {
    (0..count).map(|number| Message::new(number.to_string()).with_id(number.to_string()))
}

/// Writes down what happens in a consumer, and lets a test wait for it.
#[derive(Clone, Default)]
pub struct Diary {
    entries: Arc<Mutex<Vec<Entry>>>,
    changed: watch::Sender<()>,
}

/// One settled delivery.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What was delivered.
    pub delivery: Delivery,
    /// What became of it; `None` for one that was deduplicated.
    pub disposition: Option<Disposition>,
}

impl Diary {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the consumer is given.
    #[must_use]
    pub fn observer(&self) -> impl Observer {
        let diary = self.clone();
        move |event: &Event<'_>| {
            let (delivery, disposition) = match event {
                Event::Settled { delivery, disposition, .. } => (*delivery, Some((*disposition).clone())),
                Event::Deduplicated { delivery } => (*delivery, None),
                _ => return,
            };
            diary.entries.lock().unwrap().push(Entry { delivery: delivery.clone(), disposition });
            diary.changed.send_replace(());
        }
    }

    /// All that was settled so far.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap().clone()
    }

    /// The names of all dispositions so far, in order.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let name = |entry: Entry| entry.disposition.map_or("on sight", |disposition| disposition.name());
        self.entries().into_iter().map(name).collect()
    }

    /// Resolves once this many deliveries ended for good (neither retried, nor snoozed, nor released).
    pub async fn ended(&self, count: usize) {
        let ended = |entry: &&Entry| entry.disposition.as_ref().is_some_and(Disposition::is_final);
        self.until(|entries| entries.iter().filter(ended).count() >= count).await;
    }

    /// Resolves once this many deliveries were settled in any way.
    pub async fn settled(&self, count: usize) {
        self.until(|entries| entries.len() >= count).await;
    }

    async fn until(&self, condition: impl Fn(&[Entry]) -> bool) {
        let mut changed = self.changed.subscribe();
        while !condition(&self.entries.lock().unwrap()) {
            changed.changed().await.expect("the sender is our own");
        }
    }
}

impl std::fmt::Debug for Diary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// Where the only message of a broker is: one word.
#[must_use]
pub fn place(broker: &MemoryBroker) -> &'static str {
    let places = [
        ("ready", broker.depth(QUEUE) - broker.waiting(QUEUE) - broker.held(QUEUE)),
        ("waiting", broker.waiting(QUEUE)),
        ("held", broker.held(QUEUE)),
        ("dead-letter shelf", broker.shelf(QUEUE, Shelf::DeadLetter).len()),
        ("parking shelf", broker.shelf(QUEUE, Shelf::Parking).len()),
    ];
    let total: usize = places.iter().map(|(_, count)| count).sum();
    assert!(total <= 1, "more than one message: {places:?}");
    places.iter().find(|(_, count)| *count == 1).map_or("gone", |(name, _)| name)
}

/// A header of redrive as text, for assertions.
#[must_use]
pub fn header(message: &Message, name: &str) -> String {
    match message.headers().get(name) {
        None => String::new(),
        Some(value) => {
            value.as_str().map_or_else(|| value.as_integer().unwrap_or(-1).to_string(), str::to_owned)
        }
    }
}

/// The reason on a message.
#[must_use]
pub fn reason(message: &Message) -> String {
    header(message, header_names::REASON)
}
