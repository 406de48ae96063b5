//! The bodies of messages. Handlers see bytes. A body of another kind is marked with its kind, so that a copy has the original
//! body.
//!
//! With AMQP the body has a kind. With REST there are only bytes, and the mark is a property. A mark is trusted only on a copy
//! that redrive made, and only if the whole body can be read as that kind. Otherwise the body stays as it is.

use bytes::Bytes;
use fe2o3_amqp_types::messaging::{AmqpSequence, AmqpValue, Batch, Body, Data, Message};
use redrive_core::{Headers, Value};
use serde_amqp::Value as Amqp;

use super::values::decode_all;

/// A message as it is sent with AMQP.
pub(crate) type WireMessage = Message<Body<Amqp>>;

/// The header that marks the kind of a body that is not plain bytes.
pub(crate) const BODY: &str = "x-servicebus-body";
/// The prefix of a mark that another program wrote on plain bytes: the mark is kept, and never trusted.
const FOREIGN_MARK_PREFIX: &str = "data:";

/// Reads a body, and marks its kind. `copied` is true for a copy that redrive made.
pub(crate) fn read(body: Body<Amqp>, headers: &mut Headers, copied: bool) -> Bytes {
    let (kind, bytes) = match body {
        // The client library sends a null for an empty body: a copy must read like its original.
        Body::Empty | Body::Value(AmqpValue(Amqp::Null)) => ("empty", Bytes::new()),
        Body::Data(sections) => {
            let mut sections = sections.into_iter().map(|data| data.0.into_vec());
            let mut bytes = sections.next().unwrap_or_default();
            sections.for_each(|section| bytes.extend(section));
            let bytes = Bytes::from(bytes);
            distrust_foreign_mark(&bytes, headers, copied);
            return bytes;
        }
        Body::Value(AmqpValue(Amqp::String(text))) => ("string", text.into_bytes().into()),
        Body::Value(AmqpValue(Amqp::Binary(bytes))) => ("binary", bytes.into_vec().into()),
        Body::Value(AmqpValue(value)) => ("value", encoded(&value)),
        Body::Sequence(sections) => {
            let items: Vec<Amqp> = sections.into_iter().map(|section| Amqp::List(section.0)).collect();
            ("sequence", encoded(&Amqp::List(items)))
        }
    };
    headers.insert(BODY, kind);
    bytes
}

/// Writes the original body, and removes its mark. A body without a mark, or with a mark that does not fit, is written as bytes.
pub(crate) fn write(bytes: &Bytes, headers: &mut Headers) -> Body<Amqp> {
    let marked = headers.get(BODY).and_then(Value::as_str).and_then(|kind| body_of_kind(bytes, kind));
    match marked {
        Some(body) => {
            headers.remove(BODY);
            body
        }
        None => Body::Data(Batch::new(vec![Data(bytes.to_vec().into())])),
    }
}

/// Changes a mark that another program wrote on plain bytes, so that no later copy trusts it.
fn distrust_foreign_mark(bytes: &Bytes, headers: &mut Headers, copied: bool) {
    let Some(kind) = headers.get(BODY).and_then(Value::as_str) else { return };
    if !copied && body_of_kind(bytes, kind).is_some() {
        let foreign_mark = format!("{FOREIGN_MARK_PREFIX}{kind}");
        headers.insert(BODY, foreign_mark);
    }
}

/// Reads all of the bytes as a body of this kind.
fn body_of_kind(bytes: &Bytes, kind: &str) -> Option<Body<Amqp>> {
    match kind {
        "empty" if bytes.is_empty() => Some(Body::Value(AmqpValue(Amqp::Null))),
        "string" => {
            let text = String::from_utf8(bytes.to_vec()).ok()?;
            Some(Body::Value(AmqpValue(Amqp::String(text))))
        }
        "binary" => Some(Body::Value(AmqpValue(Amqp::Binary(bytes.to_vec().into())))),
        "value" => Some(Body::Value(AmqpValue(decode_all(bytes)?))),
        "sequence" => {
            let Amqp::List(sections) = decode_all(bytes)? else { return None };
            let sections = sections.into_iter().map(|section| match section {
                Amqp::List(items) => AmqpSequence(items),
                other => AmqpSequence(vec![other]),
            });
            Some(Body::Sequence(Batch::new(sections.collect::<Vec<_>>())))
        }
        _ => None,
    }
}

fn encoded(value: &Amqp) -> Bytes {
    serde_amqp::to_vec(value).unwrap_or_default().into()
}
