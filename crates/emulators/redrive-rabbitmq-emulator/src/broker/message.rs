//! A message as it was published, or as a death has made it.

use bytes::Bytes;
use redrive_amqp091::{DecodeError, Properties, RawTable, ShortStr, Table, Value};
use redrive_emulator_host::Timestamp;

/// What all copies of a message share. The properties stay encoded: most deliveries pass them on as they came.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    pub(crate) exchange: ShortStr,
    pub(crate) routing_key: ShortStr,
    /// The keys of `CC` and `BCC`; dead letters without a routing key of their own are routed by them too.
    pub(crate) more_keys: Box<[ShortStr]>,
    /// Those of them that nobody is to see.
    pub(crate) blind_keys: Box<[ShortStr]>,
    /// Encoded, as they are delivered.
    pub(crate) properties: Bytes,
    pub(crate) body: Bytes,
    pub(crate) persistent: bool,
    pub(crate) priority: Option<u8>,
    /// In milliseconds.
    pub(crate) expiration: Option<u64>,
    /// True if `x-death` is the broker's own, and not the publisher's.
    pub(crate) died: bool,
    /// Number of bytes of the properties as they were published: what deaths add does not count against limits (4.3). After a restart: of
    /// all of them.
    pub(crate) published_size: usize,
    /// Counts that travel with a dead letter from one quorum queue into the next (4.3).
    pub(crate) carried: Counts,
    /// When it died last, and how often at that very time.
    pub(crate) died_at: Option<Timestamp>,
    pub(crate) deaths_then: u32,
}

/// How often a message was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Failed deliveries: they count against the limit.
    pub(crate) delivery: u32,
    /// Any returns (4.3).
    pub(crate) acquired: u32,
}

pub(crate) const PERSISTENT: u8 = 2;

impl Message {
    /// Builds one. `encoded`: the same properties as bytes of their own, which no large buffer shares.
    pub(crate) fn new(
        exchange: ShortStr,
        routing_key: ShortStr,
        more_keys: Box<[ShortStr]>,
        properties: &Properties,
        encoded: Bytes,
        body: Bytes,
    ) -> Self {
        let expiration = properties.expiration.as_ref();
        Self {
            exchange,
            routing_key,
            more_keys,
            blind_keys: Box::default(),
            persistent: properties.delivery_mode == Some(PERSISTENT),
            priority: properties.priority,
            expiration: expiration.and_then(|text| parse_expiration(&text.to_str()).ok()),
            published_size: encoded.len(),
            properties: encoded,
            body,
            died: false,
            carried: Counts::default(),
            died_at: None,
            deaths_then: 0,
        }
    }

    pub(crate) fn decode_properties(&self) -> Result<Properties, DecodeError> {
        Properties::decode(&self.properties)
    }

    fn headers(&self) -> Option<RawTable> {
        self.decode_properties().ok()?.headers
    }

    pub(crate) fn header(&self, key: &str) -> Option<Value> {
        self.headers()?.get(key)
    }

    pub(crate) fn table(&self) -> Table {
        self.headers().as_ref().map(RawTable::decode).unwrap_or_default()
    }

    /// Returns the keys that it is routed by without the blind ones, as `x-death` of 4.3 has them.
    pub(crate) fn open_keys(&self) -> Vec<&ShortStr> {
        let mut keys: Vec<_> = self.keys().collect();
        for blind in &self.blind_keys {
            if let Some(at) = keys.iter().position(|key| *key == blind) {
                keys.remove(at);
            }
        }
        keys
    }

    /// Returns all keys that it is routed by.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &ShortStr> {
        std::iter::once(&self.routing_key).chain(self.more_keys.iter())
    }

    pub(crate) fn size(&self) -> u64 {
        self.body.len() as u64
    }
}

/// The longest time to live that RabbitMQ accepts: ten years of 365 days, in milliseconds.
pub(crate) const MAX_TTL: u64 = 315_360_000_000;

/// Parses the property `expiration`.
///
/// # Errors
/// RabbitMQ's description of what is wrong.
pub(crate) fn parse_expiration(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 {
        return Err("no_integer".to_owned());
    }
    if end < digits.len() {
        return Err(format!("{{leftover_string,<<\"{}\">>}}", &digits[end..]));
    }
    if text.starts_with('-') && digits.bytes().any(|digit| digit != b'0') {
        return Err(format!("{{value_negative,{text}}}"));
    }
    match digits.parse::<u64>() {
        Ok(millis) if millis <= MAX_TTL => Ok(millis),
        _ => Err(format!("{{value_too_big,{digits}}}")),
    }
}

/// Reads the keys of a header such as `CC`.
///
/// # Errors
/// If it is not an array of texts.
pub(crate) fn header_keys(headers: &Table, name: &str) -> Result<Vec<ShortStr>, String> {
    match headers.get(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(values)) => values
            .iter()
            .map(|value| match value {
                Value::LongStr(bytes) => {
                    ShortStr::new(Bytes::copy_from_slice(bytes)).map_err(|error| error.to_string())
                }
                _ => Err(format!("{{unacceptable_type_in_header,\"{name}\",array}}")),
            })
            .collect(),
        Some(other) => {
            let kind = type_name(other);
            Err(format!("{{unacceptable_type_in_header,\"{name}\",{kind}}}"))
        }
    }
}

/// Returns RabbitMQ's name of a value's type.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "bool",
        Value::I8(_) => "byte",
        Value::U8(_) => "unsignedbyte",
        Value::I16(_) => "short",
        Value::U16(_) => "unsignedshort",
        Value::I32(_) => "signedint",
        Value::U32(_) => "unsignedint",
        Value::I64(_) | Value::U64(_) => "long",
        Value::F32(_) => "float",
        Value::F64(_) => "double",
        Value::Decimal(_) => "decimal",
        Value::LongStr(_) => "longstr",
        Value::Binary(_) => "binary",
        Value::Timestamp(_) => "timestamp",
        Value::Array(_) => "array",
        Value::Table(_) => "table",
        Value::Void => "void",
    }
}
