//! What a broker can do, as it is configured.

use std::fmt;
use std::ptr::fn_addr_eq;
use std::time::Duration;

use crate::in_place::InPlace;
use crate::message::Message;

/// What is known of a broker and of the queue that is consumed: the answer of
/// [`Transport::open`](super::Transport::open), and of [`Signal::FactsChanged`](super::Signal::FactsChanged) later.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Facts {
    /// The broker's name as OpenTelemetry spells it (`messaging.system`): `rabbitmq`, `servicebus`, …
    pub system: &'static str,
    /// How it holds messages back.
    pub delays: Delays,
    /// What it counts.
    pub counting: Counting,
    /// What is too much for it.
    pub limits: Limits,
    /// Whether it moves messages onto the dead-letter shelf itself. The plan of a settlement acts on it.
    pub dead_letter: NativeDeadLetter,
    /// Whether the transport asks for messages by requests that wait ([`Needs::max_wait_time`](crate::Needs::max_wait_time)), instead
    /// of having them pushed.
    pub polls: bool,
}

/// How a broker holds messages back.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Delays {
    /// The longest wait; `None`: any. The preflight refuses a policy that asks for a longer one.
    pub longest: Option<Duration>,
    /// The waits of one hop, shortest first; a wait in between takes the next longer one. The plan of a settlement makes longer
    /// waits of several hops, so that none is cut short. `None`: any.
    pub hop_durations: Option<Vec<Duration>>,
    /// What the broker does about retries by itself, without copies; `None`: every retry is a copy. The plan of a settlement
    /// acts on it.
    pub in_place: Option<InPlace>,
    /// Whether a copy that was stored to come back after a wait is never lost, even when the broker crashes just as it
    /// comes back. Where it may be, the consumer handles a delivery that comes again, although its copy was stored.
    pub survive_crashes: bool,
}

/// What a broker counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counting {
    /// Whether it counts how often it handed a message out. Without it the consumer finds no suspects by count.
    pub deliveries: bool,
    /// Whether giving a delivery back raises that count. From the second delivery on the plan of a settlement then gives back by
    /// a copy that comes back at once; the first time it plans a release.
    pub releases: bool,
}

/// What is too much for a broker.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// After how many deliveries the broker itself takes a message away; `None`: never, or not known. The layers turn a message
    /// away before that.
    pub deliveries: Option<u32>,
    /// How many deliveries the transport may have in flight, where it takes more than [`Needs::prefetch`](crate::Needs::prefetch)
    /// by itself; `None`: never more than that. The consumer remembers as many.
    pub in_flight: Option<u32>,
    /// After how long the broker takes back a delivery that is not settled; `None`: never, or not known, or the transport asks
    /// for more time by itself. The consumer warns of handlers that may take longer.
    pub hold: Option<Duration>,
    /// How large properties and headers of a copy may be; `None`: any size. The plan of a settlement leaves out of the history
    /// what does not fit.
    pub headers: Option<HeaderLimit>,
}

/// Whether a broker moves messages onto the dead-letter shelf itself ([`Settlement::NativeDeadLetter`](crate::Settlement::NativeDeadLetter)),
/// without a copy and hence without their history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NativeDeadLetter {
    /// It does not, or not onto the shelf.
    No,
    /// It does, and is asked to only for what cannot be copied.
    LastResort,
    /// It does, and is asked to for all that is dead-lettered.
    Preferred,
}

/// How large properties and headers of a copy may be, as this transport writes them.
#[derive(Clone, Copy)]
pub struct HeaderLimit {
    bytes: usize,
    measure: fn(&Message) -> usize,
}

impl Facts {
    /// The facts of a broker without limits: a start to change from. It delays a copy for any time and does not lose it, counts
    /// deliveries and not releases, dead-letters nothing by itself, and pushes deliveries.
    ///
    /// ```
    /// use redrive_core::Facts;
    ///
    /// let mut facts = Facts::new("nats");
    /// facts.counting.releases = true;
    /// ```
    #[must_use]
    pub fn new(system: &'static str) -> Self {
        Self {
            system,
            delays: Delays { longest: None, hop_durations: None, in_place: None, survive_crashes: true },
            counting: Counting { deliveries: true, releases: false },
            limits: Limits { deliveries: None, in_flight: None, hold: None, headers: None },
            dead_letter: NativeDeadLetter::No,
            polls: false,
        }
    }
}

impl NativeDeadLetter {
    /// Whether [`Settlement::NativeDeadLetter`](crate::Settlement::NativeDeadLetter) reaches the dead-letter shelf.
    #[must_use]
    pub fn is_possible(self) -> bool {
        self != Self::No
    }
}

impl HeaderLimit {
    /// This many bytes, as `measure` counts them. Where the broker limits headers and body together, it counts both.
    #[must_use]
    pub fn new(bytes: usize, measure: fn(&Message) -> usize) -> Self {
        Self { bytes, measure }
    }

    /// Returns the limit, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether properties and headers of this message keep to the limit.
    #[must_use]
    pub fn has_room_for(&self, message: &Message) -> bool {
        (self.measure)(message) <= self.bytes
    }
}

impl PartialEq for HeaderLimit {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && fn_addr_eq(self.measure, other.measure)
    }
}

impl fmt::Debug for HeaderLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeaderLimit").field(&self.bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_measured_as_the_transport_writes_them() {
        let message = Message::new("").with_header("a", "b");
        let limit = HeaderLimit::new(9, |_| 9);
        let doubled = HeaderLimit::new(9, |_| 2 * 9);
        assert!(limit.has_room_for(&message) && !doubled.has_room_for(&message) && doubled != limit);
    }
}
