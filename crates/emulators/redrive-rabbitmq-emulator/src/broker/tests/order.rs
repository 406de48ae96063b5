use redrive_amqp091::{basic, channel};

use super::*;

fn filled(version: Version, arguments: Table, count: usize) -> (World, Who) {
    let mut world = World::new(version);
    let who = world.client();
    world.declare(who, "work", arguments);
    for number in 0..count {
        world.publish(who, "work", &format!("m{number}"));
    }
    (world, who)
}

#[test]
fn where_a_message_goes_that_is_given_back() {
    let limited = || of(QueueKind::Quorum).with("x-delivery-limit", 50_i32);
    for (version, arguments, expected) in [
        (Version::V3_10, of(QueueKind::Classic), ["m0", "m2", "m3", "m4", "m5"]),
        (Version::V4_3, of(QueueKind::Classic), ["m0", "m2", "m3", "m4", "m5"]),
        (Version::V3_10, of(QueueKind::Quorum), ["m4", "m5", "m2", "m0", "m3"]),
        (Version::V3_10, limited(), ["m2", "m0", "m3", "m4", "m5"]),
        (Version::V4_3, of(QueueKind::Quorum), ["m2", "m0", "m3", "m4", "m5"]),
        (Version::V4_3, limited(), ["m2", "m0", "m3", "m4", "m5"]),
    ] {
        let (mut world, who) = filled(version, arguments, 6);
        let tags: Vec<_> = (0..4).map(|_| world.get(who, "work").expect("a message").tag).collect();
        world.nack(who, tags[2], true);
        world.nack(who, tags[0], true);
        world.reject(who, tags[3], true);
        assert_eq!(world.drain(who, "work"), expected, "{version}");
    }
}

#[test]
fn a_lost_connection_gives_back_in_order() {
    for (version, kind) in combinations() {
        let (mut world, who) = filled(version, of(kind), 4);
        for _ in 0..3 {
            world.get(who, "work");
        }
        world.cut(who);
        let who = world.client();
        assert_eq!(world.drain(who, "work"), ["m0", "m1", "m2", "m3"]);
    }
}

#[test]
fn higher_priorities_leave_first() {
    let priorities = |world: &mut World, who, priorities: &[Option<u8>]| {
        for priority in priorities {
            let properties = Properties { priority: *priority, ..Properties::default() };
            world.publish_with(who, "", "work", &format!("{}", priority.map_or(-1, i32::from)), properties);
        }
    };
    for version in BOTH {
        let (mut world, who) = filled(version, of(QueueKind::Classic).with("x-max-priority", 5_i32), 0);
        priorities(&mut world, who, &[Some(1), None, Some(9), Some(3), Some(5), Some(1)]);
        assert_eq!(world.drain(who, "work"), ["9", "5", "3", "1", "1", "-1"], "9 counts as 5, none as 0");
    }
    let (mut world, who) = filled(Version::V4_3, of(QueueKind::Quorum), 0);
    priorities(&mut world, who, &[Some(3), Some(1), Some(9), None, Some(40), Some(0), Some(5), Some(31)]);
    assert_eq!(
        world.drain(who, "work"),
        ["40", "31", "9", "5", "-1", "3", "1", "0"],
        "40 counts as 31, none as 4"
    );
    let (mut world, who) = filled(Version::V3_10, of(QueueKind::Quorum), 0);
    priorities(&mut world, who, &[Some(3), Some(9)]);
    assert_eq!(world.drain(who, "work"), ["3", "9"]);
}

#[test]
fn consumers_take_turns() {
    for (version, kind) in combinations() {
        let (mut world, one) = filled(version, of(kind), 0);
        let other = world.client();
        world.consume(one, "work", "c");
        world.consume(other, "work", "c");
        for number in 0..4 {
            world.publish(one, "work", &number.to_string());
        }
        assert_eq!(
            (world.bodies(one), world.bodies(other)),
            (vec!["0".into(), "2".into()], vec!["1".into(), "3".into()])
        );
    }
}

#[test]
fn consumers_of_higher_priority_come_first_until_they_are_full() {
    for (version, kind) in combinations() {
        let (mut world, low) = filled(version, of(kind), 0);
        let high = world.client();
        world.consume(low, "work", "low");
        world.prefetch(high, 2);
        world.consume_with(high, "work", "high", Table::new().with("x-priority", 5_i32));
        for number in 0..3 {
            world.publish(low, "work", &number.to_string());
        }
        assert_eq!((world.bodies(high), world.bodies(low)), (vec!["0".into(), "1".into()], vec!["2".into()]));
    }
}

#[test]
fn the_prefetch_limits_each_consumer() {
    for (version, kind) in combinations() {
        let (mut world, who) = filled(version, of(kind), 5);
        world.prefetch(who, 2);
        world.consume(who, "work", "c");
        let got = world.deliveries(who);
        assert_eq!(got.len(), 2);
        world.ack(who, got[0].tag);
        assert_eq!(world.bodies(who), ["m2"]);
        world.send(who, 1, basic::Ack { delivery_tag: 0, multiple: true });
        assert_eq!(world.bodies(who), ["m3", "m4"]);
    }
}

#[test]
fn a_global_prefetch_limits_the_channel_on_3_10() {
    for (version, delivered) in [(Version::V3_10, 2), (Version::V4_3, 4)] {
        let (mut world, who) = filled(version, of(QueueKind::Classic), 4);
        world.send(who, 1, basic::Qos { prefetch_count: 2, global: true, ..Default::default() });
        world.heard(who);
        world.consume(who, "work", "a");
        world.consume(who, "work", "b");
        // 4.3 takes it for the limit of each consumer.
        assert_eq!(world.deliveries(who).len(), delivered);
    }
    let (mut world, who) = filled(Version::V3_10, of(QueueKind::Quorum), 0);
    world.send(who, 1, basic::Qos { prefetch_count: 2, global: true, ..Default::default() });
    world.consume(who, "work", "a");
    assert_eq!(world.closed(who).map(|(code, _)| code), Some(540));
}

#[test]
fn only_one_consumer_is_active() {
    for (version, kind) in combinations() {
        let (mut world, one) = filled(version, of(kind).with("x-single-active-consumer", true), 3);
        let other = world.client();
        world.consume(one, "work", "c");
        world.consume(other, "work", "c");
        let got = world.deliveries(one);
        assert_eq!((got.len(), world.bodies(other).len()), (3, 0));
        world.ack(one, got[0].tag);
        world.send(one, 1, channel::Close::default());
        assert_eq!(world.bodies(other), ["m1", "m2"]);
    }
}

#[test]
fn the_consumer_after_a_cancelled_active_one_waits_for_an_event_on_3_10() {
    for (version, kind) in combinations() {
        let set_up_with = |third: bool| {
            let (mut world, one) = filled(version, of(kind).with("x-single-active-consumer", true), 3);
            let other = world.client();
            world.prefetch(one, 1);
            world.consume(one, "work", "c");
            world.consume(other, "work", "c");
            let got = world.deliveries(one);
            assert_eq!((got.len(), world.bodies(other).len()), (1, 0));
            if third {
                world.consume(one, "work", "third");
            }
            let cancel = basic::Cancel { consumer_tag: short("c"), no_wait: true };
            world.send(one, 1, cancel);
            (world, one, other, got[0].tag)
        };
        let (set_up, set_up_with_a_third) = (|| set_up_with(false), || set_up_with(true));
        let waits = version.is_3_10() && kind == QueueKind::Classic;
        let all: &[&str] = &["m1", "m2"];
        let (at_once, later) = if waits { (&[][..], all) } else { (all, &[][..]) };

        let (mut world, one, other, tag) = set_up();
        assert_eq!(world.bodies(other), at_once, "{version:?} {kind:?}");
        world.ack(one, tag);
        assert!(world.bodies(other).is_empty());
        let third = world.client();
        world.consume(third, "work", "c");
        assert_eq!(world.bodies(other), later);
        world.publish(one, "work", "m3");
        assert_eq!(world.bodies(other), ["m3"]);

        let (mut world, one, other, _) = set_up_with_a_third();
        world.send(one, 1, basic::Cancel { consumer_tag: short("third"), no_wait: true });
        assert_eq!(world.bodies(other), at_once, "the cancel of one that waits is no event either");

        let (mut world, one, other, tag) = set_up();
        world.bodies(other);
        world.nack(one, tag, true);
        assert_eq!(world.bodies(other), [&["m0"][..], later].concat());

        let (mut world, one, other, _) = set_up();
        world.bodies(other);
        world.send(one, 1, channel::Close::default());
        assert_eq!(world.bodies(other), [&["m0"][..], later].concat());
    }
}

#[test]
fn a_single_active_consumer_that_gives_back_keeps_its_turn() {
    for (version, kind) in combinations() {
        let (mut world, who) = filled(version, of(kind).with("x-single-active-consumer", true), 4);
        world.prefetch(who, 1);
        world.consume(who, "work", "c");
        let (mut order, mut returned) = (Vec::new(), false);
        while let Some(got) = world.deliveries(who).pop() {
            order.push(got.body.clone());
            if got.body == "m1" && !std::mem::replace(&mut returned, true) {
                world.nack(who, got.tag, true);
            } else {
                world.ack(who, got.tag);
            }
        }
        let expected = match (version, kind) {
            (Version::V3_10, QueueKind::Quorum) => ["m0", "m1", "m2", "m3", "m1"],
            _ => ["m0", "m1", "m1", "m2", "m3"],
        };
        assert_eq!(order, expected);
    }
}

#[test]
fn what_is_settled_at_once_goes_back_consumer_by_consumer() {
    for (version, kind) in combinations() {
        for (at_once, requeue) in [(true, true), (true, false), (false, false)] {
            let mut world = World::new(version);
            let who = world.client();
            world.declare(who, "dead", of(kind));
            world.declare(who, "work", dead_to(kind, "dead"));
            world.prefetch(who, 1);
            for (consumer, body) in [("b", "1"), ("a", "2")] {
                world.consume(who, "work", consumer);
                world.publish(who, "work", body);
                assert_eq!(world.bodies(who), [body]);
            }
            world.publish(who, "work", "3");
            world.get(who, "work").expect("the third");
            for consumer in ["a", "b"] {
                world.send(who, 1, basic::Cancel { consumer_tag: short(consumer), no_wait: true });
            }
            if at_once {
                world.send(who, 1, basic::Nack { delivery_tag: 0, multiple: true, requeue });
            } else {
                (1..=3).for_each(|tag| world.nack(who, tag, requeue));
            }
            let now_in = if requeue { "work" } else { "dead" };
            let order: Vec<_> = (0..3).filter_map(|_| world.take(who, now_in)).map(|got| got.body).collect();
            // What is given back to a classic queue is where it was.
            let is_kept = !at_once || requeue && kind == QueueKind::Classic;
            let expected = if is_kept { ["1", "2", "3"] } else { ["3", "2", "1"] };
            assert_eq!(order, expected, "{version:?} {kind:?} at once: {at_once}");
        }
    }
}

#[test]
fn what_a_consumer_had_of_a_classic_queue_dies_by_priority() {
    for (version, kind) in combinations() {
        for by_get in [false, true] {
            let mut world = World::new(version);
            let who = world.client();
            world.declare(who, "dead", of(QueueKind::Classic));
            // A quorum queue has priorities by itself, on 4.3.
            let arguments = match kind {
                QueueKind::Classic => dead_to(kind, "dead").with("x-max-priority", 5_i32),
                QueueKind::Quorum => dead_to(kind, "dead"),
            };
            world.declare(who, "work", arguments);
            if !by_get {
                world.consume(who, "work", "consumer");
            }
            for (body, priority) in [("1", 0), ("2", 5), ("3", 0), ("4", 5), ("5", 3)] {
                let priority = Some(priority);
                world.publish_with(who, "", "work", body, Properties { priority, ..Properties::default() });
                if by_get {
                    world.get(who, "work").expect("it");
                }
            }
            world.send(who, 1, basic::Nack { delivery_tag: 5, multiple: true, requeue: false });
            let order: String = std::iter::from_fn(|| world.take(who, "dead").map(|got| got.body)).collect();
            let by_priority = kind == QueueKind::Classic && !by_get;
            let expected = if by_priority { "24513" } else { "12345" };
            assert_eq!(order, expected, "{version:?} {kind:?} by get: {by_get}");
        }
    }
}

#[test]
fn a_get_from_a_quorum_queue_with_one_active_consumer_is_refused() {
    for version in BOTH {
        let (mut world, who) =
            filled(version, of(QueueKind::Quorum).with("x-single-active-consumer", true), 1);
        world.send(who, 1, basic::Get { queue: short("work"), ..Default::default() });
        assert_eq!(world.closed(who).map(|(code, _)| code), Some(405));
    }
}

#[test]
fn a_client_that_does_not_read_takes_nothing_more() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let (who, publisher) = (world.client(), world.client());
        world.declare(who, "work", of(kind));
        world.send(who, 1, basic::Consume { queue: short("work"), no_ack: true, ..Default::default() });
        let body = "x".repeat(100_000);
        for _ in 0..30 {
            world.publish(publisher, "work", &body);
        }
        assert!(world.ready("work") > 10, "the rest waits in the queue");
        let mut read = 0;
        while read < 30 {
            let more = world.deliveries(who).len();
            assert!(more > 0, "stuck after {read}");
            read += more;
        }
    }
}

#[test]
fn what_a_client_asks_for_waits_until_it_reads() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let (who, other) = (world.client(), world.client());
        world.declare(who, "work", of(kind));
        world.publish(who, "work", &"x".repeat(1 << 20));
        world.send(who, 1, basic::Get { queue: short("work"), ..Default::default() });
        for _ in 1..100 {
            world.send(who, 1, basic::Recover { requeue: true });
            world.send(who, 1, basic::Get { queue: short("work"), ..Default::default() });
        }
        assert!(!world.broker.wants_input(world.id(who)), "no more is read from it");
        world.publish(other, "work", "others go on");
        let mut answers = 0;
        loop {
            match world.names(who) {
                names if names.is_empty() => break,
                names => answers += names.iter().filter(|name| name.starts_with("basic.Get")).count(),
            }
        }
        assert_eq!(answers, 100);
        assert!(world.broker.wants_input(world.id(who)));
    }
}

#[test]
fn a_client_that_does_not_read_its_replies_gets_no_more_of_them() {
    for version in BOTH {
        let mut world = World::new(version);
        let (who, responder) = (world.client(), world.client());
        world.declare(responder, "requests", Table::new());
        let consume =
            basic::Consume { queue: short("amq.rabbitmq.reply-to"), no_ack: true, ..Default::default() };
        world.send(who, 1, consume);
        world.heard(who);
        let request = Properties { reply_to: Some(short("amq.rabbitmq.reply-to")), ..Properties::default() };
        world.publish_with(who, "", "requests", "?", request);
        let address = world.take(responder, "requests").and_then(|got| got.properties.reply_to);
        let address = address.expect("an address").to_string();
        for _ in 0..20 {
            world.publish(responder, &address, &"x".repeat(1 << 20));
        }
        assert_eq!(world.dropped().len(), 16, "unroutable");
        assert_eq!(world.deliveries(who).len(), 4);
        world.publish(responder, &address, "again");
        assert_eq!(world.bodies(who), ["again"]);
    }
}

#[test]
fn what_a_dying_connection_gives_back_is_not_delivered_on_it() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "work", of(kind).with("x-single-active-consumer", true));
        world.publish(who, "work", "x");
        world.consume(who, "work", "active");
        world.open_channel(who, 2);
        world.send(
            who,
            2,
            basic::Consume { queue: short("work"), consumer_tag: short("next"), ..Default::default() },
        );
        world.heard(who);
        // A tag that is in use ends the connection.
        world.consume(who, "work", "active");
        assert_eq!(world.names(who), ["connection.Close"], "{version:?} {kind:?}");
        assert_eq!(world.ready("work"), 1);
    }
}
