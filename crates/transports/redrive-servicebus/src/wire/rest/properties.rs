//! `BrokerProperties`: the broker's fields of a message, as JSON in one header. The client library's own reader is not used: it
//! fails for numbers beyond 32 bits, when the message is already locked.

use std::time::{Duration, SystemTime};

use serde_json::{Map as Json, Value as Any};
use uuid::Uuid;

/// A time to live from this many seconds on means "no limit": .NET's longest time has 922 337 203 685 s.
const NO_TTL_SECONDS: f64 = 900_000_000_000.0;

/// The broker properties of a locked message. All of them are optional.
#[derive(Debug, Default)]
pub(super) struct BrokerProperties(Json<String, Any>);

impl BrokerProperties {
    /// Reads the properties. Never fails: unreadable JSON has no properties.
    pub(super) fn read(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Any::String(text) => Some(text.clone()),
            Any::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    pub(super) fn number(&self, name: &str) -> Option<i64> {
        let value = self.0.get(name)?;
        value.as_i64().or_else(|| value.as_str()?.parse().ok())
    }

    pub(super) fn lock(&self) -> Option<Uuid> {
        Uuid::try_parse(self.0.get("LockToken")?.as_str()?).ok()
    }

    pub(super) fn time(&self, name: &str) -> Option<SystemTime> {
        time(self.0.get(name)?.as_str()?)
    }

    pub(super) fn time_to_live(&self) -> Option<Duration> {
        let seconds = self.0.get("TimeToLive")?.as_f64().filter(|&seconds| seconds < NO_TTL_SECONDS)?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// Returns the count of earlier deliveries. The count of the API includes the current one.
    pub(super) fn delivery_count(&self) -> u32 {
        let count = self.number("DeliveryCount").unwrap_or(1).saturating_sub(1);
        u32::try_from(count.max(0)).unwrap_or(u32::MAX)
    }
}

/// Reads a time in the format of HTTP.
pub(super) fn time(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(&text.trim().replace("+0000", "GMT")).ok()
}

/// Escapes all characters of a JSON text that a header cannot contain as `\u….`.
pub(super) fn ascii(json: &str) -> String {
    let mut written = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            ' '..='~' => written.push(c),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    written.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_32_bits_are_read() {
        let read = BrokerProperties::read(
            r#"{"EnqueuedSequenceNumber":9223372036854775807,"SequenceNumber":4294967296}"#,
        );
        assert_eq!(read.number("EnqueuedSequenceNumber"), Some(i64::MAX));
        assert_eq!(read.number("SequenceNumber"), Some(1 << 32));
    }

    #[test]
    fn the_first_delivery_was_handed_out_never_before() {
        for (text, count) in [
            (r#"{"DeliveryCount":1}"#, 0),
            (r#"{"DeliveryCount":3}"#, 2),
            (r#"{"DeliveryCount":0}"#, 0),
            (r#"{"DeliveryCount":-9223372036854775808}"#, 0),
            ("{}", 0),
            ("no JSON", 0),
        ] {
            assert_eq!(BrokerProperties::read(text).delivery_count(), count, "{text}");
        }
    }

    #[test]
    fn the_longest_time_is_for_ever() {
        assert_eq!(BrokerProperties::read(r#"{"TimeToLive":922337203685.47754}"#).time_to_live(), None);
        let read = BrokerProperties::read(r#"{"TimeToLive":1.5}"#);
        assert_eq!(read.time_to_live(), Some(Duration::from_millis(1500)));
    }

    #[test]
    fn json_fits_into_a_header() {
        assert_eq!(ascii("\"Grüße 👋\u{7f}\""), r#""Gr\u00fc\u00dfe \ud83d\udc4b\u007f""#);
    }
}
