use redrive_amqp091::basic;

use super::*;

/// Publishes with confirms, and returns which were accepted.
fn confirmed(world: &mut World, who: Who, bodies: &[&str]) -> Vec<bool> {
    bodies
        .iter()
        .map(|body| {
            world.publish(who, "work", body);
            match &world.methods(who)[..] {
                [Method::Basic(Basic::Ack(_))] => true,
                [Method::Basic(Basic::Nack(_))] => false,
                other => panic!("{other:?}"),
            }
        })
        .collect()
}

fn world(version: Version, kind: QueueKind, arguments: Table) -> (World, Who) {
    let mut world = World::new(version);
    let who = world.client();
    world.confirms(who);
    let mut all = dead_to(kind, "dead");
    for (key, value) in arguments {
        all.insert(key, value);
    }
    world.declare(who, "work", all);
    world.declare(who, "dead", of(kind));
    (world, who)
}

#[test]
fn a_full_queue_drops_its_head() {
    for (version, kind) in combinations() {
        let (mut world, who) = world(version, kind, Table::new().with("x-max-length", 2_i32));
        assert_eq!(confirmed(&mut world, who, &["a", "b", "c", "d"]), [true; 4]);
        let first = world.take(who, "dead").expect("a dead letter");
        assert_eq!((first.body.as_str(), first.deaths()), ("a", vec![death("work", "maxlen", 1)]));
        assert_eq!(world.drain(who, "dead"), ["b"]);
        assert_eq!(world.drain(who, "work"), ["c", "d"]);
    }
}

#[test]
fn what_one_publish_drops_dies_from_the_last_on_quorum_queues_of_3_10() {
    for (version, kind) in combinations() {
        let (mut world, who) = world(version, kind, Table::new().with("x-max-length-bytes", 10));
        confirmed(&mut world, who, &["1a", "2b", "3c", "0123456789x"]);
        let mut expected = ["1a", "2b", "3c", "0123456789x"];
        if (version, kind) == (Version::V3_10, QueueKind::Quorum) {
            expected.reverse();
        }
        assert_eq!(world.drain(who, "dead"), expected, "{version:?} {kind:?}");
    }
}

#[test]
fn what_one_close_drops_dies_from_the_last_on_quorum_queues_of_3_10() {
    for (version, kind) in combinations() {
        let (mut world, who) = world(version, kind, Table::new().with("x-max-length", 1_i32));
        let other = world.client();
        world.consume(other, "work", "c");
        confirmed(&mut world, who, &["a", "b", "c", "d"]);
        world.send(other, 1, redrive_amqp091::channel::Close::default());
        let last_first = (version, kind) == (Version::V3_10, QueueKind::Quorum);
        let expected = if last_first { ["c", "b", "a"] } else { ["a", "b", "c"] };
        assert_eq!(world.drain(who, "dead"), expected, "{version:?} {kind:?}");
    }
}

#[test]
fn bytes_are_limited_too() {
    for (version, kind) in combinations() {
        // Quorum queues of 4.3 count the properties too: here two bytes.
        let own = if (version, kind) == (Version::V4_3, QueueKind::Quorum) { 2 } else { 0 };
        let (mut world, who) = world(version, kind, Table::new().with("x-max-length-bytes", 10 + 2 * own));
        confirmed(&mut world, who, &["aaaa", "bbbb", "cccc"]);
        assert_eq!(world.drain(who, "dead"), ["aaaa"]);
        assert_eq!(world.counts("work").ready_bytes, 8 + 2 * own as u64);
    }
}

#[test]
fn a_full_queue_refuses_publishes() {
    for version in BOTH {
        for (kind, expected) in [
            (QueueKind::Classic, [true, false, false, false]),
            // The limit is soft.
            (QueueKind::Quorum, [true, true, false, false]),
        ] {
            let arguments = Table::new().with("x-max-length", 1_i32).with("x-overflow", "reject-publish");
            let (mut world, who) = world(version, kind, arguments);
            assert_eq!(confirmed(&mut world, who, &["a", "b", "c", "d"]), expected);
            assert_eq!(world.ready("dead"), 0);
            world.drain(who, "work");
            assert_eq!(confirmed(&mut world, who, &["e"]), [true], "there is room again");
        }
    }
}

#[test]
fn refused_publishes_can_be_dead_letters() {
    for version in BOTH {
        let arguments = Table::new().with("x-max-length", 1_i32).with("x-overflow", "reject-publish-dlx");
        let (mut world, who) = world(version, QueueKind::Classic, arguments.clone());
        assert_eq!(confirmed(&mut world, who, &["a", "b"]), [true, false]);
        assert_eq!(world.take(who, "dead").expect("it").deaths(), [death("work", "maxlen", 1)]);
        // A quorum queue does not know it, and drops its head.
        let (mut world, who) = self::world(version, QueueKind::Quorum, arguments);
        assert_eq!(confirmed(&mut world, who, &["a", "b"]), [true, true]);
        assert_eq!(world.drain(who, "dead"), ["a"]);
    }
}

#[test]
fn the_head_that_is_dropped_has_the_highest_priority() {
    for version in BOTH {
        let arguments = Table::new().with("x-max-length", 2_i32).with("x-max-priority", 5_i32);
        let (mut world, who) = world(version, QueueKind::Classic, arguments);
        for priority in [3, 1, 5, 1] {
            let properties = Properties { priority: Some(priority), ..Properties::default() };
            world.publish_with(who, "", "work", &priority.to_string(), properties);
        }
        assert_eq!(world.drain(who, "dead"), ["5", "3"]);
    }
}

#[test]
fn unsettled_messages_do_not_count() {
    for (version, kind) in combinations() {
        let (mut world, who) = world(version, kind, Table::new().with("x-max-length", 1_i32));
        world.publish(who, "work", "a");
        let got = world.get(who, "work").expect("a message");
        world.publish(who, "work", "b");
        assert_eq!(world.ready("dead"), 0);
        world.nack(who, got.tag, true);
        // There it goes to the end.
        let head = if (version, kind) == (Version::V3_10, QueueKind::Quorum) { "b" } else { "a" };
        assert_eq!(world.drain(who, "dead"), [head], "now there are two");
    }
}

#[test]
fn a_waiting_consumer_makes_room() {
    for (version, kind) in combinations() {
        let (mut world, who) = world(version, kind, Table::new().with("x-max-length", 0_i32));
        world.send(who, 1, basic::Consume { queue: short("work"), no_ack: true, ..Default::default() });
        world.publish(who, "work", "a");
        assert_eq!(world.bodies(who), ["a"]);
    }
}

#[test]
fn a_policy_limits_what_is_there_already() {
    for (version, kind) in combinations() {
        let (mut world, who) = world(version, kind, Table::new());
        confirmed(&mut world, who, &["a", "b", "c"]);
        world.policy("p", "^work$", 0, serde_json::json!({"max-length": 1}));
        assert_eq!(world.drain(who, "work"), ["c"]);
        let last_first = (version, kind) == (Version::V3_10, QueueKind::Quorum);
        assert_eq!(world.drain(who, "dead"), if last_first { ["b", "a"] } else { ["a", "b"] });
    }
}
