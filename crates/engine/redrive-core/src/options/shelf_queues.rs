//! The names of the shelves' queues.

use serde::{Deserialize, Deserializer};

use super::OptionsError;
use super::section::{self, section};

/// The names of a consumer's shelf queues, read by `serde` from a section of a configuration with the keys `DeadLetterQueue` and
/// `ParkingQueue`. Pass it to the options of a transport (`Options::shelves` of RabbitMQ and Service Bus):
/// `ConsumerOptions` is applied only after the transport is connected, which is too late.
///
/// ```
/// use redrive_core::options::ShelfQueues;
///
/// let section = serde_json::json!({ "DeadLetterQueue": "orders-failed" });
/// let shelves: ShelfQueues = serde_json::from_value(section)?;
/// assert_eq!(shelves.dead_letter_queue.as_deref(), Some("orders-failed"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Section")]
#[non_exhaustive]
pub struct ShelfQueues {
    /// The queue of the dead-letter shelf; `None`: the transport's default.
    pub dead_letter_queue: Option<String>,
    /// The queue of the parking shelf; `None`: the transport's default.
    pub parking_queue: Option<String>,
}

section! {
    /// The section as it was read.
    Section {
        dead_letter_queue: String = "DeadLetterQueue",
        parking_queue: String = "ParkingQueue",
    }
}

impl ShelfQueues {
    /// Reads the names from any format of `serde`; errors name the path of the wrong value.
    ///
    /// # Errors
    ///
    /// If a key is unknown or there twice, a name is empty, or both are the same.
    pub fn from_deserializer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, OptionsError> {
        section::read::<Section, Self, D>(deserializer)
    }
}

impl TryFrom<Section> for ShelfQueues {
    type Error = OptionsError;

    fn try_from(section: Section) -> Result<Self, OptionsError> {
        let Section { dead_letter_queue, parking_queue } = section;
        for (key, name) in [("DeadLetterQueue", &dead_letter_queue), ("ParkingQueue", &parking_queue)] {
            if name.as_ref().is_some_and(|name| name.trim().is_empty()) {
                return Err(OptionsError::at(
                    key,
                    "a queue has a name: give one, or leave the key out for the default",
                ));
            }
        }
        if dead_letter_queue.is_some() && dead_letter_queue == parking_queue {
            return Err(OptionsError::at(
                "ParkingQueue",
                "the shelves need two queues, and both have this name: give one of them another",
            ));
        }
        Ok(Self { dead_letter_queue, parking_queue })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shelves_have_two_names_or_the_defaults() {
        let read = |section| ShelfQueues::from_deserializer::<serde_json::Value>(section);
        assert_eq!(read(json!({})).unwrap(), ShelfQueues::default());
        let both = read(json!({ "dead_letter_queue": "failed", "ParkingQueue": "parked" })).unwrap();
        assert_eq!(
            (both.dead_letter_queue.as_deref(), both.parking_queue.as_deref()),
            (Some("failed"), Some("parked"))
        );
        for (section, path) in [
            (json!({ "DeadLetterQueue": " " }), "DeadLetterQueue"),
            (json!({ "DeadLetterQueue": "q", "ParkingQueue": "q" }), "ParkingQueue"),
            (json!({ "ParkingQueue": 7 }), "ParkingQueue"),
            (json!({ "RetryQueue": "q" }), ""),
        ] {
            assert_eq!(read(section).unwrap_err().path, path);
        }
    }
}
