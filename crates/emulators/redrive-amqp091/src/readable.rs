//! Makes payloads readable for decoders that are stricter than RabbitMQ. Changes them in place, and never their length.

use crate::value::Length;
use crate::{FrameKind, basic, channel, connection};

/// Replaces a byte that is not part of a UTF-8 character.
const UNREADABLE: u8 = b'?';

/// What [`make_readable`] changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Text that was not UTF-8.
    pub text: bool,
    /// Tables or arrays that were nested too deeply.
    pub depth: bool,
}

impl Changed {
    /// Returns whether there is any change.
    #[must_use]
    pub fn anything(self) -> bool {
        self.text || self.depth
    }
}

/// Replaces text that is not UTF-8, and turns tables and arrays from the level `deepest` on into byte arrays. Leaves other malformations.
pub fn make_readable(kind: FrameKind, payload: &mut [u8], deepest: usize) -> Changed {
    if is_harmless(kind, payload, deepest) { Changed::default() } else { walk_along(kind, payload, deepest) }
}

fn walk_along(kind: FrameKind, payload: &mut [u8], deepest: usize) -> Changed {
    let mut walk = Walk { rest: payload, deepest, changed: Changed::default() };
    // Ends early if the frame does; changes until then stay.
    let _ = match kind {
        FrameKind::Method => walk.method(),
        FrameKind::Header => walk.header(),
        _ => None,
    };
    walk.changed
}

/// Quick check that is enough for most messages: if every byte is ASCII, every text is UTF-8, and so few bytes cannot be nested
/// too deeply.
fn is_harmless(kind: FrameKind, payload: &[u8], deepest: usize) -> bool {
    // A nested array takes its type and its length.
    const LEVEL: usize = 1 + 4;
    const CLASS_TO_FLAGS: usize = 2 + 2 + 8 + 2;
    const TAG_AND_REDELIVERED: usize = 8 + 1;
    match (kind, payload) {
        (FrameKind::Header, _) if payload.len() < LEVEL * deepest => {
            payload.get(CLASS_TO_FLAGS..).is_some_and(<[u8]>::is_ascii)
        }
        // basic.deliver: its number may have any bytes.
        (FrameKind::Method, _) => {
            let Some([length, rest @ ..]) = payload.strip_prefix(&basic::Deliver::ID) else { return false };
            let (tag, rest) = rest.split_at(rest.len().min(usize::from(*length)));
            tag.is_ascii() && rest.get(TAG_AND_REDELIVERED..).is_some_and(<[u8]>::is_ascii)
        }
        _ => false,
    }
}

/// Position in a payload.
struct Walk<'a> {
    rest: &'a mut [u8],
    deepest: usize,
    changed: Changed,
}

impl<'a> Walk<'a> {
    /// Checks the methods that contain text from users.
    fn method(&mut self) -> Option<()> {
        const CODE: usize = 2;
        const TAG_AND_REDELIVERED: usize = 9;
        let method = *self.rest.first_chunk()?;
        self.skip(method.len())?;
        match method {
            connection::Close::ID | channel::Close::ID => {
                self.skip(CODE)?;
                self.short_text()
            }
            basic::Return::ID => {
                self.skip(CODE)?;
                self.short_text()?;
                self.exchange_and_routing_key()
            }
            basic::Deliver::ID => {
                self.short_text()?;
                self.skip(TAG_AND_REDELIVERED)?;
                self.exchange_and_routing_key()
            }
            basic::GetOk::ID => {
                self.skip(TAG_AND_REDELIVERED)?;
                self.exchange_and_routing_key()
            }
            _ => Some(()),
        }
    }

    fn exchange_and_routing_key(&mut self) -> Option<()> {
        self.short_text()?;
        self.short_text()
    }

    /// Checks a content header: class, weight and size of the body; then the flags, and the properties that they announce.
    fn header(&mut self) -> Option<()> {
        self.skip(2 + 2 + 8)?;
        let flags = self.u16()?;
        // The lowest bit would announce more flags; no property needs them.
        for bit in (1..16).rev().filter(|bit| flags & (1 << bit) != 0) {
            match bit {
                13 => self.table(0)?,
                // Delivery mode and priority, and the timestamp.
                12 | 11 => self.skip(1)?,
                6 => self.skip(8)?,
                1 => return None,
                _ => self.short_text()?,
            }
        }
        Some(())
    }

    fn table(&mut self, depth: usize) -> Option<()> {
        let mut inside = self.part()?;
        while !inside.rest.is_empty() {
            inside.short_text()?;
            inside.value(depth)?;
        }
        self.changed = inside.changed;
        Some(())
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        let mut inside = self.part()?;
        while !inside.rest.is_empty() {
            inside.value(depth)?;
        }
        self.changed = inside.changed;
        Some(())
    }

    /// Checks a value within a table or array of depth `depth`.
    fn value(&mut self, depth: usize) -> Option<()> {
        let field_type = self.rest.first_mut()?;
        if matches!(field_type, b'F' | b'A') && depth + 1 >= self.deepest {
            // Becomes a byte array with the same length and content.
            *field_type = b'x';
            self.changed.depth = true;
        }
        let field_type = *field_type;
        self.skip(1)?;
        match Length::of(field_type).ok()? {
            Length::Fixed(length) => self.skip(length),
            Length::Counted => self.part().map(|_| ()),
            Length::Array => self.array(depth + 1),
            Length::Table => self.table(depth + 1),
        }
    }

    fn short_text(&mut self) -> Option<()> {
        let length = usize::from(*self.rest.first()?);
        self.skip(1)?;
        let text = self.take(length)?;
        if text.is_ascii() {
            return Some(());
        }
        let mut from = 0;
        while let Err(unreadable) = std::str::from_utf8(&text[from..]) {
            let start = from + unreadable.valid_up_to();
            let end = unreadable.error_len().map_or(text.len(), |length| start + length);
            text[start..end].fill(UNREADABLE);
            self.changed.text = true;
            from = end;
        }
        Some(())
    }

    /// Returns the part after a length of four bytes, with the changes so far.
    fn part(&mut self) -> Option<Walk<'a>> {
        let length = u32::from_be_bytes(*self.rest.first_chunk()?);
        self.skip(4)?;
        let rest = self.take(usize::try_from(length).ok()?)?;
        Some(Walk { rest, deepest: self.deepest, changed: self.changed })
    }

    fn u16(&mut self) -> Option<u16> {
        let number = u16::from_be_bytes(*self.rest.first_chunk()?);
        self.skip(2)?;
        Some(number)
    }

    fn skip(&mut self, length: usize) -> Option<()> {
        self.take(length).map(|_| ())
    }

    fn take(&mut self, length: usize) -> Option<&'a mut [u8]> {
        self.rest.split_off_mut(..length)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;

    use super::*;
    use crate::{ContentHeader, Method, Properties, RawTable, ShortStr, Value};

    const DEEPEST: usize = 64;

    /// The most frequent method: a short consumer tag, a number of any bytes, and names.
    fn delivered(delivery_tag: u64, routing_key: &str) -> Vec<u8> {
        let (consumer_tag, exchange) = (ShortStr::from_static("redrive"), ShortStr::default());
        let routing_key = ShortStr::truncated(routing_key);
        let mut out = BytesMut::new();
        let deliver =
            basic::Deliver { consumer_tag, delivery_tag, redelivered: false, exchange, routing_key };
        Method::from(deliver).write(&mut out);
        out.to_vec()
    }

    fn header(value: Value) -> Vec<u8> {
        let headers = Some(RawTable::from_iter([(ShortStr::from_static("tenant"), value)]));
        let properties = Properties { headers, ..Properties::default() };
        let mut out = BytesMut::new();
        ContentHeader { body_size: 300, properties }.write(&mut out);
        out.to_vec()
    }

    fn nested(depth: usize) -> Value {
        (0..depth).fold(Value::Void, |inner, _| Value::Array(vec![inner]))
    }

    #[test]
    fn most_messages_are_known_to_be_harmless_without_a_walk() {
        for number in [1, 128, u64::MAX] {
            assert!(is_harmless(FrameKind::Method, &delivered(number, "orders"), DEEPEST), "{number}");
        }
        assert!(is_harmless(FrameKind::Header, &header("blue".into()), DEEPEST));
    }

    proptest! {
        #[test]
        fn what_is_known_to_be_harmless_is_not_changed_by_a_walk(
            rest in prop_oneof![
                proptest::collection::vec(0..128_u8, 0..400),
                proptest::collection::vec(any::<u8>(), 0..40),
                (1..80_usize).prop_map(|depth| header(nested(depth)).split_off(12)),
                (any::<u64>(), ".{0,9}").prop_map(|(number, key)| delivered(number, &key)),
            ],
            begin in prop_oneof![Just(vec![]), Just(vec![0; 12]), Just(basic::Deliver::ID.to_vec())],
            kind in prop_oneof![Just(FrameKind::Method), Just(FrameKind::Header)],
        ) {
            let mut payload = [begin, rest].concat();
            let (harmless, before) = (is_harmless(kind, &payload, DEEPEST), payload.clone());
            let changed = walk_along(kind, &mut payload, DEEPEST);
            prop_assert!(!harmless || (!changed.anything() && payload == before));
        }
    }
}
