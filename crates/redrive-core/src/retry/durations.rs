//! Short names for durations, for schedules that read like what they say.

use std::time::Duration;

/// This many seconds.
///
/// ```
/// assert_eq!(redrive_core::secs(90), redrive_core::millis(90_000));
/// ```
#[must_use]
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// This many milliseconds.
#[must_use]
pub const fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// This many minutes; the longest duration there is where they cannot be told in seconds.
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
