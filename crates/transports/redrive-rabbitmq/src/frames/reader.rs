//! Splits the stream into frames, takes those of redrive's own channels, and makes the rest readable. No I/O.

use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::channels::OwnChannels;
use super::frame::{self, BODY, END, HEAD, HEADER, HEARTBEAT, METHOD};
use super::shorten::{Shortened, shorten};
use super::taker::Taker;
use crate::broker::{self, Version};
use crate::convert::left_out_mark;

const END_MARK: u8 = redrive_amqp091::FRAME_END;
/// Length of the size field, the last part of the head.
const SIZE: usize = 4;
/// Minimum size of a read.
const READ: usize = 64 * 1024;
/// A buffer that grew beyond this for one long header is replaced.
const LARGE: usize = 16 * READ;
/// The library takes a connection for dead that brings it nothing. While deliveries come it gets a heartbeat in this interval: the
/// shortest heartbeat is one second, and it waits for four halves of it.
const SIGN_OF_LIFE: Duration = Duration::from_millis(500);
/// Reply code of a channel that is closed without an error.
const SUCCESS: u16 = 200;

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
    pub(super) fn new(wanted: u32, greeting: Greeting, channels: OwnChannels) -> Self {
        Self {
            buffer: vec![0; READ],
            start: 0,
            ready: 0,
            end: 0,
            unseen: 0,
            body: None,
            taker: Taker::new(channels),
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

    /// So much of it was passed on.
    pub(super) fn handed_on(&mut self, length: usize) {
        if self.heartbeat.is_empty() {
            self.start += length;
        } else {
            self.heartbeat = &self.heartbeat[length..];
        }
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

    /// Returns true once the broker has confirmed that this side closes the connection.
    pub(super) fn is_closed(&self) -> bool {
        self.taker.is_closed()
    }

    /// Checks the bytes that are there, takes what is redrive's own, and wakes who waits for it.
    ///
    /// # Errors
    /// If the body of a message that is taken is no body: the stream cannot be read further.
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
            self.heartbeat = &redrive_amqp091::HEARTBEAT;
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
                        self.keep_answer(frame_type, channel, whole);
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

    /// Takes the next frame if it is redrive's own. What does not end as a frame is for the library to refuse.
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

    /// Keeps the reason from the library if the broker answers a question by closing the channel: it would log an error.
    fn keep_answer(&mut self, frame_type: u8, channel: u16, whole: usize) {
        let payload = &mut self.buffer[self.ready + HEAD..self.ready + whole - END];
        if frame_type == METHOD && self.taker.keeps_answer(channel, payload) {
            frame::set_close_code(payload, SUCCESS);
        }
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
            let _ = self.greeting.set(broker::read_greeting(payload));
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
        let payload = &frame[HEAD..whole - END];
        let Shortened { payload, left_out } = shorten(payload, longest - HEAD - END, left_out_mark())?;
        tracing::warn!(
            frame = whole,
            longest,
            left_out,
            "RabbitMQ delivered a message whose headers are larger than a frame: it cannot be handled or copied, only set aside"
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
#[path = "reader_tests.rs"]
mod tests;
