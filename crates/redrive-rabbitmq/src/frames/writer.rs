//! Puts what the library writes and redrive's own frames behind each other. No I/O.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf as _, BytesMut};
use redrive_core::Bytes;

use super::channels::OwnChannels;
use super::frame::METHOD;
use super::taker::{CHANNEL_CLOSE, CHANNEL_CLOSE_OK};

/// Size of type, channel and size before the payload; an end mark follows the payload.
const HEAD: usize = 7;
const END: usize = 1;
/// The first bytes of a connection, which are no frame.
const PROTOCOL_HEADER: usize = 8;
/// So many bytes of a method tell which one it is.
const METHOD_SEEN: usize = HEAD + 4;
/// The library waits while so many of its bytes are not written yet.
const MOST: usize = 64 * 1024;
/// The number of pieces that are written at once.
pub(super) const PIECES: usize = 16;

/// What is to be written.
#[derive(Debug)]
pub(super) struct FrameWriter {
    library: BytesMut,
    /// So many of the library's bytes may be written, with the rest of a frame that has begun: also of those that are still to come.
    open: usize,
    /// The rest of redrive's own frames that have begun.
    own: VecDeque<Bytes>,
    /// The library was the last to begin.
    library_was_last: bool,
    channels: OwnChannels,
}

impl FrameWriter {
    pub(super) fn new(channels: OwnChannels) -> Self {
        Self {
            library: BytesMut::new(),
            open: PROTOCOL_HEADER,
            own: VecDeque::new(),
            library_was_last: false,
            channels,
        }
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
    pub(super) fn next(&mut self) -> Vec<IoSlice<'_>> {
        if self.own.is_empty() && self.open == 0 {
            self.begin();
        }
        if self.own.is_empty() {
            let length = self.open.min(self.library.len());
            return Vec::from_iter((length > 0).then(|| IoSlice::new(&self.library[..length])));
        }
        self.own.iter().take(PIECES).map(|piece| IoSlice::new(piece)).collect()
    }

    /// So many bytes of what is next are written.
    pub(super) fn written(&mut self, mut length: usize) {
        if self.own.is_empty() {
            self.library.advance(length);
            self.open -= length;
            return;
        }
        while let Some(piece) = self.own.front_mut() {
            let part = piece.len().min(length);
            piece.advance(part);
            length -= part;
            if !piece.is_empty() {
                break;
            }
            self.own.pop_front();
        }
    }

    /// Between two frames: in turn, so that neither waits for ever.
    fn begin(&mut self) {
        for library in [!self.library_was_last, self.library_was_last] {
            if library {
                self.open = self.frames();
            } else if let Some(unit) = self.channels.next() {
                self.own = unit.pieces;
                self.own.retain(|piece| !piece.is_empty());
            }
            if self.open > 0 || !self.own.is_empty() {
                self.library_was_last = library;
                return;
            }
        }
    }

    /// Returns the length of the library's next frames. A channel that it ends gets no more frames.
    fn frames(&self) -> usize {
        let mut length = 0;
        while let Some(rest) = self.library.get(length..)
            && let Some(&[frame_type, high, low, a, b, c, d]) = rest.first_chunk::<HEAD>()
        {
            let whole = HEAD + u32::from_be_bytes([a, b, c, d]) as usize + END;
            if rest.len() < whole.min(METHOD_SEEN) {
                break;
            }
            let method = rest.get(HEAD..METHOD_SEEN).and_then(<[u8]>::first_chunk);
            if frame_type == METHOD && matches!(method, Some(&(CHANNEL_CLOSE | CHANNEL_CLOSE_OK))) {
                self.channels.library_ends(u16::from_be_bytes([high, low]));
            }
            length += whole;
        }
        length
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
