//! The operators' side of a queue.

use std::sync::OnceLock;

use async_trait::async_trait;
use redrive_core::{
    EntryHandle, EntryOutcome, Lease, Leased, Message, ReportRequest, Reported, Reports, Selection, Shelf,
    ShelfCursor, ShelfPage, ShelfReport, Shelved, Shelves, TransportError, WorkQueue, edited,
};
use tokio::time::Instant;

use crate::broker::MemoryBroker;
use crate::error::{self, Refusal};
use crate::queue::Entry;
use crate::state::State;

/// The shelves of one queue on a [`MemoryBroker`]. A handle is the number of an entry, which no other entry of the queue ever
/// has, and the time when the broker began: a handle from before a restart names nothing.
#[derive(Clone, Debug)]
pub struct MemoryShelves {
    broker: MemoryBroker,
    queue: String,
    /// Where consumers report what they handled.
    reports: Option<String>,
}

impl MemoryBroker {
    /// For operators: the shelves of this queue.
    #[must_use]
    pub fn shelves(&self, queue: impl Into<String>) -> MemoryShelves {
        MemoryShelves { broker: self.clone(), queue: queue.into(), reports: None }
    }
}

impl MemoryShelves {
    /// Stores the selected messages of a shelf elsewhere, then takes them off, in one go.
    fn clear(
        &self,
        shelf: Shelf,
        which: &Selection,
        store: impl FnMut(&mut State, &Entry) -> Result<(), Refusal>,
    ) -> ShelfReport {
        let options = self.broker.options();
        let numbers = self.numbers(shelf, which);
        let worked = self.broker.lock().clear_shelf((&self.queue, shelf), numbers, options, store);
        self.broker.changed().notify_waiters();
        let mut report = ShelfReport::default();
        for (entry, stored) in worked {
            let outcome = match stored {
                Ok(()) => EntryOutcome::Done,
                Err(refusal) => EntryOutcome::Failed(refusal.on(&self.queue)),
            };
            report.note(self.handle(shelf, entry.number), entry.message.id(), outcome);
        }
        report.complete(shelf, which);
        report
    }

    /// The numbers of the selected entries of a shelf, oldest first.
    fn numbers(&self, shelf: Shelf, which: &Selection) -> Vec<u64> {
        if let Selection::Handles(handles) = which {
            // Not looked for in the whole shelf: a run names a few of many, many times.
            let here = handles.iter().filter(|handle| handle.shelf() == shelf);
            let mut named: Vec<_> = here.filter_map(|handle| self.number(handle.entry())).collect();
            named.sort_unstable();
            return named;
        }
        // Histories are read while the broker goes on.
        let entries: Vec<Entry> =
            self.broker.look(&self.queue, |queue| queue.shelf(shelf).iter().cloned().collect());
        let meant = entries.iter().filter(|entry| which.includes(&self.shown(shelf, entry)));
        meant.map(|entry| entry.number).collect()
    }

    fn handle(&self, shelf: Shelf, number: u64) -> EntryHandle {
        EntryHandle::new(shelf, self.name(number))
    }

    fn name(&self, number: u64) -> String {
        format!("{:x}-{number}", self.broker.epoch())
    }

    /// Reads a name as it was printed, by this broker.
    fn number(&self, name: &str) -> Option<u64> {
        let number = name.rsplit_once('-')?.1.parse().ok()?;
        (self.name(number) == name).then_some(number)
    }

    fn request(&self, entry: EntryHandle) -> Option<ReportRequest> {
        self.reports.as_ref().map(|queue| ReportRequest::new(queue, entry))
    }

    fn shown(&self, shelf: Shelf, entry: &Entry) -> Shelved {
        let mut shown = Shelved::new(self.handle(shelf, entry.number), entry.message.clone());
        shown.shelved_at = Some(self.broker.time_of(entry.shelved_at));
        shown
    }

    /// Does something with one entry, given its place on the shelf.
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
        let worked = work(&mut state, index, message);
        drop(state);
        self.broker.changed().notify_waiters();
        worked.map_err(|refusal| refusal.on(&self.queue))
    }
}

#[async_trait]
impl Shelves for MemoryShelves {
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError> {
        let count = self.broker.look(&self.queue, |queue| queue.shelf(shelf).len());
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
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
        let (page, is_last) = self.broker.look(&self.queue, |queue| {
            let entries = queue.shelf(shelf);
            let begin = entries.partition_point(|entry| entry.number <= after);
            let page: Vec<Entry> = entries.iter().skip(begin).take(limit).cloned().collect();
            let is_last = begin + page.len() == entries.len();
            (page, is_last)
        });
        let last = page.last().map_or(after, |entry| entry.number);
        let next = (!is_last).then(|| ShelfCursor::new(shelf, self.name(last)));
        Ok(ShelfPage::new(page.iter().map(|entry| self.shown(shelf, entry)).collect(), next))
    }

    async fn redrive(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        let options = self.broker.options();
        Ok(self.clear(shelf, which, |state, entry| {
            let request = self.request(self.handle(shelf, entry.number));
            state.send_back(&self.queue, &entry.message, request.as_ref(), options)
        }))
    }

    async fn park(&self, which: &Selection) -> Result<ShelfReport, TransportError> {
        let options = self.broker.options();
        Ok(self.clear(Shelf::DeadLetter, which, |state, entry| {
            let queue = state.queue(&self.queue, options);
            queue.store_on_shelf(Shelf::Parking, entry.message.clone(), Instant::now())
        }))
    }

    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        Ok(self.clear(shelf, which, |_, _| Ok(())))
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

    /// The broker does not know its consumers.
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

/// The lease of a shelf.
struct MemoryLease {
    broker: MemoryBroker,
    queue: String,
    shelf: Shelf,
    ended: OnceLock<()>,
}

impl MemoryLease {
    fn give_back(&self) {
        // Once: the next lease is somebody else's.
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

/// Reports of consumers.
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
