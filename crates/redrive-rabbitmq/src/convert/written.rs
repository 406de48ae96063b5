//! Writes the properties and headers of a message as AMQP 0-9-1, without tables in between. The client library writes the same bytes for
//! [`properties`](super::properties).

use bytes::BufMut as _;
use redrive_core::{Message, TransportError, Value};

use super::{Form, check_short, not_carried, packed_history};

/// Appends the properties and headers of a message that went through [`for_publishing`](super::for_publishing).
pub(crate) fn write_properties(
    message: &Message,
    form: Form,
    out: &mut Vec<u8>,
) -> Result<(), TransportError> {
    let mine = message.properties();
    let at = out.len();
    out.put_u16(0);
    let mut properties = Writing { flags: 0, flag: 1 << 15, out };
    properties.text(mine.content_type.as_deref(), "content-type")?;
    properties.text(mine.content_encoding.as_deref(), "content-encoding")?;
    if let Some(out) = properties.next(!message.headers().is_empty()) {
        match packed_history::packed(message.headers(), form) {
            Some(packed) => write_table(packed.iter(), out)?,
            None => write_table(message.headers().iter(), out)?,
        }
    }
    if let Some(out) = properties.next(true) {
        out.put_u8(form.delivery_mode(mine));
    }
    if let (Some(out), Some(priority)) = (properties.next(mine.priority.is_some()), mine.priority) {
        out.put_u8(priority);
    }
    properties.text(mine.correlation_id.as_deref(), "correlation-id")?;
    properties.text(mine.reply_to.as_deref(), "reply-to")?;
    let expiration = mine.expiration.map(|wait| wait.as_millis().to_string());
    properties.text(expiration.as_deref(), "expiration")?;
    properties.text(mine.id.as_deref(), "message-id")?;
    if let (Some(out), Some(time)) = (properties.next(mine.timestamp.is_some()), mine.timestamp) {
        out.put_u64(time.unix_seconds());
    }
    properties.text(mine.kind.as_deref(), "type")?;
    properties.text(mine.user_id.as_deref(), "user-id")?;
    properties.text(mine.app_id.as_deref(), "app-id")?;
    properties.text(mine.cluster_id.as_deref(), "cluster-id")?;
    let flags = properties.flags;
    out[at..at + 2].copy_from_slice(&flags.to_be_bytes());
    Ok(())
}

/// The properties in the order of the specification, with a flag for each that is there.
struct Writing<'a> {
    flags: u16,
    flag: u16,
    out: &'a mut Vec<u8>,
}

impl Writing<'_> {
    fn next(&mut self, is_there: bool) -> Option<&mut Vec<u8>> {
        self.flags |= if is_there { self.flag } else { 0 };
        self.flag >>= 1;
        is_there.then_some(&mut *self.out)
    }

    fn text(&mut self, text: Option<&str>, name: &str) -> Result<(), TransportError> {
        match (self.next(text.is_some()), text) {
            (Some(out), Some(text)) => write_short(text, name, out),
            _ => Ok(()),
        }
    }
}

fn write_table<'a>(
    headers: impl Iterator<Item = (&'a str, &'a Value)>,
    out: &mut Vec<u8>,
) -> Result<(), TransportError> {
    with_length(out, |out| {
        for (name, value) in headers {
            write_short(name, "the name of a header", out)?;
            write_value(value, out)?;
        }
        Ok(())
    })
}

/// As [`value_to`](super::value_to) converts it.
fn write_value(value: &Value, out: &mut Vec<u8>) -> Result<(), TransportError> {
    match value {
        Value::Null => out.put_u8(b'V'),
        Value::Bool(flag) => put(out, b't', |out| out.put_u8(u8::from(*flag))),
        Value::I8(n) => put(out, b'b', |out| out.put_i8(*n)),
        Value::U8(n) => put(out, b'B', |out| out.put_u8(*n)),
        Value::I16(n) => put(out, b's', |out| out.put_i16(*n)),
        Value::U16(n) => put(out, b'u', |out| out.put_u16(*n)),
        Value::I32(n) => put(out, b'I', |out| out.put_i32(*n)),
        Value::U32(n) => put(out, b'i', |out| out.put_u32(*n)),
        Value::I64(n) => put(out, b'l', |out| out.put_i64(*n)),
        Value::U64(n) => match i64::try_from(*n) {
            Ok(n) => put(out, b'l', |out| out.put_i64(n)),
            Err(_) => write_long(b'S', n.to_string().as_bytes(), out),
        },
        Value::F32(n) if n.is_finite() => put(out, b'f', |out| out.put_f32(*n)),
        Value::F64(n) if n.is_finite() => put(out, b'd', |out| out.put_f64(*n)),
        Value::Decimal { scale, value } => put(out, b'D', |out| {
            out.put_u8(*scale);
            out.put_u32(*value);
        }),
        Value::Char(c) => write_long(b'S', c.encode_utf8(&mut [0; 4]).as_bytes(), out),
        Value::Timestamp(time) => put(out, b'T', |out| out.put_u64(time.unix_seconds())),
        Value::Uuid(bytes) => write_long(b'x', bytes, out),
        Value::String(text) => write_long(b'S', text.as_bytes(), out),
        Value::RawString(bytes) => write_long(b'S', bytes, out),
        Value::Bytes(bytes) => write_long(b'x', bytes, out),
        Value::List(items) => {
            out.put_u8(b'A');
            return with_length(out, |out| items.iter().try_for_each(|item| write_value(item, out)));
        }
        Value::Table(table) => {
            out.put_u8(b'F');
            return write_table(table.iter(), out);
        }
        other => return Err(not_carried(other)),
    }
    Ok(())
}

fn put(out: &mut Vec<u8>, letter: u8, value: impl FnOnce(&mut Vec<u8>)) {
    out.put_u8(letter);
    value(out);
}

fn write_short(text: &str, what: &str, out: &mut Vec<u8>) -> Result<(), TransportError> {
    check_short(text, what)?;
    out.put_u8(u8::try_from(text.len()).unwrap_or(u8::MAX));
    out.put_slice(text.as_bytes());
    Ok(())
}

fn write_long(letter: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.put_u8(letter);
    out.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.put_slice(bytes);
}

/// Appends the length of what `write` appends, and that behind it.
fn with_length(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), TransportError>,
) -> Result<(), TransportError> {
    let at = out.len();
    out.put_u32(0);
    write(out)?;
    let length = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}
