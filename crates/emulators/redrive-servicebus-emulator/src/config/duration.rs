//! ISO 8601 durations such as `PT1M` or `P14DT2H0.5S`.

use std::time::Duration;

/// .NET's value for an unlimited time.
const FOR_EVER: Duration = Duration::from_secs(10_675_199 * DAY);

const DAY: u64 = 24 * 3600;
/// Years and months have the length that .NET gives them.
const DATE: [(char, u64); 4] = [('Y', 365 * DAY), ('M', 30 * DAY), ('W', 7 * DAY), ('D', DAY)];
const TIME: [(char, u64); 3] = [('H', 3600), ('M', 60), ('S', 1)];

/// Parses a duration; `None` if the text is none.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let (date, time) = match text.strip_prefix('P')?.split_once('T') {
        Some((_, "")) | None if text.len() < 3 => return None,
        Some((_, "")) => return None,
        Some((date, time)) => (date, time),
        None => (text.strip_prefix('P')?, ""),
    };
    sum(date, &DATE)?.checked_add(sum(time, &TIME)?)
}

/// Returns true if the duration means unlimited.
pub(super) fn is_for_ever(duration: Duration) -> bool {
    duration >= FOR_EVER
}

/// Adds up the parts; each may occur once, in this order.
fn sum(mut text: &str, units: &[(char, u64)]) -> Option<Duration> {
    let mut sum = Duration::ZERO;
    let mut units = units.iter();
    while !text.is_empty() {
        let end = text.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let (number, rest) = text.split_at(end);
        let unit = rest.chars().next()?;
        let (_, seconds) = units.find(|(name, _)| *name == unit)?;
        sum = sum.checked_add(times(number, *seconds, unit == 'S')?)?;
        text = &rest[unit.len_utf8()..];
    }
    Some(sum)
}

fn times(number: &str, seconds: u64, fraction: bool) -> Option<Duration> {
    let (whole, part) = match number.split_once('.') {
        Some((whole, part)) if fraction && !part.is_empty() && part.len() <= 9 => (whole, part),
        Some(_) => return None,
        None => (number, ""),
    };
    let whole = whole.parse::<u64>().ok()?.checked_mul(seconds)?;
    let nanos = format!("{part:0<9}").parse().ok()?;
    Some(Duration::new(whole, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, wanted) in [
            ("PT1M", Duration::from_secs(60)),
            ("PT0S", Duration::ZERO),
            ("P14D", Duration::from_secs(14 * DAY)),
            (
                "P1Y2M3DT4H5M6.5S",
                Duration::from_millis(((365 + 60 + 3) * DAY + 4 * 3600 + 5 * 60 + 6) * 1000 + 500),
            ),
            ("PT90M", Duration::from_secs(5400)),
        ] {
            assert_eq!(parse(text), Some(wanted), "{text}");
        }
        assert!(parse("P10675199DT2H48M5.4775807S").is_some_and(is_for_ever));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "P",
            "PT",
            "P1",
            "1M",
            "PT1",
            "P1H",
            "PT1D",
            "PT1S1M",
            "PT1M1M",
            "PT-1S",
            "PT1.5M",
            "PT.S",
            "pt1m",
            "P1DT",
            "PT99999999999999999999S",
            "PT18446744073709551615H",
            "PT1é",
            "00:01:00",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
