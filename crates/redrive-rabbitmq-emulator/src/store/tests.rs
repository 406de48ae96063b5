use redrive_amqp091::{Properties, Table};

use super::disk::Disk;
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
    let (mut store, new) = Store::open(&path, &mut empty()).expect("a file that can be begun");
    assert!(new);
    store.write(&broker.take_changes()).expect("a file that can be written");
    path
}

fn reopened(path: &Path) -> Broker {
    let mut broker = empty();
    let (_, new) = Store::open(path, &mut broker).expect("a file that can be read");
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
    let (mut store, _) = Store::open(&path, &mut empty()).expect("a file that can be begun");
    store.write(&broker.take_changes()).expect("a file that can be written");
    let q = queue(&broker, "q").expect("a queue");
    broker.get_messages(q, 2, crate::broker::manage::AckMode::Ack, false, START);
    broker.get_messages(q, 1, crate::broker::manage::AckMode::RejectRequeue, false, START);
    store.write(&broker.take_changes()).expect("a file that can be written");
    drop(store);
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

#[test]
fn a_file_that_is_none_is_refused_and_not_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    std::fs::write(&path, b"a letter to my aunt").expect("a file");
    let error = Store::open(&path, &mut empty()).expect_err("no state file");
    assert!(error.to_string().contains("state"), "{error}");
    assert_eq!(std::fs::read(&path).expect("a file"), b"a letter to my aunt");
}

#[test]
fn a_file_that_was_cut_or_damaged_is_refused_or_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut broker = filled();
    let path = written(&folder, &mut broker);
    let whole = content(&broker);
    let bytes = std::fs::read(&path).expect("a file");
    let found = |bytes: &[u8]| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        std::fs::write(&path, bytes).expect("a file");
        let mut broker = empty();
        Store::open(&path, &mut broker).map(|_| content(&broker))
    };
    assert_eq!(found(&bytes).expect("a whole file"), whole);
    for length in [100, 4096, 8192, bytes.len() / 2, bytes.len() - 1] {
        let error = found(&bytes[..length]).expect_err("a cut file");
        assert!(error.to_string().contains("state"), "{error}");
    }
    let (mut refused, mut next) = (0, 7_u64);
    for _ in 0..60 {
        let mut damaged = bytes.clone();
        for _ in 0..16 {
            next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (next >> 20) as usize % damaged.len();
            damaged[at] ^= 1 << ((next >> 60) % 8);
        }
        match found(&damaged) {
            Ok(found) => assert!(found == whole, "something was lost without a word"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 4, "only {refused} of 60 files were found to be damaged");
}

#[cfg(unix)]
#[test]
fn only_its_owner_can_read_a_state_file() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    drop(Store::open(&path, &mut empty()).unwrap());
    assert_eq!(mode(&path), 0o600);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(Store::open(&path, &mut empty()).unwrap());
    assert_eq!(mode(&path), 0o600, "one of an earlier version");

    let other = folder.path().join("other");
    std::fs::write(&other, "not a state file").unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(Store::open(&other, &mut empty()).unwrap_err());
    assert_eq!(mode(&other), 0o644, "another file keeps its mode");
    let link = folder.path().join("link");
    symlink(folder.path().join("elsewhere"), &link).unwrap();
    drop(Store::open(&link, &mut empty()).unwrap_err());
    assert!(!folder.path().join("elsewhere").exists(), "nothing is created through a link");
}

#[test]
fn a_file_is_used_by_one_emulator_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let _first = Store::open(&path, &mut empty()).expect("a file that can be begun");
    assert!(Store::open(&path, &mut empty()).is_err());
}

#[tokio::test]
async fn what_is_waited_for_is_on_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let mut broker = filled();
    let (store, _) = Store::open(&path, &mut empty()).expect("a file that can be begun");
    let journal = Journal::start(store).expect("a thread");
    for change in broker.take_changes() {
        journal.hand_in(vec![change]);
    }
    assert_eq!(journal.written(journal.ticket()).await, Ok(()));
    journal.abandon();
    assert_eq!(content(&reopened(&path)), content(&broker));
}

#[tokio::test]
async fn who_waits_for_what_will_not_be_written_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, _) =
        Store::open(&folder.path().join("state"), &mut empty()).expect("a file that can be begun");
    let journal = Journal::start(store).expect("a thread");
    journal.abandon();
    journal.hand_in(filled().take_changes());
    assert!(journal.written(journal.ticket()).await.is_err());
}

#[tokio::test]
async fn what_a_full_disk_does_not_take_is_told_and_written_once_there_is_room() {
    let (disk, mut broker) = (Disk::default(), filled());
    let journal = Journal::start(disk.store(&mut empty())).expect("a thread");
    journal.hand_in(broker.take_changes());
    assert_eq!(journal.written(journal.ticket()).await, Ok(()));
    disk.set_full(true);
    for _ in 0..2 {
        publish(&mut broker, 1);
        journal.hand_in(broker.take_changes());
        let told = journal.written(journal.ticket()).await.expect_err("there is no room");
        assert!(told.contains("the state file 'disk'"), "{told}");
    }
    disk.set_full(false);
    while journal.written(journal.ticket()).await.is_err() {
        tokio::task::yield_now().await;
    }
    journal.close();
    let mut again = empty();
    drop(disk.store(&mut again));
    assert_eq!(content(&again), content(&broker));
}

#[tokio::test]
async fn a_journal_that_is_closed_on_a_full_disk_ends() {
    let (disk, mut broker) = (Disk::default(), filled());
    let journal = Journal::start(disk.store(&mut empty())).expect("a thread");
    journal.hand_in(broker.take_changes());
    assert_eq!(journal.written(journal.ticket()).await, Ok(()));
    let before = content(&broker);
    disk.set_full(true);
    publish(&mut broker, 1);
    journal.hand_in(broker.take_changes());
    assert!(journal.written(journal.ticket()).await.is_err());
    journal.close();
    disk.set_full(false);
    let mut again = empty();
    drop(disk.store(&mut again));
    assert_eq!(content(&again), before, "what nobody was told is not there");
}
