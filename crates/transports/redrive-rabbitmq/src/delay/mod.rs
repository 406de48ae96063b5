//! How a retried message waits: one file per [`Delay`] mode, with its options and its [`DelayStrategy`]. Pure: a strategy names
//! queues and routes, and does not declare or publish.

mod ladder;
mod native;
mod single_queue;
mod staged;

pub use native::Native;
pub use single_queue::{Entity, SingleQueue};
pub use staged::Staged;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lapin::types::AMQPValue;
use redrive_core::transport::{Facts, Needs, Origin};
use redrive_core::{Message, Value, header_names};

use crate::broker::{QueueType, Version};
use crate::topology::{Part, Plan, Route, Topology};
use ladder::{Ladder, LadderStrategy};
pub(crate) use ladder::{MAX_WAIT, whole_millis};
use native::NativeStrategy;
use single_queue::SingleQueueStrategy;
use staged::StagedStrategy;

/// How a retried message waits for its time.
///
/// | mode | a retry | for |
/// |---|---|---|
/// | [`Ladder`](Self::Ladder) | a copy into the delay queue of its wait | everyone; the default |
/// | [`Native`](Self::Native) | the broker holds the message itself back; no copy, no history | quorum queues of RabbitMQ 4.3 and newer |
/// | [`SingleQueue`](Self::SingleQueue) | a copy with its own expiration into one queue for all waits | services that already run this topology |
/// | [`Staged`](Self::Staged) | a copy into one of the delay queues that you name, back through your exchange | queues that another team owns |
///
/// Requirements, guarantees and costs: [delays on RabbitMQ](https://github.com/redrive-rs/redrive/blob/main/docs/transports/rabbitmq-delays.md).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Delay {
    /// One delay queue per wait, each with its own time to live.
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

/// What happens to a message that is dead-lettered. Parking is always a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadLetters {
    /// A copy with its history (what failed, when, how often) is stored on the shelf.
    #[default]
    Republish,
    /// The broker moves it, through the dead-letter exchange of the work queue (an argument or a policy). Nothing is published or
    /// written on it: only [`x-death`](crate::DeathHistory) shows what happened.
    Broker,
}

impl Delay {
    /// Returns the word for the mode in logs and errors.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ladder => "ladder",
            Self::Native(_) => "native",
            Self::SingleQueue(_) => "single queue",
            Self::Staged(_) => "staged",
        }
    }

    /// Returns why these options contradict each other, on any broker.
    pub(crate) fn contradiction(&self, plan: &Plan, more_waits: &[Duration]) -> Option<String> {
        match self {
            Self::Ladder => None,
            Self::Native(native) => native.contradiction(plan, more_waits),
            Self::SingleQueue(single_queue) => single_queue.contradiction(plan),
            Self::Staged(staged) => staged.contradiction(plan),
        }
    }

    /// Returns why this broker does not support the mode. A version of `None` means that the broker does not send it.
    pub(crate) fn refused_by(&self, version: Option<Version>) -> Option<String> {
        match self {
            Self::Native(_) => native::refused_by(version),
            Self::Ladder | Self::SingleQueue(_) | Self::Staged(_) => None,
        }
    }

    /// Returns the strategy for these needs.
    pub(crate) fn strategy(
        &self,
        plan: &Arc<Plan>,
        needs: &Needs,
        more_waits: &[Duration],
    ) -> Arc<dyn DelayStrategy> {
        let waits = || needs.waits.iter().chain(more_waits).copied();
        match self {
            Self::Ladder => Arc::new(LadderStrategy::new(plan, Ladder::for_waits(waits()))),
            Self::Native(native) => Arc::new(NativeStrategy::new(*native, plan, needs, more_waits)),
            Self::SingleQueue(single_queue) => Arc::new(SingleQueueStrategy::new(single_queue, plan)),
            Self::Staged(staged) => Arc::new(StagedStrategy::new(staged, plan)),
        }
    }

    /// Returns the strategy for a publisher of a transport that is not open: only the waits in the options are known.
    pub(crate) fn strategy_before_needs(
        &self,
        plan: &Arc<Plan>,
        more_waits: &[Duration],
    ) -> Arc<dyn DelayStrategy> {
        match self {
            Self::Ladder => Arc::new(LadderStrategy::new(plan, Ladder::exactly(more_waits.iter().copied()))),
            Self::Native(_) | Self::SingleQueue(_) | Self::Staged(_) => {
                self.strategy(plan, &Needs::none(), more_waits)
            }
        }
    }

    /// Returns the arguments that the mode requires of the work queue.
    pub(crate) fn work_queue_arguments(&self) -> BTreeMap<String, AMQPValue> {
        match self {
            Self::Native(native) => native.work_queue_arguments(),
            Self::Ladder | Self::SingleQueue(_) | Self::Staged(_) => BTreeMap::new(),
        }
    }

    /// Returns true if the broker itself holds failed messages back: each earlier delivery of a message was then a failure.
    pub(crate) fn retries_in_place(&self) -> bool {
        matches!(self, Self::Native(_))
    }

    /// Returns the suffix of the dead-letter queue's name, if the options do not name the queue.
    pub(crate) fn dead_letter_suffix(&self) -> &'static str {
        match self {
            // In that mode, messages wait in `dead-letters`.
            Self::SingleQueue(_) => "failed",
            Self::Ladder | Self::Native(_) | Self::Staged(_) => "dead-letters",
        }
    }

    /// Returns the default type of the delay queues.
    pub(crate) fn default_retry_queue_type(&self) -> QueueType {
        match self {
            // The type in existing set-ups.
            Self::SingleQueue(_) => QueueType::Classic,
            Self::Ladder | Self::Native(_) | Self::Staged(_) => QueueType::Quorum,
        }
    }

    /// Returns true if redrive declares the queues where messages wait.
    pub(crate) fn is_declared(&self, topology: Topology) -> bool {
        match self {
            Self::Staged(staged) => staged.is_declared(),
            Self::Ladder | Self::Native(_) | Self::SingleQueue(_) => topology.declares_own(),
        }
    }
}

/// How messages wait: the queues, and the route of each copy.
pub(crate) trait DelayStrategy: fmt::Debug + Send + Sync {
    /// Returns the waits that take one hop, shortest first; see [`Delays::hop_durations`](redrive_core::transport::Delays::hop_durations).
    fn hops(&self) -> Vec<Duration>;

    /// Returns where a copy goes to wait at least this long (never zero); `None` if no queue holds it that long. Writes the
    /// required headers on the copy.
    fn route(&self, wait: Duration, copy: &mut Message) -> Option<Route>;

    /// Returns the route for the copy of a delivery with this origin, as the broker reports it: no header decides where a copy goes.
    fn route_from(&self, origin: &Origin, wait: Duration, copy: &mut Message) -> Option<Route> {
        let _ = origin;
        self.route(wait, copy)
    }

    /// Returns how long a copy that must wait this long is held; `None` if no queue holds it that long.
    fn held_for(&self, wait: Duration) -> Option<Duration>;

    /// Returns what must exist when the transport is open, besides the work queue and the shelves, in the order of declaration.
    fn parts(&self) -> Vec<Part>;

    /// Returns what may be missing until the first copy takes this route.
    fn spare(&self, route: &Route) -> Option<Part> {
        let _ = route;
        None
    }

    /// Returns the same strategy without the queue of this route, if it is spare and cannot be declared.
    fn without(&self, spare: &Route) -> Option<Arc<dyn DelayStrategy>> {
        let _ = spare;
        None
    }

    /// Reads what others wrote on a message that arrives.
    fn arrived(&self, message: &mut Message) {
        let _ = message;
    }

    /// Removes from a message what would prevent a first attempt after a redrive.
    fn redriven(&self, message: &mut Message) {
        let _ = message;
    }

    /// Returns true if its parts may end with a connection: they are then declared again on the next one.
    fn is_transient(&self) -> bool {
        false
    }

    /// Adds the strategy's own facts.
    fn describe(&self, facts: &mut Facts) {
        let _ = facts;
    }

    /// Returns what users should know; logged when the transport is opened.
    fn caveats(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Returns the routing key that the message was first published with.
fn original_key(copy: &Message) -> Option<&str> {
    copy.headers().get(header_names::SOURCE_ROUTING_KEY).and_then(Value::as_str)
}

#[cfg(test)]
mod tests;
