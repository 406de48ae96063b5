//! One queue for all waits, between two fanout exchanges; each message has its own expiration. Pure.

use std::sync::Arc;
use std::time::Duration;

use lapin::ExchangeKind;
use redrive_core::transport::Facts;
use redrive_core::{Count, Exponential, FailureHistory, Message, header_names};

use super::{DelayStrategy, ladder};
use crate::broker::QueueType;
use crate::topology::{self, Binding, Exchange, Lifetime, Part, Plan, Route};

/// Header with the number of times that a message came back, as kithara and this mode write it.
const RETRIES: &str = "x-kithara-retries";

/// One queue for all waits: the topology of kithara's `with-dead-letter-backoff`, for services that already run it.
///
/// A copy of the failed message goes to the exchange `{queue}--backoff`, and from there into the queue
/// `{queue}--dead-letters`, with its own expiration. When it expires, it goes to the exchange `{queue}--retry`, to which the
/// work queue is bound. Both exchanges are fanouts.
///
/// **RabbitMQ expires messages only at the head of a queue: a message waits at least as long as those before it.** No wait
/// takes more than `max` in one hop, so that no message is delayed for longer than that. [`Delay::Ladder`](super::Delay::Ladder)
/// does not have this problem.
///
/// ```
/// use std::time::Duration;
/// use redrive_rabbitmq::{Entity, SingleQueue};
///
/// let delay = SingleQueue::durable()
///     .between(Duration::from_millis(100), Duration::from_secs(30))
///     .queue(Entity::durable().named("orders-waiting"));
/// let policy = delay.backoff().attempts(10);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SingleQueue {
    queue: Entity,
    backoff_exchange: Entity,
    retry_exchange: Entity,
    min: Duration,
    max: Duration,
}

/// A queue or exchange of [`SingleQueue`]: its name, and how long it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    name: Option<String>,
    lifetime: Lifetime,
}

impl Entity {
    /// Exists until it is deleted: survives a restart of the broker.
    #[must_use]
    pub fn durable() -> Self {
        Self { name: None, lifetime: Lifetime::DURABLE }
    }

    /// Deleted with a restart of the broker, and when it is no longer used.
    #[must_use]
    pub fn transient() -> Self {
        Self { name: None, lifetime: Lifetime { durable: false, exclusive: false, auto_delete: true } }
    }

    /// Sets the name. Default: derived from the work queue's name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets whether it survives a restart of the broker.
    #[must_use]
    pub fn survives_restarts(mut self, durable: bool) -> Self {
        self.lifetime.durable = durable;
        self
    }

    /// Sets whether the queue belongs to one connection, and is deleted with it, messages included. An exchange cannot be exclusive.
    #[must_use]
    pub fn exclusive(mut self, exclusive: bool) -> Self {
        self.lifetime.exclusive = exclusive;
        self
    }

    /// Sets whether it is deleted when it is no longer used.
    #[must_use]
    pub fn auto_delete(mut self, auto_delete: bool) -> Self {
        self.lifetime.auto_delete = auto_delete;
        self
    }
}

impl SingleQueue {
    /// Default of the shortest wait.
    pub const DEFAULT_MIN: Duration = Duration::from_millis(50);
    /// Default of the longest wait of one hop.
    pub const DEFAULT_MAX: Duration = Duration::from_secs(60);

    /// Creates durable queues and exchanges, like kithara's `with-durable-dead-letter-backoff`.
    #[must_use]
    pub fn durable() -> Self {
        Self::of(Entity::durable(), Entity::durable())
    }

    /// Creates the defaults of kithara's `with-dead-letter-backoff`: nothing is durable, and the queue belongs to one
    /// connection. **Waiting messages are lost with the connection.** With more than one consumer use [`durable`](Self::durable).
    #[must_use]
    pub fn transient() -> Self {
        Self::of(Entity::transient().exclusive(true), Entity::transient())
    }

    fn of(queue: Entity, exchange: Entity) -> Self {
        Self {
            queue,
            backoff_exchange: exchange.clone(),
            retry_exchange: exchange,
            min: Self::DEFAULT_MIN,
            max: Self::DEFAULT_MAX,
        }
    }

    /// Sets the queue where messages wait. Default: `{queue}--dead-letters`.
    #[must_use]
    pub fn queue(mut self, queue: Entity) -> Self {
        self.queue = queue;
        self
    }

    /// Sets the exchange that leads into that queue. Default: `{queue}--backoff`.
    #[must_use]
    pub fn backoff_exchange(mut self, exchange: Entity) -> Self {
        self.backoff_exchange = exchange;
        self
    }

    /// Sets the exchange through which messages come back. Default: `{queue}--retry`.
    #[must_use]
    pub fn retry_exchange(mut self, exchange: Entity) -> Self {
        self.retry_exchange = exchange;
        self
    }

    /// Sets the shortest wait, and the longest wait of one hop. Whole milliseconds. A wait of zero is no wait.
    #[must_use]
    pub fn between(mut self, min: Duration, max: Duration) -> Self {
        (self.min, self.max) = (min, max);
        self
    }

    /// Returns the matching retry policy: from `min`, doubling up to `max`. Unlike kithara's, it ends. Default: after 6
    /// attempts.
    pub fn backoff(&self) -> Exponential {
        Exponential::from(self.min).cap(self.max)
    }

    fn names(&self, work: &str) -> Names {
        let name =
            |entity: &Entity, suffix| entity.name.clone().unwrap_or_else(|| format!("{work}--{suffix}"));
        Names {
            queue: name(&self.queue, "dead-letters"),
            backoff_exchange: name(&self.backoff_exchange, "backoff"),
            retry_exchange: name(&self.retry_exchange, "retry"),
        }
    }

    /// Returns true if waiting messages may be lost.
    fn loses_what_waits(&self) -> bool {
        [&self.queue, &self.backoff_exchange, &self.retry_exchange]
            .iter()
            .any(|entity| entity.lifetime != Lifetime::DURABLE)
    }

    pub(super) fn contradiction(&self, plan: &Plan) -> Option<String> {
        let names = self.names(&plan.names.work);
        for name in [&names.queue, &names.backoff_exchange, &names.retry_exchange] {
            if name.is_empty() || name.len() > 255 {
                return Some(format!(
                    "`{name}` is no name for a queue or exchange: it must have 1 to 255 bytes"
                ));
            }
        }
        for (exchange, entity) in
            [(&names.backoff_exchange, &self.backoff_exchange), (&names.retry_exchange, &self.retry_exchange)]
        {
            if entity.lifetime.exclusive {
                return Some(format!(
                    "the exchange `{exchange}` cannot be exclusive: RabbitMQ has exclusive queues only; use auto_delete"
                ));
            }
        }
        let theirs = [&plan.names.work, &plan.names.dead_letters, &plan.names.parking];
        if theirs.contains(&&names.queue) {
            return Some(format!(
                "with Delay::SingleQueue messages wait in `{}`, which must not be the work queue or a shelf: give the shelf \
                 another name with `dead_letter_queue`",
                names.queue
            ));
        }
        if names.backoff_exchange == names.retry_exchange {
            return Some(format!(
                "Delay::SingleQueue needs two exchanges, and both are `{}`: messages would go round without a wait",
                names.retry_exchange
            ));
        }
        if self.min < Duration::from_millis(1) || self.max < self.min || self.max > ladder::MAX_WAIT {
            return Some(format!(
                "Delay::SingleQueue holds a message back for at least 1 ms and at most ten years, and no shorter at most than \
                 at least; asked for were {} to {}",
                humantime::format_duration(self.min),
                humantime::format_duration(self.max)
            ));
        }
        if plan.retry_queue_type == QueueType::Quorum && self.queue.lifetime != Lifetime::DURABLE {
            return Some(format!(
                "a quorum queue is durable and nobody's own, so that `{}` cannot be transient: use SingleQueue::durable(), or \
                 retry_queue_type(QueueType::Classic)",
                names.queue
            ));
        }
        None
    }
}

#[derive(Clone, Debug)]
struct Names {
    queue: String,
    backoff_exchange: String,
    retry_exchange: String,
}

/// The strategy of [`Delay::SingleQueue`](super::Delay::SingleQueue).
#[derive(Debug)]
pub(super) struct SingleQueueStrategy {
    plan: Arc<Plan>,
    single_queue: SingleQueue,
    names: Names,
}

impl SingleQueueStrategy {
    pub(super) fn new(single_queue: &SingleQueue, plan: &Arc<Plan>) -> Self {
        let names = single_queue.names(&plan.names.work);
        Self { plan: Arc::clone(plan), single_queue: single_queue.clone(), names }
    }

    fn queue(&self) -> topology::Queue {
        let mut queue = topology::plain(&self.names.queue, self.plan.retry_queue_type);
        queue.lifetime = self.single_queue.queue.lifetime;
        queue.set("x-dead-letter-exchange", self.names.retry_exchange.as_str());
        queue.dead_letter_at_least_once();
        queue
    }
}

impl DelayStrategy for SingleQueueStrategy {
    fn hops(&self) -> Vec<Duration> {
        vec![self.single_queue.max]
    }

    /// Keeps the routing key, so that the message still has it when it comes back.
    fn route(&self, wait: Duration, copy: &mut Message) -> Option<Route> {
        copy.properties_mut().expiration = Some(self.held_for(wait)?);
        let failures = FailureHistory::read(copy).attempt;
        if let Count::Known(failures @ 1..) = failures {
            copy.headers_mut().insert(RETRIES, i64::from(failures));
        }
        let routing_key = super::original_key(copy).unwrap_or_default();
        Some(Route { exchange: self.names.backoff_exchange.as_str().into(), routing_key: routing_key.into() })
    }

    /// May be longer behind a message that waits longer.
    fn held_for(&self, wait: Duration) -> Option<Duration> {
        let (min, max) = (self.single_queue.min, self.single_queue.max);
        (wait <= max).then(|| ladder::whole_millis(wait.max(min)))
    }

    fn parts(&self) -> Vec<Part> {
        let fanout = |name: &str, entity: &Entity| {
            let (name, lifetime) = (name.to_owned(), entity.lifetime);
            Part::Exchange(Exchange { name, kind: ExchangeKind::Fanout, lifetime })
        };
        let binding = |queue: &str, exchange: &str| {
            let (queue, exchange) = (queue.to_owned(), exchange.to_owned());
            Part::Binding(Binding { queue, exchange, routing_key: "#".to_owned() })
        };
        let Names { queue, backoff_exchange, retry_exchange } = &self.names;
        vec![
            fanout(retry_exchange, &self.single_queue.retry_exchange),
            binding(&self.plan.names.work, retry_exchange),
            fanout(backoff_exchange, &self.single_queue.backoff_exchange),
            Part::Queue(self.queue()),
            binding(queue, backoff_exchange),
        ]
    }

    /// The count of another consumer replaces a lower count of redrive.
    fn arrived(&self, message: &mut Message) {
        if message.headers().contains(header_names::SHELVED) {
            // Another program put it back from a shelf: its count is over.
            message.headers_mut().remove(RETRIES);
        }
        let Some(theirs) = message.headers().get(RETRIES).cloned() else { return };
        let ours = FailureHistory::read(message).attempt;
        let counted = theirs.to_integer().and_then(|count| u32::try_from(count).ok());
        let higher = match (ours, counted) {
            (Count::Known(ours), Some(counted)) => counted > ours,
            // An unreadable count is not taken for zero: the message is dead-lettered because of it.
            (Count::Known(_), None) => true,
            (Count::Unreadable, _) => false,
        };
        if higher {
            message.headers_mut().insert(header_names::ATTEMPT, theirs);
        }
    }

    fn redriven(&self, message: &mut Message) {
        message.headers_mut().remove(RETRIES);
    }

    fn is_transient(&self) -> bool {
        self.single_queue.loses_what_waits()
    }

    fn describe(&self, facts: &mut Facts) {
        facts.delays.survive_crashes &= !self.single_queue.loses_what_waits();
    }

    fn caveats(&self) -> Vec<String> {
        let in_line = format!(
            "all waits share the queue `{}`, and RabbitMQ expires messages at its head only: a message waits at least as long \
             as those before it, {} at most for each hop; Delay::Ladder does not have this",
            self.names.queue,
            humantime::format_duration(self.single_queue.max)
        );
        let lost = self.single_queue.loses_what_waits().then(|| {
            format!(
                "`{}` or its exchanges are not durable, or belong to a connection: what waits can be lost with a restart or a \
                 connection; SingleQueue::durable() does not have this",
                self.names.queue
            )
        });
        std::iter::once(in_line).chain(lost).collect()
    }
}
