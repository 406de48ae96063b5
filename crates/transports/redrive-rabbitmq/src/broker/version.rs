//! The broker's version. The client library does not report it, but the meaning of a redelivery depends on it: so the greeting is
//! read before it reaches the library.

use std::fmt;

use redrive_amqp091::{Connection, Method};
use redrive_core::Bytes;

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
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(['.', '-', '+']);
        Some(Self { major: numbers.next()?.parse().ok()?, minor: numbers.next()?.parse().ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Returns the version in `connection.start`.
pub(crate) fn read_greeting(greeting: &[u8]) -> Option<Version> {
    match Method::decode(&Bytes::copy_from_slice(greeting)).ok()? {
        Method::Connection(Connection::Start(start)) => {
            Version::parse(start.server_properties.get("version")?.as_str()?)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use redrive_amqp091::{Table, connection};

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
        let mut greeting = BytesMut::new();
        let server_properties = Table::new().with("version", "4.3.6").encode();
        let start = connection::Start { version_minor: 9, server_properties, ..connection::Start::default() };
        Method::from(start).write(&mut greeting);
        assert_eq!(read_greeting(&greeting), Some(Version::V4_3));
        for length in 0..greeting.len() {
            assert_eq!(read_greeting(&greeting[..length]), None);
        }
    }
}
