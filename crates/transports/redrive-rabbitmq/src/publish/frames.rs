//! Writes a batch of messages as frames.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{BufMut as _, BytesMut};
use redrive_amqp091::{
    FRAME_END, FRAME_OVERHEAD, FrameKind, Method, ShortStr, basic, write_frame, write_frame_head,
    write_header_frame,
};
use redrive_core::{Bytes, Message, TransportError};

use crate::convert::{self, Form};
use crate::frames::Written;
use crate::topology::Route;

/// A longer body is written from where it is, without a copy.
const COPIED: usize = 32 * 1024;

/// Room for more bytes is made when they come.
const MOST_RESERVED: usize = 256 * 1024;

/// The frames of messages for one route. Pure.
pub(super) struct Frames {
    channel: u16,
    /// The frame of `basic.publish`, the same for each message.
    method: BytesMut,
    /// The longest part of a body in one frame.
    part: u32,
    properties: BytesMut,
    /// What is complete.
    pieces: VecDeque<Bytes>,
    /// What follows.
    last: BytesMut,
    /// The number of messages that are still to be added.
    expected: usize,
    messages: Vec<Placed>,
}

/// A message, and where the payload of its content header is.
struct Placed {
    piece: usize,
    header: Range<usize>,
    body: Bytes,
}

impl Frames {
    /// `frame_max`: in bytes; 0: any size. `expected`: about how many messages will be added.
    pub(super) fn new(channel: u16, route: &Route, frame_max: u32, expected: usize) -> Self {
        let mut method = BytesMut::new();
        let publish = basic::Publish {
            ticket: 0,
            exchange: ShortStr::truncated(&route.exchange),
            routing_key: ShortStr::truncated(&route.routing_key),
            mandatory: true,
            immediate: false,
        };
        Method::from(publish).write_frame(channel, &mut method);
        let part = match frame_max {
            0 => u32::MAX,
            frame_max => frame_max.saturating_sub(FRAME_OVERHEAD as u32).max(1),
        };
        Self {
            channel,
            method,
            part,
            properties: BytesMut::new(),
            pieces: VecDeque::new(),
            last: BytesMut::new(),
            expected,
            messages: Vec::with_capacity(expected),
        }
    }

    /// Adds a message.
    ///
    /// # Errors
    /// If AMQP 0-9-1 cannot carry it: then it is not added.
    pub(super) fn add(&mut self, message: &Message, form: Form) -> Result<(), TransportError> {
        self.properties.clear();
        convert::properties(message, form)?.write(&mut self.properties);
        let body = message.body().clone();
        self.make_room(self.method.len() + self.properties.len() + body.len().min(COPIED));
        self.last.extend_from_slice(&self.method);
        let begin = self.last.len();
        write_header_frame(self.channel, body.len() as u64, &self.properties, &mut self.last);
        let header = begin + FRAME_OVERHEAD - 1..self.last.len() - 1;
        self.messages.push(Placed { piece: self.pieces.len(), header, body: body.clone() });
        let mut rest = body;
        while !rest.is_empty() {
            let part = rest.split_to(rest.len().min(self.part as usize));
            if part.len() <= COPIED {
                write_frame(FrameKind::Body, self.channel, &part, &mut self.last);
                continue;
            }
            let size = u32::try_from(part.len()).unwrap_or(u32::MAX);
            write_frame_head(FrameKind::Body, self.channel, size, &mut self.last);
            self.pieces.extend([self.last.split().freeze(), part]);
            self.last.put_u8(FRAME_END);
        }
        Ok(())
    }

    /// Makes room at once for all that are to come, as most messages of a batch are of one size.
    fn make_room(&mut self, size: usize) {
        let size = size + 4 * FRAME_OVERHEAD;
        if self.last.capacity() - self.last.len() < size {
            self.last.reserve((size * self.expected).min(MOST_RESERVED).max(size));
        }
        self.expected = self.expected.saturating_sub(1);
    }

    /// Returns the messages, and the pieces that their frames are made of.
    pub(super) fn finish(mut self) -> (Vec<Written>, VecDeque<Bytes>) {
        self.pieces.push_back(self.last.freeze());
        let written =
            |Placed { piece, header, body }| Written { header: self.pieces[piece].slice(header), body };
        (self.messages.into_iter().map(written).collect(), self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redrive_amqp091::{ContentHeader, Frame};

    use super::*;

    fn split(pieces: &VecDeque<Bytes>) -> Vec<Frame> {
        let mut stream = BytesMut::from(&*pieces.iter().flatten().copied().collect::<Vec<_>>());
        let frames = std::iter::from_fn(|| Frame::take(&mut stream, usize::MAX).expect("frames")).collect();
        assert!(stream.is_empty());
        frames
    }

    proptest! {
        #[test]
        fn each_message_is_a_method_a_header_and_its_body(
            bodies in proptest::collection::vec(prop_oneof![0..100_usize, 0..90_000_usize], 1..6), frame_max in prop_oneof![Just(0), 4096..20_000_u32],
        ) {
            let mut frames = Frames::new(3, &Route::queue("orders"), frame_max, bodies.len());
            let messages: Vec<_> = (0_u8..).zip(bodies).map(|(at, size)| Message::new(vec![at; size]).with_id(at.to_string())).collect();
            messages.iter().for_each(|message| frames.add(message, Form::Copy).expect("added"));
            let (written, pieces) = frames.finish();
            let mut frames = split(&pieces).into_iter();
            prop_assert_eq!(written.len(), messages.len());
            for (message, written) in messages.iter().zip(written) {
                let method = frames.next().expect("a method");
                let Ok(Method::Basic(redrive_amqp091::Basic::Publish(publish))) = Method::decode(&method.payload) else { panic!() };
                prop_assert_eq!((method.channel, &*publish.routing_key.to_str(), publish.mandatory), (3, "orders", true));
                let header = frames.next().expect("a header");
                prop_assert_eq!(header.kind, FrameKind::Header);
                prop_assert_eq!(&header.payload, &written.header);
                let size = ContentHeader::decode(&header.payload).expect("a header").body_size;
                let mut body = Vec::new();
                while (body.len() as u64) < size {
                    let part = frames.next().expect("a part of the body");
                    prop_assert!(frame_max == 0 || part.payload.len() + FRAME_OVERHEAD <= frame_max as usize);
                    prop_assert_eq!((part.kind, part.channel), (FrameKind::Body, 3));
                    body.extend_from_slice(&part.payload);
                }
                prop_assert_eq!(&body, message.body());
                prop_assert_eq!(&written.body, message.body());
            }
            prop_assert!(frames.next().is_none());
        }
    }

    #[test]
    fn what_cannot_be_carried_leaves_no_trace() {
        let mut frames = Frames::new(3, &Route::queue("orders"), 0, 1);
        assert!(frames.add(&Message::new("x").with_id("i".repeat(256)), Form::Copy).is_err());
        frames.add(&Message::new("y"), Form::Copy).expect("added");
        let (written, pieces) = frames.finish();
        assert_eq!((written.len(), split(&pieces).len()), (1, 3));
    }
}
