//! A client that hides nothing: it shows each frame of the broker, in the order in which they arrived.

use crate::message::Message;
use crate::wire::{Reader, Value, Writer};
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a reply may take. Only a broker that hangs, or an overloaded machine, needs longer.
const REPLY: Duration = Duration::from_secs(60);

/// A method: class and number within it.
pub(crate) type Method = (u16, u16);

/// What the broker sends without being asked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Deliver {
        channel: u16,
        consumer: String,
        delivery: Delivery,
    },
    Return {
        channel: u16,
        code: u16,
        text: String,
        exchange: String,
        key: String,
        message: Message,
    },
    Ack {
        channel: u16,
        tag: u64,
        multiple: bool,
    },
    Nack {
        channel: u16,
        tag: u64,
        multiple: bool,
    },
    /// The broker cancelled a consumer.
    Cancel {
        channel: u16,
        consumer: String,
    },
    ChannelClosed {
        channel: u16,
        code: u16,
        text: String,
        method: Method,
    },
    ConnectionClosed {
        code: u16,
        text: String,
        method: Method,
    },
    /// The socket ended without `connection.close`.
    Gone,
}

/// A message with what its delivery says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Delivery {
    pub(crate) tag: u64,
    pub(crate) redelivered: bool,
    pub(crate) exchange: String,
    pub(crate) key: String,
    pub(crate) message: Message,
}

/// What came of a method that has a reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    /// The arguments of the reply.
    Ok(Method, Vec<u8>),
    /// A message, and how many are left.
    Got(Box<Delivery>, u32),
    /// The channel or the connection was closed instead: an [`Event`] says how.
    Closed,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
    events: VecDeque<Event>,
    closed: bool,
}

struct Frame {
    kind: u8,
    channel: u16,
    payload: Vec<u8>,
}

impl Client {
    /// Connects as guest.
    pub(crate) fn connect(address: SocketAddr, vhost: &str) -> Result<Client> {
        let stream = TcpStream::connect_timeout(&address, REPLY)
            .with_context(|| format!("could not connect to {address}"))?;
        stream.set_nodelay(true)?;
        let mut client = Client { stream, unread: Vec::new(), events: VecDeque::new(), closed: false };
        client.stream.write_all(b"AMQP\x00\x00\x09\x01")?;
        client.expect((10, 10))?;
        let capabilities =
            ["consumer_cancel_notify", "basic.nack", "publisher_confirms", "authentication_failure_close"]
                .map(|name| (name.to_owned(), Value::Bool(true)));
        let mut arguments = Writer::default();
        arguments
            .table(&vec![("capabilities".to_owned(), Value::Table(capabilities.to_vec()))])
            .short_text("PLAIN")
            .long_text(b"\0guest\0guest")
            .short_text("en_US");
        client.send(0, (10, 11), &arguments)?;
        client.expect((10, 30))?;
        // Without heartbeats: a scenario says nothing for seconds.
        client.send(0, (10, 31), Writer::default().short(2047).long(131_072).short(0))?;
        client.send(0, (10, 40), Writer::default().short_text(vhost).short_text("").bits(&[false]))?;
        client.expect((10, 41))?;
        Ok(client)
    }

    /// Returns true if the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Opens a channel.
    pub(crate) fn open(&mut self, channel: u16) -> Result<()> {
        match self.call(channel, (20, 10), Writer::default().short_text(""), &[(20, 11)])? {
            Reply::Ok(..) => Ok(()),
            other => bail!("channel {channel} was not opened: {other:?}, {:?}", self.events),
        }
    }

    /// Sends a method that has no reply. Does nothing on a closed connection.
    pub(crate) fn send(&mut self, channel: u16, method: Method, arguments: &Writer) -> Result<()> {
        let mut payload = Writer::default();
        payload.short(method.0).short(method.1).0.extend(&arguments.0);
        let bytes = frame(1, channel, &payload.0);
        self.write(&bytes)
    }

    /// Publishes a message.
    pub(crate) fn publish(
        &mut self,
        channel: u16,
        exchange: &str,
        key: &str,
        mandatory: bool,
        message: &Message,
    ) -> Result<()> {
        let mut method = Writer::default();
        method.short(60).short(40).short(0).short_text(exchange).short_text(key).bits(&[mandatory, false]);
        let mut bytes = frame(1, channel, &method.0);
        bytes.extend(frame(2, channel, &message.header()));
        if !message.body.is_empty() {
            bytes.extend(frame(3, channel, &message.body));
        }
        self.write(&bytes)
    }

    /// Sends a method, and waits for one of its replies or for the end of the channel.
    pub(crate) fn call(
        &mut self,
        channel: u16,
        method: Method,
        arguments: &Writer,
        replies: &[Method],
    ) -> Result<Reply> {
        self.send(channel, method, arguments)?;
        let until = Instant::now() + REPLY;
        while !self.closed {
            let frame = self.frame(until)?.with_context(|| format!("no reply to {method:?} in {REPLY:?}"))?;
            let Some((got, rest)) = method_of(&frame)? else { continue };
            if frame.channel == channel && replies.contains(&got) {
                let arguments = rest.to_vec();
                if got == (60, 71) {
                    return self.got(&arguments, until);
                }
                return Ok(Reply::Ok(got, arguments));
            }
            let ends = got == (20, 40) && frame.channel == channel;
            self.take(&frame, until)?;
            if ends {
                return Ok(Reply::Closed);
            }
        }
        Ok(Reply::Closed)
    }

    /// Sends the same method with each of `all`, in one go, and waits for all replies. `None` if the channel was closed meanwhile.
    pub(crate) fn call_all(
        &mut self,
        channel: u16,
        method: Method,
        all: &[Writer],
        reply: Method,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let mut bytes = Vec::new();
        for arguments in all {
            let mut payload = Writer::default();
            payload.short(method.0).short(method.1).0.extend(&arguments.0);
            bytes.extend(frame(1, channel, &payload.0));
        }
        self.write(&bytes)?;
        let mut replies = Vec::new();
        let until = Instant::now() + REPLY;
        while replies.len() < all.len() {
            if self.closed {
                return Ok(None);
            }
            let frame = self.frame(until)?.with_context(|| format!("no reply to {method:?} in {REPLY:?}"))?;
            match method_of(&frame)? {
                Some((got, rest)) if frame.channel == channel && got == reply => replies.push(rest.to_vec()),
                Some((got, _)) => {
                    self.take(&frame, until)?;
                    if got == (20, 40) && frame.channel == channel {
                        return Ok(None);
                    }
                }
                None => {}
            }
        }
        Ok(Some(replies))
    }

    /// Reads what arrives until `until`.
    pub(crate) fn listen(&mut self, until: Instant) -> Result<()> {
        while !self.closed {
            match self.frame(until)? {
                Some(frame) => self.take(&frame, Instant::now() + REPLY)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Reads the next event, if one arrives until `until`.
    pub(crate) fn listen_for_one(&mut self, until: Instant) -> Result<()> {
        if let Some(frame) = self.frame(until)? {
            self.take(&frame, Instant::now() + REPLY)?;
        }
        Ok(())
    }

    /// Returns true if one of the events that wait is as asked for.
    pub(crate) fn any_event(&self, matches: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(matches)
    }

    /// How many events wait to be taken.
    pub(crate) fn waiting(&self) -> usize {
        self.events.len()
    }

    /// Takes the events so far.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }

    fn got(&mut self, arguments: &[u8], until: Instant) -> Result<Reply> {
        let mut reader = Reader(arguments);
        let (tag, redelivered) = (reader.long_long()?, reader.octet()? != 0);
        let (exchange, key, left) = (reader.short_text()?, reader.short_text()?, reader.long()?);
        let message = self.content(until)?;
        Ok(Reply::Got(Box::new(Delivery { tag, redelivered, exchange, key, message }), left))
    }

    /// Makes an event of a method.
    fn take(&mut self, frame: &Frame, until: Instant) -> Result<()> {
        let channel = frame.channel;
        let Some((method, rest)) = method_of(frame)? else { return Ok(()) };
        let mut reader = Reader(rest);
        let event = match method {
            (60, 60) => {
                let (consumer, tag, redelivered) =
                    (reader.short_text()?, reader.long_long()?, reader.octet()? != 0);
                let (exchange, key) = (reader.short_text()?, reader.short_text()?);
                let message = self.content(until)?;
                let delivery = Delivery { tag, redelivered, exchange, key, message };
                Event::Deliver { channel, consumer, delivery }
            }
            (60, 50) => {
                let (code, text) = (reader.short()?, reader.short_text()?);
                let (exchange, key) = (reader.short_text()?, reader.short_text()?);
                Event::Return { channel, code, text, exchange, key, message: self.content(until)? }
            }
            (60, 80) => Event::Ack { channel, tag: reader.long_long()?, multiple: reader.octet()? != 0 },
            (60, 120) => Event::Nack { channel, tag: reader.long_long()?, multiple: reader.octet()? != 0 },
            (60, 30) => Event::Cancel { channel, consumer: reader.short_text()? },
            (20, 40) => {
                self.send(channel, (20, 41), &Writer::default())?;
                let (code, text) = (reader.short()?, reader.short_text()?);
                Event::ChannelClosed { channel, code, text, method: (reader.short()?, reader.short()?) }
            }
            (10, 50) => {
                self.send(0, (10, 51), &Writer::default())?;
                self.closed = true;
                let (code, text) = (reader.short()?, reader.short_text()?);
                Event::ConnectionClosed { code, text, method: (reader.short()?, reader.short()?) }
            }
            // It closed the channel too, at the same time.
            (20, 41) => return Ok(()),
            other => bail!("the broker sent {other:?} on channel {channel}, which nobody waits for"),
        };
        self.events.push_back(event);
        Ok(())
    }

    /// Reads the header and the body that follow a method. (This client has no two channels whose frames could mix: a broker sends
    /// a method and its content in one go.)
    fn content(&mut self, until: Instant) -> Result<Message> {
        let header = self.frame(until)?.context("a message without its header")?;
        ensure!(header.kind == 2, "a frame of kind {} instead of a content header", header.kind);
        let (mut message, size) = Message::read_header(&header.payload)?;
        while (message.body.len() as u64) < size {
            let body = self.frame(until)?.context("a message without its body")?;
            ensure!(body.kind == 3, "a frame of kind {} instead of a body", body.kind);
            message.body.extend(body.payload);
        }
        Ok(message)
    }

    fn expect(&mut self, method: Method) -> Result<()> {
        let frame = self.frame(Instant::now() + REPLY)?.with_context(|| format!("no {method:?}"))?;
        let got = method_of(&frame)?.map(|(got, _)| got);
        ensure!(
            got == Some(method),
            "{got:?} instead of {method:?}: {}",
            String::from_utf8_lossy(&frame.payload)
        );
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        // What the broker said before it closed the socket is still to be read.
        match self.stream.write_all(bytes) {
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// The next frame; `None` at `until` or at the end.
    fn frame(&mut self, until: Instant) -> Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.whole_frame()? {
                // A heartbeat says nothing.
                if frame.kind == 8 {
                    continue;
                }
                return Ok(Some(frame));
            }
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_micros(10));
            self.stream.set_read_timeout(Some(left))?;
            let mut piece = [0; 16_384];
            match self.stream.read(&mut piece) {
                Ok(length @ 1..) => self.unread.extend(&piece[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => {
                    self.closed = true;
                    self.events.push_back(Event::Gone);
                    return Ok(None);
                }
            }
        }
    }

    fn whole_frame(&mut self) -> Result<Option<Frame>> {
        let Some(head) = self.unread.first_chunk::<7>() else { return Ok(None) };
        let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
        let (kind, channel) = (head[0], u16::from_be_bytes([head[1], head[2]]));
        if self.unread.len() < length + 8 {
            return Ok(None);
        }
        ensure!(self.unread[length + 7] == 0xCE, "a frame of channel {channel} does not end with 0xCE");
        let rest = self.unread.split_off(length + 8);
        let mut payload = std::mem::replace(&mut self.unread, rest).split_off(7);
        payload.pop();
        Ok(Some(Frame { kind, channel, payload }))
    }
}

/// The method of a frame and its arguments; `None` for content that nobody waits for.
fn method_of(frame: &Frame) -> Result<Option<(Method, &[u8])>> {
    if frame.kind != 1 {
        return Ok(None);
    }
    let mut reader = Reader(&frame.payload);
    let method = (reader.short()?, reader.short()?);
    Ok(Some((method, reader.0)))
}

fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Writer::default();
    frame.octet(kind).short(channel).long_text(payload).octet(0xCE);
    frame.0
}
