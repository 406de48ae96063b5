//! The layout of frames, and what is changed in them for the client library. Pure.
//! ([`shorten`](super::shorten) shortens frames that are too long.)

use redrive_amqp091::{Changed, FRAME_HEAD, FRAME_OVERHEAD, FrameKind, connection};

pub(crate) const METHOD: u8 = FrameKind::Method.number();
pub(crate) const HEADER: u8 = FrameKind::Header.number();
pub(crate) const BODY: u8 = FrameKind::Body.number();
pub(crate) const HEARTBEAT: u8 = FrameKind::Heartbeat.number();

/// Size of type, channel and size before the payload; an end mark follows the payload.
pub(super) const HEAD: usize = FRAME_HEAD;
pub(super) const END: usize = FRAME_OVERHEAD - FRAME_HEAD;

/// Maximum depth of tables and arrays; deeper ones become byte arrays. The library reads them recursively: in a debug build, a
/// stack of 2 MiB overflows at 156 to 195 levels.
pub(super) const DEEPEST: usize = 64;

/// Makes the payload of a frame readable. Leaves other malformations for the library to refuse.
pub(crate) fn make_readable(frame_type: u8, payload: &mut [u8]) -> Changed {
    match FrameKind::try_from(frame_type) {
        Ok(kind) => redrive_amqp091::make_readable(kind, payload, DEEPEST),
        Err(_) => Changed::default(),
    }
}

/// Changes the reply code of `channel.close` and `connection.close`.
pub(super) fn set_close_code(payload: &mut [u8], code: u16) {
    const CODE: std::ops::Range<usize> = 4..6;
    if let Some(current) = payload.get_mut(CODE) {
        current.copy_from_slice(&code.to_be_bytes());
    }
}

/// Returns the frame size that the broker proposes, if this is `connection.tune`; 0 means any.
pub(super) fn proposed_frame_max(method: &[u8]) -> Option<u32> {
    let rest = method.strip_prefix(&connection::Tune::ID)?;
    // After the maximum channel number.
    rest.get(2..)?.first_chunk().map(|size| u32::from_be_bytes(*size))
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
