//! Protects the messages of a shelf that redrive did not declare: a quorum queue removes a message that was delivered too often, and each
//! look is a delivery. A stream removes none, whatever is acknowledged.
//!
//! No AMQP method tells the arguments of a queue. But RabbitMQ refuses a declaration with other arguments, and says which argument the
//! queue has: asked often enough, it tells all of them.

use std::collections::BTreeMap;

use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use redrive_core::TransportError;
use tracing::{debug, warn};

use crate::broker::Version;
use crate::connection::{Connection, with_timeout};
use crate::convert::short;
use crate::error;

/// A limit that nobody sets: a queue with these arguments is one that this declaration has just created.
const UNLIKELY_LIMIT: i64 = 1_999_999_999;
/// More arguments than a queue can have.
const MAX_ARGUMENTS: usize = 32;
/// Minimum delivery limit of a shelf where every read counts.
const MIN_DELIVERY_LIMIT: i64 = 1000;
/// The limit of a quorum queue that sets none, since 4.0.
const DEFAULT_LIMIT: i64 = 20;

const LIMIT: &str = "x-delivery-limit";
const TYPE: &str = "x-queue-type";

/// What reading may do to the messages of a shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadEffect {
    /// Nothing, or nothing that is known.
    Safe,
    /// The broker puts what was read behind everything else.
    MovesToTheEnd,
    /// The broker removes a message that has this count already, if the process dies while it reads.
    SafeBelow(i64),
    /// The broker removes messages that are read more often than this.
    Counts(i64),
    /// Nothing, but what is acknowledged stays: each message can be read, and none removed.
    KeepsAll,
}

impl ReadEffect {
    /// Asks the broker about a queue.
    ///
    /// # Errors
    ///
    /// If it cannot be reached.
    pub(super) async fn at(connection: &Connection, queue: &str) -> Result<Self, TransportError> {
        let found = probe(connection, queue).await?;
        if found == Found::Unknown {
            warn!(
                queue,
                "the delivery limit of this shelf is not known: a low one may remove what is read often"
            );
        }
        debug!(queue, ?found, "a shelf with a name of its own");
        Ok(Self::of(found, connection.version))
    }

    fn of(found: Found, version: Option<Version>) -> Self {
        let is_before = |than| version.is_none_or(|version| version < than);
        let limit = match found {
            Found::NoQuorumQueue | Found::Unknown => return Self::Safe,
            Found::Stream => return Self::KeepsAll,
            Found::Limit(None) if is_before(Version::V4_0) => return Self::MovesToTheEnd,
            Found::Limit(None) => DEFAULT_LIMIT,
            // No limit since 4.0, and 0 before.
            Found::Limit(Some(limit)) if limit < 0 && !is_before(Version::V4_0) => return Self::Safe,
            Found::Limit(Some(limit)) => limit.max(0),
        };
        match limit {
            MIN_DELIVERY_LIMIT.. => Self::Safe,
            limit if is_before(Version::V4_3) => Self::Counts(limit),
            limit => Self::SafeBelow(limit),
        }
    }
}

/// Returns from which count of a message on a shelf is not read any more: some processes may still be killed while they read it, before
/// the broker removes it at the limit.
pub(super) fn refused_from(limit: i64) -> i64 {
    (limit - (limit / 4).max(1)).max(limit.min(1))
}

/// What the arguments of a queue say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    NoQuorumQueue,
    Stream,
    Limit(Option<i64>),
    /// The user may not ask, or the answer was not understood.
    Unknown,
}

async fn probe(connection: &Connection, queue: &str) -> Result<Found, TransportError> {
    let mut known: BTreeMap<String, AMQPValue> = BTreeMap::new();
    for _ in 0..MAX_ARGUMENTS {
        let channel = connection.channel_to_ask().await?;
        let mut arguments = FieldTable::default();
        arguments.insert(TYPE.into(), AMQPValue::LongString("quorum".into()));
        arguments.insert(LIMIT.into(), AMQPValue::LongLongInt(UNLIKELY_LIMIT));
        for (name, value) in &known {
            arguments.insert(short(name, "the name of a queue argument")?, value.clone());
        }
        let name = short(queue, "the name of a queue")?;
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
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
                Some(Difference { argument: TYPE | "durable" | "exclusive" | "auto_delete", .. }) => {
                    return Ok(Found::NoQuorumQueue);
                }
                Some(Difference { argument, current: Some(current) }) if !known.contains_key(argument) => {
                    let Some(value) = current.value() else { return Ok(Found::Unknown) };
                    known.insert(argument.to_owned(), value);
                }
                _ => return Ok(Found::Unknown),
            },
            Some(_) => return Ok(Found::Unknown),
            None => return Err(error::verifying(queue, refused)),
        }
    }
    Ok(Found::Unknown)
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

    fn version(greeting: [u8; 5]) -> Option<Version> {
        let mut bytes = b"\x00\x0a\x00\x0a\x00\x09\x00\x00\x00\x12\x07versionS\x00\x00\x00\x05".to_vec();
        bytes.extend(greeting);
        crate::broker::read_greeting(&bytes)
    }

    #[test]
    fn a_limit_is_low_where_looks_count() {
        let (old, middle, new) = (version(*b"3.9.0"), version(*b"4.2.0"), Some(Version::V4_3));
        assert!(old < Some(Version::V4_0) && middle > Some(Version::V4_0));
        for (limit, in_old, in_middle, in_new) in [
            (None, ReadEffect::MovesToTheEnd, ReadEffect::Counts(20), ReadEffect::SafeBelow(20)),
            (Some(5), ReadEffect::Counts(5), ReadEffect::Counts(5), ReadEffect::SafeBelow(5)),
            (Some(-1), ReadEffect::Counts(0), ReadEffect::Safe, ReadEffect::Safe),
            (Some(2_000_000_000), ReadEffect::Safe, ReadEffect::Safe, ReadEffect::Safe),
        ] {
            let found = Found::Limit(limit);
            let effects = [old, middle, new].map(|version| ReadEffect::of(found, version));
            assert_eq!(effects, [in_old, in_middle, in_new], "{limit:?}");
        }
        assert_eq!(ReadEffect::of(Found::NoQuorumQueue, middle), ReadEffect::Safe);
        assert_eq!(ReadEffect::of(Found::Stream, middle), ReadEffect::KeepsAll);
    }

    #[test]
    fn a_shelf_is_refused_before_a_killed_process_could_cost_a_message() {
        let refused = [0, 1, 2, 5, 20, 100].map(refused_from);
        assert_eq!(refused, [0, 1, 1, 4, 15, 75]);
    }

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
