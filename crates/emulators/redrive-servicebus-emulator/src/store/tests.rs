//! What is written can be read back, from a file that survives a crash.

use bytes::Bytes;
use std::time::Duration;

use super::*;
use crate::amqp::{Map, Message, Value};
use crate::broker::rules::{Filter, Rule, SqlFilter};
use crate::broker::{Namespace, Place, ReceiveMode, ReceiverId, Settings, Settlement, Timestamp, Topic};

fn namespace() -> Namespace {
    let sessions = Settings { requires_session: true, ..Settings::default() };
    let unique = Settings { duplicate_detection: Some(Duration::from_secs(60)), ..Settings::default() };
    Namespace::default()
        .queue("q", Settings::default())
        .queue("sessions", sessions)
        .queue("unique", unique)
        .topic(Topic::new("t", Settings::default()).subscription("s", Settings::default()))
}

fn message(id: &str) -> Message {
    let mut message = Message::with_data(Bytes::from(vec![7; 10]));
    message.properties.message_id = id.into();
    message.properties.group_id = Some("one".into());
    message.application_properties = Map::new().with("color", "red");
    message
}

fn empty() -> Broker {
    Broker::new(&namespace(), 1).expect("a namespace that can be")
}

/// Creates a broker with something of everything that is kept, and a lock, which is not.
fn filled() -> Broker {
    let mut broker = empty();
    broker.keep_changes();
    fill(&mut broker).expect("all of it can be done");
    broker
}

fn fill(broker: &mut Broker) -> Result<(), crate::broker::BrokerError> {
    let now = Timestamp::from_millis(1000);
    let (q, sessions, unique) = (broker.find("q")?, broker.find("sessions")?, broker.find("unique")?);
    for to in [q, sessions, unique, broker.find("t")?] {
        for id in ["a", "b", "c"] {
            broker.send(to, vec![message(id).into()], now)?;
        }
    }
    let mut later = message("later");
    later.message_annotations.insert_symbol("x-opt-scheduled-enqueue-time", Value::Timestamp(90_000));
    broker.schedule(q, vec![later.into()], now)?;
    let received = broker.receive(q, ReceiverId(1), ReceiveMode::PeekLock, 3, now)?;
    let tokens: Vec<_> = received.iter().filter_map(|delivered| delivered.lock_token).collect();
    broker.settle(
        q,
        &tokens[..1],
        &Settlement::Defer { properties: Map::new().with("why", "later") },
        now,
    )?;
    let rejected =
        Settlement::DeadLetter { reason: Some("bad".into()), description: None, properties: Map::new() };
    broker.settle(q, &tokens[1..2], &rejected, now)?;
    broker.accept_session(sessions, Some("one"), ReceiverId(2), now)?;
    broker.set_session_state(sessions, "one", Some(Bytes::from_static(b"state")), now)?;
    let filter = Filter::Sql(SqlFilter::new("color = 'red'").expect("an expression"));
    broker.add_rule(broker.find("t/subscriptions/s")?, Rule::new("red", filter), now)
}

#[test]
fn everything_that_is_kept_is_read_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let mut broker = filled();
    let (mut store, unknown) = open(&path, &mut empty()).expect("a file that can be begun");
    assert_eq!(unknown, []);
    store.write(&broker.take_changes()).expect("a file that can be written");
    drop(store);
    let mut again = empty();
    drop(open(&path, &mut again).expect("a file that can be read"));
    assert_eq!(again.snapshot(), broker.snapshot());
    let q = again.find("q").expect("a queue");
    assert_eq!(again.counts(q).locked, 0, "locks are not kept");
    assert_eq!(again.counts(q).active, 1);
    let deferred = again.messages(q).find(|delivered| delivered.place == Place::Deferred).expect("deferred");
    assert_eq!(deferred.message.application_properties.get("why"), Some(&Value::from("later")));
}

#[test]
fn entities_that_are_not_configured_any_more_keep_what_they_have() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let mut broker = filled();
    let (mut store, _) = open(&path, &mut empty()).expect("a file that can be begun");
    store.write(&broker.take_changes()).expect("a file that can be written");
    drop(store);
    let mut other =
        Broker::new(&Namespace::default().queue("new", Settings::default()), 1).expect("a namespace");
    let (store, mut unknown) = open(&path, &mut other).expect("a file that can be read");
    unknown.sort();
    assert_eq!(unknown[0], ("q".to_owned(), 3));
    drop(store);
    let mut again = empty();
    drop(open(&path, &mut again).expect("a file that can be read"));
    assert_eq!(again.snapshot(), broker.snapshot());
}
