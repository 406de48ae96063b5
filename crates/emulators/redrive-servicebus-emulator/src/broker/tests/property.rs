//! Any operations in any order lose no message and duplicate none, and a restart changes nothing but locks.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Queues that forward to each other, with every feature that moves messages by itself.
const QUEUES: [&str; 5] = ["plain", "strict", "onward", "sessions", "unique"];

fn namespace() -> Namespace {
    let lock_duration = seconds(30);
    let strict = Settings {
        lock_duration,
        max_delivery_count: 2,
        default_time_to_live: Some(seconds(90)),
        dead_letter_on_expiration: true,
        forward_dead_lettered_messages_to: Some("plain".into()),
        ..Settings::default()
    };
    let small = Settings { lock_duration, max_size: 2500, ..Settings::default() };
    let sessions =
        Settings { lock_duration, requires_session: true, max_delivery_count: 2, ..Settings::default() };
    let unique = Settings { lock_duration, duplicate_detection: Some(seconds(60)), ..Settings::default() };
    Namespace::default()
        .queue("plain", small)
        .queue("strict", strict)
        .queue("onward", Settings { forward_to: Some("plain".into()), ..Settings::default() })
        .queue("sessions", sessions)
        .queue("unique", unique)
}

#[derive(Debug, Clone)]
enum Step {
    Send {
        to: usize,
        session: u8,
        ttl: Option<u8>,
        later: Option<u8>,
        id: Option<u8>,
    },
    Receive {
        from: usize,
        dead_letters: bool,
        receiver: u64,
        delete: bool,
        max: usize,
    },
    ReceiveDeferred {
        from: usize,
    },
    /// Settles one of those received before, whether its lock is valid or not.
    Settle {
        which: usize,
        how: u8,
    },
    Renew {
        which: usize,
    },
    Accept {
        session: Option<u8>,
        receiver: u64,
    },
    Leave {
        receiver: u64,
    },
    /// Cancels the first scheduled message.
    Cancel {
        at: usize,
    },
    /// Sends a message and settles one in one transaction.
    Transaction {
        to: usize,
        which: usize,
        commit: bool,
    },
    Pass {
        seconds: u8,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    let queue = 0..QUEUES.len();
    prop_oneof![
        4 => (queue.clone(), 0u8..3, prop::option::of(1u8..100), prop::option::of(1u8..100), prop::option::of(0u8..3))
            .prop_map(|(to, session, ttl, later, id)| Step::Send { to, session, ttl, later, id }),
        4 => (queue.clone(), any::<bool>(), 0u64..3, prop::bool::weighted(0.1), 1usize..4)
            .prop_map(|(from, dead_letters, receiver, delete, max)| {
                Step::Receive { from, dead_letters, receiver, delete, max }
            }),
        1 => queue.clone().prop_map(|from| Step::ReceiveDeferred { from }),
        5 => (any::<usize>(), 0u8..5).prop_map(|(which, how)| Step::Settle { which, how }),
        1 => any::<usize>().prop_map(|which| Step::Renew { which }),
        2 => (prop::option::of(0u8..3), 0u64..3).prop_map(|(session, receiver)| Step::Accept { session, receiver }),
        1 => (0u64..3).prop_map(|receiver| Step::Leave { receiver }),
        1 => queue.clone().prop_map(|at| Step::Cancel { at }),
        2 => (queue, any::<usize>(), any::<bool>())
            .prop_map(|(to, which, commit)| Step::Transaction { to, which, commit }),
        3 => (1u8..60).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

/// A broker, and what is known about it from outside.
struct Walk {
    bench: Bench,
    received: Vec<Delivered>,
    taken: u64,
}

impl Walk {
    fn new() -> Self {
        let mut bench = Bench::new(&namespace());
        bench.broker.keep_changes();
        Self { bench, received: Vec::new(), taken: 0 }
    }

    fn go(&mut self, step: &Step) {
        let now = self.bench.now;
        match *step {
            Step::Send { to, session, ttl, later, id } => {
                let message = self.message(session, ttl, later, id);
                if self.bench.try_send(QUEUES[to], message).is_ok() {
                    self.taken += 1;
                }
            }
            Step::Receive { from, dead_letters, receiver, delete, max } => {
                let suffix = if dead_letters { "/$deadletterqueue" } else { "" };
                let from = self.bench.id(&format!("{}{suffix}", QUEUES[from]));
                let mode = if delete { ReceiveMode::ReceiveAndDelete } else { ReceiveMode::PeekLock };
                let received = self.bench.broker.receive(from, ReceiverId(receiver), mode, max, now);
                self.remember(received.unwrap_or_default());
            }
            Step::ReceiveDeferred { from } => {
                let from = self.bench.id(QUEUES[from]);
                let deferred = self.bench.broker.messages(from).find(|found| found.place == Place::Deferred);
                if let Some(deferred) = deferred {
                    let session = deferred.message.properties.group_id.clone();
                    let numbers = [deferred.sequence_number];
                    let mode = ReceiveMode::PeekLock;
                    let broker = &mut self.bench.broker;
                    let received = broker.receive_deferred(from, &numbers, mode, session.as_deref(), now);
                    self.remember(received.unwrap_or_default());
                }
            }
            Step::Settle { which, how } => {
                if let Some(delivered) = self.pick(which) {
                    let settlement = match how {
                        0 => Settlement::Complete,
                        1 => abandon(),
                        2 => Settlement::Release,
                        3 => defer(),
                        _ => dead_letter("bad", ""),
                    };
                    let _ = self.bench.settle(&delivered, &settlement);
                }
            }
            Step::Renew { which } => {
                if let Some(Delivered { entity, lock_token: Some(token), .. }) = self.pick(which) {
                    let _ = self.bench.broker.renew(entity, &[token], now);
                }
            }
            Step::Accept { session, receiver } => {
                let at = self.bench.id("sessions");
                let session = session.map(|session| session.to_string());
                let receiver = ReceiverId(receiver);
                if self.bench.broker.session_of(receiver).is_none() {
                    let _ = self.bench.broker.accept_session(at, session.as_deref(), receiver, now);
                }
            }
            Step::Leave { receiver } => self.bench.broker.release_receiver(ReceiverId(receiver), now),
            Step::Cancel { at } => {
                let at = self.bench.id(QUEUES[at]);
                let mut messages = self.bench.broker.messages(at);
                let first = messages.find(|found| matches!(found.place, Place::Scheduled(_)));
                let number = first.map(|first| first.sequence_number);
                drop(messages);
                if let Some(number) = number {
                    let _ = self.bench.broker.cancel(at, &[number], now);
                }
            }
            Step::Transaction { to, which, commit } => self.transaction(to, which, commit),
            Step::Pass { seconds: time } => self.bench.pass(seconds(time.into())),
        }
    }

    fn transaction(&mut self, to: usize, which: usize, commit: bool) {
        let now = self.bench.now;
        let message = self.message(0, None, None, None);
        let to = self.bench.id(QUEUES[to]);
        let Ok(id) = self.bench.broker.declare(ConnectionId(1), now) else { return };
        let sent =
            self.bench.broker.enlist(id, Operation::Send { to, messages: vec![message.into()] }, now).is_ok();
        if let Some(Delivered { entity, lock_token: Some(token), .. }) = self.pick(which) {
            let (tokens, settlement) = (vec![token], Settlement::Complete);
            let _ = self.bench.broker.enlist(id, Operation::Settle { at: entity, tokens, settlement }, now);
        }
        if !commit {
            let _ = self.bench.broker.roll_back(id, now);
        } else if self.bench.broker.commit(id, now).is_ok() && sent {
            self.taken += 1;
        }
    }

    fn message(&self, session: u8, ttl: Option<u8>, later: Option<u8>, id: Option<u8>) -> Message {
        let mut message = Message::with_data(vec![0; 300]);
        if let Some(id) = id {
            message.properties.message_id = id.to_string().into();
        }
        message.properties.group_id = Some(session.to_string());
        message.header.ttl = ttl.map(|ttl| u32::from(ttl) * 1000);
        if let Some(later) = later {
            let at = self.bench.now + seconds(later.into());
            message
                .message_annotations
                .insert_symbol("x-opt-scheduled-enqueue-time", Value::Timestamp(at.millis()));
        }
        message
    }

    fn remember(&mut self, delivered: Vec<Delivered>) {
        self.received.extend(delivered.into_iter().filter(|delivered| delivered.lock_token.is_some()));
    }

    fn pick(&self, which: usize) -> Option<Delivered> {
        let nth = which.checked_rem(self.received.len())?;
        self.received.get(nth).cloned()
    }

    /// Checks that every accepted message is in exactly one place, or left in exactly one way.
    fn check_nothing_is_lost(&self) {
        let broker = &self.bench.broker;
        let (mut there, mut gone) = (0, 0);
        for entity in broker.entities() {
            there += broker.messages(entity).count() as u64;
            let tally = broker.tally(entity);
            gone += tally.completed + tally.expired + tally.duplicates + tally.cancelled;
        }
        assert_eq!(there + gone, self.taken, "taken, and not found again");
    }

    /// Checks that every index agrees with the messages.
    fn check_indexes(&self) {
        let broker = &self.bench.broker;
        let mut used: BTreeMap<EntityId, u64> = BTreeMap::new();
        for id in broker.entities() {
            let entity = broker.entity(id);
            let (mut ready, mut locked) = (0, 0);
            for (number, stored) in &entity.messages {
                *used.entry(entity.account).or_default() += stored.size;
                let is_ready = stored.meta.place == Place::Active && stored.lock.is_none();
                match &stored.session {
                    None => assert_eq!(entity.ready.contains(number), is_ready),
                    Some(session) => {
                        let session = entity.sessions.session(session).expect("a session with a message");
                        assert!(session.messages.contains(number));
                        assert_eq!(session.ready.contains(number), is_ready);
                        assert_eq!(session.locked.contains(number), stored.lock.is_some());
                        assert!(stored.lock.is_none() || session.lock.is_some(), "held without its session");
                    }
                }
                ready += usize::from(is_ready && stored.session.is_none());
                if let Some(lock) = stored.lock {
                    locked += 1;
                    assert_eq!(entity.locks.get(&lock.token), Some(number));
                }
            }
            assert_eq!((entity.ready.len(), entity.locks.len()), (ready, locked));
        }
        for id in broker.entities() {
            assert_eq!(
                broker.effects.used[id.index()],
                used.get(&id).copied().unwrap_or(0),
                "bytes of a quota"
            );
        }
        assert!(
            broker.next_deadline().is_none_or(|deadline| deadline > self.bench.now),
            "a deadline that passed"
        );
    }

    /// Creates the broker that these changes restore.
    fn restarted(&self, changes: &[Change]) -> Broker {
        let mut broker = Broker::new(&namespace(), 99).expect("a namespace that can be");
        for change in changes {
            broker.restore(change.clone());
        }
        broker
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_message_is_in_one_place_whatever_is_done(steps in prop::collection::vec(any_step(), 1..80)) {
        let mut walk = Walk::new();
        for step in &steps {
            walk.go(step);
            walk.check_nothing_is_lost();
            walk.check_indexes();
        }
    }

    #[test]
    fn a_restart_at_any_moment_changes_nothing_but_locks(steps in prop::collection::vec(any_step(), 1..80)) {
        let mut walk = Walk::new();
        let mut changes = Vec::new();
        for step in &steps {
            walk.go(step);
            changes.extend(walk.bench.broker.take_changes());
        }
        let restarted = walk.restarted(&changes);
        prop_assert_eq!(restarted.snapshot(), walk.bench.broker.snapshot());
        for entity in restarted.entities() {
            prop_assert_eq!(restarted.counts(entity).locked, 0);
            prop_assert_eq!(restarted.used_bytes(entity), walk.bench.broker.used_bytes(entity));
        }
        // A snapshot restores to the same state.
        let again = walk.restarted(&restarted.snapshot());
        prop_assert_eq!(again.snapshot(), restarted.snapshot());
    }
}
