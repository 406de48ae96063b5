use bytes::{BufMut as _, Bytes, BytesMut};

use crate::field::Field;
use crate::wire::{Reader, Writer};
use crate::{DecodeError, RawTable, ShortStr};

/// The properties of a message. Decoding copies no text, and leaves the headers encoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    /// The type of the body.
    pub content_type: Option<ShortStr>,
    /// How the body is encoded, such as `gzip`.
    pub content_encoding: Option<ShortStr>,
    /// The headers.
    pub headers: Option<RawTable>,
    /// 2: persistent; anything else: not.
    pub delivery_mode: Option<u8>,
    /// Higher is delivered sooner, where the queue supports it.
    pub priority: Option<u8>,
    /// Which request this responds to.
    pub correlation_id: Option<ShortStr>,
    /// The queue for responses.
    pub reply_to: Option<ShortStr>,
    /// Time to live in milliseconds, as decimal text.
    pub expiration: Option<ShortStr>,
    /// The application's name of the message.
    pub message_id: Option<ShortStr>,
    /// Seconds since 1970-01-01 UTC.
    pub timestamp: Option<u64>,
    /// The application's type of the message.
    pub kind: Option<ShortStr>,
    /// The user who published it; RabbitMQ checks it.
    pub user_id: Option<ShortStr>,
    /// The application that published it.
    pub app_id: Option<ShortStr>,
    /// Deprecated; kept as it is.
    pub cluster_id: Option<ShortStr>,
}

impl Properties {
    /// Decodes the part of a header frame after the length of the body.
    ///
    /// # Errors
    /// If these are no properties.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        // The last two bits have no property. RabbitMQ ignores them, and 3.x hands them out as they were published.
        let flags = from.u16()?;
        let mut flag = 1 << 15;
        let from = &mut from;
        let properties = Self {
            content_type: next(flags, &mut flag, from)?,
            content_encoding: next(flags, &mut flag, from)?,
            headers: next(flags, &mut flag, from)?,
            delivery_mode: next(flags, &mut flag, from)?,
            priority: next(flags, &mut flag, from)?,
            correlation_id: next(flags, &mut flag, from)?,
            reply_to: next(flags, &mut flag, from)?,
            expiration: next(flags, &mut flag, from)?,
            message_id: next(flags, &mut flag, from)?,
            timestamp: next(flags, &mut flag, from)?,
            kind: next(flags, &mut flag, from)?,
            user_id: next(flags, &mut flag, from)?,
            app_id: next(flags, &mut flag, from)?,
            cluster_id: next(flags, &mut flag, from)?,
        };
        from.finish()?;
        Ok(properties)
    }

    /// Appends the encoded properties.
    pub fn write(&self, out: &mut BytesMut) {
        let at = out.len();
        out.put_u16(0);
        let mut writing = Writing { flags: 0, flag: 1 << 15, out };
        writing.put(self.content_type.as_ref());
        writing.put(self.content_encoding.as_ref());
        writing.put(self.headers.as_ref());
        writing.put(self.delivery_mode.as_ref());
        writing.put(self.priority.as_ref());
        writing.put(self.correlation_id.as_ref());
        writing.put(self.reply_to.as_ref());
        writing.put(self.expiration.as_ref());
        writing.put(self.message_id.as_ref());
        writing.put(self.timestamp.as_ref());
        writing.put(self.kind.as_ref());
        writing.put(self.user_id.as_ref());
        writing.put(self.app_id.as_ref());
        writing.put(self.cluster_id.as_ref());
        let flags = writing.flags;
        out[at..at + 2].copy_from_slice(&flags.to_be_bytes());
    }

    /// Encodes the properties.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.write(&mut out);
        out.freeze()
    }
}

fn next<T: Field>(flags: u16, flag: &mut u16, from: &mut Reader<'_>) -> Result<Option<T>, DecodeError> {
    let present = flags & *flag != 0;
    *flag >>= 1;
    if present { T::read(from).map(Some) } else { Ok(None) }
}

struct Writing<'a> {
    flags: u16,
    flag: u16,
    out: &'a mut BytesMut,
}

impl Writing<'_> {
    fn put<T: Field>(&mut self, property: Option<&T>) {
        if let Some(property) = property {
            self.flags |= self.flag;
            property.write(&mut Writer::new(self.out));
        }
        self.flag >>= 1;
    }
}
