//! The operators' side: what rests in dead-letter queues, and how it gets back.
//!
//! `place` is where messages of a shelf rest, `looked` what is shown of one, `hand` what is locked while a shelf is worked
//! through, `round` how far that came.

mod hand;
mod looked;
mod place;
mod round;

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::{
    Message, Selection, Shelf, Shelved, Shelves, Story, TransportError, TransportErrorKind, redriven,
};
use tracing::debug;

use crate::broker::{Broker, NotReplaced};
use crate::convert::{self, Incoming, Outgoing};
use crate::copy_id::copy_id;
use crate::error::{self, Refusal};
use crate::settle::marked;
use crate::wire::{Arrived, Disposal, DisposalKind, HeldAll, Swap, Wire};
use hand::{Hand, Renewed, Taken};
use looked::Looked;
use place::{Marks, Place};
use round::{Next, NotDone, Round};

/// How many messages are looked at by one request.
const AT_ONCE: i32 = 100;
/// How many messages are locked at most where one can only look by locking.
const HELD_AT_MOST: usize = 1000;

/// The shelves of one queue or subscription: its dead-letter queue (and that of its retry queue), and where parked messages
/// rest. Browsing locks nothing.
#[derive(Clone, Debug)]
pub struct ServiceBusShelves {
    broker: Arc<Broker>,
    /// The dead-letter queue of what could not be forwarded, instead of the usual one.
    transfer: bool,
}

/// What is to be done with the messages that were chosen.
#[derive(Clone, Copy)]
enum Work<'a> {
    SendTo(&'a str),
    Park,
    Discard,
}

impl ServiceBusShelves {
    pub(crate) fn new(broker: Arc<Broker>) -> Self {
        Self { broker, transfer: false }
    }

    /// The shelf of what the broker could not forward (`$Transfer/$DeadLetterQueue`) instead of the dead-letter queue.
    #[must_use]
    pub fn of_transfers(mut self) -> Self {
        self.transfer = true;
        self
    }

    /// The queues in which messages of this shelf may rest.
    fn places(&self, shelf: Shelf) -> Vec<Place> {
        if let (Shelf::Parking, Some(queue)) = (shelf, &self.broker.options.parking_queue) {
            return vec![Place { path: queue.clone(), marks: Marks::Needless }];
        }
        let sources = self.broker.options.sources();
        let own = self.broker.options.dead_letter_target().filter(|_| !self.transfer);
        let own = own.map(|queue| Place { path: queue.to_owned(), marks: Marks::Ours });
        let of_source = |source: &crate::Entity| {
            let path =
                if self.transfer { source.transfer_dead_letter_path() } else { source.dead_letter_path() };
            Place { path, marks: Marks::ToBeProven }
        };
        own.into_iter().chain(sources.iter().map(of_source)).collect()
    }

    async fn wire(&self) -> Result<Arc<dyn Wire>, TransportError> {
        let live = self.broker.link.live().await;
        live.map_err(|error| {
            error.into_error(&format!("connecting for the shelves of `{}`", self.broker.entity()))
        })
    }

    /// Everything on a shelf, up to so many.
    async fn look(&self, place: &Place, shelf: Shelf, limit: usize) -> Result<Vec<Looked>, TransportError> {
        let wire = self.wire().await?;
        let path = &*place.path;
        if let Some((held, _)) = hold_all(&*wire, path).await? {
            let seen = held.iter().filter_map(|arrived| arrived.message.as_deref().ok());
            let found = seen.filter(|incoming| place.has_on(shelf, incoming)).take(limit);
            let found = found.map(|incoming| Looked::new(incoming, path)).collect();
            unlock(&*wire, path, &held).await;
            return Ok(found);
        }
        let mut found = Vec::new();
        let mut from = 1;
        while found.len() < limit {
            let peeked = wire.peek(path, from, AT_ONCE).await;
            let peeked = peeked.map_err(|error| error.into_error(&format!("looking into `{path}`")))?;
            if peeked.is_empty() {
                break;
            }
            for message in peeked {
                let incoming = convert::incoming(message);
                from = from.max(incoming.sequence_number.saturating_add(1));
                if place.has_on(shelf, &incoming) {
                    found.push(Looked::new(&incoming, path));
                }
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    async fn work(&self, shelf: Shelf, which: &Selection, work: Work<'_>) -> Result<u64, TransportError> {
        let mut done = 0;
        for place in self.places(shelf) {
            let wire = self.wire().await?;
            if let Some(held) = hold_all(&*wire, &place.path).await? {
                done += self.work_by_holding(&*wire, (&place, shelf), held, which, work).await?;
                continue;
            }
            let all = self.look(&place, shelf, usize::MAX).await?;
            let chosen: HashSet<i64> = all
                .iter()
                .filter(|looked| looked.is_meant(which))
                .map(|looked| looked.sequence_number)
                .collect();
            if !chosen.is_empty() {
                done += self.work_through(&*wire, &place.path, chosen, work).await?;
            }
        }
        Ok(done)
    }

    /// Takes messages until all that were chosen are done with; the others are given back in the end.
    async fn work_through(
        &self,
        wire: &dyn Wire,
        place: &str,
        mut chosen: HashSet<i64>,
        work: Work<'_>,
    ) -> Result<u64, TransportError> {
        let tried = |error: crate::error::WireError| error.into_error(&format!("working through `{place}`"));
        let receiver = wire.receiver(place).await.map_err(tried)?;
        let mut hand = Hand::new(receiver, Renewed::start(&self.broker.link, place));
        let mut others = Vec::new();
        let mut round = Round::default();
        let stopped = loop {
            if chosen.is_empty() {
                break None;
            }
            let taken = match hand.next(self.broker.options.max_wait_time).await {
                Ok(Some(taken)) => taken,
                Ok(None) => {
                    debug!(%place, left = chosen.len(), "chosen messages are in the hand of somebody else, or gone");
                    break None;
                }
                Err(error) => break Some(tried(error)),
            };
            let number = taken.sequence_number();
            if !chosen.remove(&number) {
                others.push(taken);
                continue;
            }
            let worked = hand.meanwhile(self.one(wire, place, &taken, work, round.is_sent(number))).await;
            let Err(not_done) = worked else {
                round.done += 1;
                hand.forget(&taken).await;
                continue;
            };
            match round.not_done(number, not_done) {
                Next::Again => {
                    debug!(%place, number, "a lock was lost while a shelf was worked through; its message comes again");
                    chosen.insert(number);
                    hand.take_less();
                    hand.release(&taken).await;
                }
                Next::LeaveIt => others.push(taken),
                Next::Stop(error) => {
                    others.push(taken);
                    break Some(error);
                }
            }
        };
        hand.give_back(wire, place, others).await;
        stopped.map_or_else(|| round.end(place), Err)
    }

    /// Of messages that have to be locked to be seen: those that are meant, until no lock of them was lost.
    async fn work_by_holding(
        &self,
        wire: &dyn Wire,
        (place, shelf): (&Place, Shelf),
        mut held: HeldAll,
        which: &Selection,
        work: Work<'_>,
    ) -> Result<u64, TransportError> {
        let mut round = Round::default();
        let is_meant = |incoming: &Incoming| {
            place.has_on(shelf, incoming) && Looked::new(incoming, &place.path).is_meant(which)
        };
        while self.work_on_held(wire, &place.path, held, &is_meant, work, &mut round).await? {
            let Some(again) = hold_all(wire, &place.path).await? else { break };
            held = again;
        }
        round.end(&place.path)
    }

    /// Does the work for those that are meant, and gives the others back. Answers whether some must be held again.
    async fn work_on_held(
        &self,
        wire: &dyn Wire,
        place: &str,
        (held, handle): HeldAll,
        is_meant: &(dyn Fn(&Incoming) -> bool + Send + Sync),
        work: Work<'_>,
        round: &mut Round,
    ) -> Result<bool, TransportError> {
        let locks = Renewed::start(&self.broker.link, place);
        let held: Vec<Taken> =
            held.into_iter().map(|arrived| locks.enter(arrived, Arc::clone(&handle))).collect();
        let mut others = Vec::new();
        let mut ended = Ok(false);
        for taken in held {
            let number = taken.sequence_number();
            let meant = taken.arrived.message.as_deref().is_ok_and(is_meant) && !round.is_left(number);
            if ended.is_err() || !meant {
                others.push(taken.arrived);
                continue;
            }
            let worked = self.one(wire, place, &taken, work, round.is_sent(number)).await;
            locks.leave(&taken);
            match worked.map_err(|not_done| round.not_done(number, not_done)) {
                Ok(()) => round.done += 1,
                Err(Next::Again) => ended = Ok(true),
                Err(Next::LeaveIt) => others.push(taken.arrived),
                Err(Next::Stop(error)) => {
                    ended = Err(error);
                    others.push(taken.arrived);
                }
            }
        }
        drop(locks);
        unlock(wire, place, &others).await;
        ended
    }

    /// Does the work for one message. `is_sent`: its copy is stored already.
    async fn one(
        &self,
        wire: &dyn Wire,
        place: &str,
        taken: &Taken,
        work: Work<'_>,
        is_sent: bool,
    ) -> Result<(), NotDone> {
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
                    (Some(queue), _) => {
                        self.send_on(place, arrived, incoming, queue, incoming.message.clone()).await
                    }
                    (None, Some(queue)) => {
                        let message = marked(incoming.message.clone(), Shelf::Parking);
                        self.send_on(place, arrived, incoming, queue, message).await
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
            Work::SendTo(target) => {
                self.send_on(place, arrived, incoming, target, redriven(&incoming.message)).await
            }
        }
    }

    async fn send_on(
        &self,
        place: &str,
        arrived: &Arrived,
        incoming: &Incoming,
        target: &str,
        message: Message,
    ) -> Result<(), NotDone> {
        let hop = Story::read(&message).hop;
        let copy_id = message.id().map(|id| copy_id(id, hop, &incoming.source(place)));
        let swap = Swap {
            target: target.to_owned(),
            message: convert::outgoing(&message, Outgoing { copy_id, enqueue_at: None }),
            entity: place.to_owned(),
            lock: arrived.lock,
            session: None,
        };
        self.broker.replace(swap).await.map_err(|NotReplaced { error, copy_stored }| {
            let what = if copy_stored { "completing what was sent on from" } else { "sending on from" };
            let refusal = error.refusal.clone();
            NotDone { refusal, copy_stored, error: error.into_error(&format!("{what} `{place}`")) }
        })
    }
}

/// Everything there, up to a bound, where one can only look by locking.
async fn hold_all(wire: &dyn Wire, place: &str) -> Result<Option<HeldAll>, TransportError> {
    let held = wire.hold_all(place, HELD_AT_MOST).await;
    held.map_err(|error| error.into_error(&format!("looking into `{place}`")))
}

/// Gives back what was only looked at.
async fn unlock(wire: &dyn Wire, place: &str, held: &[Arrived]) {
    let locks: Vec<_> = held.iter().map(|arrived| arrived.lock).collect();
    if let Err(error) = wire.settle(place, &locks, &Disposal::abandon()).await {
        debug!(%place, %error, "some of what was looked at was not given back; its locks run out");
    }
}

#[async_trait]
impl Shelves for ServiceBusShelves {
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError> {
        let mut count = 0;
        for place in self.places(shelf) {
            count += self.look(&place, shelf, usize::MAX).await?.len();
        }
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    async fn browse(&self, shelf: Shelf, limit: usize) -> Result<Vec<Shelved>, TransportError> {
        let mut found = Vec::new();
        for place in self.places(shelf) {
            let looked = self.look(&place, shelf, limit - found.len()).await?;
            found.extend(looked.into_iter().map(|looked| looked.shelved));
        }
        Ok(found)
    }

    async fn redrive(&self, shelf: Shelf, which: &Selection) -> Result<u64, TransportError> {
        let Some(target) = self.broker.options.retry_target().map(str::to_owned) else {
            let message = format!(
                "what is sent back to the subscription `{}` by its topic would reach every other subscription: name a queue \
                 with `Options::retry_queue`",
                self.broker.entity()
            );
            return Err(TransportError::new(TransportErrorKind::Unsupported, message));
        };
        self.work(shelf, which, Work::SendTo(&target)).await
    }

    async fn park(&self, which: &Selection) -> Result<u64, TransportError> {
        self.work(Shelf::DeadLetter, which, Work::Park).await
    }

    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<u64, TransportError> {
        self.work(shelf, which, Work::Discard).await
    }
}
