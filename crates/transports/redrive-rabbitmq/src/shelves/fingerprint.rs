//! Identifies the messages of a shelf, on a broker that does not number them.

use redrive_core::{Headers, Message, Properties, Value};
use sha2::{Digest, Sha256};

use crate::broker::delivery_count::HEADERS;

/// A hash of all properties, all headers and the body of a message as it is read. Messages with one fingerprint are identical: 128
/// bits of SHA-256 do not collide by accident, nor on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(pub(super) u128);

impl Fingerprint {
    pub(super) fn of(message: &Message) -> Self {
        let mut hash = Hash(Sha256::new());
        hash.properties(message.properties());
        let headers = message.headers();
        // Reading a message changes the counts of its queue.
        hash.entries(headers.iter().filter(|(name, _)| !HEADERS.contains(name)));
        hash.bytes(message.body());
        let digest = hash.0.finalize();
        let mut first = [0; 16];
        first.copy_from_slice(&digest[..16]);
        Self(u128::from_be_bytes(first))
    }
}

/// Writes every part with its kind and its length, so that different messages are never written alike.
struct Hash(Sha256);

impl Hash {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.0.update([tag]);
        self.bytes(bytes);
    }

    fn properties(&mut self, properties: &Properties) {
        for (_, text) in properties.texts() {
            self.option(text);
        }
        self.option(properties.priority.map(|priority| [priority]));
        self.option(properties.timestamp.map(|time| time.unix_millis().to_be_bytes()));
        self.option(properties.expiration.map(|wait| wait.as_millis().to_be_bytes()));
        self.option(properties.persistent.map(|persistent| [u8::from(persistent)]));
    }

    fn option(&mut self, bytes: Option<impl AsRef<[u8]>>) {
        match bytes {
            None => self.tagged(0, &[]),
            Some(bytes) => self.tagged(1, bytes.as_ref()),
        }
    }

    fn entries<'a>(&mut self, entries: impl Iterator<Item = (&'a str, &'a Value)>) {
        for (name, value) in entries {
            self.tagged(b'h', name.as_bytes());
            self.value(value);
        }
        self.tagged(b'.', &[]);
    }

    fn table(&mut self, table: &Headers) {
        self.tagged(b'F', &[]);
        self.entries(table.iter());
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.tagged(b'V', &[]),
            Value::Bool(flag) => self.tagged(b't', &[u8::from(*flag)]),
            Value::I8(n) => self.tagged(b'b', &n.to_be_bytes()),
            Value::U8(n) => self.tagged(b'B', &n.to_be_bytes()),
            Value::I16(n) => self.tagged(b's', &n.to_be_bytes()),
            Value::U16(n) => self.tagged(b'u', &n.to_be_bytes()),
            Value::I32(n) => self.tagged(b'I', &n.to_be_bytes()),
            Value::U32(n) => self.tagged(b'i', &n.to_be_bytes()),
            Value::I64(n) => self.tagged(b'l', &n.to_be_bytes()),
            Value::U64(n) => self.tagged(b'L', &n.to_be_bytes()),
            Value::F32(n) => self.tagged(b'f', &n.to_be_bytes()),
            Value::F64(n) => self.tagged(b'd', &n.to_be_bytes()),
            Value::Decimal { scale, value } => {
                self.tagged(b'D', &[*scale]);
                self.bytes(&value.to_be_bytes());
            }
            Value::Char(c) => self.tagged(b'c', &u32::from(*c).to_be_bytes()),
            Value::Timestamp(time) => self.tagged(b'T', &time.unix_millis().to_be_bytes()),
            Value::Uuid(bytes) => self.tagged(b'U', bytes),
            Value::String(text) => self.tagged(b'S', text.as_bytes()),
            Value::RawString(bytes) => self.tagged(b'S', bytes),
            Value::Bytes(bytes) => self.tagged(b'x', bytes),
            Value::List(items) => {
                self.tagged(b'A', &(items.len() as u64).to_be_bytes());
                items.iter().for_each(|item| self.value(item));
            }
            Value::Table(table) => self.table(table),
            // Values that AMQP 0-9-1 cannot carry.
            other => self.tagged(b'?', format!("{other:?}").as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(message: &Message) -> Fingerprint {
        Fingerprint::of(message)
    }

    #[test]
    fn whatever_differs_tells_messages_apart() {
        let message = Message::new("body").with_id("a").with_header("h", "v");
        let mut kind = message.clone();
        kind.properties_mut().kind = Some("a".into());
        let mut moved = Message::new("body").with_header("h", "v");
        moved.properties_mut().correlation_id = Some("a".into());
        let table = Headers::from_iter([("h", "v")]);
        let all = [
            message.clone(),
            message.clone().with_id("b"),
            message.clone().with_header("h", "w"),
            message.clone().with_header("h", 1_i64),
            message.clone().with_header("h", 1_i32),
            message.clone().with_header("h", Value::List(vec!["v".into()])),
            message.clone().with_header("h", table.clone()),
            message.clone().with_header("h", Value::List(vec![table.into()])),
            message.clone().with_header("i", "v"),
            Message::new("bodyh").with_id("a").with_header("h", "v"),
            Message::new("body").with_id("a"),
            kind,
            moved,
        ];
        for (index, one) in all.iter().enumerate() {
            for other in &all[index + 1..] {
                assert_ne!(of(one), of(other), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn what_the_queue_counts_tells_nothing_apart() {
        let message = Message::new("body").with_header("tenant", "blue");
        let looked_at = message.clone().with_header("x-delivery-count", 3_i64);
        assert_eq!(of(&message), of(&looked_at.with_header("x-acquired-count", 4_i64)));
        let bare = Message::new("body");
        assert_eq!(of(&bare), of(&bare.clone().with_header("x-delivery-count", 0_i64)));
    }
}
