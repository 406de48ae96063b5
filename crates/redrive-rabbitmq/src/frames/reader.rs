//! Splits the stream into frames, takes deliveries, and makes the rest readable. No I/O.

use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::deliveries::Deliveries;
use super::frame::{self, BODY, HEADER, HEARTBEAT, METHOD};
use super::left_out_mark;
use super::shorten::{Shortened, shorten};
use super::taker::Taker;
use crate::version::{self, Version};

/// Size of type, channel and size before the payload; an end mark follows the payload.
const HEAD: usize = 7;
const END: usize = 1;
const END_MARK: u8 = 0xce;
/// Length of the size field, the last part of the head.
const SIZE: usize = 4;
/// Minimum size of a read.
const READ: usize = 64 * 1024;
/// A buffer that grew beyond this for one long header is replaced.
const LARGE: usize = 16 * READ;
/// The library takes a connection for dead that brings it nothing. While deliveries come it gets a heartbeat in this interval: the
/// shortest heartbeat is one second, and it waits for four halves of it.
const SIGN_OF_LIFE: Duration = Duration::from_millis(500);
const HEARTBEAT_FRAME: &[u8] = &[HEARTBEAT, 0, 0, 0, 0, 0, 0, END_MARK];

/// The version in the greeting; `None` inside: the greeting has none.
pub(crate) type Greeting = Arc<OnceLock<Option<Version>>>;

/// Splits the stream into frames.
pub(super) struct FrameReader {
    buffer: Vec<u8>,
    /// `buffer[start..ready]` can be passed on, `buffer[ready..end]` is not checked yet.
    start: usize,
    ready: usize,
    end: usize,
    /// Number of following bytes that need no check.
    unseen: usize,
    /// The rest of a body frame that is taken.
    body: Option<BodyFrame>,
    taker: Taker,
    /// A heartbeat, or the rest of it, that is passed on next.
    heartbeat: &'static [u8],
    /// When something was passed on last.
    passed_on: Option<Instant>,
    greeting: Greeting,
    /// The frame size that the library asks for; 0: the broker's.
    wanted: u32,
    /// The longest frame that the library reads, once it is negotiated.
    longest: Option<usize>,
}

struct BodyFrame {
    channel: u16,
    /// Number of bytes of the frame that are still to come, with its end mark.
    left: usize,
}

impl FrameReader {
    /// `wanted` is the frame size that the library asks for; 0: the broker's.
    pub(super) fn new(wanted: u32, greeting: Greeting, deliveries: Deliveries) -> Self {
        Self {
            buffer: vec![0; READ],
            start: 0,
            ready: 0,
            end: 0,
            unseen: 0,
            body: None,
            taker: Taker::new(deliveries),
            heartbeat: &[],
            passed_on: None,
            greeting,
            wanted,
            longest: None,
        }
    }

    /// Returns what can be passed on now.
    pub(super) fn readable(&self) -> &[u8] {
        if self.heartbeat.is_empty() { &self.buffer[self.start..self.ready] } else { self.heartbeat }
    }

    pub(super) fn hand_on(&mut self, out: &mut [u8]) -> usize {
        let length = self.readable().len().min(out.len());
        out[..length].copy_from_slice(&self.readable()[..length]);
        if self.heartbeat.is_empty() {
            self.start += length;
        } else {
            self.heartbeat = &self.heartbeat[length..];
        }
        length
    }

    /// Returns room to read into, which is never empty.
    pub(super) fn room(&mut self) -> &mut [u8] {
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

    /// Adds the bytes that were read into the room.
    pub(super) fn take_in(&mut self, read: usize) {
        self.end += read;
    }

    /// Checks the bytes that are there, takes deliveries, and wakes their consumers.
    ///
    /// # Errors
    /// If the body of a delivery that is taken is no body: the stream cannot be read further.
    pub(super) fn go_on(&mut self, now: Instant) -> io::Result<()> {
        let taken = self.check();
        self.taker.wake();
        let taken = taken?;
        let silent = now.saturating_duration_since(*self.passed_on.get_or_insert(now));
        if self.start < self.ready {
            self.passed_on = Some(now);
        } else if taken && self.heartbeat.is_empty() && silent >= SIGN_OF_LIFE {
            self.passed_on = Some(now);
            // Between two frames: nothing came behind what was taken.
            self.heartbeat = HEARTBEAT_FRAME;
        }
        Ok(())
    }

    /// Checks what is there, as far as it goes: what is taken can only be removed once all before it was passed on. Returns true if
    /// something was taken.
    fn check(&mut self) -> io::Result<bool> {
        let mut taken = false;
        while self.ready < self.end {
            let waiting = self.end - self.ready;
            if self.unseen > 0 {
                let passed = self.unseen.min(waiting);
                (self.ready, self.unseen) = (self.ready + passed, self.unseen - passed);
                continue;
            }
            if let Some(body) = self.body.take() {
                self.take_body(body, waiting)?;
                taken = true;
                continue;
            }
            let Some(&[frame_type, high, low, size @ ..]) =
                self.buffer[self.ready..self.end].first_chunk::<HEAD>()
            else {
                break;
            };
            let channel = u16::from_be_bytes([high, low]);
            let size = u32::from_be_bytes(size) as usize;
            let all_passed_on = self.start == self.ready;
            match frame_type {
                // A large size costs memory only as its bytes arrive.
                METHOD | HEADER => {
                    let whole = HEAD + size + END;
                    if waiting < whole {
                        break;
                    }
                    let payload = self.ready + HEAD..self.ready + HEAD + size;
                    if !all_passed_on && self.taker.takes(frame_type, channel, &self.buffer[payload.clone()])
                    {
                        break;
                    }
                    self.look_at(frame_type, payload);
                    let whole = self.shorten(frame_type, whole).unwrap_or(whole);
                    if self.take(frame_type, channel, whole) {
                        taken = true;
                    } else {
                        self.ready += whole;
                    }
                }
                BODY if self.taker.takes(BODY, channel, &[]) => {
                    if !all_passed_on {
                        break;
                    }
                    let is_too_long = self.longest.is_some_and(|longest| HEAD + size + END > longest);
                    if is_too_long || !self.taker.body_fits(channel, size) {
                        return Err(malformed("a body frame that is too long"));
                    }
                    self.skip(HEAD);
                    self.body = Some(BodyFrame { channel, left: size + END });
                }
                BODY | HEARTBEAT => self.unseen = HEAD + size + END,
                // Another protocol or version: nothing more is checked.
                _ => self.unseen = usize::MAX,
            }
        }
        Ok(taken)
    }

    /// Takes the next frame if it belongs to a delivery. What does not end as a frame is for the library to refuse.
    fn take(&mut self, frame_type: u8, channel: u16, whole: usize) -> bool {
        if self.buffer[self.ready + whole - END] != END_MARK {
            return false;
        }
        let payload = &self.buffer[self.ready + HEAD..self.ready + whole - END];
        let taken = match frame_type {
            METHOD => self.taker.method(channel, payload),
            _ => self.taker.header(channel, payload),
        };
        if taken {
            self.skip(whole);
        }
        taken
    }

    /// Takes as much of a body frame as is there.
    fn take_body(&mut self, BodyFrame { channel, left }: BodyFrame, waiting: usize) -> io::Result<()> {
        let length = left.min(waiting);
        let left = left - length;
        let of_the_body = if left == 0 { length - END } else { length };
        self.taker.body(channel, &self.buffer[self.ready..self.ready + of_the_body]);
        self.skip(length);
        if left > 0 {
            self.body = Some(BodyFrame { channel, left });
        } else if self.buffer[self.ready - END] == END_MARK {
            self.taker.body_frame_ended(channel);
        } else {
            return Err(malformed("a body frame that does not end as one"));
        }
        Ok(())
    }

    /// Removes the next bytes; all before them were passed on.
    fn skip(&mut self, length: usize) {
        debug_assert_eq!(self.start, self.ready, "the library lacks what came before");
        self.ready += length;
        self.start = self.ready;
    }

    fn look_at(&mut self, frame_type: u8, payload: Range<usize>) {
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

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("RabbitMQ sent {what}"))
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
    use crate::frames::deliveries::DeliveryQueue;
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
        passed_on(&mut FrameReader::new(0, Greeting::default(), Deliveries::default()), stream, pieces)
    }

    fn passed_on(reader: &mut FrameReader, stream: &[u8], pieces: &[usize]) -> Vec<u8> {
        let (mut rest, mut out) = (stream, Vec::new());
        let mut piece = [0; 100];
        for size in pieces.iter().cycle() {
            let read = rest.len().min(*size).min(reader.room().len());
            reader.room()[..read].copy_from_slice(&rest[..read]);
            rest = &rest[read..];
            reader.take_in(read);
            reader.go_on(Instant::now()).unwrap();
            while !reader.readable().is_empty() {
                let length = reader.hand_on(&mut piece);
                out.extend(&piece[..length]);
                reader.go_on(Instant::now()).unwrap();
            }
            if rest.is_empty() {
                return out;
            }
        }
        out
    }

    /// Frames of a message, its body in frames of this length.
    fn delivery(channel: u16, tag: u64, body: &[u8], each: usize) -> Vec<Vec<u8>> {
        let method =
            [&[0, 60, 0, 60, 1, b'c'][..], &tag.to_be_bytes(), &[1, 1, b'e', 2, b'r', b'k']].concat();
        let size = u64::try_from(body.len()).unwrap().to_be_bytes();
        let header = [&[0, 60, 0, 0][..], &size, &[0, 0]].concat();
        let parts = body.chunks(each).map(|part| frame(BODY, part));
        let mut frames: Vec<_> =
            [frame(METHOD, &method), frame(HEADER, &header)].into_iter().chain(parts).collect();
        frames.iter_mut().for_each(|frame| frame[1..3].copy_from_slice(&channel.to_be_bytes()));
        frames
    }

    fn taken_by(consumer: &DeliveryQueue) -> Vec<(u64, usize)> {
        consumer.take(usize::MAX).map(|taken| (taken.tag, taken.body.len())).collect()
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

        /// Two channels are taken, one is not, and their frames come in any order.
        #[test]
        fn deliveries_are_taken_and_all_else_is_passed_on(
            messages in proptest::collection::vec((1..4_u16, 0..3000_usize, 1..2000_usize), 1..12),
            mut order in proptest::collection::vec(0..3_usize, 60),
            pieces in proptest::collection::vec(prop_oneof![1..20_usize, 1..20_000_usize], 1..8),
        ) {
            let deliveries = Deliveries::default();
            let consumers = [deliveries.take(1), deliveries.take(2)];
            let mut channels = [const { std::collections::VecDeque::new() }; 3];
            let mut expected = [const { Vec::new() }; 3];
            for (tag, (channel, body, each)) in (1..).zip(messages) {
                let at = usize::from(channel - 1);
                channels[at].extend(delivery(channel, tag, &vec![0xce; body], each));
                expected[at].push((tag, body));
            }
            let (mut stream, mut library) = (Vec::<u8>::new(), Vec::<u8>::new());
            order.extend([0, 1, 2]);
            for at in order.into_iter().cycle() {
                if channels.iter().all(std::collections::VecDeque::is_empty) {
                    break;
                }
                // What is not taken comes between the frames of what is.
                let Some(frame) = channels[at].pop_front() else { continue };
                stream.extend(&frame);
                if at == 2 {
                    library.extend(&frame);
                }
            }
            let mut reader = FrameReader::new(0, Greeting::default(), deliveries);
            prop_assert_eq!(passed_on(&mut reader, &stream, &pieces), library);
            prop_assert_eq!(taken_by(&consumers[0]), std::mem::take(&mut expected[0]));
            prop_assert_eq!(taken_by(&consumers[1]), std::mem::take(&mut expected[1]));
        }

        #[test]
        fn what_is_no_amqp_is_handed_on_as_it_is(
            text in proptest::collection::vec(9..=255_u8, 1..1000), pieces in proptest::collection::vec(1..300_usize, 1..8),
        ) {
            prop_assume!(text.len() >= HEAD);
            prop_assert_eq!(through(&text, &pieces), text);
        }
    }

    /// The library would take a connection for dead on which only deliveries come.
    #[test]
    fn the_library_hears_that_the_connection_lives() {
        let deliveries = Deliveries::default();
        let consumer = deliveries.take(1);
        let mut reader = FrameReader::new(0, Greeting::default(), deliveries);
        let began = Instant::now();
        let mut comes = |after: Duration| {
            let stream = delivery(1, 1, b"body", 4).concat();
            reader.room()[..stream.len()].copy_from_slice(&stream);
            reader.take_in(stream.len());
            reader.go_on(began + after).unwrap();
            let mut out = [0; 5];
            let mut heard = Vec::<u8>::new();
            while !reader.readable().is_empty() {
                let length = reader.hand_on(&mut out);
                heard.extend(&out[..length]);
                reader.go_on(began + after).unwrap();
            }
            heard
        };
        assert_eq!(comes(Duration::ZERO), b"");
        assert_eq!(comes(SIGN_OF_LIFE / 2), b"");
        assert_eq!(comes(SIGN_OF_LIFE), HEARTBEAT_FRAME);
        assert_eq!(comes(SIGN_OF_LIFE), b"");
        assert_eq!(comes(2 * SIGN_OF_LIFE), HEARTBEAT_FRAME);
        assert_eq!(taken_by(&consumer).len(), 5);
    }

    /// In one piece or byte by byte.
    #[test]
    fn a_body_that_is_none_ends_the_stream_and_is_no_delivery() {
        let whole = || delivery(1, 1, b"body", 4).concat();
        let longer = delivery(1, 1, b"body and more", 100).concat();
        let longer = [&whole()[..whole().len() - 12], &longer[longer.len() - 21..]].concat();
        let mut open = whole();
        *open.last_mut().unwrap() = 0;
        for stream in [longer, open] {
            for piece in [1, stream.len()] {
                let deliveries = Deliveries::default();
                let consumer = deliveries.take(1);
                let mut reader = FrameReader::new(0, Greeting::default(), deliveries);
                let read = stream.chunks(piece).try_for_each(|piece| {
                    reader.room()[..piece.len()].copy_from_slice(piece);
                    reader.take_in(piece.len());
                    reader.go_on(Instant::now())
                });
                assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData);
                assert_eq!(taken_by(&consumer), []);
            }
        }
    }

    #[test]
    fn a_channel_that_ended_is_taken_no_more() {
        let deliveries = Deliveries::default();
        let consumer = deliveries.take(1);
        let mut reader = FrameReader::new(0, Greeting::default(), deliveries);
        let whole = delivery(1, 1, b"body", 4).concat();
        let close = frame(METHOD, &[0, 20, 0, 40, 1, 148, 0, 0, 0, 0, 0]);
        // In the middle of a second one, which never gets its body.
        let stream = [&whole[..], &delivery(1, 2, b"body", 4)[..2].concat(), &close, &whole].concat();
        assert_eq!(passed_on(&mut reader, &stream, &[7]), [&close[..], &whole].concat());
        assert_eq!(taken_by(&consumer), [(1, 4)]);
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
        let mut reader = FrameReader::new(0, Greeting::default(), Deliveries::default());
        let stream = [tune(10_000), with_header(20 << 20), header(b"next")].concat();
        let mut out = Vec::new();
        for piece in stream.chunks(READ / 2) {
            reader.room()[..piece.len()].copy_from_slice(piece);
            reader.take_in(piece.len());
            reader.go_on(Instant::now()).unwrap();
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
