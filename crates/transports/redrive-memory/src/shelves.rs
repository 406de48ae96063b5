//! The shelves of a queue, for operators.

use std::sync::OnceLock;

use async_trait::async_trait;
use redrive_core::shelves::{
    EntryHandle, EntryOutcome, Holder, Lease, Leased, ReportRequest, Reported, Reports, Selection,
    ShelfCursor, ShelfPage, ShelfReport, Shelved, WorkQueue, edited,
};
use redrive_core::{Message, Shelf, Shelves, TransportError};
use tokio::time::Instant;

use crate::broker::MemoryBroker;
use crate::error::{self, Refusal};
use crate::queue::Entry;
use crate::state::State;

/// The shelves of one queue on a [`MemoryBroker`]. A handle has the number of an entry, which is unique in the queue, and a
/// random number of the broker: a handle of another broker, or from before a restart, matches no entry.
#[derive(Clone, Debug)]
pub struct MemoryShelves {
    broker: MemoryBroker,
    queue: String,
    /// The queue where consumers report which messages they handled.
    reports: Option<String>,
}

impl MemoryBroker {
    /// Returns the shelves of this queue. For operators.
    #[must_use]
    pub fn shelves(&self, queue: impl Into<String>) -> MemoryShelves {
        MemoryShelves { broker: self.clone(), queue: queue.into(), reports: None }
    }
}

impl MemoryShelves {
    /// Passes the selected entries of a shelf to `store`, and removes those that it stored, in one step.
    fn act_on_selected(
        &self,
        shelf: Shelf,
        which: &Selection,
        store: impl FnMut(&mut State, &Entry) -> Result<(), Refusal>,
    ) -> ShelfReport {
        let options = self.broker.options();
        let numbers = self.selected_numbers(shelf, which);
        let results = self.broker.lock().remove_from_shelf((&self.queue, shelf), numbers, options, store);
        self.broker.changed().notify_waiters();
        let mut report = ShelfReport::default();
        for (entry, stored) in results {
            let outcome = match stored {
                Ok(()) => EntryOutcome::Done,
                Err(refusal) => EntryOutcome::Failed(refusal.on(&self.queue)),
            };
            report.note(self.handle(shelf, entry.number), entry.message.id(), outcome);
        }
        report.complete(shelf, which);
        report
    }

    /// Returns the numbers of the selected entries of a shelf, oldest first.
    fn selected_numbers(&self, shelf: Shelf, which: &Selection) -> Vec<u64> {
        if let Selection::Handles(handles) = which {
            // No search through the whole shelf: a run names a few of many entries, many times.
            let here = handles.iter().filter(|handle| handle.shelf() == shelf);
            let mut named: Vec<_> = here.filter_map(|handle| self.number(handle.entry())).collect();
            named.sort_unstable();
            return named;
        }
        // Copied, so that the lock is not held while histories are read.
        let entries: Vec<Entry> =
            self.broker.with_queue(&self.queue, |queue| queue.shelf(shelf).iter().cloned().collect());
        let selected = entries.iter().filter(|entry| which.includes(&self.to_shelved(shelf, entry)));
        selected.map(|entry| entry.number).collect()
    }

    fn handle(&self, shelf: Shelf, number: u64) -> EntryHandle {
        EntryHandle::new(shelf, self.entry_name(number))
    }

    fn entry_name(&self, number: u64) -> String {
        format!("{:x}-{number}", self.broker.nonce())
    }

    /// Parses the name of an entry. Returns `None` unless this broker wrote exactly this name.
    fn number(&self, name: &str) -> Option<u64> {
        let number = name.rsplit_once('-')?.1.parse().ok()?;
        (self.entry_name(number) == name).then_some(number)
    }

    fn request(&self, entry: EntryHandle) -> Option<ReportRequest> {
        self.reports.as_ref().map(|queue| ReportRequest::new(queue, entry))
    }

    fn to_shelved(&self, shelf: Shelf, entry: &Entry) -> Shelved {
        let mut shelved = Shelved::new(self.handle(shelf, entry.number), entry.message.clone());
        shelved.shelved_at = Some(self.broker.time_of(entry.shelved_at));
        shelved
    }

    /// Calls `work` with the index of an entry on its shelf and its message.
    fn with_entry<T>(
        &self,
        entry: &EntryHandle,
        work: impl FnOnce(&mut State, usize, Message) -> Result<T, Refusal>,
    ) -> Result<T, TransportError> {
        let mut state = self.broker.lock();
        let queue = state.queue(&self.queue, self.broker.options());
        let on_shelf = queue.shelf(entry.shelf());
        let number = self.number(entry.entry());
        let index =
            number.and_then(|number| on_shelf.binary_search_by_key(&number, |entry| entry.number).ok());
        let index = index.ok_or_else(|| entry.not_found())?;
        let message = on_shelf[index].message.clone();
        let result = work(&mut state, index, message);
        drop(state);
        self.broker.changed().notify_waiters();
        result.map_err(|refusal| refusal.on(&self.queue))
    }
}

#[async_trait]
impl Shelves for MemoryShelves {
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError> {
        let count = self.broker.with_queue(&self.queue, |queue| queue.shelf(shelf).len());
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// Nobody: each action takes its entries in one step.
    async fn holder(&self, _shelf: Shelf) -> Result<Option<Holder>, TransportError> {
        Ok(None)
    }

    async fn browse(
        &self,
        shelf: Shelf,
        after: Option<&ShelfCursor>,
        limit: usize,
    ) -> Result<ShelfPage, TransportError> {
        if limit == 0 {
            return ShelfPage::empty(shelf, after);
        }
        let after = after.map(|cursor| cursor.on(shelf)).transpose()?.flatten();
        let after =
            after.map_or(Ok(0), |text| self.number(text).ok_or_else(TransportError::foreign_cursor))?;
        let (page, is_last) = self.broker.with_queue(&self.queue, |queue| {
            let entries = queue.shelf(shelf);
            let begin = entries.partition_point(|entry| entry.number <= after);
            let page: Vec<Entry> = entries.iter().skip(begin).take(limit).cloned().collect();
            let is_last = begin + page.len() == entries.len();
            (page, is_last)
        });
        let last = page.last().map_or(after, |entry| entry.number);
        let next = (!is_last).then(|| ShelfCursor::new(shelf, self.entry_name(last)));
        Ok(ShelfPage::new(page.iter().map(|entry| self.to_shelved(shelf, entry)).collect(), next))
    }

    async fn redrive(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        let options = self.broker.options();
        Ok(self.act_on_selected(shelf, which, |state, entry| {
            let request = self.request(self.handle(shelf, entry.number));
            state.send_back(&self.queue, &entry.message, request.as_ref(), options)
        }))
    }

    async fn park(&self, which: &Selection) -> Result<ShelfReport, TransportError> {
        let options = self.broker.options();
        Ok(self.act_on_selected(Shelf::DeadLetter, which, |state, entry| {
            let queue = state.queue(&self.queue, options);
            queue.store_on_shelf(Shelf::Parking, entry.message.clone(), Instant::now())
        }))
    }

    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        Ok(self.act_on_selected(shelf, which, |_, _| Ok(())))
    }

    async fn replace(
        &self,
        entry: &EntryHandle,
        message: Message,
    ) -> Result<Option<EntryHandle>, TransportError> {
        let (shelf, options) = (entry.shelf(), self.broker.options());
        let number = self.with_entry(entry, |state, index, original| {
            let queue = state.queue(&self.queue, options);
            queue.replace_on_shelf(shelf, index, edited(&original, message), Instant::now())
        });
        Ok(Some(self.handle(shelf, number?)))
    }

    async fn redrive_as(&self, entry: &EntryHandle, message: Message) -> Result<(), TransportError> {
        let options = self.broker.options();
        self.with_entry(entry, |state, index, original| {
            let request = self.request(entry.clone());
            state.send_back(&self.queue, &edited(&original, message), request.as_ref(), options)?;
            state.queue(&self.queue, options).take_from_shelf(entry.shelf(), index);
            Ok(())
        })
    }

    async fn restore(&self, shelf: Shelf, message: Message) -> Result<(), TransportError> {
        let stored =
            self.broker.change(&self.queue, |queue| queue.store_on_shelf(shelf, message, Instant::now()));
        stored.map_err(|refusal| refusal.on(&self.queue))
    }

    /// Returns the depth of the queue. The number of consumers is missing: the broker does not know it.
    async fn work_queue(&self) -> Result<WorkQueue, TransportError> {
        let depth = self.broker.depth(&self.queue);
        Ok(WorkQueue::new(u64::try_from(depth).ok(), None))
    }

    async fn reported(&self) -> Result<Option<Reported>, TransportError> {
        let queue = self.broker.lock().collect_reports();
        let reports = MemoryReports { broker: self.broker.clone(), queue: queue.clone() };
        Ok(Some(Reported::new(Self { reports: Some(queue), ..self.clone() }, reports)))
    }

    async fn lease(&self, shelf: Shelf) -> Result<Option<Leased>, TransportError> {
        if !self.broker.lock().lease(&self.queue, shelf) {
            return Err(error::leased(&self.queue, shelf));
        }
        let lease = MemoryLease {
            broker: self.broker.clone(),
            queue: self.queue.clone(),
            shelf,
            ended: OnceLock::new(),
        };
        Ok(Some(Leased::new(self.clone(), lease)))
    }
}

/// The lease of a shelf, which ends when it is dropped.
struct MemoryLease {
    broker: MemoryBroker,
    queue: String,
    shelf: Shelf,
    ended: OnceLock<()>,
}

impl MemoryLease {
    fn give_back(&self) {
        // Only once: the next lease belongs to another run.
        self.ended.get_or_init(|| self.broker.lock().end_lease(&self.queue, self.shelf));
    }
}

#[async_trait]
impl Lease for MemoryLease {
    async fn end(&self) {
        self.give_back();
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// A collection of consumers' reports, which ends when it is dropped.
struct MemoryReports {
    broker: MemoryBroker,
    queue: String,
}

#[async_trait]
impl Reports for MemoryReports {
    async fn take(&mut self) -> Result<Vec<EntryHandle>, TransportError> {
        Ok(self.broker.lock().take_reports(&self.queue))
    }
}

impl Drop for MemoryReports {
    fn drop(&mut self) {
        self.broker.lock().end_reports(&self.queue);
    }
}
