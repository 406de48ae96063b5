//! Writes messages of Service Bus.

use std::time::SystemTime;

use fe2o3_amqp_types::messaging::annotations::OwnedKey;
use fe2o3_amqp_types::messaging::{
    Header, MessageAnnotations, MessageId, Priority, Properties as WireProperties,
};
use fe2o3_amqp_types::primitives::{OrderedMap, Symbol};
use redrive_core::{Headers, Message, Properties, Timestamp, Value};
use redrive_transport::text::take_text;
use serde_amqp::Value as Amqp;

use super::body::WireMessage;
use super::names::{
    APP_ID, CLUSTER_ID, COPY_OF, NO_TTL_MILLIS, PARTITION_KEY, PRIORITY, REPLY_TO_SESSION, SCHEDULED_AT,
    carried,
};
use super::{annotations, body};

/// The options of a message to send.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outgoing {
    /// The id of the copy, whose original id is sent with it. `None`: the message is sent with its own id.
    pub(crate) copy_id: Option<String>,
    /// The time when it is enqueued. `None`: now.
    pub(crate) enqueue_at: Option<SystemTime>,
}

/// Writes a message.
pub(crate) fn outgoing(message: &Message, outgoing: Outgoing) -> WireMessage {
    let properties = message.properties();
    let mut headers = message.headers().clone();
    let mut wire_properties = WireProperties {
        message_id: properties.id.clone().map(MessageId::String),
        user_id: user_id(properties, &mut headers).map(Into::into),
        to: properties.to.clone(),
        subject: properties.kind.clone(),
        reply_to: properties.reply_to.clone(),
        correlation_id: properties.correlation_id.clone().map(MessageId::String),
        content_type: properties.content_type.clone().map(Symbol::from),
        content_encoding: properties.content_encoding.clone().map(Symbol::from),
        absolute_expiry_time: None,
        creation_time: properties.timestamp.map(|time| time.unix_millis().into()),
        group_id: properties.session_id.clone(),
        group_sequence: None,
        reply_to_group_id: take_text(&mut headers, REPLY_TO_SESSION),
    };
    if let Some(id) = outgoing.copy_id {
        if let Some(MessageId::String(original)) = wire_properties.message_id.take() {
            headers.insert(COPY_OF, original);
        }
        wire_properties.message_id = Some(MessageId::String(id));
    }
    for (name, value) in [(APP_ID, &properties.app_id), (CLUSTER_ID, &properties.cluster_id)] {
        if let Some(value) = value {
            headers.insert(name, value.clone());
        }
    }
    if let Some(priority) = properties.priority {
        headers.insert(PRIORITY, priority);
    }
    let mut message_annotations = OrderedMap::new();
    annotations::write_annotations(&mut headers, &mut message_annotations);
    if let Some(key) = take_text(&mut headers, PARTITION_KEY) {
        message_annotations.insert(symbol("x-opt-partition-key"), Amqp::String(key));
    }
    if let Some(time) = outgoing.enqueue_at {
        let millis = Timestamp::from(time).unix_millis();
        message_annotations.insert(symbol(SCHEDULED_AT), Amqp::Timestamp(millis.into()));
    }
    let body = body::write(message.body(), &mut headers);
    WireMessage {
        header: Some(Header {
            durable: true,
            priority: properties.priority.map_or_else(Priority::default, Priority),
            ttl: properties.expiration.map(|ttl| u32::try_from(ttl.as_millis()).unwrap_or(NO_TTL_MILLIS)),
            ..Header::default()
        }),
        delivery_annotations: None,
        message_annotations: (!message_annotations.is_empty())
            .then_some(MessageAnnotations(message_annotations)),
        properties: Some(wire_properties),
        application_properties: Some(annotations::write_properties(headers)),
        body,
        footer: None,
    }
}

/// Returns the user id. One that is not UTF-8 is taken from its header.
fn user_id(properties: &Properties, headers: &mut Headers) -> Option<Vec<u8>> {
    match (&properties.user_id, headers.get(carried::USER_ID)) {
        (Some(user), _) => Some(user.clone().into_bytes()),
        (None, Some(Value::Bytes(user))) => {
            let user = user.to_vec();
            headers.remove(carried::USER_ID);
            Some(user)
        }
        (None, _) => None,
    }
}

fn symbol(name: &str) -> OwnedKey {
    OwnedKey::Symbol(Symbol::from(name))
}
