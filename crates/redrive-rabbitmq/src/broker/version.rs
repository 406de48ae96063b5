//! The broker's version. The client library does not report it, but the meaning of a redelivery depends on it: so the greeting is
//! read before it reaches the library.

use std::fmt;

use lapin::types::{AMQPValue, FieldTable, parsing::parse_field_table};

/// A version of RabbitMQ, as far as behaviour depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    pub(crate) const V4_0: Self = Self { major: 4, minor: 0 };
    pub(crate) const V4_3: Self = Self { major: 4, minor: 3 };

    /// Parses `4.3.6`, `3.13.0-rc.1`, …
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(['.', '-', '+']);
        Some(Self { major: numbers.next()?.parse().ok()?, minor: numbers.next()?.parse().ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Parses `connection.start`: class 10, method 10, two version numbers, the server's properties.
pub(crate) fn read_greeting(greeting: &[u8]) -> Option<Version> {
    let table = greeting.strip_prefix(&[0, 10, 0, 10, 0, 9])?;
    let (_, properties): (_, FieldTable) = parse_field_table(table).ok()?;
    match properties.inner().get("version")? {
        AMQPValue::LongString(text) => Version::parse(std::str::from_utf8(text.as_bytes()).ok()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        let version = |text| Version::parse(text).unwrap();
        assert!(version("3.10.8") < Version::V4_0 && version("4.2.0") < Version::V4_3);
        assert!(version("4.3.6") >= Version::V4_3 && version("4.10.0-rc.1") > Version::V4_3);
        assert_eq!(Version::parse("unknown"), None);
    }

    #[test]
    fn a_greeting_cut_short_is_no_version_and_no_panic() {
        let entry = b"\x07versionS\x00\x00\x00\x054.3.6";
        let mut greeting = vec![0, 10, 0, 10, 0, 9, 0, 0, 0, u8::try_from(entry.len()).unwrap()];
        greeting.extend(entry);
        assert_eq!(read_greeting(&greeting), Some(Version::V4_3));
        for length in 0..greeting.len() {
            assert_eq!(read_greeting(&greeting[..length]), None);
        }
    }
}
