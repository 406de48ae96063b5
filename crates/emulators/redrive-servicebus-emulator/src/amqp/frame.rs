use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Opens a connection without SASL, or after it.
pub(crate) const AMQP_HEADER: [u8; 8] = *b"AMQP\x00\x01\x00\x00";
/// Opens the SASL part of a connection.
pub(crate) const SASL_HEADER: [u8; 8] = *b"AMQP\x03\x01\x00\x00";

const HEADER_LENGTH: usize = 8;

/// A received frame whose body is not decoded yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) channel: u16,
    /// Empty for the frames that only keep a connection alive.
    pub(crate) body: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Amqp,
    Sasl,
}

/// Why bytes are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame of {0} bytes is larger than max-frame-size")]
    TooLarge(usize),
    #[error("a frame's size or data offset cannot be true")]
    Malformed,
    #[error("{0:#04x} is no type of frame")]
    UnknownKind(u8),
}

/// Takes a complete frame from the front of the received bytes; `None` if it is not complete yet.
pub(crate) fn take_frame(from: &mut BytesMut, max_frame: usize) -> Result<Option<Frame>, FrameError> {
    let Some(header) = from.first_chunk::<HEADER_LENGTH>() else { return Ok(None) };
    let size = u32::from_be_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let offset = usize::from(header[4]) * 4;
    let kind = match header[5] {
        0 => FrameKind::Amqp,
        1 => FrameKind::Sasl,
        other => return Err(FrameError::UnknownKind(other)),
    };
    let channel = u16::from_be_bytes([header[6], header[7]]);
    if size > max_frame {
        return Err(FrameError::TooLarge(size));
    }
    if offset < HEADER_LENGTH || size < offset {
        return Err(FrameError::Malformed);
    }
    if from.len() < size {
        return Ok(None);
    }
    let mut frame = from.split_to(size);
    frame.advance(offset);
    Ok(Some(Frame { kind, channel, body: frame.freeze() }))
}

/// Writes a frame whose body `write` writes.
pub(crate) fn put_frame(kind: FrameKind, channel: u16, to: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = to.len();
    to.put_u32(0);
    to.put_u8(2);
    to.put_u8(u8::from(kind == FrameKind::Sasl));
    to.put_u16(channel);
    write(to);
    let size = (to.len() - start) as u32;
    to[start..start + 4].copy_from_slice(&size.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_as_it_was_and_not_before_it_is_whole() {
        let mut bytes = BytesMut::new();
        put_frame(FrameKind::Sasl, 7, &mut bytes, |to| to.put_slice(b"body"));
        let mut cut = BytesMut::from(&bytes[..bytes.len() - 1]);
        assert_eq!(take_frame(&mut cut, 512), Ok(None));
        let frame = Frame { kind: FrameKind::Sasl, channel: 7, body: Bytes::from_static(b"body") };
        assert_eq!(take_frame(&mut bytes, 512), Ok(Some(frame)));
        assert!(bytes.is_empty());
    }

    #[test]
    fn sizes_that_cannot_be_true_are_errors() {
        let frame = |header: [u8; 8]| take_frame(&mut BytesMut::from(&header[..]), 512);
        assert_eq!(frame([0xff, 0, 0, 0, 2, 0, 0, 0]), Err(FrameError::TooLarge(0xff00_0000)));
        assert_eq!(frame([0, 0, 0, 8, 1, 0, 0, 0]), Err(FrameError::Malformed));
        assert_eq!(frame([0, 0, 0, 4, 2, 0, 0, 0]), Err(FrameError::Malformed));
        assert_eq!(frame([0, 0, 0, 8, 2, 9, 0, 0]), Err(FrameError::UnknownKind(9)));
    }
}
