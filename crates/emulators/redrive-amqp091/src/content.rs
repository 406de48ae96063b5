use bytes::{BufMut as _, Bytes, BytesMut};

use crate::frame::with_frame;
use crate::wire::Reader;
use crate::{DecodeError, FRAME_OVERHEAD, FrameKind, Properties, write_frame};

/// The header of a message: how long its body is, and its properties.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContentHeader {
    /// Length of the body in bytes.
    pub body_size: u64,
    /// The properties.
    pub properties: Properties,
}

/// Number of bytes before the properties.
const PREFIX: usize = 12;

impl ContentHeader {
    /// The only class with content.
    const BASIC: u16 = 60;

    /// Decodes the payload of a header frame.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(payload: &Bytes) -> Result<Self, DecodeError> {
        let (body_size, properties) = Self::split(payload)?;
        Ok(Self { body_size, properties: Properties::decode(&properties)? })
    }

    /// Splits the payload of a header frame into the length of the body and the encoded properties, which are not checked.
    ///
    /// # Errors
    /// If it is too short, or not of the class `basic`.
    pub fn split(payload: &Bytes) -> Result<(u64, Bytes), DecodeError> {
        let mut from = Reader::new(payload);
        let class = from.u16()?;
        if class != Self::BASIC {
            return Err(DecodeError::NoContent(class));
        }
        let _weight = from.u16()?;
        let body_size = from.u64()?;
        Ok((body_size, payload.slice(PREFIX..)))
    }

    /// Appends the payload of a header frame.
    pub fn write(&self, out: &mut BytesMut) {
        write_prefix(self.body_size, out);
        self.properties.write(out);
    }
}

/// Appends a header frame with encoded properties.
pub fn write_header_frame(channel: u16, body_size: u64, properties: &[u8], out: &mut BytesMut) {
    out.reserve(PREFIX + properties.len() + FRAME_OVERHEAD);
    with_frame(FrameKind::Header, channel, out, |out| {
        write_prefix(body_size, out);
        out.put_slice(properties);
    });
}

fn write_prefix(body_size: u64, out: &mut BytesMut) {
    out.put_u16(ContentHeader::BASIC);
    out.put_u16(0);
    out.put_u64(body_size);
}

/// Appends the frames of a message after its method: the header, and the body in as many frames as `frame_max` demands (in bytes; 0:
/// one frame).
pub fn write_content(channel: u16, properties: &[u8], body: &[u8], frame_max: usize, out: &mut BytesMut) {
    write_header_frame(channel, body.len() as u64, properties, out);
    let part = match frame_max {
        0 => usize::MAX,
        frame_max => frame_max.saturating_sub(FRAME_OVERHEAD).max(1),
    };
    for part in body.chunks(part.min(body.len().max(1))) {
        write_frame(FrameKind::Body, channel, part, out);
    }
}
