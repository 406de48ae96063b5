//! Times that others wrote: which are believed, and how every one of them is read and shown.
//!
//! Anybody can write a time on a message, in any unit. A decision takes only [`plausible`] times; nothing guesses the unit.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// 2000-01-01T00:00:00Z, in seconds since 1970.
const EARLIEST: u64 = 946_684_800;
/// Ten years, with their leap days.
pub(crate) const FURTHEST: Duration = Duration::from_secs(3653 * 86_400);
/// The first second after the year 9999, which RFC 3339 cannot represent.
const END_OF_9999: u64 = 253_402_300_800;

/// Returns the time if a decision at `now` may rely on it: not before 2000-01-01, and at most ten years ahead. Any other time is not
/// known: a clock without a battery, another unit, or a mistake.
///
/// ```
/// use std::time::{Duration, SystemTime, UNIX_EPOCH};
///
/// use redrive_core::plausible;
///
/// let now = SystemTime::now();
/// let failed = now - Duration::from_secs(60);
/// assert_eq!(plausible(failed, now), Some(failed));
/// assert_eq!(plausible(UNIX_EPOCH, now), None);
/// ```
#[must_use]
pub fn plausible(time: SystemTime, now: SystemTime) -> Option<SystemTime> {
    let is_late_enough = time >= UNIX_EPOCH + Duration::from_secs(EARLIEST);
    // A clock near its end has nothing ten years ahead.
    let is_early_enough = time.duration_since(now).map_or(true, |ahead| ahead <= FURTHEST);
    (is_late_enough && is_early_enough).then_some(time)
}

/// Returns the time as RFC 3339, with milliseconds unless they are 0. `None` before 1970 and after 9999, which have no such form.
#[must_use]
pub fn rfc3339(time: SystemTime) -> Option<String> {
    let since = time.duration_since(UNIX_EPOCH).ok().filter(|since| since.as_secs() < END_OF_9999)?;
    Some(match since.subsec_millis() {
        0 => humantime::format_rfc3339_seconds(time).to_string(),
        _ => humantime::format_rfc3339_millis(time).to_string(),
    })
}

/// Reads RFC 3339, also with a space between day and time, without a zone (UTC), and with an offset such as `+01:00`.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    let (local, offset) = split_offset(text);
    let time = humantime::parse_rfc3339_weak(local).ok()?;
    match offset {
        None => Some(time),
        Some((true, offset)) => time.checked_sub(offset),
        Some((false, offset)) => time.checked_add(offset),
    }
}

/// Splits `…+01:00` into the local time and its offset: true if it is ahead of UTC.
fn split_offset(text: &str) -> (&str, Option<(bool, Duration)>) {
    let found = || {
        let (local, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
        let is_ahead = match offset.as_bytes()[0] {
            b'+' => true,
            b'-' => false,
            _ => return None,
        };
        let (hours, minutes) = offset[1..].split_once(':')?;
        let two = |digits: &str, below: u64| {
            let is_number = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_digit());
            digits.parse::<u64>().ok().filter(|number| is_number && *number < below)
        };
        let seconds = two(hours, 24)? * 3600 + two(minutes, 60)? * 60;
        // A day alone has no zone, and a time has one.
        (local.contains(':') && local.ends_with(|last: char| last.is_ascii_digit()))
            .then_some((local, Some((is_ahead, Duration::from_secs(seconds)))))
    };
    found().unwrap_or((text, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    const NOW: u64 = 1_764_333_000;

    #[test]
    fn only_a_time_of_our_days_is_believed() {
        let believed = |time| plausible(time, at(NOW)).is_some();
        assert!(believed(at(EARLIEST)) && !believed(at(EARLIEST - 1)) && !believed(UNIX_EPOCH));
        assert!(!believed(UNIX_EPOCH - Duration::from_secs(1 << 40)));
        assert!(believed(at(NOW) + FURTHEST) && !believed(at(NOW) + FURTHEST + Duration::from_secs(1)));
        // Seconds read as milliseconds, and milliseconds and nanoseconds read as seconds and milliseconds.
        for other_unit in [NOW / 1000, NOW * 1000, NOW * 1_000_000] {
            assert!(!believed(at(other_unit)), "{other_unit}");
        }
    }

    #[test]
    fn a_time_without_a_form_has_none() {
        assert_eq!(rfc3339(at(NOW)).as_deref(), Some("2025-11-28T12:30:00Z"));
        let fraction = at(NOW) + Duration::from_micros(1_500);
        assert_eq!(rfc3339(fraction).as_deref(), Some("2025-11-28T12:30:00.001Z"));
        assert_eq!(rfc3339(at(END_OF_9999 - 1)).as_deref(), Some("9999-12-31T23:59:59Z"));
        for none in [at(END_OF_9999), at(NOW * 1_000_000), UNIX_EPOCH - Duration::from_millis(1)] {
            assert_eq!(rfc3339(none), None);
        }
    }

    #[test]
    fn an_offset_is_read() {
        let noon = Some(at(NOW));
        for text in [
            "2025-11-28T12:30:00Z",
            "2025-11-28 12:30:00",
            "2025-11-28T13:30:00+01:00",
            "2025-11-28T07:00:00-05:30",
            "2025-11-28T12:30:00+00:00",
            "2025-11-28T12:30:00.000-00:00",
        ] {
            assert_eq!(parse_rfc3339(text), noon, "{text}");
        }
        for text in [
            "",
            "+01:00",
            "2025-11-28T12:30:00+1:00",
            "2025-11-28T12:30:00+24:00",
            "2025-11-28T12:30:00Z+01:00",
            "2025-11-28T12:3",
            "1764333000",
            "20251128",
            "ä:+01:00",
            "2025-11-28T12:30:00++1:0",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }
}
