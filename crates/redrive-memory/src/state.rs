//! All queues of a broker: what concerns more than one of them. No clock, no lock, no I/O.

use std::collections::BTreeMap;

use redrive_core::{Message, Shelf, redriven};

use crate::error::Refusal;
use crate::options::MemoryOptions;
use crate::queue::{Entry, Owner, Queue};

/// The queues by name.
#[derive(Debug, Default)]
pub(crate) struct State {
    queues: BTreeMap<String, Queue>,
    owners: Owner,
}

impl State {
    /// A new owner of deliveries, who will take them from this queue.
    pub(crate) fn admit(&mut self, queue: &str, options: &MemoryOptions) -> Owner {
        self.queue(queue, options);
        self.owners += 1;
        self.owners
    }

    /// The names of all queues.
    pub(crate) fn names(&self) -> Vec<String> {
        self.queues.keys().cloned().collect()
    }

    /// The queue of this name, made when it is named for the first time.
    pub(crate) fn queue(&mut self, name: &str, options: &MemoryOptions) -> &mut Queue {
        // Not `entry`: that would copy the name every time.
        if !self.queues.contains_key(name) {
            self.queues.insert(name.to_owned(), Queue::new(options.clone()));
        }
        self.queues.get_mut(name).expect("it was inserted just now")
    }

    /// Sends a message from a shelf of `queue` back to that queue. A shelf belongs to one queue, and no header chooses
    /// another one.
    pub(crate) fn send_back(
        &mut self,
        queue: &str,
        message: &Message,
        options: &MemoryOptions,
    ) -> Result<(), Refusal> {
        self.queue(queue, options).publish(redriven(message))
    }

    /// Offers every entry of a shelf that is meant to `store`, oldest first, and takes it off the shelf once it is stored.
    /// Answers what became of each.
    pub(crate) fn clear_shelf(
        &mut self,
        (queue, shelf): (&str, Shelf),
        is_meant: impl Fn(&Entry) -> bool,
        options: &MemoryOptions,
        mut store: impl FnMut(&mut Self, &Message) -> Result<(), Refusal>,
    ) -> Vec<(Entry, Result<(), Refusal>)> {
        let mut worked = Vec::new();
        let mut index = 0;
        // What comes onto the shelf meanwhile is not meant: it stands behind these.
        for _ in 0..self.queue(queue, options).shelf(shelf).len() {
            let entry = self.queue(queue, options).shelf(shelf)[index].clone();
            if !is_meant(&entry) {
                index += 1;
                continue;
            }
            let stored = store(self, &entry.message);
            match stored {
                Ok(()) => self.queue(queue, options).take_from_shelf(shelf, index),
                Err(_) => index += 1,
            }
            worked.push((entry, stored));
        }
        worked
    }
}
