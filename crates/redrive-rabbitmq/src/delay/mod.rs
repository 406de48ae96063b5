//! How a retried message waits: one file per mode, each of the same shape. Pure: a mode names queues and ways; declaring
//! and publishing is done elsewhere.

mod ladder;
mod native;
mod single_queue;
mod staged;

pub use native::Native;
pub use single_queue::{Entity, SingleQueue};
pub use staged::Staged;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::{Facts, Message, Needs, Origin, Value, header_names};

use crate::topology::{Part, Plan, QueueType, Topology};
use crate::version::Version;
pub(crate) use ladder::{LONGEST, Ladder, whole_millis};

/// How a retried message waits for its time.
///
/// | mode | a retry | for |
/// |---|---|---|
/// | [`Ladder`](Self::Ladder) | a copy into the delay queue of its wait | everyone; the default |
/// | [`Native`](Self::Native) | the broker holds the message itself back; no copy, no story | quorum queues of RabbitMQ 4.3 and newer |
/// | [`SingleQueue`](Self::SingleQueue) | a copy with an expiration of its own into one queue for all waits | those who run this topology already |
/// | [`Staged`](Self::Staged) | a copy into one of the delay queues that you name, back through your exchange | queues that another team owns |
///
/// What each needs, keeps and costs stands in `docs/transports/rabbitmq-delays.md`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Delay {
    /// One delay queue per wait, each with a time to live of its own.
    #[default]
    Ladder,
    /// Delayed retry by the broker: RabbitMQ 4.3 and newer, quorum queues.
    Native(Native),
    /// One queue for all waits, between two fanout exchanges; each message has its own expiration.
    SingleQueue(SingleQueue),
    /// Delay queues that you name.
    Staged(Staged),
}

impl From<Native> for Delay {
    fn from(native: Native) -> Self {
        Self::Native(native)
    }
}

impl From<SingleQueue> for Delay {
    fn from(single_queue: SingleQueue) -> Self {
        Self::SingleQueue(single_queue)
    }
}

impl From<Staged> for Delay {
    fn from(staged: Staged) -> Self {
        Self::Staged(staged)
    }
}

/// What becomes of a message that is dead-lettered. Parking is always a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadLetters {
    /// A copy with its story (what failed, when, how often) is stored on the shelf.
    #[default]
    Republish,
    /// The broker moves it, by the dead-letter exchange of the work queue (an argument or a policy). Nothing is published,
    /// and nothing is written on it: [`x-death`](redrive_core::DeathHistory) is all that tells.
    Broker,
}

impl Delay {
    /// The word for the mode in logs and errors.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ladder => "ladder",
            Self::Native(_) => "native",
            Self::SingleQueue(_) => "single queue",
            Self::Staged(_) => "staged",
        }
    }

    /// Why these options cannot be, whatever the broker.
    pub(crate) fn contradiction(&self, plan: &Plan, more_waits: &[Duration]) -> Option<String> {
        match self {
            Self::Ladder => None,
            Self::Native(native) => native.contradiction(plan, more_waits),
            Self::SingleQueue(single_queue) => single_queue.contradiction(plan),
            Self::Staged(staged) => staged.contradiction(plan),
        }
    }

    /// Why the mode cannot be had on this broker; `None` for a version means that the broker does not tell it.
    pub(crate) fn refused_by(&self, version: Option<Version>) -> Option<String> {
        match self {
            Self::Native(_) => native::refused_by(version),
            Self::Ladder | Self::SingleQueue(_) | Self::Staged(_) => None,
        }
    }

    /// The mode at work, once it is known which waits will be asked for.
    pub(crate) fn at_work(&self, plan: &Arc<Plan>, needs: &Needs, more_waits: &[Duration]) -> Arc<dyn Mode> {
        let waits = || needs.waits.iter().chain(more_waits).copied();
        match self {
            Self::Ladder => Arc::new(ladder::AtWork::new(plan, Ladder::for_waits(waits()))),
            Self::Native(native) => Arc::new(native::AtWork::new(*native, plan, needs, more_waits)),
            Self::SingleQueue(single_queue) => Arc::new(single_queue::AtWork::new(single_queue, plan)),
            Self::Staged(staged) => Arc::new(staged::AtWork::new(staged, plan)),
        }
    }

    /// The mode for who publishes before it is known which waits will be asked for: with the waits that the options name, and no
    /// others.
    pub(crate) fn as_named(&self, plan: &Arc<Plan>, more_waits: &[Duration]) -> Arc<dyn Mode> {
        match self {
            Self::Ladder | Self::Native(_) => {
                Arc::new(ladder::AtWork::with(plan, Ladder::exactly(more_waits.iter().copied())))
            }
            Self::SingleQueue(_) | Self::Staged(_) => self.at_work(plan, &Needs::none(), more_waits),
        }
    }

    /// The type of the delay queues when the options do not say.
    pub(crate) fn default_retry_queue_type(&self) -> QueueType {
        match self {
            // What those who run it have.
            Self::SingleQueue(_) => QueueType::Classic,
            Self::Ladder | Self::Native(_) | Self::Staged(_) => QueueType::Quorum,
        }
    }

    /// Whether redrive declares the queues where messages wait.
    pub(crate) fn is_declared(&self, topology: Topology) -> bool {
        match self {
            Self::Staged(staged) => staged.is_declared(),
            Self::Ladder | Self::Native(_) | Self::SingleQueue(_) => topology == Topology::Declare,
        }
    }
}

/// A delay mode at work: plain values that answer.
pub(crate) trait Mode: fmt::Debug + Send + Sync {
    /// The waits that take one hop, shortest first; see [`Delays::hops`](redrive_core::Delays::hops).
    fn hops(&self) -> Vec<Duration>;

    /// Where a copy goes to wait at least this long (never zero); `None` when nothing holds it that long. Writes on the
    /// copy what it needs for that.
    fn way(&self, wait: Duration, copy: &mut Message) -> Option<Way>;

    /// The same for a copy of a delivery that came this way, as the broker tells it: no header decides where a copy goes.
    fn way_from(&self, origin: &Origin, wait: Duration, copy: &mut Message) -> Option<Way> {
        let _ = origin;
        self.way(wait, copy)
    }

    /// What must be there from the start, besides the work queue and the shelves; in the order in which it is declared.
    fn parts(&self) -> Vec<Part>;

    /// What may be missing until a copy is sent this way for the first time.
    fn spare(&self, way: &Way) -> Option<Part> {
        let _ = way;
        None
    }

    /// Reads what others wrote on a message that arrives.
    fn arrived(&self, message: &mut Message) {
        let _ = message;
    }

    /// Takes off a message that an operator sends back what would make it more than a first attempt.
    fn redriven(&self, message: &mut Message) {
        let _ = message;
    }

    /// True when its parts can be gone with a connection: they are then declared anew on the next one.
    fn is_transient(&self) -> bool {
        false
    }

    /// What else the mode says of itself.
    fn describe(&self, facts: &mut Facts) {
        let _ = facts;
    }

    /// What people should know when they start it: logged.
    fn caveats(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Where a message is published to: for a copy, so that it waits there. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Way {
    pub(crate) exchange: Arc<str>,
    pub(crate) routing_key: Arc<str>,
}

impl Way {
    /// Straight into a queue.
    pub(crate) fn queue(name: impl AsRef<str>) -> Self {
        Self { exchange: Arc::default(), routing_key: name.as_ref().into() }
    }

    /// What it leads to, for errors and logs.
    pub(crate) fn shown(&self) -> &str {
        if self.exchange.is_empty() { &self.routing_key } else { &self.exchange }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.exchange {
            "" => f.write_str(&self.routing_key),
            exchange => write!(f, "{exchange} → {}", self.routing_key),
        }
    }
}

/// The routing key that the message was published with at first.
fn original_key(copy: &Message) -> Option<&str> {
    copy.headers().get(header_names::SOURCE_ROUTING_KEY).and_then(Value::as_str)
}

#[cfg(test)]
mod tests;
