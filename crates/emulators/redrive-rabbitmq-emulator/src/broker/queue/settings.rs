//! A queue's arguments, checked; and what follows from them together with a policy.

use redrive_amqp091::{ShortStr, Table, Value};

use crate::broker::Version;
use crate::broker::message::{MAX_TTL, type_name};

/// The type of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueueKind {
    /// `classic`
    Classic,
    /// `quorum`
    Quorum,
}

impl QueueKind {
    /// Returns the value of `x-queue-type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Quorum => "quorum",
        }
    }
}

/// What a full queue does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Overflow {
    #[default]
    DropHead,
    RejectPublish,
    RejectPublishDlx,
}

impl Overflow {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "drop-head" => Some(Self::DropHead),
            "reject-publish" => Some(Self::RejectPublish),
            "reject-publish-dlx" => Some(Self::RejectPublishDlx),
            _ => None,
        }
    }
}

/// Which returns wait before they are delivered again (4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum DelayedRetry {
    #[default]
    Disabled,
    All,
    Failed,
    Returned,
}

impl DelayedRetry {
    fn parse(text: &str) -> Self {
        match text {
            "all" => Self::All,
            "failed" => Self::Failed,
            "returned" => Self::Returned,
            _ => Self::Disabled,
        }
    }
}

/// What a queue does, by its arguments, or by a policy, or by both.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Settings {
    /// In milliseconds, like all times here.
    pub(crate) message_ttl: Option<u64>,
    pub(crate) expires: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) max_length_bytes: Option<u64>,
    pub(crate) overflow: Option<Overflow>,
    pub(crate) dead_letter_exchange: Option<ShortStr>,
    pub(crate) dead_letter_routing_key: Option<ShortStr>,
    pub(crate) at_least_once: Option<bool>,
    pub(crate) max_priority: Option<u8>,
    pub(crate) single_active_consumer: bool,
    pub(crate) delivery_limit: Option<i64>,
    pub(crate) retry: Option<DelayedRetry>,
    pub(crate) retry_min: Option<u64>,
    pub(crate) retry_max: Option<u64>,
    pub(crate) consumer_timeout: Option<u64>,
}

/// Arguments that are compared when a queue is declared again, in RabbitMQ's order.
const COMPARED_CLASSIC: &[&str] = &[
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-mode",
    "x-single-active-consumer",
    "x-queue-type",
];
const COMPARED_QUORUM: &[&str] = &[
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-overflow",
    "x-single-active-consumer",
    "x-queue-type",
    "x-delivery-limit",
    "x-message-ttl",
    "x-delayed-retry-type",
    "x-delayed-retry-min",
    "x-delayed-retry-max",
    "x-consumer-timeout",
];

const ONLY_CLASSIC: &[&str] = &["x-max-priority", "x-queue-mode", "x-queue-version"];
const ONLY_QUORUM: &[&str] = &[
    "x-delivery-limit",
    "x-dead-letter-strategy",
    "x-quorum-initial-group-size",
    "x-quorum-target-group-size",
];
const ONLY_QUORUM_4: &[&str] =
    &["x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max", "x-consumer-timeout"];

/// Reads the type of a queue.
///
/// # Errors
/// What is wrong with it, for the end of a sentence.
pub(crate) fn kind_of(arguments: &Table) -> Result<QueueKind, Kind> {
    match arguments.get("x-queue-type") {
        None => Ok(QueueKind::Classic),
        Some(value) => match value.as_str() {
            Some("classic") => Ok(QueueKind::Classic),
            Some("quorum") => Ok(QueueKind::Quorum),
            Some("stream") => Err(Kind::Stream),
            Some(other) => Err(Kind::Unknown(other.to_owned())),
            None => Err(Kind::Unknown(type_name(value).to_owned())),
        },
    }
}

/// A type of queue that is not there.
pub(crate) enum Kind {
    Stream,
    Unknown(String),
}

impl Settings {
    /// Checks the arguments of a queue.
    ///
    /// # Errors
    /// The argument's name, and what is wrong with it.
    pub(crate) fn from_arguments(
        arguments: &Table,
        kind: QueueKind,
        version: Version,
    ) -> Result<Self, (String, String)> {
        for (key, _) in arguments.iter() {
            let key = key.to_str();
            let foreign = match kind {
                QueueKind::Classic => {
                    ONLY_QUORUM.contains(&&*key) || !version.is_3_10() && ONLY_QUORUM_4.contains(&&*key)
                }
                QueueKind::Quorum => ONLY_CLASSIC.contains(&&*key),
            };
            if foreign {
                return Err((key.into_owned(), format!("of queue type rabbit_{}_queue", kind.name())));
            }
        }
        let read = Read(arguments);
        let mut settings = Self {
            message_ttl: read.number("x-message-ttl", 0, MAX_TTL)?,
            expires: read.number("x-expires", 1, MAX_TTL)?,
            max_length: read.number("x-max-length", 0, u64::MAX)?,
            max_length_bytes: read.number("x-max-length-bytes", 0, u64::MAX)?,
            overflow: match read.text("x-overflow")? {
                None => None,
                Some(text) => Some(
                    Overflow::parse(&text)
                        .ok_or_else(|| ("x-overflow".to_owned(), "invalid_overflow".to_owned()))?,
                ),
            },
            dead_letter_exchange: read.name("x-dead-letter-exchange")?,
            dead_letter_routing_key: read.name("x-dead-letter-routing-key")?,
            at_least_once: match read.text("x-dead-letter-strategy")?.as_deref() {
                None => None,
                Some("at-most-once") => Some(false),
                Some("at-least-once") => Some(true),
                Some(_) => {
                    return Err(("x-dead-letter-strategy".to_owned(), "invalid_dlx_strategy".to_owned()));
                }
            },
            max_priority: read.priority()?,
            single_active_consumer: match arguments.get("x-single-active-consumer") {
                None => false,
                Some(value) => value
                    .as_bool()
                    .ok_or_else(|| ("x-single-active-consumer".to_owned(), unacceptable(value)))?,
            },
            ..Self::default()
        };
        if settings.dead_letter_routing_key.is_some() && settings.dead_letter_exchange.is_none() {
            return Err((
                "x-dead-letter-routing-key".to_owned(),
                "routing_key_but_no_dlx_defined".to_owned(),
            ));
        }
        if kind == QueueKind::Quorum {
            settings.delivery_limit = match arguments.get("x-delivery-limit") {
                None => None,
                Some(value) => {
                    Some(value.as_i64().ok_or_else(|| ("x-delivery-limit".to_owned(), unacceptable(value)))?)
                }
            };
            if !version.is_3_10() {
                settings.retry = read.text("x-delayed-retry-type")?.map(|text| DelayedRetry::parse(&text));
                settings.retry_min = read.number("x-delayed-retry-min", 0, u64::MAX)?;
                settings.retry_max = read.number("x-delayed-retry-max", 0, u64::MAX)?;
                settings.consumer_timeout = read.number("x-consumer-timeout", 0, u64::MAX)?;
            }
        }
        Ok(settings)
    }

    /// Reads the definition of a policy. What is not known is ignored.
    pub(crate) fn from_policy(definition: &serde_json::Map<String, serde_json::Value>) -> Self {
        let number = |key: &str| definition.get(key).and_then(serde_json::Value::as_u64);
        let text = |key: &str| definition.get(key).and_then(serde_json::Value::as_str);
        let name = |key: &str| text(key).and_then(|text| ShortStr::try_from(text).ok());
        Self {
            message_ttl: number("message-ttl"),
            expires: number("expires"),
            max_length: number("max-length"),
            max_length_bytes: number("max-length-bytes"),
            overflow: text("overflow").and_then(Overflow::parse),
            dead_letter_exchange: name("dead-letter-exchange"),
            dead_letter_routing_key: name("dead-letter-routing-key"),
            at_least_once: text("dead-letter-strategy").map(|text| text == "at-least-once"),
            max_priority: None,
            single_active_consumer: false,
            delivery_limit: definition.get("delivery-limit").and_then(serde_json::Value::as_i64),
            retry: text("delayed-retry-type").map(DelayedRetry::parse),
            retry_min: number("delayed-retry-min"),
            retry_max: number("delayed-retry-max"),
            consumer_timeout: number("consumer-timeout"),
        }
    }

    /// Returns what holds for a queue with these arguments under this policy: the lower number; for everything else the argument, but for
    /// the overflow of a quorum queue, and its `expires` on 3.10, the policy.
    pub(crate) fn under(&self, policy: &Self, kind: QueueKind, version: Version) -> Self {
        let quorum = kind == QueueKind::Quorum;
        fn lower<T: Ord + Copy>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(one.min(other)),
                _ => one.or(other),
            }
        }
        Self {
            message_ttl: lower(self.message_ttl, policy.message_ttl),
            expires: if quorum && version.is_3_10() {
                policy.expires.or(self.expires)
            } else {
                lower(self.expires, policy.expires)
            },
            max_length: lower(self.max_length, policy.max_length),
            max_length_bytes: lower(self.max_length_bytes, policy.max_length_bytes),
            overflow: if quorum {
                policy.overflow.or(self.overflow)
            } else {
                self.overflow.or(policy.overflow)
            },
            dead_letter_exchange: self.dead_letter_exchange.clone().or(policy.dead_letter_exchange.clone()),
            dead_letter_routing_key: self
                .dead_letter_routing_key
                .clone()
                .or(policy.dead_letter_routing_key.clone()),
            at_least_once: self.at_least_once.or(policy.at_least_once),
            max_priority: self.max_priority,
            single_active_consumer: self.single_active_consumer,
            delivery_limit: match (self.delivery_limit, policy.delivery_limit) {
                // 4.3: a limit beats "unlimited"; 3.10 takes the lower number, whatever it is.
                (Some(one), Some(other)) if !version.is_3_10() && one.min(other) < 0 => Some(one.max(other)),
                (one, other) => lower(one, other),
            },
            retry: policy.retry.or(self.retry),
            retry_min: lower(self.retry_min, policy.retry_min),
            retry_max: lower(self.retry_max, policy.retry_max),
            consumer_timeout: lower(self.consumer_timeout, policy.consumer_timeout),
        }
    }

    /// Returns how many failed deliveries a message survives; `None`: any number.
    pub(crate) fn limit(&self, version: Version) -> Option<u32> {
        match self.delivery_limit {
            None => version.default_delivery_limit(),
            // 3.10 accepts a negative limit, and behaves as with 0.
            Some(limit) if limit < 0 => version.is_3_10().then_some(0),
            Some(limit) => Some(u32::try_from(limit).unwrap_or(u32::MAX)),
        }
    }

    /// Returns how long a message waits after it was given back; `None`: not at all.
    pub(crate) fn retry_delay(&self, delivery_count: u32, failed: bool) -> Option<u64> {
        let min = self.retry_min?;
        let delayed = match self.retry.unwrap_or_default() {
            DelayedRetry::Disabled => false,
            DelayedRetry::All => true,
            DelayedRetry::Failed => failed,
            DelayedRetry::Returned => !failed,
        };
        let max = self.retry_max.unwrap_or(min);
        let delay = min.saturating_mul(u64::from(delivery_count.max(1))).min(max);
        (delayed && delay > 0).then_some(delay)
    }

    /// Returns true if dead letters are kept until they arrived: only where nothing is dropped from the head.
    pub(crate) fn keeps_dead_letters(&self) -> bool {
        self.at_least_once == Some(true)
            && self.overflow == Some(Overflow::RejectPublish)
            && self.dead_letter_exchange.is_some()
    }
}

/// Returns the first argument in which a declaration differs from the queue: name, received, current.
pub(crate) fn inequivalent(
    received: &Table,
    current: &Table,
    kind: QueueKind,
    version: Version,
) -> Option<(String, String, String)> {
    let compared: &[&str] = match kind {
        QueueKind::Classic => COMPARED_CLASSIC,
        QueueKind::Quorum => COMPARED_QUORUM,
    };
    let compared = compared.iter().filter(|name| !version.is_3_10() || !ONLY_QUORUM_4.contains(name));
    for name in compared {
        let (one, other) = (received.get(name), current.get(name));
        let equal = match (one, other) {
            (None, None) => true,
            (Some(one), Some(other)) => same(one, other),
            // No type is the default type.
            _ if *name == "x-queue-type" => one.or(other).and_then(Value::as_str) == Some("classic"),
            _ => false,
        };
        // Values of the same type are described shortly.
        if let (false, Some(one), Some(other)) = (equal, one, other)
            && one.letter() == other.letter()
        {
            return Some(((*name).to_owned(), format!("'{}'", shown(one)), format!("'{}'", shown(other))));
        }
        if !equal {
            return Some(((*name).to_owned(), described(one), described(other)));
        }
    }
    None
}

fn same(one: &Value, other: &Value) -> bool {
    match (one.as_i64(), other.as_i64()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

/// Describes a value as RabbitMQ does in its texts.
pub(crate) fn described(value: Option<&Value>) -> String {
    match value {
        None => "none".to_owned(),
        Some(value) => {
            let shown = shown(value);
            format!("the value '{shown}' of type '{}'", type_name(value))
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::LongStr(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Bool(value) => value.to_string(),
        other => other.as_i64().map_or_else(String::new, |number| number.to_string()),
    }
}

struct Read<'a>(&'a Table);

impl Read<'_> {
    fn number(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>, (String, String)> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let Some(number) = value.as_i64() else { return Err((name.to_owned(), unacceptable(value))) };
        let refused = |what: &str| Err((name.to_owned(), format!("{{{what},{number}}}")));
        match u64::try_from(number) {
            Err(_) => refused("value_negative"),
            Ok(0) if least > 0 => refused("value_zero"),
            Ok(number) if number > most => refused("value_too_big"),
            Ok(number) => Ok(Some(number)),
        }
    }

    fn priority(&self) -> Result<Option<u8>, (String, String)> {
        let number = self.number("x-max-priority", 0, u64::MAX)?;
        let refused = |number| ("x-max-priority".to_owned(), format!("{{max_value_exceeded,{number}}}"));
        number.map(|number| u8::try_from(number).map_err(|_| refused(number))).transpose()
    }

    fn text(&self, name: &str) -> Result<Option<String>, (String, String)> {
        match self.0.get(name) {
            None => Ok(None),
            Some(value) => match value.as_str() {
                Some(text) => Ok(Some(text.to_owned())),
                None => Err((name.to_owned(), unacceptable(value))),
            },
        }
    }

    fn name(&self, name: &str) -> Result<Option<ShortStr>, (String, String)> {
        match self.text(name)? {
            None => Ok(None),
            Some(text) => match ShortStr::try_from(text) {
                Ok(text) => Ok(Some(text)),
                Err(error) => Err((name.to_owned(), error.to_string())),
            },
        }
    }
}

fn unacceptable(value: &Value) -> String {
    format!("\"expected integer, got {}\"", type_name(value))
}
