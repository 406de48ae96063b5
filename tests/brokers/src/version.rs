//! The versions of RabbitMQ that redrive is tested against.

use std::fmt;
use std::str::FromStr;

/// A version of RabbitMQ that the tests run against: the oldest and the newest that redrive supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// RabbitMQ 3.10, as in Debian 12.
    V3_10,
    /// RabbitMQ 4.3, as in Debian forky.
    V4_3,
}

impl Version {
    /// Every version, oldest first.
    pub const ALL: [Version; 2] = [Version::V3_10, Version::V4_3];

    /// Major and minor number, `3.10` or `4.3`.
    pub fn number(self) -> &'static str {
        match self {
            Version::V3_10 => "3.10",
            Version::V4_3 => "4.3",
        }
    }

    /// The mark that a test on this version carries in its path, `v3_10` or `v4_3`.
    pub fn mark(self) -> &'static str {
        match self {
            Version::V3_10 => "v3_10",
            Version::V4_3 => "v4_3",
        }
    }

    /// The environment variable that names a running broker of this version.
    pub fn url_variable(self) -> &'static str {
        match self {
            Version::V3_10 => "REDRIVE_TEST_AMQP_URL",
            Version::V4_3 => "REDRIVE_TEST_AMQP_URL_43",
        }
    }

    /// The Debian release whose `rabbitmq-server` is this version.
    pub(crate) fn debian_suite(self) -> &'static str {
        match self {
            Version::V3_10 => "bookworm",
            Version::V4_3 => "forky",
        }
    }

    /// Whether `release`, for example `3.10.8` or `3.10.8-1.1+deb12u1`, is of this version.
    pub fn covers(self, release: &str) -> bool {
        release
            .strip_prefix(self.number())
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.number())
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Version::ALL
            .into_iter()
            .find(|version| version.number() == text)
            .ok_or_else(|| format!("no RabbitMQ version {text:?} is tested; say 3.10 or 4.3"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_covers_its_own_releases_only() {
        assert!(Version::V3_10.covers("3.10.8-1.1+deb12u1"));
        assert!(Version::V4_3.covers("4.3.6"));
        assert!(!Version::V3_10.covers("3.1.5"));
        assert!(!Version::V4_3.covers("4.30.1"));
        assert!(!Version::V4_3.covers("4.0.5"));
    }
}
