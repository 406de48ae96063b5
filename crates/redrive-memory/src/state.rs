//! All queues of a broker: what concerns more than one of them. No clock, no lock, no I/O.

use std::collections::{BTreeMap, BTreeSet};

use redrive_core::{EntryHandle, Message, REPORT_QUEUE_PREFIX, ReportRequest, Shelf, redriven};

use crate::error::Refusal;
use crate::options::MemoryOptions;
use crate::queue::{Entry, Owner, Queue};

/// The queues by name.
#[derive(Debug, Default)]
pub(crate) struct State {
    queues: BTreeMap<String, Queue>,
    owners: Owner,
    /// Reports of consumers, for those who collect them.
    reports: BTreeMap<String, Vec<EntryHandle>>,
    collectors: u64,
    /// The shelves that somebody works on.
    leases: BTreeSet<(String, Shelf)>,
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

    /// Returns the name of a new queue for reports.
    pub(crate) fn collect_reports(&mut self) -> String {
        self.collectors += 1;
        let name = format!("{REPORT_QUEUE_PREFIX}{}", self.collectors);
        self.reports.insert(name.clone(), Vec::new());
        name
    }

    /// Notes a report. Returns false if nobody collects it.
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

    /// Takes the lease of a shelf. Returns false if somebody has it.
    pub(crate) fn lease(&mut self, queue: &str, shelf: Shelf) -> bool {
        self.leases.insert((queue.to_owned(), shelf))
    }

    /// Ends the lease of a shelf.
    pub(crate) fn end_lease(&mut self, queue: &str, shelf: Shelf) {
        self.leases.remove(&(queue.to_owned(), shelf));
    }

    /// Sends a message from a shelf of `queue` back to that queue. A shelf belongs to one queue, and no header chooses
    /// another one.
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

    /// Offers each of these entries of a shelf to `store`, and takes it off the shelf once it is stored. Answers what became of each that
    /// is there.
    pub(crate) fn clear_shelf(
        &mut self,
        (queue, shelf): (&str, Shelf),
        numbers: impl IntoIterator<Item = u64>,
        options: &MemoryOptions,
        mut store: impl FnMut(&mut Self, &Entry) -> Result<(), Refusal>,
    ) -> Vec<(Entry, Result<(), Refusal>)> {
        let mut worked = Vec::new();
        for number in numbers {
            let entries = self.queue(queue, options).shelf(shelf);
            let Ok(index) = entries.binary_search_by_key(&number, |entry| entry.number) else { continue };
            let entry = entries[index].clone();
            let stored = store(self, &entry);
            if stored.is_ok() {
                self.queue(queue, options).take_from_shelf(shelf, index);
            }
            worked.push((entry, stored));
        }
        worked
    }
}
