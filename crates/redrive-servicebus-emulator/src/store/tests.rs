//! What is written can be read back, from a file that survives a crash.

use bytes::Bytes;
use std::time::Duration;

use super::disk::Disk;
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
    let (mut store, unknown) = Store::open(&path, &mut empty()).expect("a file that can be begun");
    assert_eq!(unknown, []);
    store.write(&broker.take_changes()).expect("a file that can be written");
    drop(store);
    let mut again = empty();
    drop(Store::open(&path, &mut again).expect("a file that can be read"));
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
    let (mut store, _) = Store::open(&path, &mut empty()).expect("a file that can be begun");
    store.write(&broker.take_changes()).expect("a file that can be written");
    drop(store);
    let mut other =
        Broker::new(&Namespace::default().queue("new", Settings::default()), 1).expect("a namespace");
    let (store, mut unknown) = Store::open(&path, &mut other).expect("a file that can be read");
    unknown.sort();
    assert_eq!(unknown[0], ("q".to_owned(), 3));
    drop(store);
    let mut again = empty();
    drop(Store::open(&path, &mut again).expect("a file that can be read"));
    assert_eq!(again.snapshot(), broker.snapshot());
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

/// Returns a state file of many pages, closed in order or as a killed process leaves it, and its content.
fn written(killed: bool) -> (Vec<u8>, Vec<Change>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let mut broker = filled();
    let (mut store, _) = Store::open(&path, &mut empty()).expect("a file that can be begun");
    store.write(&broker.take_changes()).expect("a file that can be written");
    let q = broker.find("q").expect("a queue");
    for batch in 0..30 {
        for nth in 0..10 {
            let sent = broker.send(q, vec![message(&format!("{batch}-{nth}")).into()], Timestamp::EPOCH);
            sent.expect("room");
        }
        store.write(&broker.take_changes()).expect("a file that can be written");
    }
    let killed = killed.then(|| std::fs::read(&path).expect("a file"));
    drop(store);
    (killed.unwrap_or_else(|| std::fs::read(&path).expect("a file")), broker.snapshot())
}

/// Returns what an emulator reads from a file of these bytes.
fn found(bytes: &[u8]) -> Result<Vec<Change>, StoreError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    std::fs::write(&path, bytes).expect("a file");
    let mut broker = empty();
    Store::open(&path, &mut broker).map(|_| broker.snapshot())
}

#[test]
fn a_file_that_was_cut_is_refused() {
    for killed in [false, true] {
        let (bytes, whole) = written(killed);
        assert_eq!(found(&bytes).expect("a whole file"), whole);
        for length in [1, 100, 4095, 4096, 4097, 8192, 20_000, bytes.len() / 2, bytes.len() - 1] {
            let error = found(&bytes[..length]).expect_err("a cut file");
            assert!(error.to_string().contains("state"), "{error}");
        }
    }
}

#[test]
fn flipped_bytes_are_refused_or_change_nothing() {
    let mut refused = 0;
    for killed in [false, true] {
        let (bytes, whole) = written(killed);
        let mut next = 7_u64;
        for _ in 0..100 {
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
    }
    assert!(refused > 20, "only {refused} of 200 files were found to be damaged");
}

#[test]
fn a_damaged_header_is_refused_or_changes_nothing() {
    let (bytes, whole) = written(false);
    for at in 0..64 {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        if let Ok(found) = found(&damaged) {
            assert!(found == whole, "byte {at}: something was lost without a word");
        }
    }
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
    assert_eq!(journal.written(journal.ticket(), 0).await, Ok(()));
    journal.abandon();
    let mut again = empty();
    drop(Store::open(&path, &mut again).expect("a file that can be read"));
    assert_eq!(again.snapshot(), broker.snapshot());
}

#[tokio::test]
async fn who_waits_for_what_will_not_be_written_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, _) =
        Store::open(&folder.path().join("state"), &mut empty()).expect("a file that can be begun");
    let journal = Journal::start(store).expect("a thread");
    journal.abandon();
    journal.hand_in(filled().take_changes());
    assert!(journal.written(journal.ticket(), 0).await.is_err());
}

#[tokio::test]
async fn what_a_full_disk_does_not_take_is_told_and_written_once_there_is_room() {
    let (disk, mut broker) = (Disk::default(), filled());
    let journal = Journal::start(disk.store(&mut empty())).expect("a thread");
    journal.hand_in(broker.take_changes());
    assert_eq!(journal.written(journal.ticket(), 0).await, Ok(()));
    assert_eq!((journal.failing(), journal.outages()), (None, 0));
    disk.set_full(true);
    let q = broker.find("q").expect("a queue");
    for text in ["one", "two"] {
        broker.send(q, vec![message(text).into()], Timestamp::EPOCH).expect("room");
        journal.hand_in(broker.take_changes());
        let told = journal.written(journal.ticket(), 0).await.expect_err("there is no room");
        assert!(told.contains("disk"), "{told}");
    }
    assert!(journal.failing().is_some());
    assert_eq!(journal.outages(), 1);
    assert_eq!(journal.written(journal.ticket(), 1).await, Ok(()), "who came later waits for nothing");
    disk.set_full(false);
    journal.recovered().await;
    assert_eq!(journal.failing(), None);
    assert_eq!(journal.written(journal.ticket(), 0).await, Ok(()));
    journal.close();
    let mut again = empty();
    drop(disk.store(&mut again));
    assert_eq!(again.snapshot(), broker.snapshot());
}

#[tokio::test]
async fn a_journal_that_is_closed_on_a_full_disk_ends() {
    let (disk, mut broker) = (Disk::default(), filled());
    let journal = Journal::start(disk.store(&mut empty())).expect("a thread");
    disk.set_full(true);
    journal.hand_in(broker.take_changes());
    assert!(journal.written(journal.ticket(), 0).await.is_err());
    journal.close();
    assert!(journal.failing().is_some());
    disk.set_full(false);
    let mut again = empty();
    drop(disk.store(&mut again));
    assert_eq!(again.snapshot(), empty().snapshot());
}
