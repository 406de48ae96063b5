//! An experiment: a consumer that reads deliveries and writes settlements itself, as frames of AMQP 1.0, with the broker's outcome of each.
//! It has one connection, which goes through no library, and no more of the protocol than that needs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use redrive::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::contestant::Tally;

const SASL: &[u8] = b"AMQP\x03\x01\x00\x00";
const AMQP: &[u8] = b"AMQP\x00\x01\x00\x00";
const SASL_INIT: u8 = 0x41;
const OPEN: u8 = 0x10;
const BEGIN: u8 = 0x11;
const ATTACH: u8 = 0x12;
const FLOW: u8 = 0x13;
const TRANSFER: u8 = 0x14;
const DISPOSITION: u8 = 0x15;
const SOURCE: u8 = 0x28;
const ACCEPTED: u8 = 0x24;
const WINDOW: u32 = 5000;
const FRAME: u32 = 65_536;

/// Consumes until everything is settled, which the broker has said of each.
pub(super) async fn consume(address: &str, queue: &str, prefetch: u32, tally: &Tally) -> Result<()> {
    let mut link = Link::attach(address, queue).await?;
    link.allow(prefetch);
    while !tally.is_settled() {
        link.turn(prefetch, tally).await?;
    }
    Ok(())
}

struct Link {
    stream: TcpStream,
    read: Vec<u8>,
    out: Vec<u8>,
    /// Of the first and of the next transfer.
    first: u32,
    next: u32,
    settled: u32,
    allowed_at: u32,
}

impl Link {
    async fn attach(address: &str, queue: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut link =
            Self { stream, read: Vec::new(), out: Vec::new(), first: 0, next: 0, settled: 0, allowed_at: 0 };
        link.stream.write_all(SASL).await?;
        link.header(SASL).await?;
        let init = List::default().symbol("ANONYMOUS").null();
        put(&mut link.out, 1, SASL_INIT, &init);
        link.flush().await?;
        // Mechanisms and the outcome.
        link.frame().await?;
        link.frame().await?;
        link.stream.write_all(AMQP).await?;
        link.header(AMQP).await?;
        let source = List::default().string(queue);
        put(&mut link.out, 0, OPEN, &List::default().string("frames").null().uint(FRAME).null().null());
        put(&mut link.out, 0, BEGIN, &List::default().null().uint(0).uint(WINDOW).uint(WINDOW));
        let attach =
            List::default().string("in").uint(0).flag(true).byte(0).byte(0).described(SOURCE, &source);
        put(&mut link.out, 0, ATTACH, &attach);
        link.flush().await?;
        loop {
            let frame = link.frame().await?;
            let (code, mut fields) = performative(&frame)?;
            if code == BEGIN {
                fields.skip(1)?;
                let Value::Number(first) = fields.value()? else { bail!("no number") };
                link.first = u32::try_from(first)?;
                link.next = link.first;
            }
            if code == ATTACH {
                fields.skip(5)?;
                ensure!(!matches!(fields.value()?, Value::Null), "the queue was refused");
                return Ok(link);
            }
        }
    }

    async fn header(&mut self, wanted: &[u8]) -> Result<()> {
        while self.read.len() < wanted.len() {
            ensure!(self.stream.read_buf(&mut self.read).await? > 0, "the connection ended");
        }
        ensure!(self.read.drain(..wanted.len()).eq(wanted.iter().copied()), "another protocol");
        Ok(())
    }

    /// The body of the next frame. Only for the handshake.
    async fn frame(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(size) = whole(&self.read) {
                return Ok(self.read.drain(..size).skip(8).collect());
            }
            ensure!(self.stream.read_buf(&mut self.read).await? > 0, "the connection ended");
        }
    }

    async fn flush(&mut self) -> Result<()> {
        self.stream.write_all(&self.out).await?;
        self.out.clear();
        Ok(())
    }

    fn allow(&mut self, prefetch: u32) {
        let taken = self.next - self.first;
        let flow = List::default().uint(self.next).uint(WINDOW).uint(0).uint(WINDOW).uint(0);
        put(&mut self.out, 0, FLOW, &flow.uint(taken).uint(prefetch - (taken - self.settled)));
        self.allowed_at = self.settled;
    }

    /// Writes what is due, reads what is there, and settles what was handled as one range.
    async fn turn(&mut self, prefetch: u32, tally: &Tally) -> Result<()> {
        self.flush().await?;
        ensure!(self.stream.read_buf(&mut self.read).await? > 0, "the connection ended");
        let (mut at, first) = (0, self.next);
        while let Some(size) = whole(&self.read[at..]) {
            let frame = &self.read[at + 8..at + size];
            at += size;
            if frame.is_empty() {
                continue;
            }
            let (code, mut fields) = performative(frame)?;
            match code {
                TRANSFER => {
                    let (_handle, id, tag) = (fields.value()?, fields.value()?, fields.value()?);
                    let Value::Number(id) = id else { bail!("no number") };
                    ensure!(id == i64::from(self.next), "{id} came in the turn of {}", self.next);
                    fields.skip(2)?;
                    ensure!(!matches!(fields.value(), Ok(Value::Flag(true))), "in more than one frame");
                    let Value::Bytes(lock) = tag else { bail!("no lock") };
                    let arrived = Arrived::read(lock, fields.behind)?;
                    tally.handle(arrived.message.body());
                    std::hint::black_box(&arrived);
                    self.next += 1;
                }
                DISPOSITION => {
                    let (_role, first, last) = (fields.value()?, fields.value()?, fields.value()?);
                    let (Value::Number(first), last) = (first, last) else { bail!("no range") };
                    let last = if let Value::Number(last) = last { last } else { first };
                    fields.skip(1)?;
                    ensure!(fields.described()? == ACCEPTED, "a settlement was refused");
                    let settled = u32::try_from(last - first)? + 1;
                    self.settled += settled;
                    tally.settled(settled.into());
                }
                FLOW => {}
                other => bail!("{other:#x} came"),
            }
        }
        self.read.drain(..at);
        if self.next > first {
            let range = List::default().flag(true).uint(first).uint(self.next - 1).flag(false);
            put(&mut self.out, 0, DISPOSITION, &range.described(ACCEPTED, &List::default()));
        }
        if self.settled - self.allowed_at > prefetch / 8 {
            self.allow(prefetch);
        }
        Ok(())
    }
}

/// What redrive reads of a delivery.
struct Arrived {
    message: Message,
    #[expect(dead_code, reason = "read because a consumer needs it")]
    about: (u128, u32, i64, Option<SystemTime>, Option<SystemTime>),
}

impl Arrived {
    fn read(lock: &[u8], bytes: &[u8]) -> Result<Self> {
        let lock = u128::from_le_bytes(lock.try_into().context("no lock token")?);
        let mut rest = Fields { bytes, left: u32::MAX, behind: &[] };
        let mut message = Message::new(Vec::new());
        let (mut count, mut number, mut enqueued, mut locked) = (0, 0, None, None);
        let time = |value: &Value<'_>| match value {
            Value::Number(millis) => {
                Some(UNIX_EPOCH + Duration::from_millis(u64::try_from(*millis).unwrap_or_default()))
            }
            _ => None,
        };
        while !rest.bytes.is_empty() {
            let section = rest.described()?;
            match section {
                0x70 => {
                    let mut header = rest.compound()?;
                    header.skip(4)?;
                    if let Ok(Value::Number(earlier)) = header.value() {
                        count = u32::try_from(earlier)?;
                    }
                }
                0x72 => {
                    let mut annotations = rest.compound()?;
                    while annotations.left > 0 {
                        let (Value::Text(key), value) = (annotations.value()?, annotations.value()?) else {
                            continue;
                        };
                        match (key, &value) {
                            ("x-opt-sequence-number", Value::Number(value)) => number = *value,
                            ("x-opt-enqueued-time", value) => enqueued = time(value),
                            ("x-opt-locked-until", value) => locked = time(value),
                            _ => {}
                        }
                    }
                }
                0x73 => {
                    let mut properties = rest.compound()?;
                    if let Ok(Value::Text(id)) = properties.value() {
                        message.properties_mut().id = Some(id.into());
                    }
                }
                0x74 => {
                    let mut properties = rest.compound()?;
                    while properties.left > 0 {
                        let (Value::Text(key), value) = (properties.value()?, properties.value()?) else {
                            continue;
                        };
                        match value {
                            Value::Text(text) => drop(message.headers_mut().insert(key, text)),
                            Value::Number(number) => drop(message.headers_mut().insert(key, number)),
                            _ => {}
                        }
                    }
                }
                0x75 => {
                    let Value::Bytes(body) = rest.value()? else { bail!("the body is no data") };
                    message = message.with_body(body.to_vec());
                }
                _ => rest.skip(1)?,
            }
        }
        Ok(Self { message, about: (lock, count, number, enqueued, locked) })
    }
}

/// The size of the frame at the front, if it is whole.
fn whole(bytes: &[u8]) -> Option<usize> {
    let size = u32::from_be_bytes(*bytes.first_chunk()?) as usize;
    (bytes.len() >= size).then_some(size)
}

fn performative(frame: &[u8]) -> Result<(u8, Fields<'_>)> {
    let mut outer = Fields { bytes: frame, left: u32::MAX, behind: &[] };
    let code = outer.described()?;
    Ok((code, outer.compound()?))
}

enum Value<'a> {
    Null,
    Flag(bool),
    Number(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
    Other,
}

/// Values behind each other.
struct Fields<'a> {
    bytes: &'a [u8],
    left: u32,
    /// What follows the list.
    behind: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count).context("the bytes end inside a value")?;
        self.bytes = rest;
        Ok(taken)
    }

    fn be<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into()?)
    }

    /// The descriptor of a value whose bytes follow.
    fn described(&mut self) -> Result<u8> {
        match self.take(3)? {
            [0x00, 0x53, code] => Ok(*code),
            [0x00, 0x80, _] => Ok(self.take(7)?[6]),
            _ => bail!("no descriptor"),
        }
    }

    fn compound(&mut self) -> Result<Fields<'a>> {
        let (bytes, left) = match self.take(1)?[0] {
            0x45 => (&[][..], 0),
            0xc0 | 0xc1 => {
                let [size, count] = self.be()?;
                (self.take(usize::from(size) - 1)?, u32::from(count))
            }
            0xd0 | 0xd1 => {
                let size = u32::from_be_bytes(self.be()?) as usize;
                let count = u32::from_be_bytes(self.be()?);
                (self.take(size - 4)?, count)
            }
            other => bail!("{other:#x} is no list"),
        };
        Ok(Fields { bytes, left, behind: self.bytes })
    }

    fn skip(&mut self, values: usize) -> Result<()> {
        (0..values).try_for_each(|_| self.value().map(drop))
    }

    /// Null behind the last one.
    fn value(&mut self) -> Result<Value<'a>> {
        if self.left == 0 {
            return Ok(Value::Null);
        }
        self.left -= 1;
        let text = |bytes| std::str::from_utf8(bytes).map(Value::Text);
        Ok(match self.take(1)?[0] {
            0x40 => Value::Null,
            0x41 => Value::Flag(true),
            0x42 => Value::Flag(false),
            0x43 | 0x44 => Value::Number(0),
            0x50 | 0x52 | 0x53 => Value::Number(self.take(1)?[0].into()),
            0x51 | 0x54 | 0x55 => Value::Number(i8::from_be_bytes(self.be()?).into()),
            0x56 => Value::Flag(self.take(1)?[0] == 1),
            0x60 => Value::Number(u16::from_be_bytes(self.be()?).into()),
            0x70 => Value::Number(u32::from_be_bytes(self.be()?).into()),
            0x71 => Value::Number(i32::from_be_bytes(self.be()?).into()),
            0x80 | 0x81 | 0x83 => Value::Number(i64::from_be_bytes(self.be()?)),
            code @ (0xa0 | 0xa1 | 0xa3) => {
                let size = self.take(1)?[0].into();
                let bytes = self.take(size)?;
                if code == 0xa0 { Value::Bytes(bytes) } else { text(bytes)? }
            }
            code @ (0xb0 | 0xb1 | 0xb3) => {
                let size = u32::from_be_bytes(self.be()?) as usize;
                let bytes = self.take(size)?;
                if code == 0xb0 { Value::Bytes(bytes) } else { text(bytes)? }
            }
            0x00 => {
                // A described value: its descriptor, then itself.
                self.left += 2;
                self.skip(2)?;
                Value::Other
            }
            code => {
                let size = match code >> 4 {
                    0x4 => 0,
                    0x5 => 1,
                    0x6 => 2,
                    0x7 => 4,
                    0x8 => 8,
                    0x9 => 16,
                    0xc | 0xe => self.take(1)?[0].into(),
                    _ => u32::from_be_bytes(self.be()?) as usize,
                };
                self.take(size)?;
                Value::Other
            }
        })
    }
}

/// The fields of a performative, encoded.
#[derive(Default)]
struct List {
    count: u8,
    bytes: Vec<u8>,
}

impl List {
    fn add(mut self, code: u8, bytes: &[u8]) -> Self {
        self.count += 1;
        self.bytes.push(code);
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn null(self) -> Self {
        self.add(0x40, &[])
    }

    fn flag(self, flag: bool) -> Self {
        self.add(if flag { 0x41 } else { 0x42 }, &[])
    }

    fn byte(self, number: u8) -> Self {
        self.add(0x50, &[number])
    }

    fn uint(self, number: u32) -> Self {
        self.add(0x70, &number.to_be_bytes())
    }

    fn string(self, text: &str) -> Self {
        self.short(0xa1, text)
    }

    fn symbol(self, text: &str) -> Self {
        self.short(0xa3, text)
    }

    fn short(mut self, code: u8, text: &str) -> Self {
        self = self.add(code, &[u8::try_from(text.len()).expect("short")]);
        self.bytes.extend_from_slice(text.as_bytes());
        self
    }

    fn described(mut self, code: u8, list: &Self) -> Self {
        self.count += 1;
        list.put(code, &mut self.bytes);
        self
    }

    fn put(&self, code: u8, to: &mut Vec<u8>) {
        to.extend_from_slice(&[0x00, 0x53, code, 0xd0]);
        to.extend_from_slice(&(self.bytes.len() as u32 + 4).to_be_bytes());
        to.extend_from_slice(&u32::from(self.count).to_be_bytes());
        to.extend_from_slice(&self.bytes);
    }
}

fn put(out: &mut Vec<u8>, kind: u8, code: u8, fields: &List) {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, 2, kind, 0, 0]);
    fields.put(code, out);
    let size = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
}
