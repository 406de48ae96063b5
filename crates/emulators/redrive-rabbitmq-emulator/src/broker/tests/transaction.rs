use redrive_amqp091::{confirm, tx};

use super::*;
use crate::broker::connection::Settling;

fn transactional(version: Version, kind: QueueKind) -> (World, Who) {
    let (mut world, who) = dead_lettering(version, kind);
    world.send(who, 1, tx::Select {});
    assert_eq!(world.names(who), ["tx.SelectOk"]);
    (world, who)
}

#[test]
fn nothing_happens_before_the_commit() {
    for (version, kind) in combinations() {
        let (mut world, who) = transactional(version, kind);
        world.publish(who, "work", "x");
        assert_eq!(world.ready("work"), 0);
        world.send(who, 1, tx::Commit {});
        assert_eq!((world.names(who), world.ready("work")), (vec!["tx.CommitOk"], 1));
        let got = world.get(who, "work").expect("a message");
        world.ack(who, got.tag);
        assert_eq!(world.counts("work").unacked, 1);
        world.send(who, 1, tx::Commit {});
        assert_eq!(world.counts("work").unacked, 0);
    }
}

#[test]
fn a_rejection_that_is_rolled_back_never_happened() {
    for (version, kind) in combinations() {
        let (mut world, who) = transactional(version, kind);
        world.publish(who, "work", "x");
        world.send(who, 1, tx::Commit {});
        world.heard(who);
        let got = world.get(who, "work").expect("a message");
        world.reject(who, got.tag, false);
        world.publish(who, "work", "y");
        world.send(who, 1, tx::Rollback {});
        assert_eq!(world.names(who), ["tx.RollbackOk"]);
        assert_eq!((world.ready("dead"), world.ready("work"), world.counts("work").unacked), (0, 0, 1));
        world.reject(who, got.tag, false);
        world.send(who, 1, tx::Commit {});
        assert_eq!(world.ready("dead"), 1);
    }
}

#[test]
fn what_is_not_committed_comes_back_with_the_channel() {
    for (version, kind) in combinations() {
        let (mut world, who) = transactional(version, kind);
        world.publish(who, "work", "x");
        world.send(who, 1, tx::Commit {});
        world.heard(who);
        let got = world.get(who, "work").expect("a message");
        world.ack(who, got.tag);
        world.publish(who, "work", "y");
        world.cut(who);
        let who = world.client();
        assert_eq!(world.drain(who, "work"), ["x"]);
    }
}

#[test]
fn a_publish_that_is_refused_fails_the_commit_in_classic_queues() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "work", of(kind).with("x-max-length", 0_i32).with("x-overflow", "reject-publish"));
        world.send(who, 1, tx::Select {});
        world.publish(who, "work", "x");
        world.publish(who, "work", "y");
        world.heard(who);
        world.send(who, 1, tx::Commit {});
        let text = "PRECONDITION_FAILED - partial tx completion".to_owned();
        let closed = (kind == QueueKind::Classic).then_some((406, text));
        assert_eq!(world.closed(who), closed);
    }
}

#[test]
fn confirms_and_transactions_exclude_each_other() {
    let (mut world, who) = transactional(Version::V4_3, QueueKind::Classic);
    world.send(who, 1, confirm::Select::default());
    let text = "PRECONDITION_FAILED - cannot switch from tx to confirm mode";
    assert_eq!(world.closed(who), Some((406, text.to_owned())));
    let who = world.client();
    world.confirms(who);
    world.send(who, 1, tx::Select {});
    let text = "PRECONDITION_FAILED - cannot switch from confirm to tx mode";
    assert_eq!(world.closed(who), Some((406, text.to_owned())));
    let who = world.client();
    world.send(who, 1, tx::Commit {});
    let text = "PRECONDITION_FAILED - channel is not transactional";
    assert_eq!(world.closed(who), Some((406, text.to_owned())));
}

/// Two or three messages that a consumer has, by priority, on a channel with transactions.
fn held(version: Version, kind: QueueKind, priorities: &[u8]) -> (World, Who) {
    let mut world = World::new(version);
    let (who, other) = (world.client(), world.client());
    world.declare(who, "dead", of(QueueKind::Classic));
    let arguments = match kind {
        QueueKind::Classic => dead_to(kind, "dead").with("x-max-priority", 5_i32),
        QueueKind::Quorum => dead_to(kind, "dead"),
    };
    world.declare(who, "work", arguments);
    let prefetch = priorities.len();
    world.prefetch(who, u16::try_from(prefetch).expect("few"));
    world.consume(who, "work", "consumer");
    for (body, priority) in (1..).zip(priorities) {
        let properties = Properties { priority: Some(*priority), ..Properties::default() };
        world.publish_with(other, "", "work", &format!("{body}"), properties);
    }
    assert_eq!(world.bodies(who).len(), prefetch);
    world.send(who, 1, tx::Select {});
    world.heard(who);
    (world, who)
}

/// What a commit hands to a queue together, it settles in the order of delivery.
#[test]
fn settlements_of_one_kind_that_follow_each_other_are_one() {
    use Settling::{Nack, Reject};
    let (nack, reject) = (|requeue| Nack { requeue }, |requeue| Reject { requeue });
    for (version, kind) in combinations() {
        for (steps, together) in [
            ([nack(true), nack(true)], true),
            ([reject(false), reject(false)], true),
            ([nack(true), reject(true)], version.is_3_10()),
            ([nack(false), reject(false)], version.is_3_10()),
        ] {
            let (mut world, who) = held(version, kind, &[0, 0]);
            for (how, delivery_tag) in steps.into_iter().zip([2, 1]) {
                match how {
                    Nack { requeue } => {
                        world.send(who, 1, basic::Nack { delivery_tag, multiple: false, requeue });
                    }
                    _ => world.reject(who, delivery_tag, how == reject(true)),
                }
            }
            world.send(who, 1, tx::Commit {});
            let order = match steps[0] {
                Nack { requeue: true } => world.bodies(who).concat(),
                _ => world.drain(who, "dead").concat(),
            };
            assert_eq!(order, if together { "12" } else { "21" }, "{version:?} {kind:?} {steps:?}");
        }
        let (mut world, who) = held(version, kind, &[0, 0, 0]);
        world.reject(who, 2, false);
        world.ack(who, 3);
        world.reject(who, 1, false);
        world.send(who, 1, tx::Commit {});
        assert_eq!(world.drain(who, "dead"), ["2", "1"], "an acknowledgement is between them");
    }
    for version in BOTH {
        let (mut world, who) = held(version, QueueKind::Classic, &[0, 5]);
        world.reject(who, 1, false);
        world.reject(who, 2, false);
        world.send(who, 1, tx::Commit {});
        assert_eq!(world.drain(who, "dead"), ["2", "1"], "by priority, as all that a consumer had");
    }
}

#[test]
fn a_queue_looks_for_consumers_after_each_publish_of_a_commit() {
    for version in BOTH {
        let mut world = World::new(version);
        let (who, publisher) = (world.client(), world.client());
        world.declare(who, "work", of(QueueKind::Classic).with("x-max-priority", 5_i32));
        world.prefetch(who, 1);
        world.consume(who, "work", "consumer");
        world.heard(who);
        world.send(publisher, 1, tx::Select {});
        for priority in [0, 5] {
            let properties = Properties { priority: Some(priority), ..Properties::default() };
            world.publish_with(publisher, "", "work", &priority.to_string(), properties);
        }
        world.send(publisher, 1, tx::Commit {});
        assert_eq!(world.bodies(who), ["0"], "{version:?}");
    }
}

#[test]
fn a_queue_looks_for_consumers_after_each_settlement_of_a_commit() {
    for version in BOTH {
        let mut world = World::new(version);
        let (who, other) = (world.client(), world.client());
        world.declare(who, "work", of(QueueKind::Classic).with("x-max-priority", 5_i32));
        world.prefetch(who, 2);
        world.consume(who, "work", "consumer");
        for (body, priority) in [("first", 0), ("urgent", 4), ("waits", 0), ("waits longer", 0)] {
            let priority = Some(priority);
            world.publish_with(other, "", "work", body, Properties { priority, ..Properties::default() });
        }
        assert_eq!(world.bodies(who), ["first", "urgent"]);
        world.send(who, 1, tx::Select {});
        world.heard(who);
        world.ack(who, 1);
        world.reject(who, 2, true);
        world.send(who, 1, tx::Commit {});
        assert_eq!(world.bodies(who), ["waits", "urgent"], "{version:?}: there was room before it came back");
    }
}
