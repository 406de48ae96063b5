//! All queues of a broker, and the operations on several of them. No clock, no lock, no I/O.

use std::collections::{BTreeMap, BTreeSet};

use redrive_core::shelves::{EntryHandle, REPORT_QUEUE_PREFIX, ReportRequest};
use redrive_core::transport::redriven;
use redrive_core::{Message, Shelf};

use crate::error::Refusal;
use crate::options::MemoryOptions;
use crate::queue::{Entry, Owner, Queue};

/// The state of a broker.
#[derive(Debug, Default)]
pub(crate) struct State {
    queues: Vec<Queue>,
    /// Where each queue is in the list, by name.
    places: BTreeMap<String, usize>,
    last_owner: Owner,
    /// The reports of consumers that are being collected, by the name of their queue.
    reports: BTreeMap<String, Vec<EntryHandle>>,
    last_collector: u64,
    /// The leased shelves.
    leases: BTreeSet<(String, Shelf)>,
}

impl State {
    /// Returns a new owner for deliveries of this queue, and creates the queue if it does not exist.
    pub(crate) fn new_owner(&mut self, queue: &str, options: &MemoryOptions) -> Owner {
        self.queue(queue, options);
        self.last_owner += 1;
        self.last_owner
    }

    /// Returns the names of all queues.
    pub(crate) fn names(&self) -> Vec<String> {
        self.places.keys().cloned().collect()
    }

    /// Returns the queue of this name, and creates it if it does not exist.
    pub(crate) fn queue(&mut self, name: &str, options: &MemoryOptions) -> &mut Queue {
        let place = self.place_of(name, options);
        self.queue_at(place)
    }

    /// Returns where the queue of this name is, and creates it if it does not exist. The place never changes.
    pub(crate) fn place_of(&mut self, name: &str, options: &MemoryOptions) -> usize {
        self.places.get(name).copied().unwrap_or_else(|| {
            self.queues.push(Queue::new(options.clone()));
            self.places.insert(name.to_owned(), self.queues.len() - 1);
            self.queues.len() - 1
        })
    }

    pub(crate) fn queue_at(&mut self, place: usize) -> &mut Queue {
        &mut self.queues[place]
    }

    /// Starts a collection of reports. Returns the name of its queue.
    pub(crate) fn collect_reports(&mut self) -> String {
        self.last_collector += 1;
        let name = format!("{REPORT_QUEUE_PREFIX}{}", self.last_collector);
        self.reports.insert(name.clone(), Vec::new());
        name
    }

    /// Stores a report. Returns false if the collection does not exist.
    pub(crate) fn report(&mut self, queue: &str, report: &Message) -> bool {
        let Some(reports) = self.reports.get_mut(queue) else { return false };
        reports.extend(ReportRequest::reported(report.body()));
        true
    }

    /// Returns the reports since the last call.
    pub(crate) fn take_reports(&mut self, queue: &str) -> Vec<EntryHandle> {
        self.reports.get_mut(queue).map(std::mem::take).unwrap_or_default()
    }

    /// Ends the collection of reports.
    pub(crate) fn end_reports(&mut self, queue: &str) {
        self.reports.remove(queue);
    }

    /// Takes the lease of a shelf. Returns false if it is already taken.
    pub(crate) fn lease(&mut self, queue: &str, shelf: Shelf) -> bool {
        self.leases.insert((queue.to_owned(), shelf))
    }

    /// Ends the lease of a shelf.
    pub(crate) fn end_lease(&mut self, queue: &str, shelf: Shelf) {
        self.leases.remove(&(queue.to_owned(), shelf));
    }

    /// Sends a message from a shelf of `queue` back to that queue. A shelf belongs to one queue, and no header
    /// can choose another one.
    pub(crate) fn send_back(
        &mut self,
        queue: &str,
        message: &Message,
        request: Option<&ReportRequest>,
        options: &MemoryOptions,
    ) -> Result<(), Refusal> {
        let copy = redriven(message);
        let copy = match request {
            Some(request) => request.on(copy),
            None => copy,
        };
        self.queue(queue, options).publish(copy)
    }

    /// Passes each of these entries of a shelf to `store`, and removes it from the shelf if that succeeds. Returns the result
    /// for each entry that exists.
    pub(crate) fn remove_from_shelf(
        &mut self,
        (queue, shelf): (&str, Shelf),
        numbers: impl IntoIterator<Item = u64>,
        options: &MemoryOptions,
        mut store: impl FnMut(&mut Self, &Entry) -> Result<(), Refusal>,
    ) -> Vec<(Entry, Result<(), Refusal>)> {
        let mut results = Vec::new();
        for number in numbers {
            let entries = self.queue(queue, options).shelf(shelf);
            let Ok(index) = entries.binary_search_by_key(&number, |entry| entry.number) else { continue };
            let entry = entries[index].clone();
            let stored = store(self, &entry);
            if stored.is_ok() {
                self.queue(queue, options).take_from_shelf(shelf, index);
            }
            results.push((entry, stored));
        }
        results
    }
}
