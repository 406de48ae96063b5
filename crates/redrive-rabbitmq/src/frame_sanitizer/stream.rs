//! A stream that passes on only complete, readable frames.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use futures::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;

use super::frame::{self, BODY, HEADER, HEARTBEAT, METHOD};
use super::left_out_mark;
use super::shorten::{Shortened, shorten};
use super::waiter::GivenUp;
use crate::version::{self, Version};

/// Size of type, channel and size before the payload; an end mark follows the payload.
const HEAD: usize = 7;
const END: usize = 1;
/// Length of the size field, the last part of the head.
const SIZE: usize = 4;
/// Minimum size of a read.
const READ: usize = 64 * 1024;
/// A buffer that grew beyond this for one long header is replaced.
const LARGE: usize = 16 * READ;

/// The version in the greeting; `None` inside: the greeting has none.
pub(crate) type Greeting = Arc<OnceLock<Option<Version>>>;

/// The decrypted stream of one connection. It ends when nobody waits for the connection any more: otherwise the library would wait,
/// with a thread and a task, as long as the socket is open.
pub(crate) struct SanitizedStream<S> {
    /// Present until it is dropped.
    inner: Option<S>,
    /// The runtime of the socket.
    runtime: Handle,
    reader: FrameReader,
    given_up: GivenUp,
}

impl<S> SanitizedStream<S> {
    /// Creates the stream. `wanted` is the frame size that the library asks for; 0: the broker's.
    pub(super) fn new(inner: S, runtime: Handle, wanted: u32, greeting: Greeting, given_up: GivenUp) -> Self {
        Self { inner: Some(inner), runtime, reader: FrameReader::new(wanted, greeting), given_up }
    }
}

impl<S: Unpin> SanitizedStream<S> {
    fn inner(&mut self) -> io::Result<Pin<&mut S>> {
        pinned(&mut self.inner)
    }
}

fn pinned<S: Unpin>(inner: &mut Option<S>) -> io::Result<Pin<&mut S>> {
    inner.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// Drops the socket in its own runtime. The library drops the stream on its own thread; `async-compat` would start another runtime
/// there, with a thread and three files, and panic at the end of every connection if the process has no file left.
impl<S> Drop for SanitizedStream<S> {
    fn drop(&mut self) {
        let _in_its_runtime = self.runtime.enter();
        self.inner = None;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SanitizedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if out.is_empty() {
            return Poll::Ready(Ok(0));
        }
        while this.reader.readable().is_empty() {
            let read = match pinned(&mut this.inner)?.poll_read(cx, this.reader.room()) {
                Poll::Pending if this.given_up.poll(cx) => 0,
                read => ready!(read)?,
            };
            if read == 0 {
                return Poll::Ready(Ok(0));
            }
            this.reader.take_in(read);
        }
        Poll::Ready(Ok(this.reader.hand_on(out)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SanitizedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.inner()?.poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.inner()?.poll_write_vectored(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_close(cx)
    }
}

/// Splits the stream into frames. No I/O.
struct FrameReader {
    buffer: Vec<u8>,
    /// `buffer[start..ready]` can be passed on, `buffer[ready..end]` is not checked yet.
    start: usize,
    ready: usize,
    end: usize,
    /// Number of following bytes that need no check.
    unseen: usize,
    greeting: Greeting,
    /// The frame size that the library asks for; 0: the broker's.
    wanted: u32,
    /// The longest frame that the library reads, once it is negotiated.
    longest: Option<usize>,
}

impl FrameReader {
    fn new(wanted: u32, greeting: Greeting) -> Self {
        let buffer = vec![0; READ];
        Self { buffer, start: 0, ready: 0, end: 0, unseen: 0, greeting, wanted, longest: None }
    }

    fn readable(&self) -> &[u8] {
        &self.buffer[self.start..self.ready]
    }

    fn hand_on(&mut self, out: &mut [u8]) -> usize {
        let length = self.readable().len().min(out.len());
        out[..length].copy_from_slice(&self.readable()[..length]);
        self.start += length;
        length
    }

    /// Returns room to read into, which is never empty.
    fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            // Usually nothing, or the beginning of one frame.
            self.buffer.copy_within(self.start..self.end, 0);
            (self.ready, self.end) = (self.ready - self.start, self.end - self.start);
            self.start = 0;
        }
        if self.end == 0 && self.buffer.len() > LARGE {
            self.buffer = vec![0; READ];
        }
        if self.buffer.len() - self.end < READ / 2 {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Checks the bytes that were read into the room.
    fn take_in(&mut self, read: usize) {
        self.end += read;
        while self.ready < self.end {
            let waiting = self.end - self.ready;
            if self.unseen > 0 {
                let passed = self.unseen.min(waiting);
                (self.ready, self.unseen) = (self.ready + passed, self.unseen - passed);
                continue;
            }
            let Some(&[frame_type, _, _, size @ ..]) =
                self.buffer[self.ready..self.end].first_chunk::<HEAD>()
            else {
                return;
            };
            let size = u32::from_be_bytes(size) as usize;
            match frame_type {
                // A large size costs memory only as its bytes arrive.
                METHOD | HEADER => {
                    let whole = HEAD + size + END;
                    if waiting < whole {
                        return;
                    }
                    let payload = self.ready + HEAD..self.ready + HEAD + size;
                    self.look_at(frame_type, payload);
                    let whole = self.shorten(frame_type, whole).unwrap_or(whole);
                    self.ready += whole;
                }
                BODY | HEARTBEAT => self.unseen = HEAD + size + END,
                // Another protocol or version: nothing more is checked.
                _ => self.unseen = usize::MAX,
            }
        }
    }

    fn look_at(&mut self, frame_type: u8, payload: std::ops::Range<usize>) {
        let payload = &mut self.buffer[payload];
        if frame_type == METHOD && self.greeting.get().is_none() {
            // The first frame is the greeting.
            let _ = self.greeting.set(version::read_greeting(payload));
        }
        if frame_type == METHOD && self.longest.is_none() {
            self.longest = frame::proposed_frame_max(payload).map(|proposed| agreed(self.wanted, proposed));
        }
        let changed = frame::make_readable(frame_type, payload);
        if changed.anything() {
            tracing::warn!(
                not_utf_8 = changed.text,
                nested_too_deeply = changed.depth,
                "RabbitMQ hands out a message that cannot be read as it is: what is not UTF-8 in its properties and \
                 header names is shown as `?`, what is nested too deeply as bytes"
            );
        }
    }

    /// Shortens the next frame if it is too long for the library. Returns its new length.
    fn shorten(&mut self, frame_type: u8, whole: usize) -> Option<usize> {
        let longest = self.longest.filter(|longest| frame_type == HEADER && whole > *longest)?;
        let frame = &mut self.buffer[self.ready..self.ready + whole];
        let payload = &mut frame[HEAD..whole - END];
        let Shortened { payload, left_out } = shorten(payload, longest - HEAD - END, left_out_mark())?;
        tracing::warn!(
            frame = whole,
            longest,
            left_out,
            "RabbitMQ hands out a message whose headers are larger than a frame: it cannot be handled or copied, only set aside"
        );
        let shortened = HEAD + payload.len() + END;
        frame[HEAD - SIZE..HEAD].copy_from_slice(&u32::try_from(payload.len()).ok()?.to_be_bytes());
        frame[HEAD..shortened - END].copy_from_slice(&payload);
        // Moves the end mark and the following bytes up.
        self.buffer.copy_within(self.ready + whole - END..self.end, self.ready + shortened - END);
        self.end -= whole - shortened;
        Some(shortened)
    }
}

/// Computes the maximum frame size as the library does.
fn agreed(wanted: u32, proposed: u32) -> usize {
    const SMALLEST: u32 = 4096;
    let agreed = match (wanted, proposed) {
        (0, 0) => u32::MAX,
        (0, one) | (one, 0) => one,
        (wanted, proposed) => wanted.min(proposed),
    };
    agreed.max(SMALLEST) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(frame_type: u8, payload: &[u8]) -> Vec<u8> {
        let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[frame_type, 0, 1], &size[..], payload, &[0xce]].concat()
    }

    /// Creates a content header with a message id that is not UTF-8.
    fn header(message_id: &[u8]) -> Vec<u8> {
        let length = u8::try_from(message_id.len()).unwrap();
        let payload = [&[0; 12][..], &(1_u16 << 7).to_be_bytes(), &[length], message_id].concat();
        frame(HEADER, &payload)
    }

    /// Returns the output for a stream that arrives in pieces of these sizes.
    fn through(stream: &[u8], pieces: &[usize]) -> Vec<u8> {
        let mut reader = FrameReader::new(0, Greeting::default());
        let (mut rest, mut out) = (stream, Vec::new());
        let mut piece = [0; 100];
        for size in pieces.iter().cycle() {
            let read = rest.len().min(*size).min(reader.room().len());
            reader.room()[..read].copy_from_slice(&rest[..read]);
            rest = &rest[read..];
            reader.take_in(read);
            while !reader.readable().is_empty() {
                let length = reader.hand_on(&mut piece);
                out.extend(&piece[..length]);
            }
            if rest.is_empty() {
                return out;
            }
        }
        out
    }

    proptest! {
        #[test]
        fn however_it_is_cut_each_frame_is_made_readable(
            pieces in proptest::collection::vec(prop_oneof![1..20_usize, 1..20_000_usize], 1..8), body in 0..20_000_usize,
        ) {
            let stream = |id: &[u8]| [
                frame(METHOD, &[0, 60, 0, 80]), header(id), frame(BODY, &vec![0xfc; body]), frame(HEARTBEAT, b""),
                header(id),
            ].concat();
            prop_assert_eq!(through(&stream(b"Gr\xfc\xdfe"), &pieces), stream(b"Gr??e"));
        }

        #[test]
        fn what_is_no_amqp_is_handed_on_as_it_is(
            text in proptest::collection::vec(9..=255_u8, 1..1000), pieces in proptest::collection::vec(1..300_usize, 1..8),
        ) {
            prop_assume!(text.len() >= HEAD);
            prop_assert_eq!(through(&text, &pieces), text);
        }
    }

    /// Creates the broker's proposal.
    fn tune(frame_max: u32) -> Vec<u8> {
        frame(METHOD, &[&[0, 10, 0, 30, 7, 255][..], &frame_max.to_be_bytes(), &[0, 60]].concat())
    }

    /// Creates a content header with one header of this many bytes.
    fn with_header(bytes: usize) -> Vec<u8> {
        let long = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat();
        let headers = [&b"\x04fillS"[..], &long(&vec![b'x'; bytes])].concat();
        frame(HEADER, &[&[0; 12][..], &(1_u16 << 13).to_be_bytes(), &long(&headers)].concat())
    }

    #[test]
    fn a_header_that_is_too_long_for_the_library_is_shortened_and_all_else_stays() {
        const LONGEST: usize = 10_000;
        const AROUND: usize = 8 + 14 + 4 + 10;
        let stream =
            |bytes| [tune(10_000), with_header(bytes), frame(BODY, b"body"), header(b"next")].concat();
        for pieces in [&[100_000][..], &[1], &[7000, 5, 1]] {
            let fits = stream(LONGEST - AROUND);
            assert_eq!(through(&fits, pieces), fits);
            let (too_long, out) =
                (stream(LONGEST - AROUND + 1), through(&stream(LONGEST - AROUND + 1), pieces));
            let (before, after) = (tune(10_000), [frame(BODY, b"body"), header(b"next")].concat());
            assert!(out.len() < too_long.len() && out.starts_with(&before) && out.ends_with(&after));
            let shortened = &out[before.len()..out.len() - after.len()];
            let size = u32::from_be_bytes(*shortened[3..].first_chunk().unwrap()) as usize;
            assert_eq!((shortened.len(), shortened.last()), (HEAD + size + END, Some(&0xce)));
            let text = String::from_utf8_lossy(shortened);
            assert!(text.contains(left_out_mark()) && text.contains("`fill` (9975 bytes)"), "{text}");
        }
    }

    #[test]
    fn no_header_is_too_long_to_be_shortened_and_none_keeps_its_memory() {
        let mut reader = FrameReader::new(0, Greeting::default());
        let stream = [tune(10_000), with_header(20 << 20), header(b"next")].concat();
        let mut out = Vec::new();
        for piece in stream.chunks(READ / 2) {
            reader.room()[..piece.len()].copy_from_slice(piece);
            reader.take_in(piece.len());
            out.extend(reader.readable());
            reader.start = reader.ready;
        }
        assert!(out.len() < 20_000 && out.ends_with(&header(b"next")), "{} bytes", out.len());
        reader.room();
        assert_eq!(reader.buffer.capacity(), READ);
    }

    #[test]
    fn the_smaller_frame_is_agreed_on() {
        for (wanted, proposed, longest) in
            [(0, 131_072, 131_072), (8192, 131_072, 8192), (9000, 0, 9000), (1, 131_072, 4096)]
        {
            assert_eq!(agreed(wanted, proposed), longest);
        }
        assert_eq!(agreed(0, 0), u32::MAX as usize);
    }

    #[test]
    fn a_long_header_arrives_whole() {
        let long = frame(
            HEADER,
            &[&[0; 12][..], &(1_u16 << 13).to_be_bytes(), &(0_u32.to_be_bytes()), &vec![7; 130_000]].concat(),
        );
        assert_eq!(through(&long, &[1000]), long);
    }
}
