//! The operators' side: what rests in dead-letter queues, and how it gets back.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use fe2o3_amqp_types::primitives::SimpleValue;
use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::{
    Headers, Message, Selection, Shelf, Shelved, Shelves, Story, TransportError, TransportErrorKind, Value,
    redriven,
};
use tokio::time::timeout;
use tracing::debug;

use crate::broker::{Broker, NotReplaced};
use crate::convert::{self, Incoming, Outgoing, SHELF};
use crate::copy_id::copy_id;
use crate::error::WireError;
use crate::settle::{PARKED, marked};
use crate::wire::{Arrived, Disposal, DisposalKind, Swap, Wire, WireReceiver};

/// How many messages are looked at by one request.
const AT_ONCE: i32 = 100;
/// How many messages are on their way to us at most while a shelf is worked through.
const CREDIT: u32 = 50;
/// How many messages are locked at most where one can only look by locking: more would run out of their locks meanwhile.
const HELD_AT_MOST: usize = 1000;
/// Where the header stands in which other brokers tell of dead-lettering.
const DEATHS: &str = "x-death";

/// The shelves of one queue or subscription: its dead-letter queue (and that of its retry queue), and where parked messages
/// rest. Browsing locks nothing.
#[derive(Clone, Debug)]
pub struct ServiceBusShelves {
    broker: Arc<Broker>,
    /// The dead-letter queue of what could not be forwarded, instead of the usual one.
    transfer: bool,
}

/// What is to be done with the messages that were chosen.
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

    /// The queues in which messages of this shelf may rest, and whether they are marked there.
    fn places(&self, shelf: Shelf) -> Vec<(String, bool)> {
        if let (Shelf::Parking, Some(queue)) = (shelf, &self.broker.options.parking_queue) {
            return vec![(queue.clone(), false)];
        }
        let sources = self.broker.options.sources();
        let own = self.broker.options.dead_letter_target().filter(|_| !self.transfer);
        let own = own.map(|queue| (queue.to_owned(), true));
        let path = |source: &crate::Entity| {
            if self.transfer { source.transfer_dead_letter_path() } else { source.dead_letter_path() }
        };
        own.into_iter().chain(sources.iter().map(|source| (path(source), true))).collect()
    }

    async fn wire(&self) -> Result<Arc<dyn Wire>, TransportError> {
        let live = self.broker.link.live().await;
        live.map_err(|error| {
            error.into_error(&format!("connecting for the shelves of `{}`", self.broker.entity()))
        })
    }

    /// Everything on a shelf, up to so many, with their sequence numbers.
    async fn look(
        &self,
        place: &str,
        marked: bool,
        shelf: Shelf,
        limit: usize,
    ) -> Result<Vec<Looked>, TransportError> {
        let wire = self.wire().await?;
        let rests = |incoming: &Incoming| !marked || Broker::rests_on(shelf, incoming.shelf.as_deref());
        if let Some(held) = hold_all(&*wire, place).await? {
            let seen = held.iter().filter_map(|arrived| arrived.message.as_deref().ok());
            let found = seen.filter(|incoming| rests(incoming)).take(limit);
            let found = found.map(|incoming| Looked::new(incoming.clone(), place)).collect();
            unlock(&*wire, place, held).await;
            return Ok(found);
        }
        let mut found = Vec::new();
        let mut from = 1;
        while found.len() < limit {
            let peeked = wire.peek(place, from, AT_ONCE).await;
            let peeked = peeked.map_err(|error| error.into_error(&format!("looking into `{place}`")))?;
            if peeked.is_empty() {
                break;
            }
            for message in peeked {
                let incoming = convert::incoming(message);
                from = from.max(incoming.sequence_number.saturating_add(1));
                if rests(&incoming) {
                    found.push(Looked::new(incoming, place));
                }
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    async fn work(&self, shelf: Shelf, which: &Selection, work: &Work<'_>) -> Result<u64, TransportError> {
        let mut done = 0;
        for (place, marked) in self.places(shelf) {
            let wire = self.wire().await?;
            if let Some(held) = hold_all(&*wire, &place).await? {
                done += self.work_on_held(&*wire, (&place, marked, shelf), held, which, work).await?;
                continue;
            }
            let all = self.look(&place, marked, shelf, usize::MAX).await?;
            let chosen: HashSet<i64> = all
                .iter()
                .filter(|looked| looked.is_meant(which))
                .map(|looked| looked.sequence_number)
                .collect();
            if !chosen.is_empty() {
                done += self.work_through(&place, chosen, work).await?;
            }
        }
        Ok(done)
    }

    /// Takes messages until all that were chosen are done with; the others are given back in the end.
    async fn work_through(
        &self,
        place: &str,
        mut chosen: HashSet<i64>,
        work: &Work<'_>,
    ) -> Result<u64, TransportError> {
        let wire = self.wire().await?;
        let tried = || format!("working through `{place}`");
        let opened = wire.receiver(place).await;
        let mut receiver = opened.map_err(|error| error.into_error(&tried()))?;
        let mut others = VecDeque::new();
        let mut done = 0;
        let ended = loop {
            if chosen.is_empty() {
                break Ok(());
            }
            if let Err(error) = receiver.allow(CREDIT).await {
                break Err(error.into_error(&tried()));
            }
            let arrived = match timeout(self.broker.options.max_wait_time, receiver.next()).await {
                Ok(Ok(arrived)) => arrived,
                Ok(Err(error)) => break Err(error.into_error(&tried())),
                Err(_) => {
                    debug!(%place, left = chosen.len(), "chosen messages are in the hand of somebody else, or gone");
                    break Ok(());
                }
            };
            let number = arrived.message.as_ref().map_or(0, |incoming| incoming.sequence_number);
            if !chosen.remove(&number) {
                others.push_back(arrived);
                continue;
            }
            fail_point(FailPoint::Taken);
            match self.one(&*wire, place, &arrived, work).await {
                Ok(()) => {
                    done += 1;
                    receiver.handle().forget(&arrived.tag).await;
                }
                Err(error) => {
                    others.push_back(arrived);
                    break Err(error);
                }
            }
        };
        give_back(&*wire, place, receiver, others).await;
        ended.map(|()| done)
    }

    /// Of messages that had to be locked to be seen: those that are meant, and the others are given back.
    async fn work_on_held(
        &self,
        wire: &dyn Wire,
        (place, marked, shelf): (&str, bool, Shelf),
        held: Vec<Arrived>,
        which: &Selection,
        work: &Work<'_>,
    ) -> Result<u64, TransportError> {
        let mut done = 0;
        let mut others = Vec::new();
        let mut ended = Ok(());
        for arrived in held {
            let meant = arrived.message.as_deref().is_ok_and(|incoming| {
                (!marked || Broker::rests_on(shelf, incoming.shelf.as_deref()))
                    && Looked::new(incoming.clone(), place).is_meant(which)
            });
            if ended.is_err() || !meant {
                others.push(arrived);
                continue;
            }
            fail_point(FailPoint::Taken);
            match self.one(wire, place, &arrived, work).await {
                Ok(()) => done += 1,
                Err(error) => {
                    others.push(arrived);
                    ended = Err(error);
                }
            }
        }
        unlock(wire, place, others).await;
        ended.map(|()| done)
    }

    async fn one(
        &self,
        wire: &dyn Wire,
        place: &str,
        arrived: &Arrived,
        work: &Work<'_>,
    ) -> Result<(), TransportError> {
        let Ok(incoming) = &arrived.message else { return Ok(()) };
        let settle = async |kind, properties| {
            let how = Disposal::new(kind).with_properties(properties);
            let settled = wire.settle(place, &[arrived.lock], &how).await;
            settled.map_err(|error: WireError| error.into_error(&format!("settling a message of `{place}`")))
        };
        match work {
            Work::Discard => {
                fail_point(FailPoint::AckHandedOver);
                let discarded = settle(DisposalKind::Complete, Vec::new()).await;
                fail_point(FailPoint::AckWritten);
                discarded
            }
            Work::Park => match &self.broker.options.parking_queue {
                Some(queue) => self.send_on(place, arrived, incoming, queue, incoming.message.clone()).await,
                None if self.broker.options.dead_letter_target().is_some() => {
                    let queue = self.broker.options.dead_letter_target().unwrap_or_default();
                    let message = marked(incoming.message.clone(), Shelf::Parking);
                    self.send_on(place, arrived, incoming, queue, message).await
                }
                // One cannot dead-letter from there, but one can mark.
                None => {
                    let mark = vec![(SHELF.to_owned(), SimpleValue::String(PARKED.to_owned()))];
                    fail_point(FailPoint::NackHandedOver);
                    let marked = settle(DisposalKind::Abandon, mark).await;
                    fail_point(FailPoint::NackWritten);
                    marked
                }
            },
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
    ) -> Result<(), TransportError> {
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
            error.into_error(&format!("{what} `{place}`"))
        })
    }
}

/// Everything there, up to a bound, where one can only look by locking.
async fn hold_all(wire: &dyn Wire, place: &str) -> Result<Option<Vec<Arrived>>, TransportError> {
    let held = wire.hold_all(place, HELD_AT_MOST).await;
    held.map_err(|error| error.into_error(&format!("looking into `{place}`")))
}

/// Gives back what was only looked at.
async fn unlock(wire: &dyn Wire, place: &str, held: Vec<Arrived>) {
    let locks: Vec<_> = held.iter().map(|arrived| arrived.lock).collect();
    if let Err(error) = wire.settle(place, &locks, &Disposal::abandon()).await {
        debug!(%place, %error, "some of what was looked at was not given back; its locks run out");
    }
}

/// What was taken and not settled goes back at once, and not when its lock runs out.
async fn give_back(
    wire: &dyn Wire,
    place: &str,
    mut receiver: Box<dyn WireReceiver>,
    mut others: VecDeque<Arrived>,
) {
    if receiver.drain().await.is_ok() {
        let _ = wire.peek(place, i64::MAX, 1).await;
        while let Some(Ok(arrived)) = receiver.next_now() {
            others.push_back(arrived);
        }
    }
    let handle = receiver.handle();
    for arrived in others {
        handle.release(&arrived.tag).await;
    }
    receiver.close().await;
}

/// A message that was looked at.
struct Looked {
    sequence_number: i64,
    reason: Option<String>,
    shelved: Shelved,
}

impl Looked {
    fn new(incoming: Incoming, place: &str) -> Self {
        let Incoming { mut message, sequence_number, dead_letter_reason: reason, .. } = incoming;
        let story = Story::read(&message);
        // Nothing of ours is on it: the broker itself put it here, or somebody else did.
        if let (None, Some(reason)) = (&story.reason, &reason) {
            message.headers_mut().insert(DEATHS, death(reason, place));
        }
        Self { sequence_number, reason, shelved: Shelved::new(message) }
    }

    fn is_meant(&self, which: &Selection) -> bool {
        which.includes(&self.shelved)
            || matches!(which, Selection::Reason(word)
                if self.shelved.story.reason.is_none() && self.reason.as_ref() == Some(word))
    }
}

/// As RabbitMQ tells it: one way for operators to read it.
fn death(reason: &str, place: &str) -> Value {
    let queue = place.split("/$").next().unwrap_or(place);
    let entry = Headers::from_iter([
        ("queue", Value::from(queue)),
        ("reason", reason.into()),
        ("count", Value::I64(1)),
    ]);
    Value::List(vec![entry.into()])
}

#[async_trait]
impl Shelves for ServiceBusShelves {
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError> {
        let mut count = 0;
        for (place, marked) in self.places(shelf) {
            count += self.look(&place, marked, shelf, usize::MAX).await?.len();
        }
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    async fn browse(&self, shelf: Shelf, limit: usize) -> Result<Vec<Shelved>, TransportError> {
        let mut found = Vec::new();
        for (place, marked) in self.places(shelf) {
            let looked = self.look(&place, marked, shelf, limit - found.len()).await?;
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
        self.work(shelf, which, &Work::SendTo(&target)).await
    }

    async fn park(&self, which: &Selection) -> Result<u64, TransportError> {
        self.work(Shelf::DeadLetter, which, &Work::Park).await
    }

    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<u64, TransportError> {
        self.work(shelf, which, &Work::Discard).await
    }
}
