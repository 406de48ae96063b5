//! A time that an operator writes. Pure.

use std::time::{Duration, SystemTime};

use redrive::{parse_rfc3339, rfc3339};

const DAY: Duration = Duration::from_secs(86_400);

/// A time in the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Since {
    pub(crate) at: SystemTime,
    /// How a time without a zone was read.
    pub(crate) note: Option<String>,
}

impl Since {
    /// Reads how long ago it was, a time, or a time of day: the last time that it was so late. Without a zone they are in UTC.
    ///
    /// # Errors
    ///
    /// If it is none of these.
    pub(crate) fn parse(text: &str, now: SystemTime) -> Result<Self, String> {
        if let Ok(ago) = humantime::parse_duration(text) {
            let at = now.checked_sub(ago).ok_or_else(|| "too long ago".to_owned())?;
            return Ok(Self { at, note: None });
        }
        let (local, zone) = split_zone(text);
        let in_zone = |local: &str| parse_rfc3339(&format!("{local}{}", zone.unwrap_or("Z")));
        let at = match local.find(':') {
            // A day, or a time without seconds.
            None => in_zone(&format!("{local}T00:00:00")),
            Some(1 | 2) => last(local, now, in_zone),
            Some(_) => in_zone(local).or_else(|| in_zone(&format!("{local}:00"))),
        };
        let at = at.ok_or_else(|| {
            "neither a duration as `2h`, nor a time as `2027-01-15T08:00:00Z` or `2027-01-15T09:00:00+01:00`, nor a time of day as \
             `13:27`"
                .to_owned()
        })?;
        let said = zone.is_none().then(|| rfc3339(at)).flatten();
        Ok(Self { at, note: said.map(|at| format!("`{text}` was read in UTC, as {at}")) })
    }
}

/// Splits the zone off a time: `Z`, or an offset.
fn split_zone(text: &str) -> (&str, Option<&str>) {
    let at = match text.as_bytes() {
        [.., b'Z'] => text.len() - 1,
        [.., b'+' | b'-', _, _, b':', _, _] => text.len() - 6,
        _ => return (text, None),
    };
    text.split_at_checked(at).map_or((text, None), |(local, zone)| (local, Some(zone)))
}

/// Returns the last time before `now` that was so late on its day.
fn last(clock: &str, now: SystemTime, in_zone: impl Fn(&str) -> Option<SystemTime>) -> Option<SystemTime> {
    let clock = if clock.find(':') == Some(1) { format!("0{clock}") } else { clock.to_owned() };
    let clock = if clock.len() == 5 { format!("{clock}:00") } else { clock };
    // Tomorrow in UTC may be today in the zone.
    let days = [now.checked_add(DAY), Some(now), now.checked_sub(DAY), now.checked_sub(DAY * 2)];
    let dates = days.into_iter().filter_map(|day| Some(rfc3339(day?)?[..10].to_owned()));
    dates.filter_map(|date| in_zone(&format!("{date}T{clock}"))).find(|time| *time <= now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> SystemTime {
        parse_rfc3339("2026-11-28T13:40:00Z").unwrap()
    }

    #[test]
    fn a_time_is_read_in_its_zone() {
        for (text, expected) in [
            ("2h", "2026-11-28T11:40:00Z"),
            ("2026-11-28T13:27:00Z", "2026-11-28T13:27:00Z"),
            ("2026-11-28T13:27:00+01:00", "2026-11-28T12:27:00Z"),
            ("2026-11-28T13:27-05:30", "2026-11-28T18:57:00Z"),
            ("13:27Z", "2026-11-28T13:27:00Z"),
            ("13:27+01:00", "2026-11-28T12:27:00Z"),
            ("02:00+13:00", "2026-11-28T13:00:00Z"),
            ("23:00-10:00", "2026-11-28T09:00:00Z"),
            ("1970-01-02T00:00:00Z", "1970-01-02T00:00:00Z"),
        ] {
            let expected = Since { at: parse_rfc3339(expected).unwrap(), note: None };
            assert_eq!(Since::parse(text, now()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_time_without_a_zone_says_how_it_was_read() {
        for (text, expected) in [
            ("13:27", "2026-11-28T13:27:00Z"),
            ("13:27:30", "2026-11-28T13:27:30Z"),
            ("9:05", "2026-11-28T09:05:00Z"),
            ("13:41", "2026-11-27T13:41:00Z"),
            ("2026-11-28 13:27:00", "2026-11-28T13:27:00Z"),
            ("2026-11-28T13:27", "2026-11-28T13:27:00Z"),
            ("2026-11-28", "2026-11-28T00:00:00Z"),
        ] {
            let since = Since::parse(text, now()).unwrap();
            assert_eq!(rfc3339(since.at).as_deref(), Some(expected), "{text}");
            assert_eq!(since.note, Some(format!("`{text}` was read in UTC, as {expected}")));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in
            ["", "yesterday", "25:00", "13:60", "13", ":", "1:2:3:4", "2026-11-2", "ä:+01:00", "13:27+25:00"]
        {
            let error = Since::parse(text, now()).unwrap_err();
            assert!(error.contains("13:27"), "{text}: {error}");
        }
    }
}
