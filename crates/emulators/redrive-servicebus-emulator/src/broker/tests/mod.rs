//! The rules of Service Bus, one test each. Time is a number of seconds.

mod aside;
mod limits;
mod onward;
mod property;
mod queue;
mod session;
mod transaction;

use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::amqp::{Map, Message, Value};

/// A broker with one queue, its clock, and the calls that all tests use.
struct Bench {
    broker: Broker,
    now: Timestamp,
}

const ME: ReceiverId = ReceiverId(1);
const OTHER: ReceiverId = ReceiverId(2);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Bench {
    fn new(namespace: &Namespace) -> Self {
        let broker = Broker::new(namespace, 7).expect("a namespace that can be");
        Self { broker, now: Timestamp::from_millis(1_000_000) }
    }

    /// Creates a broker with one queue named `q`.
    fn queue(settings: Settings) -> Self {
        Self::new(&Namespace::default().queue("q", settings))
    }

    fn id(&self, path: &str) -> EntityId {
        self.broker.find(path).expect("an entity that exists")
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.broker.advance(self.now);
    }

    fn try_send(&mut self, to: &str, message: Message) -> Result<(), BrokerError> {
        let to = self.id(to);
        self.broker.send(to, vec![message.into()], self.now)
    }

    fn send(&mut self, to: &str, message: Message) {
        self.try_send(to, message).expect("a message that is taken");
    }

    fn receive_as(&mut self, receiver: ReceiverId, from: &str) -> Option<Delivered> {
        let from = self.id(from);
        let received = self.broker.receive(from, receiver, ReceiveMode::PeekLock, 1, self.now);
        received.expect("an entity that may be received from").pop()
    }

    fn receive(&mut self, from: &str) -> Option<Delivered> {
        self.receive_as(ME, from)
    }

    /// Receives a message that must be there.
    fn take(&mut self, from: &str) -> Delivered {
        self.receive(from).expect("a message to receive")
    }

    fn settle(&mut self, delivered: &Delivered, settlement: &Settlement) -> Result<(), BrokerError> {
        let token = delivered.lock_token.expect("a locked message");
        self.broker.settle(delivered.entity, &[token], settlement, self.now)
    }

    fn complete(&mut self, delivered: &Delivered) -> Result<(), BrokerError> {
        self.settle(delivered, &Settlement::Complete)
    }

    fn counts(&self, at: &str) -> Counts {
        self.broker.counts(self.id(at))
    }

    /// Returns the ids of all messages there, in order.
    fn ids(&self, at: &str) -> Vec<String> {
        self.broker.messages(self.id(at)).map(|delivered| id_of(&delivered)).collect()
    }
}

fn message(id: &str) -> Message {
    let mut message = Message::with_data(format!("body of {id}"));
    message.properties.message_id = id.into();
    message
}

fn in_session(id: &str, session: &str) -> Message {
    let mut message = message(id);
    message.properties.group_id = Some(session.to_owned());
    message
}

fn living(id: &str, time: Duration) -> Message {
    let mut message = message(id);
    message.header.ttl = u32::try_from(time.as_millis()).ok();
    message
}

fn scheduled(id: &str, at: Timestamp) -> Message {
    let mut message = message(id);
    message.message_annotations.insert_symbol("x-opt-scheduled-enqueue-time", Value::Timestamp(at.millis()));
    message
}

fn id_of(delivered: &Delivered) -> String {
    content::message_id(&delivered.message).unwrap_or_default()
}

fn text<'a>(delivered: &'a Delivered, property: &str) -> Option<&'a str> {
    delivered.message.application_properties.get(property).and_then(Value::as_text)
}

fn abandon() -> Settlement {
    Settlement::Abandon { properties: Map::new() }
}

fn defer() -> Settlement {
    Settlement::Defer { properties: Map::new() }
}

fn dead_letter(reason: &str, description: &str) -> Settlement {
    Settlement::DeadLetter {
        reason: Some(reason.into()),
        description: Some(description.into()),
        properties: Map::new(),
    }
}
