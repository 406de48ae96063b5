//! Measures brokers beside each other with the same client: publish and confirm, consume and acknowledge, and the retry path (reject,
//! wait in a queue with a time to live, be dead-lettered back, acknowledge), each with classic and quorum queues.
//!
//! ```sh
//! cargo run --release -p redrive-rabbitmq-emulator --example throughput -- --messages 50000 --rounds 5 \
//!     rabbitmq=guest:guest@127.0.0.1:5672 emulator=guest:guest@127.0.0.1:5673
//! ```
//!
//! The brokers take turns in each round; the table has the median of the rounds, and the ratio to the first broker.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use redrive_amqp091::{
    Basic, Connection, ContentHeader, Frame, FrameKind, Method, PROTOCOL_HEADER, Properties, ShortStr, Table,
    basic, channel, confirm, connection, queue, write_content,
};

const BODY: [u8; 256] = [b'x'; 256];
/// Unconfirmed publishes.
const WINDOW: usize = 2000;
/// Unacknowledged deliveries.
const PREFETCH: u16 = 1000;
/// How long a message waits on the retry path, in milliseconds.
const WAIT: i32 = 10;
const FRAME_MAX: u32 = 131_072;
const WORK: &str = "throughput-work";
const RETRY: &str = "throughput-retry";

fn main() {
    let (mut messages, mut rounds, mut brokers) = (20_000, 3, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok()).expect("a number");
        match &*argument {
            "--messages" => messages = number(),
            "--rounds" => rounds = number(),
            _ => brokers.push(Broker::parse(&argument).expect("NAME=USER:PASSWORD@HOST:PORT")),
        }
    }
    assert!(!brokers.is_empty(), "name at least one broker: NAME=USER:PASSWORD@HOST:PORT");
    let names: Vec<_> = brokers.iter().map(|broker| &*broker.name).collect();
    println!("| messages/s, median of {rounds} rounds of {messages} | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(brokers.len()));
    for kind in ["classic", "quorum"] {
        let mut measured = vec![vec![Vec::new(); brokers.len()]; 3];
        for _ in 0..rounds {
            for (nth, broker) in brokers.iter().enumerate() {
                for (what, rate) in round(broker, kind, messages).into_iter().enumerate() {
                    measured[what][nth].push(rate);
                }
            }
        }
        for (what, rates) in
            ["publish and confirm", "consume and acknowledge", "retry path"].iter().zip(measured)
        {
            let medians: Vec<f64> = rates.into_iter().map(median).collect();
            let cells = medians.iter().map(|rate| format!(" {rate:.0} ({:.2}) |", rate / medians[0]));
            println!("| {what}, {kind} |{}", cells.collect::<String>());
        }
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Returns the rates of publishing, consuming and retrying.
fn round(broker: &Broker, kind: &str, messages: u64) -> [f64; 3] {
    let mut client = Client::connect(broker);
    for name in [WORK, RETRY] {
        client.call(queue::Delete { queue: ShortStr::from_static(name), ..Default::default() });
    }
    client.declare(WORK, &dead_to(kind, RETRY));
    client.declare(RETRY, &dead_to(kind, WORK).with("x-message-ttl", WAIT));
    client.call(confirm::Select { no_wait: false });
    let published = rate(messages, || client.publish(messages));
    client.call(basic::Qos { prefetch_count: PREFETCH, ..Default::default() });
    client.call(basic::Consume {
        queue: ShortStr::from_static(WORK),
        consumer_tag: ShortStr::from_static("c"),
        ..Default::default()
    });
    let consumed = rate(messages, || client.settle(messages, false));
    client.call(basic::Cancel { consumer_tag: ShortStr::from_static("c"), no_wait: false });
    client.publish(messages);
    client.call(basic::Consume { queue: ShortStr::from_static(WORK), ..Default::default() });
    let retried = rate(messages, || client.settle(messages, true));
    [published, consumed, retried]
}

fn rate(messages: u64, act: impl FnOnce()) -> f64 {
    let began = Instant::now();
    act();
    messages as f64 / began.elapsed().max(Duration::from_nanos(1)).as_secs_f64()
}

fn dead_to(kind: &str, target: &'static str) -> Table {
    let table = Table::new().with("x-queue-type", kind.to_owned().as_str());
    table.with("x-dead-letter-exchange", "").with("x-dead-letter-routing-key", target)
}

struct Broker {
    name: String,
    user: String,
    password: String,
    address: String,
}

impl Broker {
    fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.split_once('=')?;
        let (login, address) = rest.split_once('@')?;
        let (user, password) = login.split_once(':')?;
        let [name, user, password, address] = [name, user, password, address].map(str::to_owned);
        Some(Self { name, user, password, address })
    }
}

/// A client on a blocking socket, with one channel.
struct Client {
    stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
    buffer: Vec<u8>,
    published: u64,
    unconfirmed: BTreeSet<u64>,
}

impl Client {
    fn connect(broker: &Broker) -> Self {
        let stream = TcpStream::connect(&broker.address).expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let (input, output, buffer) =
            (BytesMut::new(), BytesMut::from(&PROTOCOL_HEADER[..]), vec![0; 1 << 17]);
        let mut client = Self { stream, input, output, buffer, published: 0, unconfirmed: BTreeSet::new() };
        client.flush();
        client.method();
        let response = format!("\0{}\0{}", broker.user, broker.password);
        client.add(
            0,
            connection::StartOk {
                mechanism: ShortStr::from_static("PLAIN"),
                response: response.into_bytes().into(),
                locale: ShortStr::from_static("en_US"),
                ..Default::default()
            },
        );
        client.flush();
        client.method();
        client.add(0, connection::TuneOk { channel_max: 10, frame_max: FRAME_MAX, heartbeat: 0 });
        client.add(0, connection::Open { virtual_host: ShortStr::from_static("/"), ..Default::default() });
        client.flush();
        client.method();
        client.call(channel::Open::default());
        client
    }

    fn add(&mut self, channel: u16, method: impl Into<Method>) {
        method.into().write_frame(channel, &mut self.output);
    }

    /// Sends a method, and waits for the response.
    fn call(&mut self, method: impl Into<Method>) {
        self.add(1, method);
        self.flush();
        self.method();
    }

    fn declare(&mut self, name: &'static str, arguments: &Table) {
        let queue = ShortStr::from_static(name);
        self.call(queue::Declare {
            queue,
            durable: true,
            arguments: arguments.encode(),
            ..Default::default()
        });
    }

    fn flush(&mut self) {
        self.stream.write_all(&self.output).expect("sent");
        self.output.clear();
    }

    /// Publishes persistent messages, and waits until all are confirmed.
    fn publish(&mut self, messages: u64) {
        let properties = Properties { delivery_mode: Some(2), ..Properties::default() }.encode();
        let end = self.published + messages;
        while self.published < end || !self.unconfirmed.is_empty() {
            while self.published < end && self.unconfirmed.len() < WINDOW {
                self.add(
                    1,
                    basic::Publish { routing_key: ShortStr::from_static(WORK), ..Default::default() },
                );
                write_content(1, &properties, &BODY, FRAME_MAX as usize, &mut self.output);
                self.published += 1;
                self.unconfirmed.insert(self.published);
            }
            self.flush();
            match self.method() {
                Method::Basic(Basic::Ack(ack)) if ack.multiple => {
                    self.unconfirmed = self.unconfirmed.split_off(&(ack.delivery_tag + 1));
                }
                // Confirms may overtake each other.
                Method::Basic(Basic::Ack(ack)) => drop(self.unconfirmed.remove(&ack.delivery_tag)),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Acknowledges this many deliveries; with `retry`, rejects each message first.
    fn settle(&mut self, messages: u64, retry: bool) {
        let (mut acknowledged, mut tag) = (0, 0);
        while acknowledged < messages {
            if !self.has_frame() {
                self.flush();
            }
            let frame = self.frame();
            match frame.kind {
                FrameKind::Method => match Method::decode(&frame.payload).expect("a method") {
                    Method::Basic(Basic::Deliver(deliver)) => tag = deliver.delivery_tag,
                    other => panic!("{other:?}"),
                },
                FrameKind::Header => {
                    let header = ContentHeader::decode(&frame.payload).expect("a header");
                    let died = header.properties.headers.is_some_and(|headers| headers.contains("x-death"));
                    if retry && !died {
                        self.add(1, basic::Reject { delivery_tag: tag, requeue: false });
                    } else {
                        self.add(1, basic::Ack { delivery_tag: tag, multiple: false });
                        acknowledged += 1;
                    }
                }
                FrameKind::Body | FrameKind::Heartbeat => {}
            }
        }
        // The answer says that everything before it was done.
        self.add(1, basic::Qos { prefetch_count: PREFETCH, ..Default::default() });
        self.flush();
        while !matches!(self.method(), Method::Basic(Basic::QosOk(_))) {}
    }

    fn method(&mut self) -> Method {
        loop {
            let frame = self.frame();
            if frame.kind == FrameKind::Method {
                let method = Method::decode(&frame.payload).expect("a method");
                let closes = matches!(
                    &method,
                    Method::Connection(Connection::Close(_))
                        | Method::Channel(redrive_amqp091::Channel::Close(_))
                );
                assert!(!closes, "{method:?}");
                return method;
            }
        }
    }

    fn has_frame(&self) -> bool {
        self.input.get(3..7).is_some_and(|size| {
            let size = size.iter().fold(0_usize, |size, byte| size << 8 | usize::from(*byte));
            self.input.len() >= size + redrive_amqp091::FRAME_OVERHEAD
        })
    }

    fn frame(&mut self) -> Frame {
        loop {
            if let Some(frame) = Frame::take(&mut self.input, FRAME_MAX as usize).expect("a frame") {
                return frame;
            }
            let read = self.stream.read(&mut self.buffer).expect("bytes");
            assert!(read > 0, "the broker ended the connection");
            self.input.extend_from_slice(&self.buffer[..read]);
        }
    }
}
