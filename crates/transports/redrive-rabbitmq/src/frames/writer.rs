//! Puts what the library writes and redrive's own frames behind each other. No I/O.

use bytes::{Buf as _, BytesMut};
use redrive_amqp091::{channel, connection};
use redrive_core::Bytes;

use super::channels::{OwnChannels, Unit};
use super::frame::{END, HEAD, METHOD};

/// The first bytes of a connection, which are no frame.
pub(super) const PROTOCOL_HEADER: usize = redrive_amqp091::PROTOCOL_HEADER.len();
/// Number of bytes of a method that tell which one it is.
const METHOD_SEEN: usize = HEAD + 4;
/// The library waits while this many of its bytes are not written yet.
const MOST: usize = 64 * 1024;

/// What is to be written.
#[derive(Debug)]
pub(super) struct FrameWriter {
    library: BytesMut,
    /// Number of the library's bytes that may be written, with the rest of a frame that has begun; counts bytes that are still to come.
    open: usize,
    /// The rest of redrive's own frames that have begun.
    own: Option<Unit>,
    /// The library was the last to begin.
    library_was_last: bool,
    channels: OwnChannels,
}

impl FrameWriter {
    pub(super) fn new(channels: OwnChannels) -> Self {
        Self { library: BytesMut::new(), open: PROTOCOL_HEADER, own: None, library_was_last: false, channels }
    }

    /// Returns true if the library may write more.
    pub(super) fn has_room(&self) -> bool {
        self.library.len() < MOST
    }

    /// Adds what the library writes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.library.extend_from_slice(bytes);
    }

    /// Returns what is written next; nothing if nothing waits.
    pub(super) fn next(&mut self) -> &[u8] {
        if self.own.is_none() && self.open == 0 {
            self.begin();
        }
        match &self.own {
            Some(unit) => unit.pieces.front().map_or(&[], |piece| piece),
            None => &self.library[..self.open.min(self.library.len())],
        }
    }

    /// Number of bytes already written of what is next.
    pub(super) fn written(&mut self, length: usize) {
        let Some(unit) = &mut self.own else {
            self.library.advance(length);
            self.open -= length;
            return;
        };
        if let Some(piece) = unit.pieces.front_mut() {
            piece.advance(length);
        }
        while unit.pieces.front().is_some_and(Bytes::is_empty) {
            unit.pieces.pop_front();
        }
        if unit.pieces.is_empty()
            && let Some(unit) = self.own.take()
        {
            let _ = unit.written.send(());
        }
    }

    /// Between two frames: in turn, so that neither waits for ever.
    fn begin(&mut self) {
        let own = if self.library_was_last { self.channels.next(None) } else { None };
        self.own = own.or_else(|| match self.frames() {
            Next::Library(0) => self.channels.next(None),
            Next::Library(length) => {
                self.open = length;
                None
            }
            Next::Own(unit) => Some(unit),
        });
        self.library_was_last = self.own.is_none();
    }

    /// Returns the length of the library's next frames. What waits for a channel that it ends is written before.
    fn frames(&self) -> Next {
        let mut length = 0;
        while let Some(rest) = self.library.get(length..)
            && let Some(&[frame_type, high, low, a, b, c, d]) = rest.first_chunk::<HEAD>()
        {
            let whole = HEAD + u32::from_be_bytes([a, b, c, d]) as usize + END;
            if rest.len() < whole.min(METHOD_SEEN) {
                break;
            }
            let channel = u16::from_be_bytes([high, low]);
            let method = rest.get(HEAD..METHOD_SEEN).filter(|_| frame_type == METHOD);
            match method.and_then(<[u8]>::first_chunk) {
                // Another frame may come before this one: it is looked at again.
                Some(&(channel::Close::ID | connection::Close::ID)) if length > 0 => break,
                Some(&channel::Close::ID) => match self.channels.next(Some(channel)) {
                    Some(unit) => return Next::Own(unit),
                    None => self.channels.library_ends(channel),
                },
                Some(&connection::Close::ID) => {
                    if let Some(unit) = self.channels.next(None) {
                        return Next::Own(unit);
                    }
                    self.channels.library_closes();
                }
                Some(&channel::CloseOk::ID) => self.channels.is_over(channel),
                _ => {}
            }
            length += whole;
        }
        Next::Library(length)
    }
}

enum Next {
    Library(usize),
    Own(Unit),
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
