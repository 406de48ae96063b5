//! The standard properties in JSON.

use std::time::Duration;

use redrive_core::{Properties, Value};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::value::{from_json, timestamp_to_json};

/// The properties as they are written. One that is not set is left out.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PropertiesJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_encoding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    app_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    /// As the value of a header.
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<Json>,
    /// Seconds: `1.5s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    persistent: Option<bool>,
}

impl From<&Properties> for PropertiesJson {
    fn from(properties: &Properties) -> Self {
        let of = properties.clone();
        Self {
            id: of.id,
            correlation_id: of.correlation_id,
            content_type: of.content_type,
            content_encoding: of.content_encoding,
            reply_to: of.reply_to,
            kind: of.kind,
            to: of.to,
            user_id: of.user_id,
            app_id: of.app_id,
            cluster_id: of.cluster_id,
            session_id: of.session_id,
            priority: of.priority,
            timestamp: of.timestamp.map(timestamp_to_json),
            expiration: of.expiration.map(seconds),
            persistent: of.persistent,
        }
    }
}

impl TryFrom<PropertiesJson> for Properties {
    type Error = String;

    fn try_from(json: PropertiesJson) -> Result<Self, String> {
        let timestamp = json.timestamp.map(|json| match from_json(json)? {
            Value::Timestamp(time) => Ok(time),
            _ => Err("not {\"$timestamp\":MILLISECONDS}".to_owned()),
        });
        let expiration = json.expiration.map(|text| {
            parse_seconds(&text).ok_or_else(|| format!("property `expiration`: `{text}` is not like `1.5s`"))
        });
        let mut properties = Self::default();
        properties.id = json.id;
        properties.correlation_id = json.correlation_id;
        properties.content_type = json.content_type;
        properties.content_encoding = json.content_encoding;
        properties.reply_to = json.reply_to;
        properties.kind = json.kind;
        properties.to = json.to;
        properties.user_id = json.user_id;
        properties.app_id = json.app_id;
        properties.cluster_id = json.cluster_id;
        properties.session_id = json.session_id;
        properties.priority = json.priority;
        properties.timestamp =
            timestamp.transpose().map_err(|error| format!("property `timestamp`: {error}"))?;
        properties.expiration = expiration.transpose()?;
        properties.persistent = json.persistent;
        Ok(properties)
    }
}

/// Writes a duration as decimal seconds, with as many decimals as it needs.
fn seconds(wait: Duration) -> String {
    let (seconds, nanos) = (wait.as_secs(), wait.subsec_nanos());
    match nanos {
        0 => format!("{seconds}s"),
        _ => format!("{}s", format!("{seconds}.{nanos:09}").trim_end_matches('0')),
    }
}

fn parse_seconds(text: &str) -> Option<Duration> {
    let text = text.strip_suffix('s')?;
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(seconds) || !is_number(decimals) || decimals.len() > 9 {
        return None;
    }
    Some(Duration::new(seconds.parse().ok()?, format!("{decimals:0<9}").parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_property_of_a_message_is_written() {
        // The type may grow: its Debug form names all fields.
        let count = |debug: String| debug.matches(": None").count();
        let ours = count(format!("{:?}", PropertiesJson::default()));
        assert_eq!(ours, count(format!("{:?}", Properties::default())), "a new property is exported too");
    }

    #[test]
    fn durations_are_seconds_with_decimals() {
        for (text, wait) in [
            ("0s", Duration::ZERO),
            ("90s", Duration::from_secs(90)),
            ("1.5s", Duration::from_millis(1500)),
            ("0.000000001s", Duration::from_nanos(1)),
            ("18446744073709551615.999999999s", Duration::MAX),
        ] {
            assert_eq!(seconds(wait), text);
            assert_eq!(parse_seconds(text), Some(wait));
        }
        for text in ["", "s", "1", "-1s", "1.s", ".5s", "1.0000000001s", "+1s", "18446744073709551616s", "1m"]
        {
            assert_eq!(parse_seconds(text), None, "{text}");
        }
    }
}
