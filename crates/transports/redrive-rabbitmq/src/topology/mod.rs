//! The queues of one consumer, and their arguments. Pure, except for [`declare`](mod@declare) and [`probe`](mod@probe).
//!
//! | module | contains |
//! |---|---|
//! | [`parts`] | queues, exchanges and bindings with their required properties |
//! | [`names`] | the names of the queues |
//! | [`dead_letter_exchange`] | a named exchange between the work queue and the dead-letter queue |
//! | [`route`] | the target of a message |
//! | [`plan`] | the topology as a value, for declaring it without redrive |
//! | [`declare`](mod@declare) | declares the queues, or verifies that they exist |
//! | [`probe`](mod@probe) | finds the arguments of a queue that redrive did not declare |

mod dead_letter_exchange;
mod declare;
mod names;
mod parts;
mod plan;
mod probe;
mod route;

use std::collections::BTreeMap;
use std::time::Duration;

use lapin::types::AMQPValue;

use crate::broker::QueueType;
pub use dead_letter_exchange::DeadLetterExchange;
pub(crate) use declare::{
    QueueState, Task, count, count_on, declare_all, first_unfit, prepare, queue_state, queue_state_on,
};
pub(crate) use names::{GivenNames, Names};
#[cfg(feature = "management")]
pub(crate) use parts::value_of;
pub(crate) use parts::{Binding, Exchange, Lifetime, Part, Queue, plain};
pub use plan::TopologyPlan;
pub(crate) use probe::{Found, probe, refuse_unfit};
pub(crate) use route::Route;

/// What to do about the queues when the transport is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// Declare what is missing; refuse existing queues with other arguments.
    #[default]
    Declare,
    /// Declare the shelves and the delay queues, with what leads there; refuse if the work queue is missing. For a work queue that
    /// exists with its own arguments.
    DeclareOwn,
    /// Refuse if a queue or an exchange is missing; the error names all of them. Arguments cannot be verified: RabbitMQ compares
    /// them only for users who may declare. [`Options::topology_plan`](crate::Options::topology_plan) returns what is needed.
    Verify,
    /// Neither: a missing queue is noticed when it is needed.
    Nothing,
}

impl Topology {
    /// Returns true if redrive declares the shelves and the delay queues.
    pub(crate) fn declares_own(self) -> bool {
        matches!(self, Self::Declare | Self::DeclareOwn)
    }
}

/// The largest delivery limit that both 3.10 and 4.3 accept, so that reading a shelf removes no message.
pub(crate) const NO_DELIVERY_LIMIT: i64 = i32::MAX as i64;

/// The complete description of the queues.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) names: Names,
    pub(crate) queue_type: QueueType,
    /// The type of the delay queues.
    pub(crate) retry_queue_type: QueueType,
    pub(crate) topology: Topology,
    pub(crate) delivery_limit: u32,
    /// Arguments of the work queue that the delay mode requires.
    pub(crate) delay_arguments: BTreeMap<String, AMQPValue>,
    /// Arguments of the work queue from the user, besides redrive's own.
    pub(crate) arguments: BTreeMap<String, AMQPValue>,
    /// Exchange between the work queue and the dead-letter queue; `None`: the default exchange.
    pub(crate) dead_letter_exchange: Option<DeadLetterExchange>,
    /// Exchanges of the application, and the keys that lead into the work queue.
    pub(crate) bindings: Vec<(String, String)>,
}

impl Plan {
    /// Returns the work queue, its shelves and what leads to them, in the order of declaration: the target of a message comes before
    /// its source. The parts of the delay mode follow.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let Names { work, dead_letters, parking, .. } = &self.names;
        let mut parts = vec![Part::Queue(self.shelf(dead_letters)), Part::Queue(self.shelf(parking))];
        if let Some(exchange) = &self.dead_letter_exchange {
            parts.push(Part::Exchange(exchange.declared()));
            parts.push(binding(dead_letters, &exchange.name, self.dead_letter_key()));
        }
        parts.extend(self.other_dead_letter_target());
        parts.push(Part::Queue(self.work()));
        for (exchange, key) in &self.bindings {
            let exists = Part::OtherExchange(exchange.clone());
            if !parts.contains(&exists) {
                parts.push(exists);
            }
            parts.push(binding(work, exchange, key));
        }
        parts
    }

    /// Returns the dead-letter target that the user's arguments set, if any.
    fn other_dead_letter_target(&self) -> Option<Part> {
        let argument = |name: &str| match self.arguments.get(name)? {
            AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok(),
            _ => None,
        };
        match (argument("x-dead-letter-exchange"), argument("x-dead-letter-routing-key")) {
            (None | Some(""), Some(queue)) => Some(Part::OtherQueue(queue.to_owned())),
            (Some(exchange), _) if !exchange.is_empty() => Some(Part::OtherExchange(exchange.to_owned())),
            _ => None,
        }
    }

    fn dead_letter_key(&self) -> &str {
        let key = self.dead_letter_exchange.as_ref().and_then(|exchange| exchange.key.as_deref());
        key.unwrap_or(&self.names.work)
    }

    fn work(&self) -> Queue {
        let mut queue = dead_lettering(&self.names.work, &self.names.dead_letters, self.queue_type);
        if let Some(exchange) = &self.dead_letter_exchange {
            queue.set("x-dead-letter-exchange", exchange.name.as_str());
            queue.set("x-dead-letter-routing-key", self.dead_letter_key());
        }
        if self.queue_type == QueueType::Quorum {
            queue.set("x-delivery-limit", i64::from(self.delivery_limit));
        }
        queue.arguments.extend(self.delay_arguments.clone());
        queue.arguments.extend(self.arguments.clone());
        queue
    }

    /// Returns the delay queue of a wait.
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

fn binding(queue: &str, exchange: &str, routing_key: &str) -> Part {
    let (queue, exchange, routing_key) = (queue.to_owned(), exchange.to_owned(), routing_key.to_owned());
    Part::Binding(Binding { queue, exchange, routing_key })
}

/// Creates a queue whose expired and rejected messages go only to `target`.
fn dead_lettering(name: &str, target: &str, queue_type: QueueType) -> Queue {
    let mut queue = plain(name, queue_type);
    queue.set("x-dead-letter-exchange", "");
    queue.set("x-dead-letter-routing-key", target);
    queue.dead_letter_at_least_once();
    queue
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
            dead_letter_exchange: None,
            bindings: Vec::new(),
        }
    }

    fn queues(plan: &Plan) -> Vec<Queue> {
        plan.parts().into_iter().filter_map(|part| part.queue().cloned()).collect()
    }

    fn described(plan: &Plan) -> Vec<(String, Vec<String>)> {
        let say = |(name, value): (&String, &AMQPValue)| match value {
            AMQPValue::LongString(text) => format!("{name}={text}"),
            AMQPValue::LongLongInt(number) => format!("{name}={number}"),
            other => format!("{name}={other:?}"),
        };
        let queues: Vec<_> = queues(plan).into_iter().chain([plan.rung(Duration::from_secs(1))]).collect();
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
