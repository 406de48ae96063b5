//! The queues of one consumer: what they are called, which arguments they have, and how they are declared or
//! verified.

use std::collections::BTreeMap;
use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};
use redrive_core::{Shelf, TransportError, TransportErrorKind};

use crate::connection::{Live, answered};
use crate::convert::short;
use crate::error;

/// What is done about the queues at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// Declare what is missing; refuse what is there with other arguments.
    #[default]
    Declare,
    /// Refuse when a queue is missing. Arguments cannot be verified: RabbitMQ compares them only for who may declare.
    Verify,
    /// Neither: a queue that is missing shows when it is needed.
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

/// The largest delivery limit that both 3.10 and 4.3 take: a shelf loses nothing for being looked at.
pub(crate) const NO_DELIVERY_LIMIT: i64 = i32::MAX as i64;

/// The names of the queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) work: String,
    pub(crate) dead_letters: String,
    pub(crate) parking: String,
    pub(crate) retry_prefix: String,
}

impl Names {
    pub(crate) fn of(work: &str) -> Self {
        Self {
            work: work.to_owned(),
            dead_letters: format!("{work}--dead-letters"),
            parking: format!("{work}--parking-lot"),
            retry_prefix: format!("{work}--retry"),
        }
    }

    pub(crate) fn rung(&self, wait: Duration) -> String {
        format!("{}-{}ms", self.retry_prefix, wait.as_millis())
    }

    pub(crate) fn shelf(&self, shelf: Shelf) -> Result<&str, TransportError> {
        match shelf {
            Shelf::DeadLetter => Ok(&self.dead_letters),
            Shelf::Parking => Ok(&self.parking),
            other => {
                let message = format!("RabbitMQ has no queue for the shelf `{other}`");
                Err(TransportError::new(TransportErrorKind::Unsupported, message))
            }
        }
    }
}

/// A queue as it must be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) arguments: BTreeMap<String, AMQPValue>,
}

/// All that is needed to describe the queues.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) names: Names,
    pub(crate) queue_type: QueueType,
    /// The type of the delay queues.
    pub(crate) retry_queue_type: QueueType,
    pub(crate) delivery_limit: u32,
    /// For the work queue, besides our own.
    pub(crate) arguments: BTreeMap<String, AMQPValue>,
}

impl Plan {
    /// The queues, in the order in which they are declared: where a message goes exists before where it comes from.
    pub(crate) fn queues(&self, rungs: &[Duration]) -> Vec<Queue> {
        let shelves = [&self.names.dead_letters, &self.names.parking].map(|name| self.shelf(name));
        shelves.into_iter().chain([self.work()]).chain(rungs.iter().map(|&wait| self.rung(wait))).collect()
    }

    fn work(&self) -> Queue {
        let mut queue = dead_lettering(&self.names.work, &self.names.dead_letters, self.queue_type);
        if self.queue_type == QueueType::Quorum {
            queue.set("x-delivery-limit", i64::from(self.delivery_limit));
        }
        queue.arguments.extend(self.arguments.clone());
        queue
    }

    fn rung(&self, wait: Duration) -> Queue {
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

/// A queue whose expired and rejected messages go to `target` and nowhere else.
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

fn plain(name: &str, queue_type: QueueType) -> Queue {
    let mut queue = Queue { name: name.to_owned(), arguments: BTreeMap::new() };
    // Always said: a virtual host may have another default.
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

    fn set(&mut self, name: &str, value: impl IntoArgument) {
        self.arguments.insert(name.to_owned(), value.into_argument());
    }
}

/// What declaring came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Declared {
    NothingIsNew,
    SomeQuorumQueueIsNew,
}

/// Declares the queues.
pub(crate) async fn declare(live: &Live, queues: &[Queue]) -> Result<Declared, TransportError> {
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let mut declared = Declared::NothingIsNew;
    for queue in queues {
        // The answer to a declaration does not tell whether the queue was there.
        if queue.is_quorum() && !is_there(live, &queue.name).await? {
            declared = Declared::SomeQuorumQueueIsNew;
        }
        let mut arguments = FieldTable::default();
        for (name, value) in &queue.arguments {
            arguments.insert(short(name, "the name of a queue argument")?, value.clone());
        }
        // A refusal closes the channel: each queue has one of its own.
        let channel = live.channel().await?;
        let name = short(&queue.name, "the name of a queue")?;
        let answer = answered(channel.queue_declare(name, options, arguments)).await;
        answer.map_err(|error| error::declaring(&queue.name, error))?;
    }
    Ok(declared)
}

async fn is_there(live: &Live, queue: &str) -> Result<bool, TransportError> {
    match count(live, queue).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == TransportErrorKind::Unreachable => Err(error),
        // Whatever is wrong with it, its declaration says so.
        Err(_) => Ok(false),
    }
}

/// Looks whether the queues are there.
pub(crate) async fn verify(live: &Live, queues: &[Queue]) -> Result<(), TransportError> {
    for queue in queues {
        count(live, &queue.name).await?;
    }
    Ok(())
}

/// How many messages are ready in a queue; an error when it is not there.
pub(crate) async fn count(live: &Live, queue: &str) -> Result<u32, TransportError> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let channel = live.channel().await?;
    let name = short(queue, "the name of a queue")?;
    let found = answered(channel.queue_declare(name, options, FieldTable::default())).await;
    let found = found.map_err(|error| error::verifying(queue, error))?;
    Ok(found.message_count())
}

trait IntoArgument {
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
        let names = Names::of("orders");
        Plan { names, queue_type, retry_queue_type, delivery_limit: 7, arguments: BTreeMap::new() }
    }

    fn described(plan: &Plan) -> Vec<(String, Vec<String>)> {
        let say = |(name, value): (&String, &AMQPValue)| match value {
            AMQPValue::LongString(text) => format!("{name}={text}"),
            AMQPValue::LongLongInt(number) => format!("{name}={number}"),
            other => format!("{name}={other:?}"),
        };
        let queues = plan.queues(&[Duration::from_secs(1)]);
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
