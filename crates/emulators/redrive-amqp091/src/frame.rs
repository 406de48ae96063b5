use bytes::{BufMut as _, Bytes, BytesMut};

use crate::DecodeError;

/// What a client sends first.
pub const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\x00\x00\x09\x01";
/// The heartbeat frame.
pub const HEARTBEAT: [u8; 8] = [8, 0, 0, 0, 0, 0, 0, FRAME_END];
/// Number of bytes of a frame beside its payload; `frame_max` counts them.
pub const FRAME_OVERHEAD: usize = FRAME_HEAD + 1;
/// Number of bytes before the payload: type, channel, and size.
pub const FRAME_HEAD: usize = 7;
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
    Method = 1,
    /// A [`ContentHeader`](crate::ContentHeader).
    Header = 2,
    /// A part of a message's body.
    Body = 3,
    /// Nothing: a sign of life.
    Heartbeat = 8,
}

impl FrameKind {
    /// Returns the first byte of a frame of this kind.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl TryFrom<u8> for FrameKind {
    type Error = DecodeError;

    fn try_from(number: u8) -> Result<Self, DecodeError> {
        let all = [Self::Method, Self::Header, Self::Body, Self::Heartbeat];
        all.into_iter().find(|kind| kind.number() == number).ok_or(DecodeError::UnknownFrame(number))
    }
}

impl Frame {
    /// Takes a complete frame from the front of the received bytes; `None` if it is not complete yet. `max_payload`: maximum length of
    /// a payload in bytes. A wrong frame is found as soon as its first seven bytes are there.
    ///
    /// # Errors
    /// If the bytes are no frame. They stay where they are.
    pub fn take(from: &mut BytesMut, max_payload: usize) -> Result<Option<Self>, DecodeError> {
        let Some(header) = from.first_chunk::<FRAME_HEAD>() else {
            // A wrong first byte needs no more of them.
            return from.first().map_or(Ok(None), |kind| FrameKind::try_from(*kind).map(|_| None));
        };
        let kind = FrameKind::try_from(header[0])?;
        let channel = u16::from_be_bytes([header[1], header[2]]);
        let size = u32::from_be_bytes([header[3], header[4], header[5], header[6]]) as usize;
        if size > max_payload {
            return Err(DecodeError::FrameTooLarge { size, limit: max_payload });
        }
        match from.get(FRAME_HEAD + size) {
            None => Ok(None),
            Some(&FRAME_END) => {
                let frame = from.split_to(FRAME_HEAD + size + 1).freeze();
                Ok(Some(Self { kind, channel, payload: frame.slice(FRAME_HEAD..FRAME_HEAD + size) }))
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
    let size = u32::try_from(out.len() - at - FRAME_HEAD).unwrap_or(u32::MAX);
    out[at + 3..at + FRAME_HEAD].copy_from_slice(&size.to_be_bytes());
    out.put_u8(FRAME_END);
}
