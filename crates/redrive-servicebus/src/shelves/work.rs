//! What is done with the messages of a shelf that were chosen, one after the other.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::{
    EntryHandle, EntryOutcome, Message, Selection, Shelf, ShelfReport, Story, TransportError, edited,
    redriven,
};
use tracing::debug;

use super::hand::{Hand, Renewed, Taken};
use super::looked::Looked;
use super::place::{Marks, Place};
use super::round::{Next, NotDone, Round};
use super::{ServiceBusShelves, hold_all, peek, unlock};
use crate::broker::NotReplaced;
use crate::convert::{self, Outgoing};
use crate::copy_id::{copy_id, edited_copy_id};
use crate::error::{self, Refusal};
use crate::settle::marked;
use crate::wire::{Disposal, DisposalKind, HeldAll, Swap, Wire};

/// What is to be done with the messages that were chosen.
#[derive(Clone, Copy)]
pub(super) enum Work<'a> {
    SendTo(&'a str),
    /// The same for an edited copy.
    SendEdited(&'a str, &'a Message),
    Park,
    /// An edited copy stays on the shelf.
    Replace(&'a Message),
    Discard,
}

/// An entry that was chosen.
struct Named {
    handle: EntryHandle,
    id: Option<String>,
}

impl ServiceBusShelves {
    pub(super) async fn work(
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
            let worked = self.work_at((&place, shelf), which, work, &mut report).await;
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

    async fn work_at(
        &self,
        (place, shelf): (&Place, Shelf),
        which: &Selection,
        work: Work<'_>,
        report: &mut ShelfReport,
    ) -> Result<(), TransportError> {
        let wire = self.wire().await?;
        if let Some(held) = hold_all(&*wire, &place.path).await? {
            return self.work_by_holding(&*wire, (place, shelf), held, which, work, report).await;
        }
        let chosen = self.choose(&*wire, (place, shelf), which).await?;
        if chosen.is_empty() {
            return Ok(());
        }
        self.work_through(&*wire, (place, shelf), chosen, work, report).await
    }

    /// Those that are meant, by their numbers.
    async fn choose(
        &self,
        wire: &dyn Wire,
        (place, shelf): (&Place, Shelf),
        which: &Selection,
    ) -> Result<HashMap<i64, Named>, TransportError> {
        let chosen = |looked: Looked| {
            let Looked { sequence_number, shelved } = looked;
            let id = shelved.message.id().map(str::to_owned);
            which.includes(&shelved).then_some((sequence_number, Named { handle: shelved.handle, id }))
        };
        let Selection::Handles(handles) = which else {
            let all = self.look((place, shelf), 1, usize::MAX).await?;
            return Ok(all.into_iter().filter_map(chosen).collect());
        };
        let mut wanted: BTreeSet<i64> = handles.iter().filter_map(|handle| place.number(handle)).collect();
        let mut found = HashMap::new();
        while let Some(&first) = wanted.first() {
            let peeked = peek(wire, &place.path, first).await?;
            let last = peeked.iter().map(|incoming| incoming.sequence_number).max().unwrap_or(i64::MAX);
            wanted.retain(|&number| number > last);
            let here = peeked.iter().filter(|incoming| place.has_on(shelf, incoming));
            found.extend(here.map(|incoming| Looked::new(incoming, place, shelf)).filter_map(chosen));
        }
        Ok(found)
    }

    /// Takes messages until all that were chosen are done with; the others are given back in the end.
    async fn work_through(
        &self,
        wire: &dyn Wire,
        (place, shelf): (&Place, Shelf),
        mut chosen: HashMap<i64, Named>,
        work: Work<'_>,
        report: &mut ShelfReport,
    ) -> Result<(), TransportError> {
        let path = &*place.path;
        let tried = |error: crate::error::WireError| error.into_error(&format!("working through `{path}`"));
        let receiver = wire.receiver(path).await.map_err(tried)?;
        let mut hand = Hand::new(receiver, Renewed::start(&self.broker.link, path));
        let mut others = Vec::new();
        let mut round = Round::default();
        let stopped = loop {
            if chosen.is_empty() {
                break None;
            }
            let taken = match hand.next(self.broker.options.max_wait_time).await {
                Ok(Some(taken)) => taken,
                Ok(None) => {
                    debug!(place = %path, left = chosen.len(), "chosen messages are in the hand of somebody else, or gone");
                    break None;
                }
                Err(error) => break Some(tried(error)),
            };
            let number = taken.sequence_number();
            let Some(named) = chosen.remove(&number) else {
                others.push(taken);
                continue;
            };
            let worked =
                hand.meanwhile(self.one(wire, (place, shelf), &taken, work, round.is_sent(number))).await;
            match worked.map_err(|not_done| round.not_done(number, not_done)) {
                Ok(()) => {
                    report.note(named.handle, named.id.as_deref(), EntryOutcome::Done);
                    hand.forget(&taken).await;
                }
                Err(Next::Again) => {
                    debug!(place = %path, number, "a lock was lost while a shelf was worked through; its message comes again");
                    chosen.insert(number, named);
                    hand.take_less();
                    hand.release(&taken).await;
                }
                Err(Next::LeaveIt(error)) => {
                    report.note(named.handle, named.id.as_deref(), EntryOutcome::Failed(error));
                    others.push(taken);
                }
                Err(Next::Stop(error)) => {
                    report.note(named.handle, named.id.as_deref(), EntryOutcome::Failed(again(&error)));
                    others.push(taken);
                    break Some(error);
                }
            }
        };
        hand.give_back(wire, path, others).await;
        for Named { handle, id } in chosen.into_values() {
            let outcome = match stopped {
                Some(_) => EntryOutcome::NotTried,
                None => EntryOutcome::Failed(error::in_other_hands(path)),
            };
            report.note(handle, id.as_deref(), outcome);
        }
        stopped.map_or(Ok(()), Err)
    }

    /// Of messages that have to be locked to be seen: those that are meant, until no lock of them was lost.
    async fn work_by_holding(
        &self,
        wire: &dyn Wire,
        (place, shelf): (&Place, Shelf),
        mut held: HeldAll,
        which: &Selection,
        work: Work<'_>,
        report: &mut ShelfReport,
    ) -> Result<(), TransportError> {
        let mut round = Round::default();
        while self.work_on_held(wire, (place, shelf), held, which, work, (&mut round, &mut *report)).await? {
            let Some(again) = hold_all(wire, &place.path).await? else { break };
            held = again;
        }
        Ok(())
    }

    /// Does the work for those that are meant, and gives the others back. Answers whether some must be held again.
    async fn work_on_held(
        &self,
        wire: &dyn Wire,
        (place, shelf): (&Place, Shelf),
        (held, handle): HeldAll,
        which: &Selection,
        work: Work<'_>,
        (round, report): (&mut Round, &mut ShelfReport),
    ) -> Result<bool, TransportError> {
        let locks = Renewed::start(&self.broker.link, &place.path);
        let held: Vec<Taken> =
            held.into_iter().map(|arrived| locks.enter(arrived, Arc::clone(&handle))).collect();
        let mut others = Vec::new();
        let mut ended = Ok(false);
        for taken in held {
            let number = taken.sequence_number();
            let incoming = taken.arrived.message.as_deref().ok();
            let here = incoming.filter(|incoming| place.has_on(shelf, incoming) && !round.is_left(number));
            let looked = here.map(|incoming| Looked::new(incoming, place, shelf).shelved);
            let Some(meant) = looked.filter(|shelved| which.includes(shelved)) else {
                others.push(taken.arrived);
                continue;
            };
            if ended.is_err() {
                report.note(meant.handle, meant.message.id(), EntryOutcome::NotTried);
                others.push(taken.arrived);
                continue;
            }
            let worked = self.one(wire, (place, shelf), &taken, work, round.is_sent(number)).await;
            locks.leave(&taken);
            let outcome = match worked.map_err(|not_done| round.not_done(number, not_done)) {
                Ok(()) => EntryOutcome::Done,
                Err(Next::Again) => {
                    ended = ended.map(|_| true);
                    continue;
                }
                Err(Next::LeaveIt(error)) => {
                    others.push(taken.arrived);
                    EntryOutcome::Failed(error)
                }
                Err(Next::Stop(error)) => {
                    others.push(taken.arrived);
                    let of_entry = again(&error);
                    ended = Err(error);
                    EntryOutcome::Failed(of_entry)
                }
            };
            report.note(meant.handle, meant.message.id(), outcome);
        }
        drop(locks);
        unlock(wire, &place.path, &others).await;
        ended
    }

    /// Does the work for one message. `is_sent`: its copy is stored already.
    async fn one(
        &self,
        wire: &dyn Wire,
        (place, shelf): (&Place, Shelf),
        taken: &Taken,
        work: Work<'_>,
        is_sent: bool,
    ) -> Result<(), NotDone> {
        let place = &*place.path;
        let arrived = &taken.arrived;
        let Ok(incoming) = &arrived.message else { return Ok(()) };
        if taken.is_lost() {
            let error = error::lost(place, "its lock ran out");
            return Err(NotDone { refusal: Refusal::LockLost, copy_stored: false, error });
        }
        fail_point(FailPoint::Taken);
        let settle = async |kind, properties| {
            let how = Disposal::new(kind).with_properties(properties);
            wire.settle(place, &[arrived.lock], &how).await.map_err(|error| NotDone {
                refusal: error.refusal.clone(),
                copy_stored: false,
                error: error.into_error(&format!("settling a message of `{place}`")),
            })
        };
        let send_on = async |target: &str, copy: Message| {
            let (hop, source) = (Story::read(&copy).hop, incoming.source(place));
            let copy_id = copy.id().map(|id| match work {
                Work::SendEdited(..) | Work::Replace(_) => edited_copy_id(id, hop, &source, &copy),
                Work::SendTo(_) | Work::Park | Work::Discard => copy_id(id, hop, &source),
            });
            let swap = Swap {
                target: target.to_owned(),
                message: convert::outgoing(&copy, Outgoing { copy_id, enqueue_at: None }),
                entity: place.to_owned(),
                lock: arrived.lock,
                session: None,
            };
            self.broker.replace(swap).await.map_err(|NotReplaced { error, copy_stored }| {
                let what = if copy_stored { "completing what was sent on from" } else { "sending on from" };
                let refusal = error.refusal.clone();
                NotDone { refusal, copy_stored, error: error.into_error(&format!("{what} `{place}`")) }
            })
        };
        match work {
            _ if is_sent => settle(DisposalKind::Complete, Vec::new()).await,
            Work::Discard => {
                fail_point(FailPoint::AckHandedOver);
                let discarded = settle(DisposalKind::Complete, Vec::new()).await;
                fail_point(FailPoint::AckWritten);
                discarded
            }
            Work::Park => {
                let options = &self.broker.options;
                match (&options.parking_queue, options.dead_letter_target()) {
                    (Some(queue), _) => send_on(queue, incoming.message.clone()).await,
                    (None, Some(queue)) => {
                        send_on(queue, marked(incoming.message.clone(), Shelf::Parking)).await
                    }
                    // One cannot dead-letter from there, but one can mark.
                    (None, None) => {
                        let mark = convert::parked(incoming.sequence_number).into();
                        fail_point(FailPoint::NackHandedOver);
                        let marked = settle(DisposalKind::Abandon, mark).await;
                        fail_point(FailPoint::NackWritten);
                        marked
                    }
                }
            }
            Work::SendTo(target) => send_on(target, redriven(&incoming.message)).await,
            Work::SendEdited(target, message) => {
                send_on(target, redriven(&edited(&incoming.message, message.clone()))).await
            }
            Work::Replace(message) => {
                let copy = edited(&incoming.message, message.clone());
                match self.written_to(shelf) {
                    Some((queue, Marks::Ours)) => send_on(queue, marked(copy, shelf)).await,
                    Some((queue, _)) => send_on(queue, copy).await,
                    None => Err(NotDone {
                        refusal: Refusal::NotAllowed,
                        copy_stored: false,
                        error: error::dead_letter_queue_takes_none(place),
                    }),
                }
            }
        }
    }
}

/// The same error, for what it stopped and for the entry that it came of.
fn again(error: &TransportError) -> TransportError {
    TransportError::new(error.kind(), error.to_string())
}

/// What became of the one entry that was named.
pub(super) fn only(report: ShelfReport, entry: &EntryHandle) -> Result<(), TransportError> {
    match report.entries.into_iter().next().map(|result| result.outcome) {
        Some(EntryOutcome::Done) => Ok(()),
        Some(EntryOutcome::Failed(error)) => Err(error),
        _ => Err(error::no_entry(entry)),
    }
}
