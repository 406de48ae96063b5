//! Work on the entries of a shelf.

use std::collections::HashSet;

use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::shelves::{
    EntryHandle, EntryOutcome, EntryResult, Owner, ReportRequest, Selection, ShelfReport, Shelved, edited,
};
use redrive_core::transport::redriven;
use redrive_core::{Message, Shelf, TransportError, TransportErrorKind, header_names};
use tracing::info;

use super::RabbitMqShelves;
use super::fingerprint::Fingerprint;
use super::lease::may_go_on;
use super::scan::{Found, ShelfScan};
use crate::convert::{self, Form};
use crate::error;
use crate::publish::Caller;
use crate::topology::Route;

/// The action on each selected entry.
pub(super) enum Action {
    Redrive,
    RedriveAs(Message),
    Park,
    /// An edited copy stays on the shelf.
    Replace(Message),
    Remove,
}

/// The result of the work.
#[derive(Default)]
pub(super) struct Worked {
    pub(super) report: ShelfReport,
    /// The handle of the message that replaced an entry.
    replaced: Option<EntryHandle>,
}

impl RabbitMqShelves {
    /// Applies the action to every selected entry. Gives all others back, also after an error.
    pub(super) async fn work(
        &self,
        shelf: Shelf,
        which: &Selection,
        action: &Action,
    ) -> Result<Worked, TransportError> {
        let mut worked = Worked::default();
        let stopped = self.work_in_scans(shelf, which, action, &mut worked).await;
        let report = &mut worked.report;
        match stopped {
            // No entry was touched.
            Err(error) if report.entries.is_empty() => return Err(error),
            stopped => report.stopped = stopped.err(),
        }
        report.complete(shelf, which);
        let (queue, left_out) = (self.shared.queue(), report.left_out);
        info!(%shelf, queue, done = report.done(), of = report.entries.len(), left_out, "processed a shelf");
        Ok(worked)
    }

    async fn begin_work(&self, shelf: Shelf) -> Result<ShelfScan, TransportError> {
        let connection = self.connection().await?;
        let turn = self.turn(&connection, shelf, self.action_waits()).await?;
        self.begin_scan(shelf, connection, turn).await
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
            let mut scan = self.begin_work(shelf).await?;
            let stopped = self.work_through(&mut scan, shelf, which, action, worked).await;
            let _ = scan.end().await;
            return stopped;
        };
        let mut rest: HashSet<_> = handles.iter().filter(|handle| handle.shelf() == shelf).cloned().collect();
        loop {
            let resumed = lease.resume(&rest).await?;
            let is_whole = resumed.is_none();
            let mut scan = match resumed {
                Some(mut scan) => match self.turn(&scan.connection(), shelf, self.action_waits()).await {
                    Ok(turn) => {
                        scan.go_on(turn);
                        // It may have waited for long.
                        if !may_go_on(&scan) {
                            lease.give_back(scan).await;
                            continue;
                        }
                        scan
                    }
                    Err(error) => {
                        lease.give_back(scan).await;
                        return Err(error);
                    }
                },
                None => {
                    let permit = lease.permit().await;
                    let mut scan = self.begin_work(shelf).await?;
                    scan.permit = permit;
                    scan
                }
            };
            let which = Selection::Handles(rest.clone());
            let stopped = self.work_through(&mut scan, shelf, &which, action, worked).await;
            for entry in &worked.report.entries {
                rest.remove(&entry.handle);
            }
            if stopped.is_ok() && (rest.is_empty() || is_whole) {
                scan.rest().await;
                lease.keep(scan).await;
                return Ok(());
            }
            lease.give_back(scan).await;
            // Another client may have held the rest when the scan passed it: once more, from the head.
            stopped?;
        }
    }

    /// Works on the rest of a scan. Who reads the report believes it: the broker must have what was removed, also before an error.
    async fn work_through(
        &self,
        scan: &mut ShelfScan,
        shelf: Shelf,
        which: &Selection,
        action: &Action,
        worked: &mut Worked,
    ) -> Result<(), TransportError> {
        let before = worked.report.entries.len();
        let stopped = self.work_on_each(scan, shelf, which, action, worked).await;
        let is_done = |entry: &EntryResult| matches!(entry.outcome, EntryOutcome::Done);
        if worked.report.entries[before..].iter().any(is_done)
            && let Err(error) = scan.settled().await
        {
            worked.report.in_doubt(before, &error);
            return stopped.and(Err(error));
        }
        stopped
    }

    async fn work_on_each(
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
                worked.report.left_out += u64::from(which.leaves_out(&found.shelved));
                scan.keep(&found);
                continue;
            }
            let stored = self.store(shelf, action, &found).await;
            if stored.is_err() {
                scan.keep(&found);
            }
            if stored.is_ok() {
                self.refused.note_stored();
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
                Err(error)
                    if error.kind() == TransportErrorKind::Full || self.refused.may_spare_others(&error) =>
                {
                    (EntryOutcome::Failed(error), None)
                }
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
        let (message, names) = (&found.shelved.message, &self.shared.plan.names);
        found.shelved.check_owner(self.shared.queue())?;
        let (queue, copy) = match action {
            Action::Remove => return Ok(None),
            _ if !found.whole => return Err(error::read_in_part()),
            Action::Redrive => (self.way_back(&found.shelved), self.redriven(message, &found.shelved)),
            Action::RedriveAs(changed) => {
                let copy = self.redriven(&edited(message, changed.clone()), &found.shelved);
                (self.way_back(&found.shelved), copy)
            }
            Action::Park => (&*names.parking, kept(message, &found.shelved)),
            Action::Replace(changed) => {
                (names.shelf(shelf)?, kept(&edited(message, changed.clone()), &found.shelved))
            }
        };
        let form = match action {
            Action::Park | Action::Replace(_) => Form::OnShelf,
            _ => Form::Copy,
        };
        let stays = match action {
            Action::Replace(_) => Some(self.fingerprint_as_stored(&copy)?),
            _ => None,
        };
        self.shared.copies.store(&Route::queue(queue), copy, form, Caller::Other).await?;
        Ok(stays)
    }

    fn fingerprint_as_stored(&self, copy: &Message) -> Result<Fingerprint, TransportError> {
        self.as_stored(copy).map(|read| Fingerprint::of(&read))
    }

    /// Returns a copy as it will be read from the queue of its shelf.
    pub(super) fn as_stored(&self, copy: &Message) -> Result<Message, TransportError> {
        let user = self.shared.connections.publishing()?.user();
        let copy = convert::for_publishing(copy.clone(), &user, Form::OnShelf);
        convert::as_read(&copy, Form::OnShelf)
    }

    /// Applies the action to one entry.
    pub(super) async fn work_on(
        &self,
        entry: &EntryHandle,
        action: Action,
    ) -> Result<Option<EntryHandle>, TransportError> {
        let worked = self.work(entry.shelf(), &entry.clone().into(), &action).await?;
        let Some(result) = worked.report.entries.into_iter().next() else {
            return Err(entry.not_found());
        };
        match result.outcome {
            EntryOutcome::Done => Ok(worked.replaced),
            EntryOutcome::Failed(error) => Err(error),
            _ => Err(entry.not_found()),
        }
    }
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
    fn way_back<'a>(&'a self, entry: &'a Shelved) -> &'a str {
        match &entry.failed_in {
            Some(queue) if entry.owner == Owner::Listed => queue,
            _ => self.shared.queue(),
        }
    }
}

/// Returns a copy that does not expire in its queue.
pub(super) fn for_good(message: &Message) -> Message {
    let mut copy = message.clone();
    convert::expiration_as_header(&mut copy);
    copy
}

/// Returns a copy that stays on a shelf, and tells its owner wherever it is.
fn kept(message: &Message, entry: &Shelved) -> Message {
    let mut copy = for_good(message);
    if let (Owner::Listed, Some(queue)) = (entry.owner, &entry.failed_in)
        && entry.history.source_queue.as_ref() != Some(queue)
    {
        copy.headers_mut().insert(header_names::SOURCE_QUEUE, &**queue);
    }
    copy
}
