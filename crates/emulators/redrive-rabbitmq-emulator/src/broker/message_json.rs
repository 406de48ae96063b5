//! Messages and their properties as the management API writes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redrive_amqp091::{Properties, RawTable};
use serde_json::{Map, Value as Json, json};

use super::definitions::name;
use super::json::{to_json, to_table};
use super::message::Message;

/// Returns a message as the management API shows it; `left`: the number behind it.
pub(super) fn message_json(
    message: &Message,
    properties: &Properties,
    redelivered: bool,
    left: usize,
    base64: bool,
) -> Json {
    let text = std::str::from_utf8(&message.body).ok().filter(|_| !base64);
    let (payload, encoding) = match text {
        Some(text) => (text.to_owned(), "string"),
        None => (STANDARD.encode(&message.body), "base64"),
    };
    json!({
        "payload_bytes": message.body.len(), "redelivered": redelivered, "exchange": message.exchange.to_string(),
        "routing_key": message.routing_key.to_string(), "message_count": left, "properties": properties_json(properties),
        "payload": payload, "payload_encoding": encoding,
    })
}

fn properties_json(properties: &Properties) -> Json {
    let mut json = Map::new();
    let texts = [
        ("content_type", &properties.content_type),
        ("content_encoding", &properties.content_encoding),
        ("correlation_id", &properties.correlation_id),
        ("reply_to", &properties.reply_to),
        ("expiration", &properties.expiration),
        ("message_id", &properties.message_id),
        ("type", &properties.kind),
        ("user_id", &properties.user_id),
        ("app_id", &properties.app_id),
        ("cluster_id", &properties.cluster_id),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            json.insert(key.to_owned(), Json::String(text.to_string()));
        }
    }
    for (key, number) in [("delivery_mode", properties.delivery_mode), ("priority", properties.priority)] {
        if let Some(number) = number {
            json.insert(key.to_owned(), number.into());
        }
    }
    if let Some(timestamp) = properties.timestamp {
        json.insert("timestamp".to_owned(), timestamp.into());
    }
    if let Some(headers) = &properties.headers {
        json.insert("headers".to_owned(), to_json(&headers.decode()));
    }
    Json::Object(json)
}

/// Reads the properties of a message to publish.
pub(super) fn properties_of_json(json: Option<&Map<String, Json>>) -> Result<Properties, String> {
    let Some(json) = json else { return Ok(Properties::default()) };
    let text = |key: &str| json.get(key).and_then(Json::as_str).map(name).transpose();
    let small = |key: &str| {
        let number = json.get(key).and_then(Json::as_u64);
        number.map(|number| u8::try_from(number).map_err(|_| format!("{key} is too large"))).transpose()
    };
    Ok(Properties {
        content_type: text("content_type")?,
        content_encoding: text("content_encoding")?,
        headers: json
            .get("headers")
            .and_then(Json::as_object)
            .map(|headers| RawTable::from(to_table(headers))),
        delivery_mode: small("delivery_mode")?,
        priority: small("priority")?,
        correlation_id: text("correlation_id")?,
        reply_to: text("reply_to")?,
        expiration: text("expiration")?,
        message_id: text("message_id")?,
        timestamp: json.get("timestamp").and_then(Json::as_u64),
        kind: text("type")?,
        user_id: text("user_id")?,
        app_id: text("app_id")?,
        cluster_id: text("cluster_id")?,
    })
}
