//! What the arguments of a queue are that redrive did not declare.
//!
//! No AMQP method tells them. But RabbitMQ refuses a declaration with other arguments, and says which argument the queue has: asked often
//! enough, it tells all of them.

use std::collections::BTreeMap;

use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use redrive_core::TransportError;

use super::declare::queue_state;
use crate::connection::{Connection, with_timeout};
use crate::convert::short;
use crate::error;

/// A limit that nobody sets: a queue with these arguments is one that this declaration has just created.
const UNLIKELY_LIMIT: i64 = 1_999_999_999;
/// More arguments than a queue can have.
const MAX_ARGUMENTS: usize = 32;

const LIMIT: &str = "x-delivery-limit";
const TYPE: &str = "x-queue-type";

/// What the arguments of a queue say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    NoQuorumQueue,
    Stream,
    /// The broker deletes it with its last consumer.
    AutoDelete,
    Limit(Option<i64>),
    /// The user may not ask, or the answer was not understood.
    Unknown,
}

/// Asks the broker about a queue that is there.
///
/// # Errors
///
/// If it cannot be reached.
pub(crate) async fn probe(connection: &Connection, queue: &str) -> Result<Found, TransportError> {
    let mut known: BTreeMap<String, AMQPValue> = BTreeMap::new();
    let mut durable = true;
    for _ in 0..MAX_ARGUMENTS {
        let channel = connection.channel_to_ask().await?;
        let mut arguments = FieldTable::default();
        arguments.insert(TYPE.into(), AMQPValue::LongString("quorum".into()));
        arguments.insert(LIMIT.into(), AMQPValue::LongLongInt(UNLIKELY_LIMIT));
        for (name, value) in &known {
            arguments.insert(short(name, "the name of a queue argument")?, value.clone());
        }
        let name = short(queue, "the name of a queue")?;
        let options = QueueDeclareOptions { durable, ..QueueDeclareOptions::default() };
        let declaring = channel.queue_declare(name.clone(), options, arguments);
        let Err(refused) = with_timeout(&channel, declaring).await else {
            // The queue was deleted since it was found, so this one is new: it goes as it came.
            let options =
                QueueDeleteOptions { if_unused: true, if_empty: true, ..QueueDeleteOptions::default() };
            let _ = with_timeout(&channel, channel.queue_delete(name, options)).await;
            return Ok(Found::Unknown);
        };
        match error::refusal(&refused) {
            Some((406, text)) => match Difference::parse(&text) {
                Some(Difference { argument: LIMIT, current }) => {
                    return Ok(current.map_or(Found::Limit(None), Current::limit));
                }
                Some(Difference { argument: TYPE, current: Some(Current { value: "stream", .. }) }) => {
                    return Ok(Found::Stream);
                }
                Some(Difference { argument: "auto_delete", .. }) => return Ok(Found::AutoDelete),
                // No quorum queue, but one that may go with its consumer.
                Some(Difference { argument: "durable", .. }) if durable => durable = false,
                Some(Difference { argument: TYPE | "exclusive", .. }) => return Ok(Found::NoQuorumQueue),
                Some(Difference { argument, current: Some(current) }) if !known.contains_key(argument) => {
                    let Some(value) = current.value() else { return Ok(Found::Unknown) };
                    known.insert(argument.to_owned(), value);
                }
                _ if !durable => return Ok(Found::NoQuorumQueue),
                _ => return Ok(Found::Unknown),
            },
            Some(_) if !durable => return Ok(Found::NoQuorumQueue),
            Some(_) => return Ok(Found::Unknown),
            None => return Err(error::verifying(queue, refused)),
        }
    }
    Ok(Found::Unknown)
}

/// Refuses a work queue of others that loses messages by its kind.
///
/// # Errors
///
/// If it is such a queue, or cannot be reached. One that is missing is no error.
pub(crate) async fn refuse_unfit(connection: &Connection, queue: &str) -> Result<(), TransportError> {
    match queue_state(connection, queue).await {
        // Who verifies it has said so. Asking for more would declare it.
        Err(missing) if error::is_missing(&missing) => return Ok(()),
        state => state?,
    };
    match probe(connection, queue).await? {
        Found::Stream => Err(error::works_on_a_stream(queue)),
        Found::AutoDelete => Err(error::goes_with_its_consumer(queue)),
        Found::NoQuorumQueue | Found::Limit(_) | Found::Unknown => Ok(()),
    }
}

/// An argument that differs: `inequivalent arg 'x-expires' for queue 'q' in vhost '/': received none but current is the value '5' of type
/// 'long'`.
#[derive(Debug, PartialEq, Eq)]
struct Difference<'a> {
    argument: &'a str,
    /// `None`: the queue does not have it.
    current: Option<Current<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Current<'a> {
    value: &'a str,
    kind: Option<&'a str>,
}

impl<'a> Difference<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (_, rest) = text.split_once("inequivalent arg '")?;
        let (argument, rest) = rest.split_once('\'')?;
        // The value of the queue may contain anything, what was asked for does not.
        let (_, current) = rest.split_once(" but current is ")?;
        if current == "none" {
            return Some(Self { argument, current: None });
        }
        let current = match current.strip_prefix("the value '") {
            Some(rest) => {
                let (value, kind) = rest.strip_suffix('\'')?.rsplit_once("' of type '")?;
                Current { value, kind: Some(kind) }
            }
            None => Current { value: current.strip_prefix('\'')?.strip_suffix('\'')?, kind: None },
        };
        Some(Self { argument, current: Some(current) })
    }
}

impl Current<'_> {
    fn value(self) -> Option<AMQPValue> {
        Some(match self.kind? {
            "longstr" => AMQPValue::LongString(self.value.into()),
            "bool" => AMQPValue::Boolean(self.value.parse().ok()?),
            // RabbitMQ compares numbers of all types.
            _ => AMQPValue::LongLongInt(self.value.parse().ok()?),
        })
    }

    fn limit(self) -> Found {
        self.value.parse().map_or(Found::Unknown, |limit| Found::Limit(Some(limit)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker_says_what_differs() {
        let parse = |text| Difference::parse(text).map(|found| (found.argument, found.current));
        let current = |value, kind| Some(Current { value, kind });
        for (text, expected) in [
            (
                "PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'q' in vhost '/': received the value '1999999999' of \
                 type 'signedint' but current is none",
                (LIMIT, None),
            ),
            (
                "PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'q' in vhost '/': received '1999999999' but current is \
                 '-1'",
                (LIMIT, current("-1", None)),
            ),
            (
                "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'it''s' in vhost '/': received none but current \
                 is the value 'a' of type 'b' of type 'longstr'",
                ("x-dead-letter-exchange", current("a' of type 'b", Some("longstr"))),
            ),
            (
                "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received 'quorum' but current is \
                 'classic'",
                (TYPE, current("classic", None)),
            ),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        for cut in [
            "",
            "inequivalent arg 'x",
            "inequivalent arg 'x' for queue 'q' in vhost '/': received none but current is the val",
        ] {
            assert_eq!(parse(cut), None, "{cut}");
        }
    }
}
