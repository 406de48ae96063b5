//! Times in the future. `Duration::MAX` stands for "no limit", and overflows every clock.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// The duration that stands for "never": no clock overflows, and no process runs that long.
const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);
/// The last second of the year 9999, since 1970: neither Service Bus nor HTTP can represent a later time.
const LATEST_ENQUEUE_TIME: Duration = Duration::from_secs(253_402_300_799);

/// Returns the time after this duration, by the clock of this process.
pub(crate) fn later(now: Instant, by: Duration) -> Instant {
    now.checked_add(by).unwrap_or_else(|| now + FAR)
}

/// Returns the enqueue time of a copy that waits.
pub(crate) fn enqueue_time(now: SystemTime, wait: Duration) -> SystemTime {
    let latest = SystemTime::UNIX_EPOCH + LATEST_ENQUEUE_TIME;
    now.checked_add(wait).map_or(latest, |time| time.min(latest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_enqueued_by_the_end_of_the_year_9999() {
        let now = SystemTime::now();
        let wait = Duration::from_secs(60);
        assert_eq!(enqueue_time(now, wait), now + wait);
        for wait in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(1 << 40)] {
            let time = humantime::format_rfc3339(enqueue_time(now, wait)).to_string();
            assert_eq!(time, "9999-12-31T23:59:59Z");
        }
    }

    #[test]
    fn without_an_end_is_far_ahead() {
        let now = Instant::now();
        assert_eq!(later(now, Duration::from_secs(60)), now + Duration::from_secs(60));
        assert!(later(now, Duration::MAX) > now + Duration::from_secs(86_400 * 365));
    }
}
