use std::path::PathBuf;

use redrive_amqp091::{Properties, Table};

use super::*;
use crate::broker::{Definitions, Options, QueueCounts, Timestamp, Version};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// A broker that keeps its changes, with everything that a file can have.
fn filled() -> Broker {
    let mut broker = empty();
    broker.keep_changes(true);
    broker.add_defaults();
    let definitions = serde_json::json!({
        "vhosts": [{"name": "other"}],
        "users": [{"name": "bob", "password": "secret", "tags": []}],
        "permissions": [{"user": "bob", "vhost": "other", "configure": "", "write": ".*", "read": ".*"}],
        "policies": [{"vhost": "other", "name": "p", "pattern": "^q", "definition": {"max-length": 100}}],
        "exchanges": [{"name": "x", "vhost": "other", "type": "topic", "arguments": {"alternate-exchange": "y"}}],
        "queues": [
            {"name": "q", "vhost": "other", "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 5}},
            {"name": "gone", "vhost": "other", "arguments": {}},
            {"name": "short-lived", "vhost": "other", "durable": false, "arguments": {}},
        ],
        "bindings": [
            {"source": "x", "vhost": "other", "destination": "q", "destination_type": "queue", "routing_key": "a.#"},
            {"source": "x", "vhost": "other", "destination": "gone", "destination_type": "queue", "routing_key": "b"},
        ],
    });
    apply(&mut broker, definitions);
    publish(&mut broker, 5);
    let gone = queue(&broker, "gone").expect("a queue");
    broker.remove_queue(gone, START);
    broker
}

fn empty() -> Broker {
    let mut broker = Broker::new(Options::new(Version::V4_3));
    broker.advance(START);
    broker
}

fn apply(broker: &mut Broker, definitions: serde_json::Value) {
    let definitions: Definitions = serde_json::from_value(definitions).expect("definitions");
    broker.apply_definitions(&definitions, START).expect("definitions that can be applied");
}

fn publish(broker: &mut Broker, count: usize) {
    let vhost = broker.vhost_named("other").expect("a virtual host");
    for number in 0..count {
        let call = serde_json::json!({
            "routing_key": "a.b", "payload": format!("m{number}"),
            "properties": {"delivery_mode": 2, "headers": {"n": number}, "expiration": "60000"},
        });
        assert_eq!(broker.publish_by_operator(vhost, "x", &call, START), Ok(true));
    }
}

fn queue(broker: &Broker, name: &str) -> Option<crate::broker::QueueId> {
    let vhost = broker.vhost_named("other")?;
    broker.queue_named(vhost, &redrive_amqp091::ShortStr::truncated(name))
}

/// Everything that must survive.
fn content(broker: &Broker) -> (serde_json::Value, QueueCounts, Vec<crate::broker::MessageView>) {
    let q = queue(broker, "q").expect("a queue");
    let mut exported = broker.export_definitions(None);
    for queues in exported["queues"].as_array_mut().into_iter().flatten() {
        assert_ne!(queues["name"], "gone");
    }
    (exported, broker.counts(q), broker.ready_messages(q))
}

/// Writes the broker's changes to a new file.
fn written(folder: &tempfile::TempDir, broker: &mut Broker) -> PathBuf {
    let path = folder.path().join("state");
    let (mut file, new) = open(&path, &mut empty()).expect("a file that can be begun");
    assert!(new);
    write(&mut file, &broker.take_changes()).expect("a file that can be written");
    path
}

fn reopened(path: &Path) -> Broker {
    let mut broker = empty();
    let (_, new) = open(path, &mut broker).expect("a file that can be read");
    assert!(!new);
    broker
}

#[test]
fn what_is_durable_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut broker = filled();
    let path = written(&folder, &mut broker);
    let mut again = reopened(&path);
    assert_eq!(content(&again), content(&broker));
    assert_eq!((queue(&again, "gone"), queue(&again, "short-lived")), (None, None));
    assert!(again.user_named("bob").expect("a user").password.is(b"secret"));
    let q = queue(&again, "q").expect("a queue");
    assert_eq!(again.info(q).expect("a queue").policy.as_deref(), Some("p"));
    publish(&mut again, 1);
    assert_eq!(again.counts(q).ready, 6, "new messages come after the old ones");
    again.advance(START.plus_millis(60_000));
    assert_eq!(again.counts(q).ready, 0, "deadlines survive");
}

#[test]
fn what_was_taken_is_gone_and_what_was_given_back_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut broker = filled();
    let path = folder.path().join("state");
    let (mut file, _) = open(&path, &mut empty()).expect("a file that can be begun");
    write(&mut file, &broker.take_changes()).expect("a file that can be written");
    let q = queue(&broker, "q").expect("a queue");
    broker.get_messages(q, 2, crate::broker::manage::AckMode::Ack, false, START);
    broker.get_messages(q, 1, crate::broker::manage::AckMode::RejectRequeue, false, START);
    write(&mut file, &broker.take_changes()).expect("a file that can be written");
    drop(file);
    let mut again = reopened(&path);
    assert_eq!(again.counts(q).ready, 3);
    let first = &again.get_messages(q, 1, crate::broker::manage::AckMode::Ack, false, START)[0];
    assert_eq!(first["properties"]["headers"]["x-delivery-count"], 1);
    assert_eq!((first["payload"].as_str(), first["redelivered"].as_bool()), (Some("m2"), Some(true)));
}

#[test]
fn a_message_that_comes_and_goes_in_one_batch_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut broker = filled();
    let q = queue(&broker, "q").expect("a queue");
    broker.purge_by_operator(q, START);
    let path = written(&folder, &mut broker);
    assert_eq!(reopened(&path).counts(q).ready, 0);
}

#[test]
fn messages_survive_with_everything_that_belongs_to_them() {
    let message = crate::broker::message::Message {
        died: true,
        carried: crate::broker::message::Counts { delivery: 2, acquired: 3 },
        ..crate::broker::message::Message::new(
            redrive_amqp091::ShortStr::from_static("x"),
            redrive_amqp091::ShortStr::from_static("key"),
            vec![redrive_amqp091::ShortStr::from_static("cc")].into(),
            &properties(),
            properties().encode(),
            bytes::Bytes::from_static(b"body"),
        )
    };
    let stored = crate::broker::queue::ready::Stored {
        number: 7,
        message: std::sync::Arc::new(message),
        arrived: START,
        expires: Some(START.plus_millis(5)),
        not_before: Some(START.plus_millis(9)),
        redelivered: true,
        counts: crate::broker::message::Counts { delivery: 4, acquired: 5 },
        priority: 6,
        size: 0,
        kept: true,
    };
    let bytes = record::of_message(&stored);
    assert_eq!(record::message(7, &bytes), Some(stored));
    for length in 0..bytes.len() - 4 {
        assert_eq!(record::message(7, &bytes[..length]), None, "{length}");
    }
}

fn properties() -> Properties {
    let headers = Table::new().with("a", 1_i32).with("b", "two").encode();
    Properties { headers: Some(headers), delivery_mode: Some(2), ..Properties::default() }
}
