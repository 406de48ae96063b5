//! Remembers which deliveries are done although the broker may not know it. Pure.
//!
//! If an acknowledgement is lost with its connection, the broker delivers the message again. Where the broker numbers its
//! messages ([`Delivery::broker_number`]), the number identifies that message. Elsewhere only its content does, and two messages
//! may have identical content: publishers that take ids from their business may publish the same message twice on purpose.
//! Therefore a settled message is taken for a redelivery of itself
//!
//! - only after an interruption: without one, the broker keeps what it was told;
//! - only if the broker may not have been told: it limits how many deliveries are in flight, so at most that many of the last
//!   settlements are in doubt, and of these only the latest;
//! - only soon after the interruption, which is when the broker redelivers;
//! - only after every identical message that is known to be redelivered, because it was in flight and not done;
//! - only once for each time that it was settled.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hash, Hasher};
use std::num::NonZeroUsize;

use foldhash::quality::RandomState;
use redrive_core::Delivery;
use redrive_core::engine::lasting_headers;
use tokio::time::{Duration, Instant};

/// An acknowledgement that was sent longer than this before the reconnect has arrived: a dead connection is noticed after two
/// heartbeats, and then made again.
const IN_DOUBT_FOR: Duration = Duration::from_secs(180);
/// Time after the reconnect within which deliveries that were in flight are redelivered.
pub(crate) const COMES_AGAIN_WITHIN: Duration = Duration::from_secs(60);
/// Time during which nothing is taken for done, while it is not known which unfinished messages are redelivered.
const UNSURE_FOR: Duration = Duration::from_secs(600);

/// The current time. Read only where it is needed: reading it takes longer than most of the rest.
pub(crate) type Clock<'a> = &'a dyn Fn() -> Instant;

/// Messages that are done. If an acknowledgement was lost, the cache recognizes the message when it is redelivered.
///
/// Where the broker does not number its messages, a message without an id of its own is not remembered.
pub(crate) struct SettledCache {
    /// Number of interruptions before the newest delivery.
    interruptions: u64,
    /// Number of deliveries in flight for each message, among those that arrived after the last interruption.
    in_flight: HashMap<u64, u32, RandomState>,
    /// End of the last interruption.
    resumed: Option<Instant>,
    /// The latest settlements among those deliveries.
    settled: VecDeque<Settled>,
    /// Maximum number of deliveries in flight, and so of settlements in doubt.
    max_in_flight: usize,
    doubts: Doubts,
    /// Settled messages that the broker numbers.
    numbered: Numbered,
    // Seeded per process, and no hash leaves the process: nobody outside can make two messages collide. Fast on large bodies,
    // because every message is hashed.
    hasher: RandomState,
}

/// Identity of a delivery in flight. It goes back to the cache when the outcome is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ticket {
    /// Identified by its number.
    Numbered(u64),
    /// Identified by its content, and by the number of interruptions before it.
    Alike { key: u64, interruptions: u64 },
}

impl SettledCache {
    pub(crate) fn new(capacity: NonZeroUsize, max_in_flight: usize) -> Self {
        Self {
            interruptions: 0,
            in_flight: HashMap::default(),
            settled: VecDeque::new(),
            max_in_flight: max_in_flight.clamp(1, capacity.get()),
            resumed: None,
            doubts: Doubts {
                of: HashMap::default(),
                order: VecDeque::new(),
                capacity: capacity.get(),
                unsure_since: None,
            },
            numbered: Numbered { keys: HashSet::default(), order: VecDeque::new(), capacity: capacity.get() },
            hasher: RandomState::default(),
        }
    }

    /// Returns true if this delivery is the first after an interruption. In that case, call [`interrupted`](Self::interrupted)
    /// before anything else.
    pub(crate) fn is_first_with(&self, delivery: &Delivery) -> bool {
        delivery.interruptions() > self.interruptions
    }

    /// Records an interruption that ended at `resumed`. Deliveries that were in flight and are not done are redelivered, and so are
    /// those that the transport had not handed over yet. The broker may or may not know of the last settlements. If it is not
    /// known which unfinished messages are redelivered (`unreceived` is `None`), nothing is taken for done for [`UNSURE_FOR`].
    pub(crate) fn interrupted(
        &mut self,
        interruptions: u64,
        unreceived: Option<&[Delivery]>,
        resumed: Instant,
    ) {
        let earlier = self.resumed.replace(resumed);
        self.interruptions = interruptions;
        // An acknowledgement whose message was not redelivered in time was not lost.
        let stale = earlier.is_none_or(|earlier| resumed.duration_since(earlier) > COMES_AGAIN_WITHIN);
        self.doubts.begin(stale);
        if unreceived.is_none() {
            self.doubts.unsure_since = Some(resumed);
        }
        for Settled { key, at, done } in self.settled.drain(..) {
            if !done {
                self.doubts.of(key, resumed).open += 1;
            } else if resumed.saturating_duration_since(at) < IN_DOUBT_FOR {
                self.doubts.of(key, resumed).done += 1;
            }
        }
        for (key, times) in self.in_flight.drain() {
            self.doubts.of(key, resumed).open += times;
        }
        for key in unreceived.unwrap_or_default().iter().filter_map(|delivery| key(&self.hasher, delivery)) {
            self.doubts.of(key, resumed).open += 1;
        }
    }

    /// Returns true if the delivery is done. Changes nothing.
    pub(crate) fn knows(&self, delivery: &Delivery, now: Instant) -> bool {
        if !delivery.redelivered() {
            return false;
        }
        let Some(key) = key(&self.hasher, delivery) else { return false };
        match delivery.broker_number() {
            Some(_) => self.numbered.keys.contains(&key),
            None => self.believes(delivery, now) && self.doubts.of.get(&key).is_some_and(Doubt::is_done),
        }
    }

    /// Records a delivery in flight. Returns true if it is done. Of several identical messages, those that are not done come
    /// first.
    pub(crate) fn arrived(&mut self, delivery: &Delivery, now: Clock<'_>) -> (bool, Option<Ticket>) {
        let Some(key) = key(&self.hasher, delivery) else { return (false, None) };
        if delivery.broker_number().is_some() {
            let known = delivery.redelivered() && self.numbered.keys.contains(&key);
            return (known, Some(Ticket::Numbered(key)));
        }
        let interruptions = delivery.interruptions();
        if interruptions != self.interruptions {
            // Handed over late: it was in flight at the interruption, and is redelivered.
            self.doubts.of(key, now()).open += 1;
            return (false, Some(Ticket::Alike { key, interruptions }));
        }
        let known = delivery.redelivered() && {
            let believes = self.believes(delivery, now());
            self.doubts.take(key, believes)
        };
        *self.in_flight.entry(key).or_default() += 1;
        (known, Some(Ticket::Alike { key, interruptions }))
    }

    /// Records that the delivery is done, or that the broker has its copy. The broker may still not know that.
    pub(crate) fn done(&mut self, ticket: &Ticket, now: Clock<'_>) {
        match *ticket {
            Ticket::Numbered(key) => self.numbered.insert(key),
            Ticket::Alike { key, interruptions } if interruptions == self.interruptions => {
                self.settle(key, now(), true);
            }
            // If the message has been redelivered meanwhile, no further redelivery is expected.
            Ticket::Alike { key, .. } => self.doubts.done_late(key),
        }
    }

    /// Records any other settlement: if the broker does not know of it, the message is redelivered, and is not done.
    pub(crate) fn settled(&mut self, ticket: &Ticket, now: Clock<'_>) {
        if let Ticket::Alike { key, interruptions } = *ticket
            && interruptions == self.interruptions
        {
            self.settle(key, now(), false);
        }
    }

    /// Records that the broker keeps the message and delivers it again. Call this before telling the broker: the message may be
    /// back at once.
    pub(crate) fn comes_again(&mut self, ticket: &Ticket, now: Clock<'_>) {
        if let Ticket::Alike { key, interruptions } = *ticket
            && interruptions == self.interruptions
        {
            self.leave_hand(key);
            self.doubts.of(key, now()).open += 1;
        }
    }

    fn settle(&mut self, key: u64, at: Instant, done: bool) {
        self.leave_hand(key);
        if self.settled.len() == self.max_in_flight {
            self.settled.pop_front();
        }
        self.settled.push_back(Settled { key, at, done });
    }

    /// Returns true if, instead of this delivery, a redelivery of a message that is done may have arrived.
    fn believes(&self, delivery: &Delivery, now: Instant) -> bool {
        let sure = self.doubts.unsure_since.is_none_or(|since| now.duration_since(since) > UNSURE_FOR);
        let in_time = self.resumed.is_some_and(|resumed| now.duration_since(resumed) <= COMES_AGAIN_WITHIN);
        sure && in_time && delivery.interruptions() == self.interruptions
    }

    fn leave_hand(&mut self, key: u64) {
        if let Some(times) = self.in_flight.get_mut(&key) {
            *times -= 1;
            if *times == 0 {
                self.in_flight.remove(&key);
            }
        }
    }
}

/// Hashes everything that a publisher may change, and redrive's counts. If two messages are taken for one, the second may be
/// lost; if one message is taken for two, it is only handled twice.
fn key(hasher: &RandomState, delivery: &Delivery) -> Option<u64> {
    let history = delivery.history();
    let message = delivery.message();
    let properties = message.properties();
    let id = properties.id.as_deref().filter(|id| !id.is_empty() && !history.id_assigned);
    let number = delivery.broker_number();
    if id.is_none() && number.is_none() {
        return None;
    }
    let mut key = hasher.build_hasher();
    // Two numbers in one write: each write costs a round of the hash.
    key.write_u64(u64::from(history.copy_number) << 32 | u64::from(history.failures()));
    key.write_u32(history.redrives.or_highest());
    let (texts, enqueued_at) = (properties.texts_beside_id(), delivery.enqueued_at());
    // Which of them are present, in one write: most are not.
    let present = [
        id.is_some(),
        number.is_some(),
        enqueued_at.is_some(),
        properties.expiration.is_some(),
        properties.timestamp.is_some(),
        properties.priority.is_some(),
        properties.persistent.is_some(),
    ];
    let present = present.into_iter().chain(texts.iter().map(Option::is_some));
    key.write_u64(present.fold(0, |bits, present| bits << 1 | u64::from(present)));
    std::iter::once(id).chain(texts).flatten().for_each(|text| text.hash(&mut key));
    // A recreated queue issues the same numbers again.
    number.iter().for_each(|number| number.hash(&mut key));
    enqueued_at.iter().for_each(|time| time.hash(&mut key));
    properties.expiration.iter().for_each(|time| time.hash(&mut key));
    properties.timestamp.iter().for_each(|time| time.hash(&mut key));
    properties.priority.iter().for_each(|priority| priority.hash(&mut key));
    properties.persistent.iter().for_each(|persistent| persistent.hash(&mut key));
    (&**message.body(), delivery.exchange(), delivery.routing_key()).hash(&mut key);
    for (name, value) in lasting_headers(delivery) {
        name.hash(&mut key);
        value.hash_into(&mut key);
    }
    Some(key.finish())
}

/// One of the latest settlements.
struct Settled {
    key: u64,
    at: Instant,
    done: bool,
}

/// Counts, by content, how many identical messages may be redelivered. Forgets the oldest entry first.
struct Doubts {
    of: HashMap<u64, Doubt, RandomState>,
    /// Keys in order of creation, including some whose entries are gone.
    order: VecDeque<u64>,
    capacity: usize,
    /// When an entry was forgotten whose message is redelivered and is not done.
    unsure_since: Option<Instant>,
}

#[derive(Clone, Copy, Default)]
struct Doubt {
    /// Number of messages that are not done and known to be redelivered.
    open: u32,
    /// Number of messages that are done and may be redelivered.
    done: u32,
}

impl Doubt {
    /// Returns true if the next message to come is done.
    fn is_done(&self) -> bool {
        self.open == 0 && self.done > 0
    }
}

impl Doubts {
    /// Begins a new interruption. If earlier doubts are `stale`, messages that are done are no longer redelivered.
    fn begin(&mut self, stale: bool) {
        if stale {
            self.of.values_mut().for_each(|doubt| doubt.done = 0);
        }
        self.of.retain(|_, doubt| doubt.open + doubt.done > 0);
        self.order.retain(|key| self.of.contains_key(key));
    }

    fn of(&mut self, key: u64, now: Instant) -> &mut Doubt {
        if !self.of.contains_key(&key) {
            if self.of.len() >= self.capacity {
                self.forget_one(now);
            }
            if self.order.len() >= 2 * self.capacity {
                self.order.retain(|key| self.of.contains_key(key));
            }
            self.order.push_back(key);
        }
        self.of.entry(key).or_default()
    }

    fn forget_one(&mut self, now: Instant) {
        while let Some(oldest) = self.order.pop_front() {
            if let Some(doubt) = self.of.remove(&oldest) {
                if doubt.open > 0 {
                    self.unsure_since = Some(now);
                }
                return;
            }
        }
    }

    /// Records an arrival. Returns true if it is one that is done, and `believed` allows that.
    fn take(&mut self, key: u64, believed: bool) -> bool {
        let Some(doubt) = self.of.get_mut(&key) else { return false };
        let known = believed && doubt.is_done();
        let matched = if known { &mut doubt.done } else { &mut doubt.open };
        *matched = matched.saturating_sub(1);
        if doubt.open + doubt.done == 0 {
            self.of.remove(&key);
        }
        known
    }

    /// Records that a message known to be redelivered is done after all.
    fn done_late(&mut self, key: u64) {
        if let Some(doubt) = self.of.get_mut(&key).filter(|doubt| doubt.open > 0) {
            doubt.open -= 1;
            doubt.done += 1;
        }
    }
}

/// The latest settled numbers, each once.
struct Numbered {
    keys: HashSet<u64, RandomState>,
    order: VecDeque<u64>,
    capacity: usize,
}

impl Numbered {
    fn insert(&mut self, key: u64) {
        if !self.keys.insert(key) {
            return;
        }
        if self.order.len() == self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        self.order.push_back(key);
    }
}

#[cfg(test)]
#[path = "settled_cache_tests.rs"]
mod tests;
