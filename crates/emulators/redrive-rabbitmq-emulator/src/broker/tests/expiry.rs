use redrive_amqp091::{basic, queue};
use serde_json::json;

use super::*;

#[test]
fn a_message_expires_at_the_head_only() {
    for (version, kind) in combinations() {
        let (mut world, who) = dead_lettering(version, kind);
        world.publish_with(who, "", "work", "slow", expiring("3000"));
        world.publish_with(who, "", "work", "fast", expiring("200"));
        world.advance(2999);
        assert_eq!(world.ready("work"), 2);
        world.advance(1);
        assert_eq!(world.drain(who, "dead"), ["slow", "fast"]);
    }
}

#[test]
fn priorities_are_lanes_of_their_own() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.declare(who, "work", dead_to(QueueKind::Quorum, "dead"));
    world.declare(who, "dead", of(QueueKind::Classic));
    let with_priority = |priority, millis| Properties { priority: Some(priority), ..expiring(millis) };
    world.publish_with(who, "", "work", "slow", with_priority(1, "3000"));
    world.publish_with(who, "", "work", "fast", with_priority(9, "200"));
    world.advance(200);
    assert_eq!(world.drain(who, "dead"), ["fast"]);
}

#[test]
fn the_lower_time_to_live_holds() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "work", of(kind).with("x-message-ttl", 1000_i32));
        world.publish_with(who, "", "work", "x", expiring("200"));
        world.advance(200);
        assert_eq!(world.ready("work"), 0);
        world.policy("p", "work", 0, json!({"message-ttl": 300}));
        world.publish(who, "work", "y");
        world.advance(300);
        assert_eq!(world.ready("work"), 0);
    }
}

#[test]
fn a_policy_does_not_shorten_the_life_of_what_is_there() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "work", of(kind));
        world.publish(who, "work", "old");
        world.policy("p", "work", 0, json!({"message-ttl": 100}));
        world.advance(10_000);
        assert_eq!(world.ready("work"), 1);
    }
}

#[test]
fn a_time_to_live_of_zero_reaches_a_waiting_consumer_only() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "work", of(kind).with("x-message-ttl", 0_i32));
        world.publish(who, "work", "nobody");
        assert_eq!(world.ready("work"), 0);
        world.consume(who, "work", "c");
        world.publish(who, "work", "somebody");
        assert_eq!(world.bodies(who), ["somebody"]);
    }
}

#[test]
fn an_expired_message_is_not_delivered_even_late() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "work", of(kind));
        world.publish_with(who, "", "work", "kept", expiring("5000"));
        world.publish_with(who, "", "work", "gone", expiring("100"));
        world.publish_with(who, "", "work", "last", Properties::default());
        world.advance(1000);
        assert_eq!(world.drain(who, "work"), ["kept", "last"]);
    }
}

#[test]
fn what_is_too_old_and_one_too_many_dies_of_its_age_in_a_quorum_queue() {
    for version in BOTH {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "dead", of(QueueKind::Quorum));
        world.declare(
            who,
            "work",
            dead_to(QueueKind::Quorum, "dead").with("x-max-length", 1_i32).with("x-delivery-limit", 5_i32),
        );
        world.publish_with(who, "", "work", "old", expiring("1000"));
        let got = world.get(who, "work").expect("a message");
        world.publish(who, "work", "new");
        world.advance(5000);
        world.nack(who, got.tag, true);
        let dead = world.take(who, "dead").expect("a dead letter");
        assert_eq!(dead.deaths(), [death("work", "expired", 1)], "{version:?}");
        assert_eq!(world.ready("work"), 1);
        world.publish_with(who, "", "work", "now", expiring("0"));
        assert_eq!(world.take(who, "dead").expect("a dead letter").deaths(), [death("work", "maxlen", 1)]);
    }
}

#[test]
fn get_counts_what_came_to_the_head_too_late_only_for_a_message_that_is_to_be_settled() {
    for (version, kind) in combinations() {
        for (no_ack, left) in [(false, if kind == QueueKind::Quorum { 2 } else { 1 }), (true, 1)] {
            let mut world = World::new(version);
            let who = world.client();
            world.declare(who, "work", of(kind));
            world.publish(who, "work", "first");
            world.publish_with(who, "", "work", "old", expiring("100"));
            world.publish(who, "work", "last");
            world.advance(1000);
            world.heard(who);
            world.send(who, 1, basic::Get { queue: short("work"), no_ack, ..Default::default() });
            let counted = world.heard(who).into_iter().find_map(|heard| match heard {
                Heard::Message(_, Method::Basic(Basic::GetOk(ok)), _) => Some(ok.message_count),
                _ => None,
            });
            assert_eq!(counted, Some(left), "{version:?} {kind:?} {no_ack}");
        }
    }
}

#[test]
fn a_message_that_is_given_back_keeps_its_deadline() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "work", of(kind));
        world.publish_with(who, "", "work", "x", expiring("1000"));
        let got = world.get(who, "work").expect("a message");
        world.advance(5000);
        world.nack(who, got.tag, true);
        assert_eq!(world.ready("work"), 0);
    }
}

#[test]
fn wrong_times_are_refused() {
    for version in BOTH {
        for (expiration, accepted) in [
            ("0", true),
            ("315360000000", true),
            ("315360000001", false),
            ("-1", false),
            ("abc", false),
            ("1.5", false),
            ("", false),
        ] {
            let mut world = World::new(version);
            let who = world.client();
            world.declare(who, "work", of(QueueKind::Classic));
            world.publish_with(who, "", "work", "x", expiring(expiration));
            let code = world.closed(who).map(|(code, _)| code);
            assert_eq!(code, (!accepted).then_some(406), "{expiration:?}");
        }
        for (argument, value, accepted) in [
            ("x-message-ttl", 0_i64, true),
            ("x-message-ttl", -1, false),
            ("x-message-ttl", 315_360_000_001, false),
            ("x-expires", 0, false),
            ("x-expires", 1, true),
        ] {
            let mut world = World::new(version);
            let who = world.client();
            world.send(who, 1, declaration("q", of(QueueKind::Quorum).with(argument, value)));
            let code = world.closed(who).map(|(code, _)| code);
            assert_eq!(code, (!accepted).then_some(406), "{argument} {value}");
        }
    }
}

#[test]
fn an_unused_queue_is_deleted_with_its_messages() {
    for version in BOTH {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "work", of(QueueKind::Classic).with("x-expires", 2000_i32));
        world.publish(who, "work", "x");
        world.advance(1999);
        assert!(world.queue("work").is_some(), "publishing renews nothing");
        world.advance(1);
        assert_eq!(world.queue("work"), None);
    }
}

#[test]
fn a_quorum_queue_looks_at_the_clock_every_five_seconds() {
    for version in BOTH {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "work", of(QueueKind::Quorum).with("x-expires", 2000_i32));
        world.advance(4999);
        assert!(world.queue("work").is_some());
        world.advance(1);
        assert_eq!(world.queue("work"), None);
    }
}

#[test]
fn what_renews_an_unused_queue() {
    for (version, kind) in combinations() {
        let classic = kind == QueueKind::Classic;
        for (what, renews) in [("declare", classic), ("passive", classic), ("get", true), ("publish", false)]
        {
            let mut world = World::new(version);
            let who = world.client();
            let arguments = || of(kind).with("x-expires", 6000_i32);
            world.declare(who, "work", arguments());
            world.advance(5000);
            match what {
                "declare" => world.declare(who, "work", arguments()),
                "passive" => {
                    let declare = queue::Declare { passive: true, ..declaration("work", Table::new()) };
                    world.send(who, 1, declare);
                }
                "get" => drop(world.get(who, "work")),
                _ => world.publish(who, "work", "x"),
            }
            // Classic queues end 6 s after their last use, quorum queues with the tick after that.
            world.advance(if classic { 5000 } else { 6000 });
            assert_eq!(world.queue("work").is_some(), renews, "{version} {kind:?} {what}");
        }
    }
}

#[test]
fn a_consumer_keeps_a_queue_alive() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "work", of(kind).with("x-expires", 1000_i32));
        world.consume(who, "work", "c");
        world.advance(60_000);
        assert!(world.queue("work").is_some());
        world.send(who, 1, basic::Cancel { consumer_tag: short("c"), no_wait: false });
        world.advance(10_000);
        assert_eq!(world.queue("work"), None);
    }
}

#[test]
fn one_large_step_does_what_many_small_ones_do() {
    for (version, kind) in combinations() {
        let run = |steps: u64| {
            let mut world = World::new(version);
            let who = world.client();
            let ladder = |to: &str, ttl: i32| dead_to(kind, to).with("x-message-ttl", ttl);
            world.declare(who, "a", ladder("b", 700));
            world.declare(who, "b", ladder("c", 1100));
            world.declare(who, "c", of(kind));
            for number in 0..5 {
                world.publish(who, "a", &format!("m{number}"));
                world.advance(10);
            }
            for _ in 0..steps {
                world.advance(6000 / steps);
            }
            let mut all = Vec::new();
            while let Some(got) = world.take(who, "c") {
                all.push((got.body.clone(), got.headers()));
            }
            all
        };
        assert_eq!(run(1), run(600));
        assert_eq!(run(1).len(), 5);
    }
}
