//! Replays a client's input without sockets: for the fuzz targets and for the test that replays their corpus.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use redrive_amqp091::{
    Basic, ContentHeader, Frame, FrameKind, Method, PROTOCOL_HEADER, Properties, RawTable, ShortStr, basic,
    channel, connection, write_frame,
};
use serde_json::json;

use super::decoder::Decoder;
use crate::broker::{Broker, Command, ConnectionId, Definitions, Options, Timestamp, Version};

/// Time between two pieces of input.
const STEP: Duration = Duration::from_secs(1);
/// Most bytes in answer to one piece: what waits for a client that does not read, and one more answer.
const MOST_OUTPUT: usize = 8 << 20;

/// Runs a client that sends these bytes in pieces, and reads the output, on both versions. Input that does not begin as the protocol
/// header does continues an open connection with channel 1.
///
/// # Panics
/// If the server misbehaves: it sends what is no AMQP, answers without a limit, or keeps what a client has left.
pub fn replay(bytes: &[u8]) {
    for version in [Version::V3_10, Version::V4_3] {
        World::new(version).run(bytes);
    }
}

/// Reads the bytes as frames, and as the payload of each kind of frame: what can be read is written as it was read.
///
/// # Panics
/// If it is not.
pub fn replay_codec(bytes: &[u8]) {
    let mut input = BytesMut::from(bytes);
    while let Ok(Some(frame)) = Frame::take(&mut input, bytes.len()) {
        let mut written = BytesMut::new();
        write_frame(frame.kind, frame.channel, &frame.payload, &mut written);
        assert_eq!(Frame::take(&mut written, bytes.len()), Ok(Some(frame.clone())));
        replay_payload(&frame.payload);
    }
    replay_payload(&Bytes::copy_from_slice(bytes));
}

fn replay_payload(payload: &Bytes) {
    if let Ok(method) = Method::decode(payload) {
        let mut written = BytesMut::new();
        method.write(&mut written);
        assert_eq!(Method::decode(&written.freeze()), Ok(method));
    }
    let tables = ContentHeader::decode(payload).into_iter().map(|header| {
        let written = header.properties.encode();
        assert_eq!(Properties::decode(&written).as_ref(), Ok(&header.properties));
        header.properties.headers.unwrap_or_default()
    });
    for raw in tables.chain(RawTable::checked(payload.clone())) {
        let table = raw.decode();
        let written = table.encode();
        // Compared as bytes: NaN is not equal to itself.
        assert_eq!(written.decode().encode(), written);
        for (key, _) in table.iter() {
            assert_eq!(raw.contains(&key.to_str()), written.contains(&key.to_str()));
        }
    }
}

/// A broker with queues, and another client that takes what it can.
struct World {
    broker: Broker,
    now: Timestamp,
    worker: Client,
}

impl World {
    fn new(version: Version) -> Self {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let mut broker = Broker::new(Options::new(version));
        broker.advance(now);
        broker.keep_changes(true);
        broker.add_defaults();
        broker.apply_definitions(&definitions(), now).expect("definitions that can be applied");
        let mut worker = Client::connect(&mut broker, now);
        worker.log_in(&mut broker, now);
        for queue in ["work", "quorum", "dead"] {
            let queue = ShortStr::truncated(queue);
            worker.send(&mut broker, now, basic::Qos { prefetch_count: 3, ..Default::default() });
            worker.send(&mut broker, now, basic::Consume { queue, ..Default::default() });
        }
        Self { broker, now, worker }
    }

    fn run(mut self, bytes: &[u8]) {
        let mut client = Client::connect(&mut self.broker, self.now);
        if bytes.first() != PROTOCOL_HEADER.first() {
            client.log_in(&mut self.broker, self.now);
        }
        // The bytes determine the size of the pieces, so that every input is split somewhere.
        let piece = bytes.last().map_or(1, |byte| usize::from(*byte) * 16 + 1);
        for piece in bytes.chunks(piece) {
            client.receive(&mut self.broker, self.now, piece);
            client.read(&mut self.broker, self.now);
            self.work();
            self.now = self.now.plus_millis(STEP.as_millis() as u64);
            self.broker.advance(self.now);
            self.broker.take_changes();
            if self.broker.is_over(client.id) || self.broker.is_cut(client.id) {
                break;
            }
        }
        self.end(&client);
    }

    /// Settles each delivery in another way.
    fn work(&mut self) {
        for tag in self.worker.read(&mut self.broker, self.now) {
            let (multiple, requeue) = (false, tag % 2 == 0);
            let settled: Method = match tag % 4 {
                0 => basic::Ack { delivery_tag: tag, multiple }.into(),
                1 | 2 => basic::Reject { delivery_tag: tag, requeue }.into(),
                _ => basic::Nack { delivery_tag: tag, multiple, requeue }.into(),
            };
            self.worker.send(&mut self.broker, self.now, settled);
        }
    }

    /// Nothing is left of a client that is gone, and nothing of a queue.
    fn end(mut self, client: &Client) {
        for client in [client, &self.worker] {
            self.broker.disconnect(client.id, self.now);
        }
        let Some(vhost) = self.broker.vhost_named("/") else { return };
        for queue in self.broker.queue_ids(vhost) {
            let counts = self.broker.counts(queue);
            assert_eq!(counts.unacked, 0, "nobody has a message of {:?}", self.broker.info(queue));
            assert_eq!(counts.ready, self.broker.ready_messages(queue).len());
            self.broker.remove_queue(queue, self.now);
        }
        let vhost = self.broker.vhost_named("/").expect("the virtual host");
        assert!(self.broker.queue_ids(vhost).is_empty());
        assert_eq!(self.broker.next_deadline(), None, "nothing is left that time could change");
    }
}

/// A client without a socket.
struct Client {
    id: ConnectionId,
    decoder: Decoder,
    input: BytesMut,
}

impl Client {
    fn connect(broker: &mut Broker, now: Timestamp) -> Self {
        let id = broker.connect("replay".to_owned(), now);
        let decoder = Decoder::new(broker.options.max_message_size);
        Self { id, decoder, input: BytesMut::new() }
    }

    fn log_in(&mut self, broker: &mut Broker, now: Timestamp) {
        self.receive(broker, now, &PROTOCOL_HEADER);
        let start = connection::StartOk {
            mechanism: ShortStr::from_static("PLAIN"),
            response: "\0guest\0guest".into(),
            locale: ShortStr::from_static("en_US"),
            ..Default::default()
        };
        self.send_on(broker, now, 0, start);
        let tune = connection::TuneOk { channel_max: 10, frame_max: 8192, heartbeat: 0 };
        self.send_on(broker, now, 0, tune);
        let virtual_host = ShortStr::from_static("/");
        self.send_on(broker, now, 0, connection::Open { virtual_host, ..Default::default() });
        self.send(broker, now, channel::Open::default());
    }

    fn send(&mut self, broker: &mut Broker, now: Timestamp, method: impl Into<Method>) {
        self.send_on(broker, now, 1, method);
    }

    fn send_on(&mut self, broker: &mut Broker, now: Timestamp, channel: u16, method: impl Into<Method>) {
        let mut frame = BytesMut::new();
        method.into().write_frame(channel, &mut frame);
        self.receive(broker, now, &frame);
    }

    fn receive(&mut self, broker: &mut Broker, now: Timestamp, piece: &[u8]) {
        self.input.extend_from_slice(piece);
        let before = self.input.len();
        let mut commands: Vec<Command> = Vec::new();
        self.decoder.decode(&mut self.input, &mut commands);
        assert!(self.input.len() <= before);
        broker.handle(self.id, commands, now);
    }

    /// Reads all output, which must be AMQP. Returns the delivery tags in it.
    fn read(&mut self, broker: &mut Broker, now: Timestamp) -> Vec<u64> {
        let mut tags = Vec::new();
        loop {
            let mut output = broker.take_output(self.id, now);
            assert!(output.len() < MOST_OUTPUT, "{} bytes in answer to a few", output.len());
            if output.is_empty() {
                return tags;
            }
            // The answer to another protocol.
            if output[..] == PROTOCOL_HEADER {
                continue;
            }
            while let Some(frame) = Frame::take(&mut output, MOST_OUTPUT).expect("frames") {
                match frame.kind {
                    FrameKind::Method => {
                        let method = Method::decode(&frame.payload).expect("a method");
                        if let Method::Basic(Basic::Deliver(deliver)) = method {
                            tags.push(deliver.delivery_tag);
                        }
                    }
                    FrameKind::Header => {
                        let header = ContentHeader::decode(&frame.payload).expect("a header");
                        let _ = header.properties.headers.map(|headers| headers.decode());
                    }
                    FrameKind::Body | FrameKind::Heartbeat => {}
                }
            }
            assert!(output.is_empty(), "{} bytes are no whole frame", output.len());
        }
    }
}

/// Dead letters that go round, expire, wait, and are too many.
fn definitions() -> Definitions {
    let definitions = json!({
        "policies": [
            {"vhost": "/", "name": "short", "pattern": "^short", "definition": {"max-length": 2, "overflow": "reject-publish"}},
        ],
        "exchanges": [
            {"name": "topics", "vhost": "/", "type": "topic", "arguments": {"alternate-exchange": "amq.fanout"}},
            {"name": "by-headers", "vhost": "/", "type": "headers", "arguments": {}},
        ],
        "queues": [
            {"name": "work", "vhost": "/", "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "retry", "x-max-priority": 5}},
            {"name": "retry", "vhost": "/", "arguments": {"x-message-ttl": 1500, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "quorum"}},
            {"name": "quorum", "vhost": "/", "arguments": {
                "x-queue-type": "quorum", "x-delivery-limit": 2, "x-dead-letter-exchange": "topics", "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            }},
            {"name": "dead", "vhost": "/", "arguments": {"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"}},
            {"name": "short", "vhost": "/", "arguments": {"x-expires": 30000}},
        ],
        "bindings": [
            {"source": "topics", "vhost": "/", "destination": "dead", "destination_type": "queue", "routing_key": "#.quorum"},
            {"source": "amq.fanout", "vhost": "/", "destination": "short", "destination_type": "queue", "routing_key": ""},
            {"source": "by-headers", "vhost": "/", "destination": "work", "destination_type": "queue", "routing_key": "", "arguments": {"x-match": "any", "a": 1}},
        ],
    });
    serde_json::from_value(definitions).expect("definitions")
}
