//! Types of this crate and of the core in JSON, in the form in which they are printed. For `#[serde(with = …)]`.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};

pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Lists of such values.
pub(crate) mod list {
    use super::*;

    pub(crate) fn serialize<T: Display, S: Serializer>(
        values: &[T],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(ToString::to_string))
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}

/// Shelves, by their names.
pub(crate) mod shelf {
    use redrive_core::Shelf;

    use super::*;

    pub(crate) use super::serialize;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Shelf, D::Error> {
        let name = String::deserialize(deserializer)?;
        let shelf = [Shelf::DeadLetter, Shelf::Parking].into_iter().find(|shelf| shelf.to_string() == name);
        shelf.ok_or_else(|| {
            D::Error::custom(format!("`{name}` is not a shelf: `dead-letter` or `parking` is expected"))
        })
    }
}

/// Times, in RFC 3339 with milliseconds.
pub(crate) mod time {
    use std::time::SystemTime;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        // A clock that is so wrong says nothing.
        let text = redrive_core::rfc3339(*time);
        serializer.collect_str(text.as_deref().unwrap_or("1970-01-01T00:00:00Z"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_rfc3339(&text)
            .map_err(|error| D::Error::custom(format!("`{text}` is not a time: {error}")))
    }
}

/// Durations, in milliseconds.
pub(crate) mod millis {
    use std::time::Duration;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}
