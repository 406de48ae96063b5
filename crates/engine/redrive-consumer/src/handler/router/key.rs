//! The key by which a delivery is routed.

use std::borrow::Cow;
use std::fmt;

use redrive_core::{Delivery, Value};

/// Where to find the key of a delivery.
pub(super) enum By {
    Kind,
    Header(String),
    ContentType,
    Function(Box<KeyOf>),
}

pub(super) type KeyOf = dyn for<'a> Fn(&'a Delivery) -> Option<Cow<'a, str>> + Send + Sync;

impl By {
    pub(super) fn key<'a>(&self, delivery: &'a Delivery) -> Option<Cow<'a, str>> {
        let message = delivery.message();
        match self {
            Self::Kind => message.kind().map(Cow::Borrowed),
            Self::Header(name) => match message.headers().get(name)? {
                Value::String(text) => Some(Cow::Borrowed(text)),
                other => other.as_integer().map(|number| Cow::Owned(number.to_string())),
            },
            Self::ContentType => message.properties().content_type.as_deref().map(essence),
            Self::Function(key) => key(delivery),
        }
    }

    pub(super) fn normalized(&self, key: String) -> String {
        match self {
            Self::ContentType => essence(&key).into_owned(),
            Self::Kind | Self::Header(_) | Self::Function(_) => key,
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind => f.write_str("kind"),
            Self::Header(name) => write!(f, "header `{name}`"),
            Self::ContentType => f.write_str("content type"),
            Self::Function(_) => f.write_str("key"),
        }
    }
}

/// Returns the MIME type without its parameters, in lower case.
fn essence(content_type: &str) -> Cow<'_, str> {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if essence.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(essence.to_ascii_lowercase())
    } else {
        Cow::Borrowed(essence)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use redrive_core::Message;
    use redrive_core::transport::{DeliveryBuilder, Origin};

    fn key(by: &By, message: Message) -> Option<String> {
        let delivery =
            DeliveryBuilder::new(message, Origin::new("orders", "shop", "eu.orders"), UNIX_EPOCH).build();
        by.key(&delivery).map(Cow::into_owned)
    }

    #[test]
    fn an_encoded_body_is_no_kind() {
        let key = |kind: &str| {
            let delivery = Delivery::new(Message::new("").with_kind(kind), "orders", UNIX_EPOCH);
            By::Kind.key(&delivery).map(Cow::into_owned)
        };
        assert_eq!(key("order.placed").as_deref(), Some("order.placed"));
        assert_eq!(key("amqp-1.0"), None);
    }

    #[test]
    fn a_header_is_a_key_as_text_or_whole_number() {
        let by = By::Header("version".into());
        let with = |value: Value| key(&by, Message::new("").with_header("version", value));
        assert_eq!(with("2".into()).as_deref(), Some("2"));
        assert_eq!(with(2_i64.into()).as_deref(), Some("2"));
        assert_eq!((with(true.into()), key(&by, Message::new(""))), (None, None));
    }

    #[test]
    fn parameters_and_case_of_a_content_type_do_not_matter() {
        let by = By::ContentType;
        for json in ["application/json", "Application/JSON", "application/json ; charset=UTF-8"] {
            assert_eq!(
                key(&by, Message::new("").with_content_type(json)).as_deref(),
                Some("application/json")
            );
        }
        assert_eq!(by.normalized("Text/CSV".into()), "text/csv");
        assert_eq!(key(&by, Message::new("")), None);
    }

    #[test]
    fn a_function_answers_the_key() {
        let region: Box<KeyOf> =
            Box::new(|delivery| delivery.routing_key().split('.').next().map(Cow::Borrowed));
        assert_eq!(key(&By::Function(region), Message::new("")).as_deref(), Some("eu"));
        assert_eq!(key(&By::Kind, Message::new("")), None);
        assert_eq!(By::Kind.normalized("Order.Placed".into()), "Order.Placed");
    }
}
