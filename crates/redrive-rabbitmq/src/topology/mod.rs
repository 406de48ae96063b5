//! The queues of one consumer, and the arguments that they have. Pure, except for [`declare`](mod@declare).
//!
//! | module | is |
//! |---|---|
//! | [`names`] | what the queues are called |
//! | [`route`] | where a message is published to |
//! | [`declare`](mod@declare) | declares the queues, or verifies that they exist |

mod declare;
mod names;
mod route;

use std::collections::BTreeMap;
use std::time::Duration;

use lapin::ExchangeKind;
use lapin::types::AMQPValue;

pub(crate) use declare::{Declared, Task, all_fit, count, count_on, prepare};
pub(crate) use names::{GivenNames, Names};
pub(crate) use route::Route;

/// What is done about the queues when the transport is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// Declare what is missing; refuse what is there with other arguments.
    #[default]
    Declare,
    /// Refuse when a queue is missing. Arguments cannot be verified: RabbitMQ compares them only for who may declare.
    Verify,
    /// Neither: a missing queue is noticed when it is needed.
    Nothing,
}

/// The type of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueType {
    /// One node, no counting: `handed_out` only tells 1 from "2 or more".
    Classic,
    /// Replicated; counts how often each message was handed out.
    #[default]
    Quorum,
}

/// The largest delivery limit that both 3.10 and 4.3 accept: a shelf loses no message by being read.
pub(crate) const NO_DELIVERY_LIMIT: i64 = i32::MAX as i64;

/// A part of the topology that is declared or verified.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Queue(Queue),
    Exchange(Exchange),
    /// From an exchange to a queue.
    Binding(Binding),
}

impl Part {
    fn queue(&self) -> Option<&Queue> {
        match self {
            Self::Queue(queue) => Some(queue),
            Self::Exchange(_) | Self::Binding(_) => None,
        }
    }

    /// True when it is the queue of this name.
    pub(crate) fn is_queue(&self, name: &str) -> bool {
        self.queue().is_some_and(|queue| queue.name == name)
    }
}

/// A queue as it must be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) lifetime: Lifetime,
    pub(crate) arguments: BTreeMap<String, AMQPValue>,
}

/// An exchange as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) name: String,
    pub(crate) kind: ExchangeKind,
    pub(crate) lifetime: Lifetime,
}

/// A binding as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) queue: String,
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
}

/// How long a queue or exchange exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) durable: bool,
    pub(crate) exclusive: bool,
    pub(crate) auto_delete: bool,
}

impl Lifetime {
    /// Until it is deleted.
    pub(crate) const DURABLE: Self = Self { durable: true, exclusive: false, auto_delete: false };
}

/// Everything that describes the queues.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) names: Names,
    pub(crate) queue_type: QueueType,
    /// The type of the delay queues.
    pub(crate) retry_queue_type: QueueType,
    pub(crate) topology: Topology,
    pub(crate) delivery_limit: u32,
    /// What the delay mode asks of the work queue.
    pub(crate) delay_arguments: BTreeMap<String, AMQPValue>,
    /// What the user asks of the work queue, besides redrive's own arguments.
    pub(crate) arguments: BTreeMap<String, AMQPValue>,
}

impl Plan {
    /// The work queue and its shelves, in the order in which they are declared: the target of a message exists before its source.
    /// What the delay mode needs follows.
    pub(crate) fn queues(&self) -> Vec<Queue> {
        let shelves = [&self.names.dead_letters, &self.names.parking].map(|name| self.shelf(name));
        shelves.into_iter().chain([self.work()]).collect()
    }

    fn work(&self) -> Queue {
        let mut queue = dead_lettering(&self.names.work, &self.names.dead_letters, self.queue_type);
        if self.queue_type == QueueType::Quorum {
            queue.set("x-delivery-limit", i64::from(self.delivery_limit));
        }
        queue.arguments.extend(self.delay_arguments.clone());
        queue.arguments.extend(self.arguments.clone());
        queue
    }

    /// The delay queue of a wait.
    pub(crate) fn rung(&self, wait: Duration) -> Queue {
        let mut queue = dead_lettering(&self.names.rung(wait), &self.names.work, self.retry_queue_type);
        queue.set("x-message-ttl", i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
        queue
    }

    fn shelf(&self, name: &str) -> Queue {
        let mut queue = plain(name, self.queue_type);
        if self.queue_type == QueueType::Quorum {
            queue.set("x-delivery-limit", NO_DELIVERY_LIMIT);
        }
        queue
    }
}

/// A queue whose expired and rejected messages go only to `target`.
fn dead_lettering(name: &str, target: &str, queue_type: QueueType) -> Queue {
    let mut queue = plain(name, queue_type);
    queue.set("x-dead-letter-exchange", "");
    queue.set("x-dead-letter-routing-key", target);
    if queue_type == QueueType::Quorum {
        queue.set("x-dead-letter-strategy", "at-least-once");
        queue.set("x-overflow", "reject-publish");
    }
    queue
}

pub(crate) fn plain(name: &str, queue_type: QueueType) -> Queue {
    let mut queue = Queue { name: name.to_owned(), lifetime: Lifetime::DURABLE, arguments: BTreeMap::new() };
    // Always explicit: a virtual host may have another default.
    queue.set(
        "x-queue-type",
        match queue_type {
            QueueType::Classic => "classic",
            QueueType::Quorum => "quorum",
        },
    );
    queue
}

impl Queue {
    fn is_quorum(&self) -> bool {
        self.arguments.get("x-queue-type") == Some(&AMQPValue::LongString("quorum".into()))
    }

    pub(crate) fn set(&mut self, name: &str, value: impl IntoArgument) {
        self.arguments.insert(name.to_owned(), value.into_argument());
    }
}

pub(crate) trait IntoArgument {
    fn into_argument(self) -> AMQPValue;
}

impl IntoArgument for &str {
    fn into_argument(self) -> AMQPValue {
        AMQPValue::LongString(self.into())
    }
}

impl IntoArgument for i64 {
    fn into_argument(self) -> AMQPValue {
        AMQPValue::LongLongInt(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(queue_type: QueueType, retry_queue_type: QueueType) -> Plan {
        let names = GivenNames::of("orders").settled("dead-letters");
        let topology = Topology::Declare;
        Plan {
            names,
            queue_type,
            retry_queue_type,
            topology,
            delivery_limit: 7,
            delay_arguments: BTreeMap::new(),
            arguments: BTreeMap::new(),
        }
    }

    fn described(plan: &Plan) -> Vec<(String, Vec<String>)> {
        let say = |(name, value): (&String, &AMQPValue)| match value {
            AMQPValue::LongString(text) => format!("{name}={text}"),
            AMQPValue::LongLongInt(number) => format!("{name}={number}"),
            other => format!("{name}={other:?}"),
        };
        let queues: Vec<_> = plan.queues().into_iter().chain([plan.rung(Duration::from_secs(1))]).collect();
        queues.iter().map(|queue| (queue.name.clone(), queue.arguments.iter().map(say).collect())).collect()
    }

    #[test]
    fn classic_queues() {
        let back_to = |key: &str| {
            vec!["x-dead-letter-exchange=".to_owned(), format!("x-dead-letter-routing-key={key}")]
        };
        let mut rung = back_to("orders");
        rung.extend(["x-message-ttl=1000".to_owned(), "x-queue-type=classic".to_owned()]);
        let mut work = back_to("orders--dead-letters");
        work.push("x-queue-type=classic".to_owned());
        assert_eq!(
            described(&plan(QueueType::Classic, QueueType::Classic)),
            [
                ("orders--dead-letters".to_owned(), vec!["x-queue-type=classic".to_owned()]),
                ("orders--parking-lot".to_owned(), vec!["x-queue-type=classic".to_owned()]),
                ("orders".to_owned(), work),
                ("orders--retry-1000ms".to_owned(), rung),
            ]
        );
    }

    #[test]
    fn delay_queues_have_a_type_of_their_own() {
        let queues = described(&plan(QueueType::Classic, QueueType::Quorum));
        let types = queues.iter().map(|(_, arguments)| arguments.contains(&"x-queue-type=quorum".to_owned()));
        assert_eq!(types.collect::<Vec<_>>(), [false, false, false, true]);
        assert!(queues[3].1.contains(&"x-dead-letter-strategy=at-least-once".to_owned()));
    }

    #[test]
    fn quorum_queues_dead_letter_at_least_once_and_always_have_a_positive_limit() {
        for (name, arguments) in described(&plan(QueueType::Quorum, QueueType::Quorum)) {
            assert!(arguments.contains(&"x-queue-type=quorum".to_owned()), "{name}");
            let dead_letters =
                arguments.iter().any(|argument| argument.starts_with("x-dead-letter-exchange"));
            assert_eq!(
                arguments.contains(&"x-dead-letter-strategy=at-least-once".to_owned()),
                dead_letters,
                "{name}"
            );
            assert_eq!(arguments.contains(&"x-overflow=reject-publish".to_owned()), dead_letters, "{name}");
            assert!(!arguments.iter().any(|argument| argument.starts_with("x-expires")), "{name}");
        }
        let queues = described(&plan(QueueType::Quorum, QueueType::Quorum));
        assert!(queues[2].1.contains(&"x-delivery-limit=7".to_owned()));
        assert!(queues[0].1.contains(&format!("x-delivery-limit={NO_DELIVERY_LIMIT}")));
    }
}
