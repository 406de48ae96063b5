//! Time in the broker: a number that the caller passes.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Milliseconds since 1970-01-01 UTC. The broker has no clock: the caller passes the time to every call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01 UTC.
    pub const EPOCH: Self = Self(0);

    /// Creates a time from milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Returns milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Returns seconds since 1970-01-01 UTC; zero before.
    #[must_use]
    pub fn seconds(self) -> u64 {
        u64::try_from(self.0 / 1000).unwrap_or(0)
    }

    /// Returns the time from `earlier` until this; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Returns the time this many milliseconds later; saturates instead of wrapping.
    #[must_use]
    pub fn plus_millis(self, millis: u64) -> Self {
        self + Duration::from_millis(millis)
    }
}

/// Saturates instead of wrapping: a time to live may be unlimited.
impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_time_is_not_passed() {
        let last = Timestamp::from_millis(i64::MAX - 1);
        assert_eq!(last + Duration::MAX, Timestamp::from_millis(i64::MAX));
        assert_eq!(Timestamp::EPOCH.since(last), Duration::ZERO);
    }
}
