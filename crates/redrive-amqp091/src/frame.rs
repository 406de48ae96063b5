use bytes::{BufMut as _, Bytes, BytesMut};

use crate::DecodeError;

/// What a client sends first.
pub const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\x00\x00\x09\x01";
/// The heartbeat frame.
pub const HEARTBEAT: [u8; 8] = [8, 0, 0, 0, 0, 0, 0, FRAME_END];
/// Number of bytes of a frame beside its payload; `frame_max` counts them.
pub const FRAME_OVERHEAD: usize = HEADER + 1;

const HEADER: usize = 7;
/// The last byte of a frame.
pub const FRAME_END: u8 = 0xCE;

/// A received frame whose payload is not decoded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What the payload is.
    pub kind: FrameKind,
    /// Number of the channel; 0 for the connection itself.
    pub channel: u16,
    /// The payload; shares the received bytes.
    pub payload: Bytes,
}

/// What a frame's payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A [`Method`](crate::Method).
    Method,
    /// A [`ContentHeader`](crate::ContentHeader).
    Header,
    /// A part of a message's body.
    Body,
    /// Nothing: a sign of life.
    Heartbeat,
}

impl FrameKind {
    fn of(number: u8) -> Result<Self, DecodeError> {
        match number {
            1 => Ok(Self::Method),
            2 => Ok(Self::Header),
            3 => Ok(Self::Body),
            8 => Ok(Self::Heartbeat),
            other => Err(DecodeError::UnknownFrame(other)),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Method => 1,
            Self::Header => 2,
            Self::Body => 3,
            Self::Heartbeat => 8,
        }
    }
}

impl Frame {
    /// Takes a complete frame from the front of the received bytes; `None` if it is not complete yet. `max_payload`: maximum length of
    /// a payload in bytes. A wrong frame is found as soon as its first seven bytes are there.
    ///
    /// # Errors
    /// If the bytes are no frame. They stay where they are.
    pub fn take(from: &mut BytesMut, max_payload: usize) -> Result<Option<Self>, DecodeError> {
        let Some(header) = from.first_chunk::<HEADER>() else {
            // A wrong first byte needs no more of them.
            return from.first().map_or(Ok(None), |kind| FrameKind::of(*kind).map(|_| None));
        };
        let kind = FrameKind::of(header[0])?;
        let channel = u16::from_be_bytes([header[1], header[2]]);
        let size = u32::from_be_bytes([header[3], header[4], header[5], header[6]]) as usize;
        if size > max_payload {
            return Err(DecodeError::FrameTooLarge { size, limit: max_payload });
        }
        match from.get(HEADER + size) {
            None => Ok(None),
            Some(&FRAME_END) => {
                let frame = from.split_to(HEADER + size + 1).freeze();
                Ok(Some(Self { kind, channel, payload: frame.slice(HEADER..HEADER + size) }))
            }
            Some(other) => Err(DecodeError::FrameEnd(*other)),
        }
    }
}

/// Appends what comes before a payload of `size` bytes: for payloads that are written from where they are. [`FRAME_END`] follows them.
pub fn write_frame_head(kind: FrameKind, channel: u16, size: u32, out: &mut BytesMut) {
    out.put_u8(kind.number());
    out.put_u16(channel);
    out.put_u32(size);
}

/// Appends a frame with this payload.
pub fn write_frame(kind: FrameKind, channel: u16, payload: &[u8], out: &mut BytesMut) {
    out.reserve(payload.len() + FRAME_OVERHEAD);
    with_frame(kind, channel, out, |out| out.put_slice(payload));
}

/// Appends a frame around what `write` appends.
pub(crate) fn with_frame(
    kind: FrameKind,
    channel: u16,
    out: &mut BytesMut,
    write: impl FnOnce(&mut BytesMut),
) {
    let at = out.len();
    write_frame_head(kind, channel, 0, out);
    write(out);
    let size = u32::try_from(out.len() - at - HEADER).unwrap_or(u32::MAX);
    out[at + 3..at + HEADER].copy_from_slice(&size.to_be_bytes());
    out.put_u8(FRAME_END);
}
