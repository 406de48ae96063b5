//! A message: its properties and its body.

use crate::wire::{Reader, Table, Writer};
use anyhow::Result;

/// The properties in the order of their flags, without the table of headers.
const TEXTS_BEFORE_HEADERS: usize = 2;

/// What a publisher sends, and what a consumer gets.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Message {
    pub(crate) content_type: Option<String>,
    pub(crate) content_encoding: Option<String>,
    pub(crate) headers: Option<Table>,
    pub(crate) delivery_mode: Option<u8>,
    pub(crate) priority: Option<u8>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) reply_to: Option<String>,
    pub(crate) expiration: Option<String>,
    pub(crate) message_id: Option<String>,
    pub(crate) timestamp: Option<u64>,
    pub(crate) kind: Option<String>,
    pub(crate) user_id: Option<String>,
    pub(crate) app_id: Option<String>,
    pub(crate) cluster_id: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// The payload of its content header frame.
    pub(crate) fn header(&self) -> Vec<u8> {
        let mut flags = 0_u16;
        let mut list = Writer::default();
        let mut flag = |place: u16, present: bool| {
            flags |= u16::from(present) << place;
            present
        };
        let texts = [&self.content_type, &self.content_encoding];
        for (place, text) in [15, 14].into_iter().zip(texts) {
            if flag(place, text.is_some()) {
                list.short_text(text.as_deref().unwrap_or_default());
            }
        }
        if flag(13, self.headers.is_some()) {
            list.table(self.headers.as_ref().unwrap_or(&Vec::new()));
        }
        for (place, octet) in [12, 11].into_iter().zip([self.delivery_mode, self.priority]) {
            if flag(place, octet.is_some()) {
                list.octet(octet.unwrap_or_default());
            }
        }
        let texts = [&self.correlation_id, &self.reply_to, &self.expiration, &self.message_id];
        for (place, text) in [10, 9, 8, 7].into_iter().zip(texts) {
            if flag(place, text.is_some()) {
                list.short_text(text.as_deref().unwrap_or_default());
            }
        }
        if flag(6, self.timestamp.is_some()) {
            list.long_long(self.timestamp.unwrap_or_default());
        }
        let texts = [&self.kind, &self.user_id, &self.app_id, &self.cluster_id];
        for (place, text) in [5, 4, 3, 2].into_iter().zip(texts) {
            if flag(place, text.is_some()) {
                list.short_text(text.as_deref().unwrap_or_default());
            }
        }
        let mut header = Writer::default();
        header.short(60).short(0).long_long(self.body.len() as u64).short(flags);
        header.0.extend(list.0);
        header.0
    }

    /// Reads the payload of a content header frame: the message without its body, and how long that is.
    pub(crate) fn read_header(payload: &[u8]) -> Result<(Message, u64)> {
        let mut reader = Reader(payload);
        let (_class, _weight) = (reader.short()?, reader.short()?);
        let size = reader.long_long()?;
        let flags = reader.short()?;
        let has = |place: u16| flags & (1 << place) != 0;
        let mut message = Message::default();
        let texts: [(u16, &mut Option<String>); TEXTS_BEFORE_HEADERS] =
            [(15, &mut message.content_type), (14, &mut message.content_encoding)];
        read_texts(&mut reader, flags, texts)?;
        if has(13) {
            message.headers = Some(reader.table()?);
        }
        if has(12) {
            message.delivery_mode = Some(reader.octet()?);
        }
        if has(11) {
            message.priority = Some(reader.octet()?);
        }
        let texts = [
            (10, &mut message.correlation_id),
            (9, &mut message.reply_to),
            (8, &mut message.expiration),
            (7, &mut message.message_id),
        ];
        read_texts(&mut reader, flags, texts)?;
        if has(6) {
            message.timestamp = Some(reader.long_long()?);
        }
        let texts = [
            (5, &mut message.kind),
            (4, &mut message.user_id),
            (3, &mut message.app_id),
            (2, &mut message.cluster_id),
        ];
        read_texts(&mut reader, flags, texts)?;
        Ok((message, size))
    }
}

fn read_texts<const N: usize>(
    reader: &mut Reader<'_>,
    flags: u16,
    texts: [(u16, &mut Option<String>); N],
) -> Result<()> {
    for (place, text) in texts {
        if flags & (1 << place) != 0 {
            *text = Some(reader.short_text()?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Value;

    #[test]
    fn every_property_is_read_as_it_was_written() {
        let some = |text: &str| Some(text.to_owned());
        let message = Message {
            content_type: some("a"),
            content_encoding: some("b"),
            headers: Some(vec![("h".to_owned(), Value::Int(1))]),
            delivery_mode: Some(2),
            priority: Some(3),
            correlation_id: some("c"),
            reply_to: some("d"),
            expiration: some("5"),
            message_id: some("e"),
            timestamp: Some(6),
            kind: some("f"),
            user_id: some("g"),
            app_id: some("h"),
            cluster_id: some("i"),
            body: Vec::new(),
        };
        assert_eq!(Message::read_header(&message.header()).unwrap(), (message, 0));
    }
}
