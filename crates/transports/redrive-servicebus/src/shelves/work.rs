//! Processes the selected messages of a shelf, one after the other.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::shelves::{EntryHandle, EntryOutcome, Selection, ShelfReport, edited};
use redrive_core::transport::redriven;
use redrive_core::{FailureHistory, Message, Shelf, TransportError};
use tracing::debug;

use super::entry::SeenEntry;
use super::place::{Marks, Place};
use super::progress::{ChosenEntry, EntryError, NextStep, Progress};
use super::receiver::{RenewedLocks, ShelfMessage, ShelfReceiver};
use super::{LockedMessages, MAX_LOCKED, ServiceBusShelves, lock_all, peek, unlock};
use crate::batching::ReplaceError;
use crate::convert::copy_id::{copy_id, edited_copy_id};
use crate::convert::{self, Outgoing, marked};
use crate::error::{self, Refusal};
use crate::wire::{ReplaceOp, SettleAs, SettleKind, Wire};

/// The operation on the selected messages.
#[derive(Clone, Copy)]
pub(super) enum Work<'a> {
    /// Sends a copy to a queue.
    SendTo(&'a str),
    /// Sends an edited copy to a queue.
    SendEdited(&'a str, &'a Message),
    /// Moves the message to the parking shelf.
    Park,
    /// Replaces the message with an edited copy on the same shelf.
    Replace(&'a Message),
    /// Removes the message.
    Discard,
}

impl ServiceBusShelves {
    pub(super) async fn process(
        &self,
        shelf: Shelf,
        which: &Selection,
        work: Work<'_>,
    ) -> Result<ShelfReport, TransportError> {
        let mut report = ShelfReport::default();
        for place in self.places(shelf) {
            if let Selection::Handles(handles) = which
                && !handles.iter().any(|handle| place.number(handle).is_some())
            {
                continue;
            }
            let worked = self.process_place(&place, which, work, &mut report).await;
            if let Err(error) = worked {
                if report.entries.is_empty() {
                    return Err(error);
                }
                report.stopped = Some(error);
                break;
            }
        }
        report.complete(shelf, which);
        Ok(report)
    }

    async fn process_place(
        &self,
        place: &Place,
        which: &Selection,
        work: Work<'_>,
        report: &mut ShelfReport,
    ) -> Result<(), TransportError> {
        let wire = self.wire().await?;
        if let Some(held) = lock_all(&*wire, &place.path).await? {
            return self.process_by_locking(&*wire, place, held, which, work, report).await;
        }
        let mut chosen = self.choose(&*wire, place, which).await?;
        for (_, entry) in chosen.extract_if(|_, entry| entry.set_aside.is_some()) {
            let Some(set_aside) = entry.set_aside else { continue };
            let error = error::is_set_aside(&place.path, set_aside);
            report.note(entry.handle, entry.id.as_deref(), EntryOutcome::Failed(error));
        }
        if chosen.is_empty() {
            return Ok(());
        }
        self.process_received(&*wire, place, chosen, work, report).await
    }

    /// Returns the selected entries, by their sequence numbers.
    async fn choose(
        &self,
        wire: &dyn Wire,
        place: &Place,
        which: &Selection,
    ) -> Result<HashMap<i64, ChosenEntry>, TransportError> {
        let chosen = |seen: SeenEntry| {
            let number = seen.sequence_number;
            selected(seen, which).map(|named| (number, named))
        };
        let Selection::Handles(handles) = which else {
            let all = self.scan(place, 1, usize::MAX).await?;
            return Ok(all.entries.into_iter().filter_map(chosen).collect());
        };
        let mut wanted: BTreeSet<i64> = handles.iter().filter_map(|handle| place.number(handle)).collect();
        let mut found = HashMap::new();
        while let Some(&first) = wanted.first() {
            let peeked = peek(wire, &place.path, first).await?;
            let last = peeked.iter().map(|incoming| incoming.sequence_number).max().unwrap_or(i64::MAX);
            wanted.retain(|&number| number > last);
            let here = peeked.iter().filter(|incoming| place.has(incoming));
            found.extend(here.map(|incoming| SeenEntry::new(incoming, place)).filter_map(chosen));
        }
        Ok(found)
    }

    /// Receives messages until all selected ones are processed, and gives the others back at the end.
    async fn process_received(
        &self,
        wire: &dyn Wire,
        place: &Place,
        mut chosen: HashMap<i64, ChosenEntry>,
        work: Work<'_>,
        report: &mut ShelfReport,
    ) -> Result<(), TransportError> {
        let path = &*place.path;
        let tried =
            |error: crate::error::WireError| error.into_error(&format!("processing messages of `{path}`"));
        let receiver = wire.receiver(path).await.map_err(tried)?;
        let mut receiver = ShelfReceiver::new(receiver, RenewedLocks::start(&self.shared.connection, path));
        let mut others = Vec::new();
        let mut progress = Progress::default();
        let stopped = loop {
            if chosen.is_empty() {
                break None;
            }
            let taken = match receiver.next(self.shared.options.max_wait_time).await {
                Ok(Some(taken)) => taken,
                Ok(None) => {
                    debug!(place = %path, left = chosen.len(), "some selected messages are in flight at another client or no longer exist");
                    break None;
                }
                Err(error) => break Some(tried(error)),
            };
            let number = taken.sequence_number();
            let Some(named) = chosen.remove(&number) else {
                others.push(taken);
                continue;
            };
            let worked = receiver
                .meanwhile(self.process_one(wire, place, &taken, work, progress.is_sent(number)))
                .await;
            match worked.map_err(|not_done| progress.not_done(number, not_done)) {
                Ok(()) => {
                    report.note(named.handle, named.id.as_deref(), EntryOutcome::Done);
                    if self.only_marks(work) {
                        // It was abandoned, not settled: forgetting it on its link could remove the marked message.
                        receiver.locks.leave(&taken);
                    } else {
                        receiver.forget(&taken).await;
                    }
                }
                Err(NextStep::Again) => {
                    debug!(place = %path, number, "a lock was lost while a shelf was processed; its message is redelivered");
                    chosen.insert(number, named);
                    receiver.take_less();
                    receiver.release(&taken).await;
                }
                Err(NextStep::LeaveIt(error)) => {
                    report.note(named.handle, named.id.as_deref(), progress.failed(number, error));
                    others.push(taken);
                }
                Err(NextStep::Stop(error)) => {
                    report.note(named.handle, named.id.as_deref(), progress.failed(number, error.clone()));
                    others.push(taken);
                    break Some(error);
                }
            }
        };
        receiver.give_back(others).await;
        progress.note_left(chosen, path, stopped.is_some(), report);
        stopped.map_or(Ok(()), Err)
    }

    /// Processes messages that must be locked to be read. Repeats this as long as locks of selected messages are lost.
    async fn process_by_locking(
        &self,
        wire: &dyn Wire,
        place: &Place,
        mut held: LockedMessages,
        which: &Selection,
        work: Work<'_>,
        report: &mut ShelfReport,
    ) -> Result<(), TransportError> {
        let (mut progress, mut left) = (Progress::default(), HashMap::new());
        let worked = loop {
            let more = held.more;
            let state = (&mut progress, &mut left, &mut *report);
            match self.process_locked(wire, place, held, which, work, state).await {
                Ok(true) => match lock_all(wire, &place.path).await {
                    Ok(Some(again)) => held = again,
                    Ok(None) => break Ok(false),
                    Err(error) => break Err(error),
                },
                Ok(false) => break Ok(more),
                Err(error) => break Err(error),
            }
        };
        progress.note_left(left, &place.path, worked.is_err(), report);
        if worked? && !is_answered(which, place, report) {
            // The other places are processed nevertheless.
            report.stopped.get_or_insert_with(|| error::too_many_to_lock(&place.path, MAX_LOCKED));
        }
        Ok(())
    }

    /// Processes the selected messages among the locked ones, and gives the others back. Returns true if some must be locked
    /// again: those in `left`, whose locks were lost.
    async fn process_locked(
        &self,
        wire: &dyn Wire,
        place: &Place,
        held: LockedMessages,
        which: &Selection,
        work: Work<'_>,
        (progress, left, report): (&mut Progress, &mut HashMap<i64, ChosenEntry>, &mut ShelfReport),
    ) -> Result<bool, TransportError> {
        let LockedMessages { arrived, handle, .. } = held;
        let locks = RenewedLocks::start(&self.shared.connection, &place.path);
        let held: Vec<ShelfMessage> =
            arrived.into_iter().map(|arrived| locks.enter(arrived, Arc::clone(&handle))).collect();
        let mut others = Vec::new();
        let mut ended = Ok(false);
        for taken in held {
            let number = taken.sequence_number();
            let incoming = taken.arrived.message.as_deref().ok();
            let here = incoming.filter(|incoming| place.has(incoming) && !progress.is_left(number));
            let seen = here.map(|incoming| SeenEntry::new(incoming, place));
            let Some(named) = seen.and_then(|seen| selected(seen, which)) else {
                others.push(taken.arrived);
                continue;
            };
            if ended.is_err() {
                left.insert(number, named);
                others.push(taken.arrived);
                continue;
            }
            left.remove(&number);
            let worked = self.process_one(wire, place, &taken, work, progress.is_sent(number)).await;
            locks.leave(&taken);
            let outcome = match worked.map_err(|not_done| progress.not_done(number, not_done)) {
                Ok(()) => EntryOutcome::Done,
                Err(NextStep::Again) => {
                    left.insert(number, named);
                    ended = Ok(true);
                    continue;
                }
                Err(NextStep::LeaveIt(error)) => {
                    others.push(taken.arrived);
                    progress.failed(number, error)
                }
                Err(NextStep::Stop(error)) => {
                    others.push(taken.arrived);
                    let of_entry = progress.failed(number, error.clone());
                    ended = Err(error);
                    of_entry
                }
            };
            report.note(named.handle, named.id.as_deref(), outcome);
        }
        drop(locks);
        unlock(wire, &place.path, &others).await;
        ended
    }

    /// Returns true if the operation leaves the message where it is, with a mark.
    fn only_marks(&self, work: Work<'_>) -> bool {
        let options = &self.shared.options;
        matches!(work, Work::Park)
            && options.parking_queue.is_none()
            && options.dead_letter_target().is_none()
    }

    /// Processes one message. `is_sent` is true if its copy is already stored.
    async fn process_one(
        &self,
        wire: &dyn Wire,
        place: &Place,
        taken: &ShelfMessage,
        work: Work<'_>,
        is_sent: bool,
    ) -> Result<(), EntryError> {
        let Place { path, shelf, .. } = place;
        let arrived = &taken.arrived;
        let Ok(incoming) = &arrived.message else { return Ok(()) };
        if taken.is_lost() {
            let error = error::lost(path, "its lock expired");
            return Err(EntryError { refusal: Refusal::LockLost, copy_in: None, error });
        }
        fail_point(FailPoint::Taken);
        let settle = async |kind, properties| {
            let how = SettleAs::new(kind).with_properties(properties);
            wire.settle(path, &[arrived.lock], &how).await.map_err(|error| EntryError {
                refusal: error.refusal.clone(),
                copy_in: None,
                error: error.into_error(&format!("settling a message of `{path}`")),
            })
        };
        let send_on = async |target: &str, copy: Message| {
            let (hop, source) = (FailureHistory::read(&copy).copy_number, incoming.copy_source(path));
            let copy_id = copy.id().map(|id| match work {
                Work::SendEdited(..) | Work::Replace(_) => edited_copy_id(id, hop, &source, &copy),
                Work::SendTo(_) | Work::Park | Work::Discard => copy_id(id, hop, &source),
            });
            let op = ReplaceOp {
                target: target.to_owned(),
                message: convert::outgoing(&copy, Outgoing { copy_id, enqueue_at: None }),
                entity: path.clone(),
                lock: arrived.lock,
                session: None,
            };
            self.shared.replacements.replace(op).await.map_err(|ReplaceError { error, copy_stored }| {
                let what =
                    if copy_stored { "completing a copied message of" } else { "copying a message of" };
                let refusal = error.refusal.clone();
                let copy_in = copy_stored.then(|| target.to_owned());
                EntryError { refusal, copy_in, error: error.into_error(&format!("{what} `{path}`")) }
            })
        };
        let kept = |copy| incoming.with_reason_of_others(copy);
        let sent_back = |message: Message| redriven(&convert::without_reason_of_others(message));
        match work {
            _ if is_sent => settle(SettleKind::Complete, Vec::new()).await,
            Work::Discard => {
                fail_point(FailPoint::AckHandedOver);
                let discarded = settle(SettleKind::Complete, Vec::new()).await;
                fail_point(FailPoint::AckWritten);
                discarded
            }
            Work::Park => {
                let options = &self.shared.options;
                match (&options.parking_queue, options.dead_letter_target()) {
                    (Some(queue), _) => send_on(queue, kept(incoming.message.clone())).await,
                    (None, Some(queue)) => {
                        send_on(queue, marked(kept(incoming.message.clone()), Shelf::Parking)).await
                    }
                    // A message in a dead-letter queue cannot be dead-lettered again, but it can be marked.
                    (None, None) => {
                        let mark = convert::parked(incoming.sequence_number).into();
                        fail_point(FailPoint::NackHandedOver);
                        let marked = settle(SettleKind::Abandon, mark).await;
                        fail_point(FailPoint::NackWritten);
                        marked
                    }
                }
            }
            Work::SendTo(target) => send_on(target, sent_back(incoming.message.clone())).await,
            Work::SendEdited(target, message) => {
                send_on(target, sent_back(edited(&incoming.message, message.clone()))).await
            }
            Work::Replace(message) => {
                let copy = kept(edited(&incoming.message, message.clone()));
                match self.shelf_target(*shelf) {
                    Some((queue, Marks::Trusted)) => send_on(queue, marked(copy, *shelf)).await,
                    Some((queue, _)) => send_on(queue, copy).await,
                    None => Err(EntryError {
                        refusal: Refusal::NotAllowed,
                        copy_in: None,
                        error: error::cannot_send_to_dead_letter_queue(path),
                    }),
                }
            }
        }
    }
}

/// Returns the entry if it is selected.
fn selected(seen: SeenEntry, which: &Selection) -> Option<ChosenEntry> {
    let shelved = seen.shelved;
    let id = shelved.message.id().map(str::to_owned);
    which.includes(&shelved).then_some(ChosenEntry { handle: shelved.handle, id, set_aside: seen.set_aside })
}

/// Returns true if the report covers every selected handle of this place.
fn is_answered(which: &Selection, place: &Place, report: &ShelfReport) -> bool {
    let Selection::Handles(handles) = which else { return false };
    let mut here = handles.iter().filter(|handle| place.number(handle).is_some());
    here.all(|handle| report.entries.iter().any(|entry| entry.handle == *handle))
}

/// Returns the outcome of the only selected entry.
pub(super) fn only(report: ShelfReport, entry: &EntryHandle) -> Result<(), TransportError> {
    match report.entries.into_iter().next().map(|result| result.outcome) {
        Some(EntryOutcome::Done) => Ok(()),
        Some(EntryOutcome::Failed(error)) => Err(error),
        _ => Err(report.stopped.unwrap_or_else(|| entry.not_found())),
    }
}
