//! Short constructors of durations, for readable schedules.

use std::time::Duration;

/// Returns this many seconds.
///
/// ```
/// assert_eq!(redrive_core::secs(90), redrive_core::millis(90_000));
/// ```
#[must_use]
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns this many milliseconds.
#[must_use]
pub const fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Returns this many minutes; the maximum duration if the seconds would overflow.
#[must_use]
pub const fn mins(minutes: u64) -> Duration {
    match minutes.checked_mul(60) {
        Some(seconds) => Duration::from_secs(seconds),
        None => Duration::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_sixty_seconds_and_never_overflow() {
        assert_eq!(mins(2), secs(120));
        assert_eq!(mins(u64::MAX), Duration::MAX);
    }
}
