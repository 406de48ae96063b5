//! The shelves of a queue, for operators.
//!
//! | module | does |
//! |---|---|
//! | [`scan`] | scans one shelf |
//! | [`fingerprint`] | identifies an entry |
//! | [`numbers`] | numbers identical entries |
//! | [`cursor`] | the entries that were shown |
//! | [`delivery_limit`] | protects messages that the broker removes if they are looked at too often |
//! | [`lease`] | work in many steps |
//! | [`reports`] | reports of consumers about redriven messages |

mod cursor;
mod delivery_limit;
mod fingerprint;
mod lease;
mod numbers;
mod reports;
mod scan;
mod window;

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::{
    EntryHandle, EntryOutcome, Leased, Message, ReportRequest, Reported, Selection, Shelf, ShelfCursor,
    ShelfPage, ShelfReport, Shelved, Shelves, TransportError, TransportErrorKind, WorkQueue, edited,
    redriven,
};
use tokio::sync::Mutex;
use tracing::{info, warn};

use crate::convert;
use crate::error;
use crate::publish::AlarmTime;
use crate::settle::channel::DeliveryChannel;
use crate::shared::Shared;
use crate::topology::{self, Route};
use cursor::Shown;
use delivery_limit::Looks;
use fingerprint::Fingerprint;
use lease::{LeaseGuard, ShelfLease};
pub(crate) use numbers::Taken;
use reports::RabbitMqReports;
use scan::{Found, ShelfScan};

/// The dead-letter queue and the parking queue of one work queue; made by
/// [`RabbitMq::shelves`](crate::RabbitMq::shelves).
///
/// Messages are read from the head of the queue with a consumer, held until the work is done, and then given back in order. Only
/// messages that are there when the work begins are touched. Messages that another client holds, because it consumes or browses the
/// shelf, are not seen, and a handle of one is not found.
///
/// RabbitMQ does not number its messages. A [handle](EntryHandle) is a hash of the whole message, so that a message that differs
/// in anything is another entry. Identical entries are numbered. If a process removes one of them from the shelf, the others keep
/// their numbers in that process; any other process counts them again from the head.
#[derive(Debug, Clone)]
pub struct RabbitMqShelves {
    shared: Arc<Shared>,
    taken: Arc<Taken>,
    /// Where consumers report what they handled.
    reports: Option<Arc<str>>,
    lease: Option<Arc<ShelfLease>>,
    /// What a look does to the messages of queues that were asked about.
    looks: Arc<Mutex<HashMap<String, Looks>>>,
}

/// The action on each selected entry.
enum Action {
    Redrive,
    RedriveAs(Message),
    Park,
    /// An edited copy stays on the shelf.
    Replace(Message),
    Remove,
}

/// The result of the work.
#[derive(Default)]
struct Worked {
    report: ShelfReport,
    /// The handle of the message that replaced an entry.
    replaced: Option<EntryHandle>,
}

impl RabbitMqShelves {
    pub(crate) fn new(shared: Arc<Shared>, taken: Arc<Taken>) -> Self {
        Self { shared, taken, reports: None, lease: None, looks: Arc::default() }
    }

    async fn begin_scan(&self, shelf: Shelf) -> Result<ShelfScan, TransportError> {
        let queue = self.shared.plan.names.shelf(shelf)?.to_owned();
        let looks = self.looks(&queue).await?;
        if let Looks::Counted(limit) = looks {
            return Err(error::looks_are_counted(&queue, limit));
        }
        let channel = DeliveryChannel::immediate(self.shared.connections.consuming().await?).await?;
        Ok(ShelfScan::new(channel, queue, shelf, Arc::clone(&self.taken), looks))
    }

    /// Returns what a look does to the messages of a queue; asks the broker once about one that another program named.
    async fn looks(&self, queue: &str) -> Result<Looks, TransportError> {
        let options = &self.shared.options;
        if options.names.has_chosen(queue) || options.accepts_low_delivery_limit {
            return Ok(Looks::Safe);
        }
        let mut asked = self.looks.lock().await;
        if let Some(looks) = asked.get(queue) {
            return Ok(*looks);
        }
        let control = self.shared.queues.control().await?;
        topology::look(&control, queue).await?;
        let looks = Looks::at(&control, queue).await?;
        asked.insert(queue.to_owned(), looks);
        Ok(looks)
    }

    /// Applies the action to every selected entry. Gives all others back, also after an error.
    async fn work(&self, shelf: Shelf, which: &Selection, action: &Action) -> Result<Worked, TransportError> {
        let mut worked = Worked::default();
        let stopped = self.work_in_scans(shelf, which, action, &mut worked).await;
        let report = &mut worked.report;
        match stopped {
            // No entry was touched.
            Err(error) if report.entries.is_empty() => return Err(error),
            stopped => report.stopped = stopped.err(),
        }
        report.complete(shelf, which);
        info!(%shelf, queue = self.shared.queue(), done = report.done(), of = report.entries.len(), "worked through a shelf");
        Ok(worked)
    }

    /// Works in one scan; with a lease, in the one that it has open.
    async fn work_in_scans(
        &self,
        shelf: Shelf,
        which: &Selection,
        action: &Action,
        worked: &mut Worked,
    ) -> Result<(), TransportError> {
        let lease = self.lease.as_ref().filter(|lease| lease.shelf == shelf);
        let (Some(lease), Selection::Handles(handles)) = (lease, which) else {
            let mut scan = self.begin_scan(shelf).await?;
            let stopped = self.work_through(&mut scan, shelf, which, action, worked).await;
            scan.end().await;
            return stopped;
        };
        let mut rest: HashSet<_> = handles.iter().filter(|handle| handle.shelf() == shelf).cloned().collect();
        loop {
            let resumed = lease.resume(&rest).await?;
            let is_whole = resumed.is_none();
            let mut scan = match resumed {
                Some(scan) => scan,
                None => self.begin_scan(shelf).await?,
            };
            let which = Selection::Handles(rest.clone());
            let stopped = self.work_through(&mut scan, shelf, &which, action, worked).await;
            for entry in &worked.report.entries {
                rest.remove(&entry.handle);
            }
            if stopped.is_ok() && (rest.is_empty() || is_whole) {
                // Who reads the report believes it: the broker must have what was removed.
                if let Err(error) = scan.settled().await {
                    worked.report.in_doubt(&error);
                    return Err(error);
                }
                lease.keep(scan).await;
                return Ok(());
            }
            lease.give_back(scan).await;
            // Another client may have held the rest when the scan passed it: once more, from the head.
            stopped?;
        }
    }

    async fn work_through(
        &self,
        scan: &mut ShelfScan,
        shelf: Shelf,
        which: &Selection,
        action: &Action,
        worked: &mut Worked,
    ) -> Result<(), TransportError> {
        let most = match which {
            Selection::Handles(handles) => {
                worked.report.entries.len() + handles.iter().filter(|handle| handle.shelf() == shelf).count()
            }
            _ => usize::MAX,
        };
        while worked.report.entries.len() < most
            && let Some(found) = scan.next().await?
        {
            fail_point(FailPoint::Taken);
            if !which.includes(&found.shelved) {
                scan.keep(&found);
                continue;
            }
            let stored = self.store(shelf, action, &found).await;
            if stored.is_err() {
                scan.keep(&found);
            }
            let done = match stored {
                Ok(stored) => scan.remove(&found).await.map(|()| stored),
                Err(error) => Err(error),
            };
            let (outcome, stopped) = match done {
                Ok(stored) => {
                    let replaced = stored.map(|fingerprint| scan.name_of_stored(fingerprint).handle(shelf));
                    worked.replaced = replaced;
                    (EntryOutcome::Done, None)
                }
                Err(error) if is_about_this_entry(&error) => (EntryOutcome::Failed(error), None),
                Err(error) => (EntryOutcome::Failed(error.clone()), Some(error)),
            };
            let Shelved { handle, message, .. } = found.shelved;
            worked.report.note(handle, message.id(), outcome);
            if let Some(error) = stopped {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Stores the copy of the action, if it has one. Returns the fingerprint of a copy that stays on the shelf.
    async fn store(
        &self,
        shelf: Shelf,
        action: &Action,
        found: &Found,
    ) -> Result<Option<Fingerprint>, TransportError> {
        let message = &found.shelved.message;
        let names = &self.shared.plan.names;
        let (queue, copy) = match action {
            Action::Remove => return Ok(None),
            _ if !found.whole => return Err(error::read_in_part()),
            Action::Redrive => (self.way_back(&found.shelved), self.redriven(message, &found.shelved)),
            Action::RedriveAs(changed) => {
                let copy = self.redriven(&edited(message, changed.clone()), &found.shelved);
                (self.way_back(&found.shelved), copy)
            }
            Action::Park => (&*names.parking, for_good(message)),
            Action::Replace(changed) => (names.shelf(shelf)?, for_good(&edited(message, changed.clone()))),
        };
        let stays = match action {
            Action::Replace(_) => Some(self.fingerprint_as_stored(&copy)?),
            _ => None,
        };
        self.shared.copies.store(&Route::queue(queue), copy, AlarmTime::Counts).await?;
        Ok(stays)
    }

    /// Returns the fingerprint of a copy as it will be read from its queue.
    fn fingerprint_as_stored(&self, copy: &Message) -> Result<Fingerprint, TransportError> {
        let user = self.shared.connections.publishing()?.user();
        let copy = convert::for_publishing(copy.clone(), &user);
        let properties = convert::properties(&copy, true)?;
        Ok(Fingerprint::of(&convert::message(&properties, copy.body().to_vec())))
    }

    /// Applies the action to one entry.
    async fn work_on(
        &self,
        entry: &EntryHandle,
        action: Action,
    ) -> Result<Option<EntryHandle>, TransportError> {
        let worked = self.work(entry.shelf(), &entry.clone().into(), &action).await?;
        let Some(result) = worked.report.entries.into_iter().next() else {
            return Err(error::no_entry(entry));
        };
        match result.outcome {
            EntryOutcome::Done => Ok(worked.replaced),
            EntryOutcome::Failed(error) => Err(error),
            _ => Err(error::no_entry(entry)),
        }
    }
}

/// Returns true if other messages may be stored nevertheless.
fn is_about_this_entry(error: &TransportError) -> bool {
    error::is_about_one_message(error) || error.kind() == TransportErrorKind::Full
}

impl RabbitMqShelves {
    fn redriven(&self, message: &Message, entry: &Shelved) -> Message {
        let mut copy = redriven(message);
        self.shared.facts.strategy().redriven(&mut copy);
        match &self.reports {
            Some(queue) => ReportRequest::new(&**queue, entry.handle.clone()).on(copy),
            None => copy,
        }
    }

    /// Returns the queue whose consumer failed: this one, or one of those that share the shelves.
    fn way_back(&self, shelved: &Shelved) -> &str {
        let (own, named) = (self.shared.queue(), shelved.history.source_queue.as_deref());
        let chosen = chosen(own, &self.shared.options.shelves_shared_with, named);
        if let Some(named) = named.filter(|named| *named != chosen) {
            let id = shelved.message.id();
            warn!(
                queue = own,
                named,
                id,
                "a message names a queue that does not share this shelf: it is redriven to this one"
            );
        }
        chosen
    }
}

/// Any publisher can write the header, so it only selects among the queues that the operator named.
fn chosen<'a>(own: &'a str, shared_with: &'a [String], named: Option<&str>) -> &'a str {
    shared_with.iter().find(|queue| Some(queue.as_str()) == named).map_or(own, String::as_str)
}

#[async_trait]
impl Shelves for RabbitMqShelves {
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError> {
        let queue = self.shared.plan.names.shelf(shelf)?;
        let control = self.shared.queues.control().await?;
        Ok(u64::from(topology::count(&control, queue).await?))
    }

    /// Scans the shelf from its head, past everything that was shown before: the smaller the pages, the longer it takes to read them
    /// all. The cursor has about 33 characters for each entry shown so far.
    async fn browse(
        &self,
        shelf: Shelf,
        after: Option<&ShelfCursor>,
        limit: usize,
    ) -> Result<ShelfPage, TransportError> {
        if limit == 0 {
            return ShelfPage::empty(shelf, after);
        }
        let mut shown = Shown::before(shelf, after)?;
        let mut scan = self.begin_scan(shelf).await?;
        let mut page = Vec::new();
        let mut outcome = Ok(());
        while page.len() < limit {
            match scan.next().await {
                Ok(Some(found)) => {
                    scan.keep(&found);
                    if shown.note(found.name) {
                        page.push(found.shelved);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        let has_more = scan.has_more();
        scan.end().await;
        outcome?;
        Ok(ShelfPage::new(page, has_more.then(|| shown.cursor(shelf))))
    }

    /// Scans the shelf once. Holds all entries until the end, without their messages.
    async fn scan(
        &self,
        shelf: Shelf,
        each: &mut (dyn FnMut(Shelved) -> ControlFlow<()> + Send),
    ) -> Result<(), TransportError> {
        let mut scan = self.begin_scan(shelf).await?;
        let outcome = loop {
            match scan.next().await {
                Ok(Some(found)) => {
                    scan.keep(&found);
                    if each(found.shelved).is_break() {
                        break Ok(());
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        scan.end().await;
        outcome
    }

    async fn redrive(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        Ok(self.work(shelf, which, &Action::Redrive).await?.report)
    }

    async fn park(&self, which: &Selection) -> Result<ShelfReport, TransportError> {
        Ok(self.work(Shelf::DeadLetter, which, &Action::Park).await?.report)
    }

    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        Ok(self.work(shelf, which, &Action::Remove).await?.report)
    }

    async fn replace(
        &self,
        entry: &EntryHandle,
        message: Message,
    ) -> Result<Option<EntryHandle>, TransportError> {
        self.work_on(entry, Action::Replace(message)).await
    }

    async fn redrive_as(&self, entry: &EntryHandle, message: Message) -> Result<(), TransportError> {
        self.work_on(entry, Action::RedriveAs(message)).await.map(drop)
    }

    async fn restore(&self, shelf: Shelf, message: Message) -> Result<(), TransportError> {
        let queue = self.shared.plan.names.shelf(shelf)?;
        self.shared.copies.store(&Route::queue(queue), for_good(&message), AlarmTime::Counts).await
    }

    /// Asks with a passive declaration. Messages that wait for a retry in delay queues are not counted.
    async fn work_queue(&self) -> Result<WorkQueue, TransportError> {
        let control = self.shared.queues.control().await?;
        let (messages, consumers) = topology::look(&control, self.shared.queue()).await?;
        Ok(WorkQueue::new(Some(messages.into()), Some(consumers.into())))
    }

    /// Declares an exclusive queue `redrive-reports.…`, which ends with the connection.
    async fn reported(&self) -> Result<Option<Reported>, TransportError> {
        let reports = RabbitMqReports::declare(self.shared.queues.control().await?).await?;
        let shelves = Self { reports: Some(reports.queue().into()), ..self.clone() };
        Ok(Some(Reported::new(shelves, reports)))
    }

    /// Declares an exclusive queue `redrive-lease.…` that ends with the lease. A user who may not do that gets no
    /// lease, which is logged as a warning.
    async fn lease(&self, shelf: Shelf) -> Result<Option<Leased>, TransportError> {
        let Some(lease) = ShelfLease::take(Arc::clone(&self.shared), shelf).await? else { return Ok(None) };
        let shelves = Self { lease: Some(Arc::clone(&lease)), ..self.clone() };
        Ok(Some(Leased::new(shelves, LeaseGuard(lease))))
    }
}

/// Returns a copy that does not expire in its queue.
fn for_good(message: &Message) -> Message {
    let mut copy = message.clone();
    convert::expiration_as_header(&mut copy);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_chooses_among_the_queues_that_were_named() {
        let shared = ["bills".to_owned(), "mails".to_owned()];
        for (named, expected) in [
            (None, "orders"),
            (Some("orders"), "orders"),
            (Some("mails"), "mails"),
            (Some("wages"), "orders"),
        ] {
            assert_eq!(chosen("orders", &shared, named), expected);
        }
    }
}
