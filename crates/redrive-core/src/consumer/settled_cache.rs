//! Which deliveries are done although the broker may not know it. Pure.
//!
//! An acknowledgement that is lost with its connection brings its message back. Where the broker numbers its messages
//! ([`Delivery::broker_number`]), that message is known again by its number. Elsewhere only its content tells, and two
//! messages may be alike in everything: publishers with ids from their business publish the same thing twice, and mean it.
//! So what was settled is believed to come again
//!
//! - only after an interruption: without one, the broker keeps what it was told;
//! - only where the broker may not have been told: it limits how many are in flight, so only that many of the last are in
//!   doubt, and of these only the latest;
//! - only soon after the interruption, which is when it comes again;
//! - only after every other message like it that is known to come again, because it was in flight and not done;
//! - only once for each time that it was settled.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hash, Hasher};
use std::mem::discriminant;
use std::num::NonZeroUsize;

use foldhash::quality::RandomState;
use tokio::time::{Duration, Instant};

use crate::delivery::Delivery;
use crate::headers::Value;

/// An acknowledgement that was sent longer than this before the connection is back has arrived: a connection that is dead is noticed
/// after two heartbeats, and then made again.
const IN_DOUBT_FOR: Duration = Duration::from_secs(180);
/// What was in flight comes again within this time after the connection is back.
pub(crate) const COMES_AGAIN_WITHIN: Duration = Duration::from_secs(60);
/// For so long nothing is taken for done where it is not known what comes again undone.
const UNSURE_FOR: Duration = Duration::from_secs(600);

/// What is done, by message. One whose acknowledgement was lost is known when it comes again, and deduplicated.
///
/// A message without an id of its own is not remembered where the broker does not number its messages.
pub(crate) struct SettledCache {
    /// How many there were before the newest delivery.
    interruptions: u64,
    /// How many of each are in flight that came after the last interruption.
    in_hand: HashMap<u64, u32, RandomState>,
    /// When the last one was over.
    resumed: Option<Instant>,
    /// The last of these that were settled.
    settled: VecDeque<Settled>,
    /// As many of them can be in doubt.
    most_in_hand: usize,
    doubts: Doubts,
    /// Those that the broker numbers.
    numbered: Numbered,
    // Keyed per process, and nothing of it is ever shown: nobody outside can make two messages collide. Fast on large
    // bodies: every message passes it.
    hasher: RandomState,
}

/// Who a delivery in flight is; given back to the cache when it is known what became of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ticket {
    /// Known by its number.
    Numbered(u64),
    /// Known by its content, and by the interruptions before it.
    Alike { key: u64, interruptions: u64 },
}

impl SettledCache {
    pub(crate) fn new(capacity: NonZeroUsize, most_in_hand: usize) -> Self {
        Self {
            interruptions: 0,
            in_hand: HashMap::default(),
            settled: VecDeque::new(),
            most_in_hand: most_in_hand.clamp(1, capacity.get()),
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

    /// Whether this delivery is the first after an interruption: [`interrupted`](Self::interrupted) comes before anything
    /// else then.
    pub(crate) fn is_first_with(&self, delivery: &Delivery) -> bool {
        delivery.interruptions() > self.interruptions
    }

    /// After an interruption that was over at `resumed`: what was in flight and is not done comes again, and so does what the
    /// transport had not handed over yet. Whether the broker knows of the last that were settled is in doubt. Where it is
    /// not known what comes again undone (`None`), nothing is taken for done for a while.
    pub(crate) fn interrupted(
        &mut self,
        interruptions: u64,
        unreceived: Option<&[Delivery]>,
        resumed: Instant,
    ) {
        let earlier = self.resumed.replace(resumed);
        self.interruptions = interruptions;
        // What did not come again in time was not lost.
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
        for (key, times) in self.in_hand.drain() {
            self.doubts.of(key, resumed).open += times;
        }
        for key in unreceived.unwrap_or_default().iter().filter_map(|delivery| key(&self.hasher, delivery)) {
            self.doubts.of(key, resumed).open += 1;
        }
    }

    /// Whether it is done. Changes nothing.
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

    /// It is in flight now; answers whether it is done. Of those that are alike the first to come is one that is not done.
    pub(crate) fn arrived(&mut self, delivery: &Delivery, now: Instant) -> (bool, Option<Ticket>) {
        let Some(key) = key(&self.hasher, delivery) else { return (false, None) };
        if delivery.broker_number().is_some() {
            let known = delivery.redelivered() && self.numbered.keys.contains(&key);
            return (known, Some(Ticket::Numbered(key)));
        }
        let interruptions = delivery.interruptions();
        if interruptions != self.interruptions {
            // Handed over late: it was in flight at the interruption, and comes again.
            self.doubts.of(key, now).open += 1;
            return (false, Some(Ticket::Alike { key, interruptions }));
        }
        let known = delivery.redelivered() && {
            let believes = self.believes(delivery, now);
            self.doubts.take(key, believes)
        };
        *self.in_hand.entry(key).or_default() += 1;
        (known, Some(Ticket::Alike { key, interruptions }))
    }

    /// It is done, or the broker has its copy; that the broker knows is not sure.
    pub(crate) fn done(&mut self, ticket: &Ticket, now: Instant) {
        match *ticket {
            Ticket::Numbered(key) => self.numbered.insert(key),
            Ticket::Alike { key, interruptions } if interruptions == self.interruptions => {
                self.settle(key, now, true);
            }
            // Where it came again meanwhile there is nothing left that could come.
            Ticket::Alike { key, .. } => self.doubts.done_late(key),
        }
    }

    /// It was settled otherwise; should the broker not know, it comes again, and is not done.
    pub(crate) fn settled(&mut self, ticket: &Ticket, now: Instant) {
        if let Ticket::Alike { key, interruptions } = *ticket
            && interruptions == self.interruptions
        {
            self.settle(key, now, false);
        }
    }

    /// It stays with the broker, which hands it out again: before the broker is told, since it may be back at once.
    pub(crate) fn comes_again(&mut self, ticket: &Ticket, now: Instant) {
        if let Ticket::Alike { key, interruptions } = *ticket
            && interruptions == self.interruptions
        {
            self.leave_hand(key);
            self.doubts.of(key, now).open += 1;
        }
    }

    fn settle(&mut self, key: u64, at: Instant, done: bool) {
        self.leave_hand(key);
        if self.settled.len() == self.most_in_hand {
            self.settled.pop_front();
        }
        self.settled.push_back(Settled { key, at, done });
    }

    /// Whether something that is done may come now, in the place of this.
    fn believes(&self, delivery: &Delivery, now: Instant) -> bool {
        let sure = self.doubts.unsure_since.is_none_or(|since| now.duration_since(since) > UNSURE_FOR);
        let in_time = self.resumed.is_some_and(|resumed| now.duration_since(resumed) <= COMES_AGAIN_WITHIN);
        sure && in_time && delivery.interruptions() == self.interruptions
    }

    fn leave_hand(&mut self, key: u64) {
        if let Some(times) = self.in_hand.get_mut(&key) {
            *times -= 1;
            if *times == 0 {
                self.in_hand.remove(&key);
            }
        }
    }
}

/// Everything that a publisher may change, and what redrive counts. Two that are taken for one may lose the second;
/// one that is taken for two is only handled twice.
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
    // Numbers are taken together: every single one would cost a round.
    key.write_u64(u64::from(history.copy_number) << 32 | u64::from(history.failures()));
    key.write_u32(history.redrives.or_highest());
    // A queue that was recreated gives its numbers again.
    (id, number, delivery.came_at()).hash(&mut key);
    (&**message.body(), delivery.exchange(), delivery.routing_key()).hash(&mut key);
    let of_content = (&properties.content_type, &properties.content_encoding, &properties.kind);
    let of_conversation = (&properties.correlation_id, &properties.reply_to, &properties.to);
    let of_sender = (&properties.user_id, &properties.app_id, &properties.cluster_id);
    let of_handling = (properties.priority, properties.expiration, properties.persistent);
    (of_content, of_conversation, of_sender, of_handling).hash(&mut key);
    (&properties.session_id, &properties.timestamp).hash(&mut key);
    for (name, value) in delivery.lasting_headers() {
        name.hash(&mut key);
        hash_value(value, &mut key);
    }
    Some(key.finish())
}

/// The last settlements.
struct Settled {
    key: u64,
    at: Instant,
    done: bool,
}

/// How many messages of the same content may come again, by content. Those that came up first are forgotten first.
struct Doubts {
    of: HashMap<u64, Doubt, RandomState>,
    /// All that are there, and some that are no more.
    order: VecDeque<u64>,
    capacity: usize,
    /// When something was forgotten that comes again undone.
    unsure_since: Option<Instant>,
}

#[derive(Clone, Copy, Default)]
struct Doubt {
    /// Not done, and known to come again.
    open: u32,
    /// Done, and may come again.
    done: u32,
}

impl Doubt {
    /// Whether the next one to come is done.
    fn is_done(&self) -> bool {
        self.open == 0 && self.done > 0
    }
}

impl Doubts {
    /// With an interruption; where what was done before is `stale`, it does not come again any more.
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

    /// One came; answers whether it is one that is done, where that is believed.
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

    /// One that is known to come again is done after all.
    fn done_late(&mut self, key: u64) {
        if let Some(doubt) = self.of.get_mut(&key).filter(|doubt| doubt.open > 0) {
            doubt.open -= 1;
            doubt.done += 1;
        }
    }
}

/// The last that were settled, each once.
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

fn hash_value(value: &Value, key: &mut impl Hasher) {
    discriminant(value).hash(key);
    match value {
        Value::Null => {}
        Value::Bool(value) => value.hash(key),
        Value::I8(n) => n.hash(key),
        Value::U8(n) => n.hash(key),
        Value::I16(n) => n.hash(key),
        Value::U16(n) => n.hash(key),
        Value::I32(n) => n.hash(key),
        Value::U32(n) => n.hash(key),
        Value::I64(n) => n.hash(key),
        Value::U64(n) => n.hash(key),
        Value::F32(n) => n.to_bits().hash(key),
        Value::F64(n) => n.to_bits().hash(key),
        Value::Decimal { scale, value } => (scale, value).hash(key),
        Value::Char(c) => c.hash(key),
        Value::Timestamp(time) => time.hash(key),
        Value::Uuid(bytes) => bytes.hash(key),
        Value::String(text) => text.hash(key),
        Value::RawString(bytes) | Value::Bytes(bytes) => bytes.hash(key),
        Value::List(items) => {
            items.len().hash(key);
            items.iter().for_each(|item| hash_value(item, key));
        }
        Value::Table(table) => {
            table.len().hash(key);
            for (name, value) in table.iter() {
                name.hash(key);
                hash_value(value, key);
            }
        }
    }
}

#[cfg(test)]
#[path = "settled_cache_tests.rs"]
mod tests;
