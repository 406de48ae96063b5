//! What a broker can do with its current configuration.

use std::fmt;
use std::ptr::fn_addr_eq;
use std::time::Duration;

use crate::in_place::InPlace;
use crate::message::Message;

/// What is known of a broker and of the consumed queue. [`Transport::open`](crate::Transport::open) returns it, and
/// [`Signal::FactsChanged`](crate::transport::Signal::FactsChanged) reports changes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Facts {
    /// The broker's name as OpenTelemetry spells it (`messaging.system`): `rabbitmq`, `servicebus`, …
    pub system: &'static str,
    /// How it holds messages back.
    pub delays: Delays,
    /// What it counts.
    pub counting: Counting,
    /// Its limits.
    pub limits: Limits,
    /// Whether it moves messages to the dead-letter shelf itself. The plan of a settlement uses it.
    pub dead_letter: NativeDeadLetter,
    /// True if the transport polls: it requests messages, and the requests wait
    /// ([`Needs::max_wait_time`](crate::transport::Needs::max_wait_time)). False if the broker pushes them.
    pub polls: bool,
}

/// How a broker holds messages back.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Delays {
    /// The longest wait; `None`: any. The preflight refuses a policy that asks for a longer one.
    pub longest: Option<Duration>,
    /// The waits of one hop, shortest first; a wait in between takes the next longer one. `None`: any. The plan of a settlement
    /// splits longer waits into several hops, so that none is cut short.
    pub hop_durations: Option<Vec<Duration>>,
    /// How the broker retries without copies; `None`: every retry is a copy. The plan of a settlement uses it.
    pub in_place: Option<InPlace>,
    /// True if a copy that waits is never lost, even if the broker crashes at the moment when it comes back. If false, the
    /// consumer handles a delivery that is redelivered although its copy was stored.
    pub survive_crashes: bool,
}

/// What a broker counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counting {
    /// True if it counts how often it handed a message out. Without this count the consumer finds no suspects by count.
    pub deliveries: bool,
    /// True if giving a delivery back raises that count. From the second delivery on, the plan of a settlement then gives back
    /// with a copy that comes back at once; the first time it plans a release.
    pub releases: bool,
}

/// Limits of a broker.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// Number of deliveries after which the broker itself removes a message; `None`: never, or not known. The layers reject a
    /// message before that.
    pub deliveries: Option<u32>,
    /// Maximum number of deliveries in flight, if the transport takes more than [`Needs::prefetch`](crate::transport::Needs::prefetch) by
    /// itself; `None`: never more than that. The consumer remembers as many.
    pub in_flight: Option<u32>,
    /// Time after which the broker takes back an unsettled delivery; `None`: never, or not known, or the transport extends it by
    /// itself. The consumer warns of handlers that may take longer.
    pub hold: Option<Duration>,
    /// Maximum size of properties and headers of a copy; `None`: no limit. The plan of a settlement drops from the history what
    /// does not fit.
    pub headers: Option<HeaderLimit>,
}

/// Whether a broker moves messages to the dead-letter shelf itself ([`Settlement::NativeDeadLetter`](crate::transport::Settlement::NativeDeadLetter)),
/// without a copy and therefore without their history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NativeDeadLetter {
    /// It does not, or not to the shelf.
    No,
    /// It does; used only for messages that cannot be copied.
    LastResort,
    /// It does; used for all dead-lettered messages.
    Preferred,
}

/// Maximum size of properties and headers of a copy, as this transport writes them.
#[derive(Clone, Copy)]
pub struct HeaderLimit {
    bytes: usize,
    measure: fn(&Message) -> usize,
}

impl Facts {
    /// Creates the facts of a broker without limits, to start from. It delays a copy for any time and does not lose it, counts
    /// deliveries and not releases, dead-letters nothing by itself, and pushes deliveries.
    ///
    /// ```
    /// use redrive_core::transport::Facts;
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
    /// Returns true if [`Settlement::NativeDeadLetter`](crate::transport::Settlement::NativeDeadLetter) reaches the dead-letter shelf.
    #[must_use]
    pub fn is_possible(self) -> bool {
        self != Self::No
    }
}

impl HeaderLimit {
    /// Creates a limit of this many bytes, as `measure` counts them. If the broker limits headers and body together, `measure` counts
    /// both.
    #[must_use]
    pub fn new(bytes: usize, measure: fn(&Message) -> usize) -> Self {
        Self { bytes, measure }
    }

    /// Returns the limit, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if properties and headers of this message are within the limit.
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
