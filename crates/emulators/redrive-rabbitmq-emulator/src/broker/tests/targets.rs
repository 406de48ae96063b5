//! Where dead letters go: cycles, missing and full targets, routes.

use redrive_amqp091::{Table, Value, queue};

use super::dead_letter::rejected;
use super::*;

#[test]
fn a_cycle_without_a_rejection_is_dropped() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        let times = |target: &str| dead_to(kind, target).with("x-message-ttl", 100_i32);
        world.declare(who, "work", times("delay"));
        world.declare(who, "delay", times("work"));
        world.declare(who, "itself", times("itself"));
        world.publish(who, "work", "x");
        world.publish(who, "itself", "y");
        world.advance(100);
        assert_eq!(world.dropped(), [("itself".to_owned(), DropReason::Cycle)]);
        world.advance(100);
        assert_eq!(world.dropped(), [("delay".to_owned(), DropReason::Cycle)]);
        assert_eq!((world.ready("work"), world.ready("delay"), world.ready("itself")), (0, 0, 0));
    }
}

#[test]
fn what_would_go_round_for_ever_is_dropped() {
    for kind in [QueueKind::Classic, QueueKind::Quorum] {
        // On 3.10 a rejection that the publisher forged stays between the deaths in the two queues, and hides the cycle.
        let mut world = World::new(Version::V3_10);
        let who = world.client();
        let full = |target: &str| dead_to(kind, target).with("x-max-length", 0_i32);
        world.declare(who, "one", full("other"));
        world.declare(who, "other", full("one"));
        let entry = Table::new().with("count", 1_i64).with("reason", "rejected").with("queue", "elsewhere");
        let forged = with_headers(Table::new().with("x-death", vec![Value::Table(entry)]));
        world.publish_with(who, "", "one", "x", forged);
        let dropped: Vec<_> = world.dropped().into_iter().map(|(_, reason)| reason).collect();
        assert_eq!(dropped, [DropReason::Endless], "{kind:?}");
    }
}

/// A quorum queue that keeps its dead letters until they arrived there.
fn kept_until_in(target: &str) -> Table {
    let arguments = dead_to(QueueKind::Quorum, target);
    arguments.with("x-dead-letter-strategy", "at-least-once").with("x-overflow", "reject-publish")
}

#[test]
fn at_least_once_keeps_what_only_a_cycle_would_take() {
    for version in BOTH {
        let mut world = World::new(version);
        let who = world.client();
        let arguments = kept_until_in("itself").with("x-message-ttl", 100_i32);
        world.declare(who, "itself", arguments);
        world.publish(who, "itself", "x");
        world.advance(1_000_000);
        assert_eq!(world.dropped(), []);
        assert_eq!((world.ready("itself"), world.counts("itself").dead_letters), (0, 1));
    }
}

#[test]
fn what_is_dying_counts_in_its_own_queue() {
    for version in BOTH {
        let mut world = World::new(version);
        let who = world.client();
        let arguments = kept_until_in("itself").with("x-max-length", 0_i32);
        world.declare(who, "itself", arguments);
        world.publish(who, "itself", "x");
        world.reject_next(who, "itself", false);
        assert_eq!((world.ready("itself"), world.counts("itself").dead_letters), (0, 1), "{version:?}");
    }
}

#[test]
fn a_delivery_limit_is_no_rejection_for_the_cycle() {
    for version in BOTH {
        let mut world = World::new(version);
        let who = world.client();
        let kind = QueueKind::Quorum;
        world.declare(who, "work", dead_to(kind, "delay").with("x-delivery-limit", 1_i32));
        world.declare(who, "delay", dead_to(kind, "work").with("x-message-ttl", 100_i32));
        world.publish(who, "work", "x");
        for _ in 0..2 {
            world.reject_next(who, "work", true);
        }
        assert_eq!(world.ready("delay"), 1);
        world.advance(100);
        assert_eq!(world.dropped(), [("delay".to_owned(), DropReason::Cycle)]);
    }
}

#[test]
fn a_dead_letter_without_a_target_is_dropped_with_an_event() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "no-dlx", of(kind));
        world.declare(who, "no-exchange", of(kind).with("x-dead-letter-exchange", "missing"));
        world.declare(who, "unroutable", of(kind).with("x-dead-letter-exchange", "amq.direct"));
        for (queue, reason) in [
            ("no-dlx", DropReason::Rejected),
            ("no-exchange", DropReason::NoDeadLetterExchange),
            ("unroutable", DropReason::DeadLetterUnroutable),
        ] {
            world.publish(who, queue, "x");
            let got = world.get(who, queue).expect("a message");
            world.reject(who, got.tag, false);
            assert_eq!(world.dropped(), [(queue.to_owned(), reason)]);
        }
    }
}

#[test]
fn at_least_once_keeps_a_dead_letter_until_it_arrives() {
    for version in BOTH {
        let mut world = World::new(version);
        let who = world.client();
        let arguments = kept_until_in("dead").with("x-message-ttl", 10_i32);
        world.declare(who, "work", arguments);
        world.publish(who, "work", "x");
        world.advance(10);
        assert_eq!((world.ready("work"), world.counts("work").dead_letters), (0, 1));
        world.declare(who, "dead", of(QueueKind::Quorum));
        world.advance(179_000);
        assert_eq!(world.ready("dead"), 0, "it is tried again after 180 s");
        world.advance(1_000);
        assert_eq!(world.take(who, "dead").expect("it arrived").deaths(), [death("work", "expired", 1)]);
        assert_eq!(world.counts("work").dead_letters, 0);
        assert_eq!(world.dropped(), []);
    }
}

#[test]
fn at_least_once_waits_for_a_full_target_too() {
    for version in BOTH {
        let mut world = World::new(version);
        let who = world.client();
        let arguments = kept_until_in("dead");
        world.declare(who, "work", arguments);
        world.declare(
            who,
            "dead",
            of(QueueKind::Classic).with("x-max-length", 1_i32).with("x-overflow", "reject-publish"),
        );
        for body in ["a", "b"] {
            world.publish(who, "work", body);
            world.nack_next(who, "work", false);
        }
        assert_eq!((world.ready("dead"), world.counts("work").dead_letters), (1, 1));
        world.take(who, "dead");
        world.advance(180_000);
        assert_eq!(world.take(who, "dead").expect("the second one").body, "b");
    }
}

#[test]
fn at_least_once_tries_again_only_where_it_was_refused() {
    for (version, unbound) in BOTH.into_iter().flat_map(|version| [(version, false), (version, true)]) {
        let mut world = World::new(version);
        let who = world.client();
        world.declare_exchange(who, "dlx", "fanout", Table::new());
        world.declare(who, "work", kept_until_in("").with("x-dead-letter-exchange", "dlx"));
        world.declare(who, "free", of(QueueKind::Classic));
        let limit = Table::new().with("x-max-length", 1_i32).with("x-overflow", "reject-publish");
        world.declare(who, "full", limit);
        for target in ["free", "full"] {
            world.bind(who, target, "dlx", "");
        }
        world.publish(who, "full", "filler");
        world.publish(who, "work", "x");
        world.reject_next(who, "work", false);
        assert_eq!((world.ready("free"), world.counts("work").dead_letters), (1, 1));
        world.take(who, "full");
        if unbound {
            let unbind = queue::Unbind { queue: short("full"), exchange: short("dlx"), ..Default::default() };
            world.send(who, 1, unbind);
        }
        world.advance(180_000);
        let counts = (world.ready("free"), world.ready("full"), world.counts("work").dead_letters);
        assert_eq!(counts, (1, usize::from(!unbound), 0));
    }
}

#[test]
fn dead_letters_that_do_not_arrive_hold_up_all_others() {
    for version in BOTH {
        let mut world = World::new(version);
        let who = world.client();
        world.declare_exchange(who, "dlx", "direct", Table::new());
        let arguments = of(QueueKind::Quorum).with("x-dead-letter-exchange", "dlx");
        let kept =
            arguments.with("x-dead-letter-strategy", "at-least-once").with("x-overflow", "reject-publish");
        world.declare(who, "work", kept);
        world.declare(who, "dead", Table::new());
        world.bind(who, "dead", "dlx", "bound");
        world.declare_exchange(who, "any", "fanout", Table::new());
        world.bind(who, "work", "any", "");
        let fail = |world: &mut World, key: &str| {
            world.publish_with(who, "any", key, "x", Properties::default());
            world.reject_next(who, "work", false);
        };
        (0..31).for_each(|_| fail(&mut world, "unbound"));
        fail(&mut world, "bound");
        assert_eq!(world.ready("dead"), 1);
        fail(&mut world, "unbound");
        fail(&mut world, "bound");
        assert_eq!((world.ready("dead"), world.counts("work").dead_letters), (1, 33));
        world.bind(who, "dead", "dlx", "unbound");
        world.advance(180_000);
        assert_eq!((world.ready("dead"), world.counts("work").dead_letters), (34, 0), "{version:?}");
    }
}

#[test]
fn a_dead_letter_to_its_own_queue_is_never_confirmed_on_3_10() {
    for (version, kept, arrived) in [(Version::V3_10, 34, 32), (Version::V4_3, 0, 34)] {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "itself", kept_until_in("itself"));
        for _ in 0..34 {
            world.publish(who, "itself", "x");
        }
        let tags: Vec<_> = (0..34).map(|_| world.get(who, "itself").expect("a message").tag).collect();
        for tag in tags {
            world.reject(who, tag, false);
        }
        world.advance(1_000_000);
        assert_eq!((world.counts("itself").dead_letters, world.ready("itself")), (kept, arrived));
        assert_eq!(world.dropped(), []);
    }
}

#[test]
fn what_its_own_queue_did_not_confirm_goes_where_the_route_leads_next() {
    let mut world = World::new(Version::V3_10);
    let who = world.client();
    let arguments = of(QueueKind::Quorum).with("x-dead-letter-exchange", "");
    let kept = arguments.with("x-dead-letter-strategy", "at-least-once").with("x-overflow", "reject-publish");
    world.declare(who, "work", kept);
    world.declare(who, "dead", Table::new());
    world.publish(who, "work", "x");
    world.reject_next(who, "work", false);
    assert_eq!((world.ready("work"), world.counts("work").dead_letters), (1, 1));
    world.policy("p", "work", 0, serde_json::json!({"dead-letter-routing-key": "dead"}));
    world.advance(180_000);
    let counts = (world.ready("work"), world.ready("dead"), world.counts("work").dead_letters);
    assert_eq!(counts, (1, 1, 0));
}

#[test]
fn with_drop_head_at_least_once_becomes_at_most_once() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.declare(
        who,
        "work",
        dead_to(QueueKind::Quorum, "dead").with("x-dead-letter-strategy", "at-least-once"),
    );
    world.publish(who, "work", "x");
    world.nack_next(who, "work", false);
    assert_eq!(world.dropped(), [("work".to_owned(), DropReason::DeadLetterUnroutable)]);
}

#[test]
fn a_purge_takes_waiting_dead_letters_on_4_3_only() {
    for version in BOTH {
        let mut world = World::new(version);
        let who = world.client();
        let arguments = kept_until_in("dead");
        world.declare(who, "work", arguments);
        world.publish(who, "work", "x");
        world.nack_next(who, "work", false);
        world.send(who, 1, queue::Purge { queue: short("work"), ..Default::default() });
        let purged = u32::from(version == Version::V4_3);
        assert_eq!(world.methods(who), [queue::PurgeOk { message_count: purged }.into()]);
    }
}

#[test]
fn cc_and_bcc_route_a_dead_letter_again() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare_exchange(who, "dlx", "direct", Table::new());
        world.declare(who, "work", of(kind).with("x-dead-letter-exchange", "dlx"));
        let key = |key: &str| Value::Array(vec![Value::from(key)]);
        for queue in ["cc1", "bcc1", "rk"] {
            world.declare(who, queue, of(kind));
        }
        for queue in ["cc1", "bcc1"] {
            world.bind(who, queue, "dlx", queue);
        }
        world.bind(who, "rk", "dlx", "work");
        let headers = Table::new().with("CC", key("cc1")).with("BCC", key("bcc1"));
        world.publish_with(who, "", "work", "x", with_headers(headers));
        for queue in ["cc1", "bcc1"] {
            let copy = world.take(who, queue).expect("a copy");
            assert_eq!(copy.headers().get("BCC"), None);
            assert_eq!(copy.headers().get("CC"), Some(&key("cc1")));
        }
        world.nack_next(who, "work", false);
        for queue in ["cc1", "bcc1", "rk"] {
            let dead = world.take(who, queue).expect("a dead letter");
            assert_eq!(dead.key, "work");
            let headers = dead.headers();
            let entry =
                headers.get("x-death").and_then(Value::as_array).unwrap()[0].as_table().cloned().unwrap();
            let keys = Value::Array(vec![Value::from("work"), Value::from("cc1")]);
            assert_eq!(entry.get("routing-keys"), Some(&keys), "without BCC");
        }
    }
}

#[test]
fn with_a_routing_key_of_its_own_cc_routes_no_dead_letter() {
    for (version, kind) in combinations() {
        let (mut world, who) = dead_lettering(version, kind);
        world.declare(who, "cc1", of(kind));
        let cc = Value::Array(vec![Value::from("cc1")]);
        let dead = rejected(&mut world, who, with_headers(Table::new().with("CC", cc.clone())));
        assert_eq!(world.ready("cc1"), 1, "only the publish");
        let kept = (version == Version::V4_3).then_some(&cc);
        assert_eq!(dead.headers().get("CC"), kept);
    }
}

#[test]
fn a_republished_death_can_be_a_cycle_on_3_10_only() {
    let forged = || {
        let entry = Table::new().with("count", 1_i64).with("reason", "expired").with("queue", "work");
        with_headers(Table::new().with("x-death", vec![Value::Table(entry)]))
    };
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "work", of(kind));
        world.declare(who, "delay", dead_to(kind, "work").with("x-message-ttl", 100_i32));
        world.publish_with(who, "", "delay", "x", forged());
        world.advance(100);
        assert_eq!(world.ready("work"), usize::from(version == Version::V4_3));
    }
}

#[test]
fn an_alternate_exchange_catches_dead_letters_without_a_route() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare_exchange(who, "rest", "fanout", Table::new());
        world.declare_exchange(who, "dlx", "direct", Table::new().with("alternate-exchange", "rest"));
        world.declare(who, "caught", of(kind));
        world.bind(who, "caught", "rest", "");
        world.declare(who, "work", of(kind).with("x-dead-letter-exchange", "dlx"));
        world.publish(who, "work", "x");
        world.nack_next(who, "work", false);
        assert_eq!(world.take(who, "caught").expect("it was caught").exchange, "dlx");
    }
}
