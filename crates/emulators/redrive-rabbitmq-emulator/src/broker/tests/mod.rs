//! Clauses of RabbitMQ, each on the value: bytes in, bytes out, virtual time. The page about the emulator lists which test holds which.

// Messages and tables are written where they are used.
#![allow(clippy::large_enum_variant, clippy::needless_pass_by_value)]

mod counting;
mod dead_letter;
mod expiry;
mod length;
mod operating;
mod order;
mod protocol;
mod queues;
mod routing;
mod targets;
mod timeout;
mod transaction;

use std::collections::VecDeque;

use bytes::BytesMut;
use redrive_amqp091::{
    Basic, ContentHeader, Frame, FrameKind, Method, PROTOCOL_HEADER, Properties, RawTable, ShortStr, Table,
    Value, basic, channel, confirm, connection, exchange, queue, write_content,
};

use super::access::{Password, Permission};
use super::definitions::PolicyDefinition;
use super::events::{DropReason, EventKind};
use super::{Broker, ConnectionId, Options, QueueCounts, QueueKind, Timestamp, Version};
use crate::server::decoder::Decoder;

pub(super) const BOTH: [Version; 2] = [Version::V3_10, Version::V4_3];
pub(super) const KINDS: [QueueKind; 2] = [QueueKind::Classic, QueueKind::Quorum];

/// Every version with every type of queue.
pub(super) fn combinations() -> impl Iterator<Item = (Version, QueueKind)> {
    BOTH.into_iter().flat_map(|version| KINDS.into_iter().map(move |kind| (version, kind)))
}

/// A broker, its clock, and clients without sockets.
pub(super) struct World {
    pub(super) broker: Broker,
    pub(super) now: Timestamp,
    clients: Vec<Client>,
}

struct Client {
    id: ConnectionId,
    decoder: Decoder,
    received: BytesMut,
    heard: VecDeque<Heard>,
}

/// The number of a client of a world.
pub(super) type Who = usize;

/// What a client received.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Heard {
    Method(u16, Method),
    Message(u16, Method, Got),
}

/// A message that a client received.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Got {
    pub(super) tag: u64,
    pub(super) redelivered: bool,
    pub(super) exchange: String,
    pub(super) key: String,
    pub(super) body: String,
    pub(super) properties: Properties,
}

impl Got {
    pub(super) fn headers(&self) -> Table {
        self.properties.headers.as_ref().map(RawTable::decode).unwrap_or_default()
    }

    pub(super) fn number(&self, header: &str) -> Option<i64> {
        self.headers().get(header).and_then(Value::as_i64)
    }

    pub(super) fn text(&self, header: &str) -> Option<String> {
        self.headers().get(header).and_then(Value::as_str).map(str::to_owned)
    }

    /// Returns the deaths as (queue, reason, count).
    pub(super) fn deaths(&self) -> Vec<(String, String, i64)> {
        let headers = self.headers();
        let entries = headers.get("x-death").and_then(Value::as_array).unwrap_or_default();
        let entry = |entry: &Value| {
            let table = entry.as_table()?;
            let text = |key: &str| table.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            Some((text("queue"), text("reason"), table.get("count")?.as_i64()?))
        };
        entries.iter().filter_map(entry).collect()
    }
}

pub(super) fn death(queue: &str, reason: &str, count: i64) -> (String, String, i64) {
    (queue.to_owned(), reason.to_owned(), count)
}

pub(super) fn short(text: &str) -> ShortStr {
    ShortStr::try_from(text).expect("a short text")
}

/// Arguments of a queue of this type.
pub(super) fn of(kind: QueueKind) -> Table {
    Table::new().with("x-queue-type", kind.name())
}

/// Arguments of a queue whose dead letters go to another queue.
pub(super) fn dead_to(kind: QueueKind, target: &str) -> Table {
    of(kind).with("x-dead-letter-exchange", "").with("x-dead-letter-routing-key", target)
}

/// A world with a queue `work`, whose dead letters go to a queue `dead` of the same type.
pub(super) fn dead_lettering(version: Version, kind: QueueKind) -> (World, Who) {
    let mut world = World::new(version);
    let who = world.client();
    world.declare(who, "work", dead_to(kind, "dead"));
    world.declare(who, "dead", of(kind));
    (world, who)
}

impl World {
    pub(super) fn new(version: Version) -> Self {
        Self::with(Options::new(version))
    }

    pub(super) fn with(options: Options) -> Self {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let mut broker = Broker::new(options);
        broker.advance(now);
        broker.add_defaults();
        Self { broker, now, clients: Vec::new() }
    }

    /// Connects a client that knows all of RabbitMQ's extensions, and opens channel 1.
    pub(super) fn client(&mut self) -> Who {
        let who = self.connect("guest", "guest", true);
        self.open_channel(who, 1);
        who
    }

    pub(super) fn connect(&mut self, user: &str, password: &str, capable: bool) -> Who {
        let id = self.broker.connect("test".to_owned(), self.now);
        let decoder = Decoder::new(self.broker.options.max_message_size);
        self.clients.push(Client { id, decoder, received: BytesMut::new(), heard: VecDeque::new() });
        let who = self.clients.len() - 1;
        self.send_bytes(who, &PROTOCOL_HEADER);
        let mut capabilities = Table::new();
        for name in ["consumer_cancel_notify", "connection.blocked", "authentication_failure_close"] {
            capabilities.insert(short(name), capable);
        }
        self.send(
            who,
            0,
            connection::StartOk {
                client_properties: Table::new().with("capabilities", capabilities).encode(),
                mechanism: short("PLAIN"),
                response: format!("\0{user}\0{password}").into_bytes().into(),
                locale: short("en_US"),
            },
        );
        self.hear(who);
        let tuned =
            |heard: &Heard| matches!(heard, Heard::Method(_, method) if method.name() == "connection.Tune");
        if self.clients[who].heard.iter().any(tuned) {
            self.send(who, 0, connection::TuneOk { channel_max: 2047, frame_max: 131_072, heartbeat: 0 });
            self.send(who, 0, connection::Open { virtual_host: short("/"), ..Default::default() });
            self.heard(who);
        }
        who
    }

    pub(super) fn open_channel(&mut self, who: Who, channel: u16) {
        self.send(who, channel, channel::Open::default());
        self.heard(who);
    }

    pub(super) fn send(&mut self, who: Who, channel: u16, method: impl Into<Method>) {
        let mut bytes = BytesMut::new();
        method.into().write_frame(channel, &mut bytes);
        self.send_bytes(who, &bytes);
    }

    pub(super) fn send_bytes(&mut self, who: Who, bytes: &[u8]) {
        let client = &mut self.clients[who];
        let mut commands = Vec::new();
        client.decoder.decode(&mut BytesMut::from(bytes), &mut commands);
        let id = client.id;
        self.broker.handle(id, commands, self.now);
    }

    pub(super) fn id(&self, who: Who) -> ConnectionId {
        self.clients[who].id
    }

    /// Ends the client's socket.
    pub(super) fn cut(&mut self, who: Who) {
        let id = self.clients[who].id;
        self.broker.disconnect(id, self.now);
    }

    /// Lets time pass, in milliseconds.
    pub(super) fn advance(&mut self, millis: u64) {
        self.now = self.now.plus_millis(millis);
        self.broker.advance(self.now);
    }

    /// Reads what a client received.
    fn hear(&mut self, who: Who) {
        let client = &mut self.clients[who];
        let id = client.id;
        let output = self.broker.take_output(id, self.now);
        client.received.extend_from_slice(&output);
        let mut content: Option<(u16, Method, Got, u64)> = None;
        while let Some(frame) = Frame::take(&mut client.received, 1 << 20).expect("frames") {
            match frame.kind {
                FrameKind::Method => {
                    let method = Method::decode(&frame.payload).expect("a method");
                    match &method {
                        Method::Basic(Basic::Deliver(_) | Basic::GetOk(_) | Basic::Return(_)) => {
                            content = Some((frame.channel, method, Got::default(), 0));
                            continue;
                        }
                        _ => client.heard.push_back(Heard::Method(frame.channel, method)),
                    }
                }
                FrameKind::Header => {
                    let header = ContentHeader::decode(&frame.payload).expect("a header");
                    let (_, _, got, size) = content.as_mut().expect("a method before");
                    *size = header.body_size;
                    got.properties = header.properties;
                }
                FrameKind::Body => {
                    let (_, _, got, _) = content.as_mut().expect("a header before");
                    got.body.push_str(&String::from_utf8_lossy(&frame.payload));
                }
                FrameKind::Heartbeat => {}
            }
            if content.as_ref().is_some_and(|(_, _, got, size)| got.body.len() as u64 == *size)
                && frame.kind != FrameKind::Method
            {
                let (channel, method, mut got, _) = content.take().expect("content");
                let (exchange, key) = match &method {
                    Method::Basic(Basic::Deliver(deliver)) => {
                        (got.tag, got.redelivered) = (deliver.delivery_tag, deliver.redelivered);
                        (&deliver.exchange, &deliver.routing_key)
                    }
                    Method::Basic(Basic::GetOk(ok)) => {
                        (got.tag, got.redelivered) = (ok.delivery_tag, ok.redelivered);
                        (&ok.exchange, &ok.routing_key)
                    }
                    Method::Basic(Basic::Return(returned)) => (&returned.exchange, &returned.routing_key),
                    _ => continue,
                };
                (got.exchange, got.key) = (exchange.to_string(), key.to_string());
                client.heard.push_back(Heard::Message(channel, method, got));
            }
        }
    }

    /// Returns everything that a client received since the last call.
    pub(super) fn heard(&mut self, who: Who) -> Vec<Heard> {
        self.hear(who);
        self.clients[who].heard.drain(..).collect()
    }

    /// Returns the methods that a client received.
    pub(super) fn methods(&mut self, who: Who) -> Vec<Method> {
        let methods = self.heard(who).into_iter().map(|heard| match heard {
            Heard::Method(_, method) | Heard::Message(_, method, _) => method,
        });
        methods.collect()
    }

    /// Returns the names of the methods that a client received.
    pub(super) fn names(&mut self, who: Who) -> Vec<&'static str> {
        self.methods(who).iter().map(Method::name).collect()
    }

    /// Returns the messages that a client's consumers received.
    pub(super) fn deliveries(&mut self, who: Who) -> Vec<Got> {
        let deliveries = self.heard(who).into_iter().filter_map(|heard| match heard {
            Heard::Message(_, Method::Basic(Basic::Deliver(_)), got) => Some(got),
            _ => None,
        });
        deliveries.collect()
    }

    pub(super) fn bodies(&mut self, who: Who) -> Vec<String> {
        self.deliveries(who).into_iter().map(|got| got.body).collect()
    }

    /// Returns why the server closed a channel or the connection.
    pub(super) fn closed(&mut self, who: Who) -> Option<(u16, String)> {
        self.methods(who).into_iter().find_map(|method| match method {
            Method::Channel(redrive_amqp091::Channel::Close(close)) => {
                Some((close.reply_code, close.reply_text.to_string()))
            }
            Method::Connection(redrive_amqp091::Connection::Close(close)) => {
                Some((close.reply_code, close.reply_text.to_string()))
            }
            _ => None,
        })
    }

    /// Declares a durable queue.
    pub(super) fn declare(&mut self, who: Who, name: &str, arguments: Table) {
        self.send(who, 1, declaration(name, arguments));
        assert_eq!(self.names(who), ["queue.DeclareOk"], "{name}");
    }

    pub(super) fn declare_exchange(&mut self, who: Who, name: &str, kind: &str, arguments: Table) {
        self.send(
            who,
            1,
            exchange::Declare {
                exchange: short(name),
                kind: short(kind),
                durable: true,
                arguments: arguments.encode(),
                ..Default::default()
            },
        );
        assert_eq!(self.names(who), ["exchange.DeclareOk"], "{name}");
    }

    pub(super) fn bind(&mut self, who: Who, queue: &str, exchange: &str, key: &str) {
        self.bind_with(who, queue, exchange, key, Table::new());
    }

    pub(super) fn bind_with(&mut self, who: Who, queue: &str, exchange: &str, key: &str, arguments: Table) {
        self.send(
            who,
            1,
            queue::Bind {
                queue: short(queue),
                exchange: short(exchange),
                routing_key: short(key),
                arguments: arguments.encode(),
                ..Default::default()
            },
        );
        assert_eq!(self.names(who), ["queue.BindOk"]);
    }

    /// Publishes to the default exchange.
    pub(super) fn publish(&mut self, who: Who, queue: &str, body: &str) {
        self.publish_with(who, "", queue, body, Properties::default());
    }

    pub(super) fn publish_with(
        &mut self,
        who: Who,
        exchange: &str,
        key: &str,
        body: &str,
        properties: Properties,
    ) {
        let publish =
            basic::Publish { exchange: short(exchange), routing_key: short(key), ..Default::default() };
        self.publish_as(who, 1, publish, body, &properties);
    }

    pub(super) fn publish_as(
        &mut self,
        who: Who,
        channel: u16,
        publish: basic::Publish,
        body: &str,
        properties: &Properties,
    ) {
        let mut bytes = BytesMut::new();
        Method::from(publish).write_frame(channel, &mut bytes);
        write_content(channel, &properties.encode(), body.as_bytes(), 131_072, &mut bytes);
        self.send_bytes(who, &bytes);
    }

    pub(super) fn get(&mut self, who: Who, queue: &str) -> Option<Got> {
        self.send(who, 1, basic::Get { queue: short(queue), ..Default::default() });
        self.heard(who).into_iter().find_map(|heard| match heard {
            Heard::Message(_, Method::Basic(Basic::GetOk(_)), got) => Some(got),
            _ => None,
        })
    }

    /// Takes a message for good.
    pub(super) fn take(&mut self, who: Who, queue: &str) -> Option<Got> {
        let got = self.get(who, queue)?;
        self.ack(who, got.tag);
        Some(got)
    }

    pub(super) fn nack_next(&mut self, who: Who, queue: &str, requeue: bool) {
        let got = self.get(who, queue).expect("a message");
        self.nack(who, got.tag, requeue);
    }

    pub(super) fn reject_next(&mut self, who: Who, queue: &str, requeue: bool) {
        let got = self.get(who, queue).expect("a message");
        self.reject(who, got.tag, requeue);
    }

    /// Takes all messages for good, and returns their bodies.
    pub(super) fn drain(&mut self, who: Who, queue: &str) -> Vec<String> {
        std::iter::from_fn(|| self.take(who, queue)).map(|got| got.body).collect()
    }

    pub(super) fn consume(&mut self, who: Who, queue: &str, tag: &str) {
        self.consume_with(who, queue, tag, Table::new());
    }

    pub(super) fn consume_with(&mut self, who: Who, queue: &str, tag: &str, arguments: Table) {
        let (queue, consumer_tag) = (short(queue), short(tag));
        let arguments = arguments.encode();
        self.send(who, 1, basic::Consume { queue, consumer_tag, arguments, ..Default::default() });
    }

    pub(super) fn prefetch(&mut self, who: Who, prefetch_count: u16) {
        self.send(who, 1, basic::Qos { prefetch_count, ..Default::default() });
        self.heard(who);
    }

    pub(super) fn ack(&mut self, who: Who, delivery_tag: u64) {
        self.send(who, 1, basic::Ack { delivery_tag, multiple: false });
    }

    pub(super) fn nack(&mut self, who: Who, delivery_tag: u64, requeue: bool) {
        self.send(who, 1, basic::Nack { delivery_tag, multiple: false, requeue });
    }

    pub(super) fn reject(&mut self, who: Who, delivery_tag: u64, requeue: bool) {
        self.send(who, 1, basic::Reject { delivery_tag, requeue });
    }

    pub(super) fn confirms(&mut self, who: Who) {
        self.send(who, 1, confirm::Select { no_wait: false });
        self.heard(who);
    }

    pub(super) fn counts(&self, queue: &str) -> QueueCounts {
        self.broker.counts(self.queue(queue).expect("a queue"))
    }

    pub(super) fn queue(&self, name: &str) -> Option<super::QueueId> {
        let vhost = self.broker.vhost_named("/").expect("a virtual host");
        self.broker.queue_named(vhost, &short(name))
    }

    pub(super) fn ready(&self, queue: &str) -> usize {
        self.counts(queue).ready
    }

    pub(super) fn policy(&mut self, name: &str, pattern: &str, priority: i64, definition: serde_json::Value) {
        let serde_json::Value::Object(definition) = definition else { panic!("an object") };
        let policy = PolicyDefinition {
            vhost: "/".to_owned(),
            name: name.to_owned(),
            pattern: pattern.to_owned(),
            apply_to: "all".to_owned(),
            priority,
            definition,
        };
        self.broker.define_policy(&policy, self.now).expect("a policy");
    }

    pub(super) fn user(&mut self, name: &str, permission: Permission) {
        self.broker.add_user(name, Password::Plain(name.to_owned()), Vec::new());
        self.broker.set_permission(name, "/", permission);
    }

    /// Takes the events of dropped messages: queue and reason.
    pub(super) fn dropped(&mut self) -> Vec<(String, DropReason)> {
        let events = self.broker.take_events().into_iter().filter_map(|event| match event.kind {
            EventKind::Dropped { queue, reason, .. } => Some((queue, reason)),
            _ => None,
        });
        events.collect()
    }
}

pub(super) fn declaration(name: &str, arguments: Table) -> queue::Declare {
    queue::Declare { queue: short(name), durable: true, arguments: arguments.encode(), ..Default::default() }
}

pub(super) fn expiring(millis: &str) -> Properties {
    Properties { expiration: Some(short(millis)), ..Properties::default() }
}

pub(super) fn with_headers(headers: Table) -> Properties {
    Properties { headers: Some(headers.encode()), ..Properties::default() }
}
