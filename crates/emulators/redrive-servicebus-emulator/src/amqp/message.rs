use bytes::{BufMut, Bytes, BytesMut};

use super::encode::{Field, encode_described_list, encode_section};
use super::{DecodeError, Map, Reader, Value, encode, encode_value};

const HEADER: u64 = 0x70;
const DELIVERY_ANNOTATIONS: u64 = 0x71;
const MESSAGE_ANNOTATIONS: u64 = 0x72;
const PROPERTIES: u64 = 0x73;
const APPLICATION_PROPERTIES: u64 = 0x74;
const DATA: u64 = 0x75;
const SEQUENCE: u64 = 0x76;
const VALUE: u64 = 0x77;
const FOOTER: u64 = 0x78;

/// A message with everything decoded except the body, which a broker passes on unchanged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Message {
    /// Durability, priority, time to live, delivery count.
    pub header: Header,
    /// For the next hop only.
    pub delivery_annotations: Map,
    /// `x-opt-…`: set by the broker.
    pub message_annotations: Map,
    /// Ids, content type and the like.
    pub properties: Properties,
    /// The user's properties.
    pub application_properties: Map,
    /// The encoded sections of the body and the footer, as received.
    pub body: Bytes,
}

/// The header section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Whether the sender asked for durability. Everything is durable here.
    pub durable: Option<bool>,
    /// 0 to 9; Service Bus does not use it.
    pub priority: Option<u8>,
    /// Milliseconds.
    pub ttl: Option<u32>,
    /// True if the message was not handed out before.
    pub first_acquirer: Option<bool>,
    /// Number of failed deliveries.
    pub delivery_count: u32,
}

/// The properties section.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(missing_docs, reason = "the names are those of the specification, part 3.2.4")]
pub struct Properties {
    /// A string for SDKs; ulong, uuid and binary are possible.
    pub message_id: Value,
    pub user_id: Option<Bytes>,
    pub to: Option<String>,
    pub subject: Option<String>,
    pub reply_to: Option<String>,
    /// A string for SDKs; ulong, uuid and binary are possible.
    pub correlation_id: Value,
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    /// Milliseconds since 1970.
    pub absolute_expiry_time: Option<i64>,
    /// Milliseconds since 1970.
    pub creation_time: Option<i64>,
    /// The session id.
    pub group_id: Option<String>,
    pub group_sequence: Option<u32>,
    pub reply_to_group_id: Option<String>,
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// Sections that are cut off, of a wrong type, or unknown. The content of a body is not checked.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut message = Self::default();
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let section = reader.clone();
            match reader.descriptor()?.ok_or(DecodeError::Expected("a numeric descriptor of a section"))? {
                HEADER => message.header = Header::decode(&mut reader)?,
                DELIVERY_ANNOTATIONS => message.delivery_annotations = map(&mut reader)?,
                MESSAGE_ANNOTATIONS => message.message_annotations = map(&mut reader)?,
                PROPERTIES => message.properties = Properties::decode(&mut reader)?,
                APPLICATION_PROPERTIES => message.application_properties = map(&mut reader)?,
                DATA..=FOOTER => {
                    message.body = Bytes::copy_from_slice(section.rest());
                    check_body(section)?;
                    break;
                }
                _ => return Err(DecodeError::Expected("a section of a message")),
            }
        }
        Ok(message)
    }

    /// Writes the message. Leaves out empty sections, but always writes the header with its delivery count: SDKs rely on it.
    pub fn encode(&self, to: &mut BytesMut) {
        self.header.encode(to);
        encode_map(DELIVERY_ANNOTATIONS, &self.delivery_annotations, to);
        encode_map(MESSAGE_ANNOTATIONS, &self.message_annotations, to);
        self.properties.encode(to);
        encode_map(APPLICATION_PROPERTIES, &self.application_properties, to);
        to.put_slice(&self.body);
    }

    /// Returns the encoded message.
    pub fn to_bytes(&self) -> Bytes {
        let mut to = BytesMut::with_capacity(self.body.len() + 256);
        self.encode(&mut to);
        to.freeze()
    }

    /// Creates a message with one value as its body.
    pub fn with_value(value: &Value) -> Self {
        let mut body = BytesMut::new();
        section(VALUE, &mut body);
        encode_value(value, &mut body);
        Self { body: body.freeze(), ..Self::default() }
    }

    /// Creates a message with bytes as its body.
    pub fn with_data(data: impl Into<Bytes>) -> Self {
        let mut body = BytesMut::new();
        section(DATA, &mut body);
        encode_value(&Value::Binary(data.into()), &mut body);
        Self { body: body.freeze(), ..Self::default() }
    }

    /// Returns the value of the body if it is a single value.
    pub fn value(&self) -> Option<Value> {
        let mut reader = Reader::new(&self.body);
        (reader.descriptor().ok()? == Some(VALUE)).then(|| reader.value().ok())?
    }

    /// Returns the data sections of the body: one for an ordinary message, one for each message of a batch.
    ///
    /// # Errors
    /// A body of other sections, or one that is cut off.
    pub fn data(&self) -> Result<Vec<Bytes>, DecodeError> {
        let mut reader = Reader::new(&self.body);
        let mut sections = Vec::new();
        while !reader.is_empty() {
            match (reader.descriptor()?, reader.value()?) {
                (Some(DATA), Value::Binary(bytes)) => sections.push(bytes),
                (Some(FOOTER), _) => {}
                _ => return Err(DecodeError::Expected("data sections")),
            }
        }
        Ok(sections)
    }
}

impl Header {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut fields = reader.fields()?;
        Ok(Self {
            durable: fields.bool()?,
            priority: fields.u32()?.and_then(|n| n.try_into().ok()),
            ttl: fields.u32()?,
            first_acquirer: fields.bool()?,
            delivery_count: fields.u32()?.unwrap_or(0),
        })
    }

    fn encode(&self, to: &mut BytesMut) {
        let fields = [
            self.durable.into(),
            self.priority.into(),
            self.ttl.into(),
            self.first_acquirer.into(),
            Value::Uint(self.delivery_count),
        ];
        encode_described_list(HEADER, &fields, to);
    }
}

impl Properties {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut fields = reader.fields()?;
        Ok(Self {
            message_id: fields.value()?,
            user_id: fields.binary()?,
            to: address(&fields.value()?),
            subject: fields.text()?,
            reply_to: address(&fields.value()?),
            correlation_id: fields.value()?,
            content_type: fields.text()?,
            content_encoding: fields.text()?,
            absolute_expiry_time: fields.value()?.as_i64(),
            creation_time: fields.value()?.as_i64(),
            group_id: fields.text()?,
            group_sequence: fields.u32()?,
            reply_to_group_id: fields.text()?,
        })
    }

    fn encode<'s>(&'s self, to: &mut BytesMut) {
        let text = |text: &'s Option<String>| text.as_deref().map_or(Field::Null, Field::String);
        let symbol = |text: &'s Option<String>| text.as_deref().map_or(Field::Null, Field::Symbol);
        let time = |time: Option<i64>| time.map_or(Field::Null, Field::Timestamp);
        let fields = [
            Field::Value(&self.message_id),
            self.user_id.as_deref().map_or(Field::Null, Field::Binary),
            text(&self.to),
            text(&self.subject),
            text(&self.reply_to),
            Field::Value(&self.correlation_id),
            symbol(&self.content_type),
            symbol(&self.content_encoding),
            time(self.absolute_expiry_time),
            time(self.creation_time),
            text(&self.group_id),
            self.group_sequence.map_or(Field::Null, Field::Uint),
            text(&self.reply_to_group_id),
        ];
        encode_section(PROPERTIES, &fields, to);
    }
}

/// Returns the text of an address. Addresses of other types have no meaning here.
fn address(value: &Value) -> Option<String> {
    value.as_text().map(str::to_owned)
}

fn map(reader: &mut Reader<'_>) -> Result<Map, DecodeError> {
    match reader.value()? {
        Value::Map(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        _ => Err(DecodeError::Expected("a map")),
    }
}

fn encode_map(descriptor: u64, map: &Map, to: &mut BytesMut) {
    if !map.is_empty() {
        section(descriptor, to);
        encode::encode_map(map, to);
    }
}

fn section(descriptor: u64, to: &mut BytesMut) {
    to.put_slice(&[0x00, 0x53, descriptor as u8]);
}

/// Checks that the bytes are sections, because they are passed on unchanged: a client cannot tell where a broken section ends.
fn check_body(mut reader: Reader<'_>) -> Result<(), DecodeError> {
    while !reader.is_empty() {
        match reader.descriptor()? {
            Some(DATA | SEQUENCE | VALUE | FOOTER) => reader.skip()?,
            _ => return Err(DecodeError::Expected("a section of a body")),
        }
    }
    Ok(())
}
