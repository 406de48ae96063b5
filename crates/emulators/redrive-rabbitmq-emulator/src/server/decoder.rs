//! From the bytes of a client to commands for the broker. No I/O, and no lock: decoding costs more than most commands.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use redrive_amqp091::{
    Basic, Connection, ContentHeader, DecodeError, Frame, FrameKind, Method, PROTOCOL_HEADER, Properties,
    basic, reply,
};

use crate::broker::{Command, Content, Failure};

/// Largest payload before limits are agreed.
const FIRST_PAYLOAD: usize = 131_072;

/// Puts frames together. One for each connection.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// The protocol header was received.
    begun: bool,
    /// The rest of the stream cannot be understood, and is ignored.
    broken: bool,
    max_payload: usize,
    /// Larger bodies are not kept.
    max_body: u64,
    /// Messages whose content is not complete, by channel.
    partial: HashMap<u16, Partial>,
}

#[derive(Debug)]
enum Partial {
    /// The header is missing.
    Header(basic::Publish),
    Body {
        publish: basic::Publish,
        properties: Box<(Properties, Bytes)>,
        size: u64,
        received: u64,
        body: Body,
    },
}

#[derive(Debug)]
enum Body {
    Empty,
    /// All in one frame: shared, not copied.
    One(Bytes),
    Many(BytesMut),
    TooLarge,
}

impl Decoder {
    pub(crate) fn new(max_body: u64) -> Self {
        Self { begun: false, broken: false, max_payload: FIRST_PAYLOAD, max_body, partial: HashMap::new() }
    }

    /// Takes all complete frames from the input.
    pub(crate) fn decode(&mut self, input: &mut BytesMut, commands: &mut Vec<Command>) {
        if self.broken {
            input.clear();
            return;
        }
        if !self.begun && !self.take_header(input, commands) {
            return;
        }
        loop {
            match Frame::take(input, self.max_payload) {
                Ok(None) => return,
                Ok(Some(frame)) => {
                    if let Err(failure) = self.frame(frame, commands) {
                        commands.push(Command::Broken(failure));
                    }
                }
                Err(error) => {
                    self.broken = true;
                    input.clear();
                    commands.push(Command::Broken(frame_error(error)));
                    return;
                }
            }
        }
    }

    fn take_header(&mut self, input: &mut BytesMut, commands: &mut Vec<Command>) -> bool {
        let length = input.len().min(PROTOCOL_HEADER.len());
        if input[..length] != PROTOCOL_HEADER[..length] {
            tracing::warn!(
                "a client speaks another protocol: only AMQP 0-9-1 is spoken here, not AMQP 1.0, MQTT or STOMP"
            );
            self.broken = true;
            input.clear();
            commands.push(Command::WrongHeader);
            return false;
        }
        if length < PROTOCOL_HEADER.len() {
            return false;
        }
        let _ = input.split_to(length);
        self.begun = true;
        commands.push(Command::Header);
        true
    }

    fn frame(&mut self, frame: Frame, commands: &mut Vec<Command>) -> Result<(), Failure> {
        let channel = frame.channel;
        match frame.kind {
            FrameKind::Heartbeat => Ok(()),
            FrameKind::Method => {
                let method = Method::decode(&frame.payload).map_err(method_error)?;
                if self.partial.remove(&channel).is_some() {
                    return Err(unexpected("content", "method"));
                }
                match method {
                    Method::Basic(Basic::Publish(publish)) => {
                        self.partial.insert(channel, Partial::Header(publish));
                    }
                    method => {
                        if let Method::Connection(Connection::TuneOk(tune)) = &method {
                            // The broker refuses limits that make no sense.
                            self.max_payload = (tune.frame_max as usize).clamp(4096, FIRST_PAYLOAD);
                        }
                        commands.push(Command::Method { channel, method });
                    }
                }
                Ok(())
            }
            FrameKind::Header => match self.partial.remove(&channel) {
                Some(Partial::Header(publish)) => self.header(channel, publish, &frame.payload, commands),
                _ => Err(unexpected("method", "content header")),
            },
            FrameKind::Body => match self.partial.remove(&channel) {
                Some(Partial::Body { publish, properties, size, received, body }) => {
                    let received = received + frame.payload.len() as u64;
                    if received > size {
                        return Err(unexpected("method", "content body"));
                    }
                    let body = body.add(frame.payload, size);
                    let partial = Partial::Body { publish, properties, size, received, body };
                    self.complete(channel, partial, commands);
                    Ok(())
                }
                _ => Err(unexpected("method", "content body")),
            },
        }
    }

    fn header(
        &mut self,
        channel: u16,
        publish: basic::Publish,
        payload: &Bytes,
        commands: &mut Vec<Command>,
    ) -> Result<(), Failure> {
        let decoded = ContentHeader::split(payload)
            .and_then(|(size, encoded)| Ok((size, Box::new((Properties::decode(&encoded)?, encoded)))));
        let (size, properties) = decoded
            .map_err(|error| Failure::syntax(&format!("the content header cannot be read: {error}")))?;
        let body = if size > self.max_body { Body::TooLarge } else { Body::Empty };
        let partial = Partial::Body { publish, properties, size, received: 0, body };
        self.complete(channel, partial, commands);
        Ok(())
    }

    /// Passes a message on if it is complete.
    fn complete(&mut self, channel: u16, partial: Partial, commands: &mut Vec<Command>) {
        match partial {
            Partial::Body { publish, properties, size, received, body } if received == size => {
                let (properties, encoded) = *properties;
                let content = Box::new(Content { properties, encoded, size, body: body.finish() });
                commands.push(Command::Publish { channel, publish, content });
            }
            partial => {
                self.partial.insert(channel, partial);
            }
        }
    }
}

impl Body {
    fn add(self, part: Bytes, size: u64) -> Self {
        match self {
            Self::TooLarge => Self::TooLarge,
            Self::Empty if part.len() as u64 == size => Self::One(part),
            Self::Empty => Self::Many(BytesMut::from(&part[..])),
            Self::One(first) => {
                let mut all = BytesMut::from(&first[..]);
                all.extend_from_slice(&part);
                Self::Many(all)
            }
            Self::Many(mut all) => {
                all.extend_from_slice(&part);
                Self::Many(all)
            }
        }
    }

    fn finish(self) -> Bytes {
        match self {
            Self::Empty | Self::TooLarge => Bytes::new(),
            Self::One(body) => body,
            Self::Many(all) => all.freeze(),
        }
    }
}

fn frame_error(error: DecodeError) -> Failure {
    let text = match error {
        DecodeError::FrameTooLarge { size, limit } => {
            format!("type 1, all octets = <<>>: {{frame_too_large,{size},{}}}", limit.saturating_sub(8))
        }
        error => error.to_string(),
    };
    Failure::connection(reply::FRAME_ERROR, "FRAME_ERROR", &text)
}

fn method_error(error: DecodeError) -> Failure {
    match error {
        DecodeError::UnknownMethod { class, method } => {
            Failure::command_invalid(&format!("unknown method {{{class},{method}}}"))
        }
        error => Failure::syntax(&format!("a method cannot be read: {error}")),
    }
}

fn unexpected(expected: &str, got: &str) -> Failure {
    Failure::unexpected(&format!("expected {expected} frame, got {got} frame instead"))
}
