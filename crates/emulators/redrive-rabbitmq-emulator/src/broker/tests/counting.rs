use redrive_amqp091::{Table, basic, channel};

use super::*;

fn quorum(world: &mut World, arguments: Table) -> Who {
    let who = world.client();
    let mut all = of(QueueKind::Quorum);
    for (key, value) in arguments {
        all.insert(key, value);
    }
    world.declare(who, "work", all);
    world.publish(who, "work", "x");
    who
}

/// Consumes one message.
fn one(world: &mut World, who: Who) -> Got {
    let mut deliveries = world.deliveries(who);
    assert_eq!(deliveries.len(), 1);
    deliveries.remove(0)
}

fn counts(got: &Got) -> (Option<i64>, Option<i64>) {
    (got.number("x-delivery-count"), got.number("x-acquired-count"))
}

#[test]
fn what_counts_as_a_failed_delivery() {
    let on_3_10 = [(None, None), (Some(1), None), (Some(2), None), (Some(3), None), (Some(4), None)];
    let on_4_3 = [(None, None), (None, Some(1)), (Some(1), Some(2)), (Some(1), Some(3)), (Some(2), Some(4))];
    for (version, [first, nacked, rejected, recovered, cut]) in
        [(Version::V3_10, on_3_10), (Version::V4_3, on_4_3)]
    {
        let mut world = World::new(version);
        let who = quorum(&mut world, Table::new());
        world.consume(who, "work", "c");
        let got = one(&mut world, who);
        assert_eq!((counts(&got), got.redelivered), (first, false), "{version:?}");
        world.nack(who, got.tag, true);
        let got = one(&mut world, who);
        assert_eq!((counts(&got), got.redelivered), (nacked, true), "{version:?}");
        world.reject(who, got.tag, true);
        let got = one(&mut world, who);
        assert_eq!(counts(&got), rejected, "{version:?}");
        world.send(who, 1, basic::Recover { requeue: true });
        assert_eq!(counts(&one(&mut world, who)), recovered, "{version:?}");
        world.cut(who);
        let who = world.client();
        let got = world.take(who, "work").expect("it came back");
        assert_eq!(counts(&got), cut, "{version:?}");
    }
}

#[test]
fn a_get_on_3_10_always_says_the_count() {
    let mut world = World::new(Version::V3_10);
    let who = quorum(&mut world, Table::new());
    assert_eq!(counts(&world.get(who, "work").expect("a message")), (Some(0), None));
}

#[test]
fn a_message_is_delivered_once_more_than_the_limit() {
    for version in BOTH {
        let mut world = World::new(version);
        let arguments = dead_to(QueueKind::Quorum, "dead").with("x-delivery-limit", 2_i32);
        let who = quorum(&mut world, arguments);
        world.declare(who, "dead", of(QueueKind::Quorum));
        for _ in 0..3 {
            world.reject_next(who, "work", true);
        }
        assert_eq!(world.ready("work"), 0);
        let dead = world.take(who, "dead").expect("a dead letter");
        assert_eq!(dead.deaths(), [death("work", "delivery_limit", 1)]);
        let expected = match version {
            Version::V3_10 => ((Some(0), None), false),
            Version::V4_3 => ((Some(3), Some(3)), true),
        };
        assert_eq!((counts(&dead), dead.redelivered), expected);
    }
}

#[test]
fn without_a_limit_4_3_has_one_of_20() {
    for (version, survives) in [(Version::V3_10, true), (Version::V4_3, false)] {
        let mut world = World::new(version);
        let who = quorum(&mut world, Table::new());
        for delivery in 0..21 {
            let got = world.get(who, "work").unwrap_or_else(|| panic!("delivery {delivery}"));
            world.reject(who, got.tag, true);
        }
        assert_eq!(world.get(who, "work").is_some(), survives);
    }
}

#[test]
fn a_nack_never_reaches_the_limit_on_4_3() {
    let mut world = World::new(Version::V4_3);
    let who = quorum(&mut world, Table::new().with("x-delivery-limit", 1_i32));
    for _ in 0..60 {
        world.nack_next(who, "work", true);
    }
    assert_eq!(world.ready("work"), 1);
}

#[test]
fn a_limit_of_minus_one_is_none_on_4_3_and_zero_on_3_10() {
    for (version, deliveries) in [(Version::V3_10, 1), (Version::V4_3, 40)] {
        let mut world = World::new(version);
        let who = quorum(&mut world, Table::new().with("x-delivery-limit", -1_i32));
        let mut count = 0;
        while count < 40
            && let Some(got) = world.get(who, "work")
        {
            count += 1;
            world.reject(who, got.tag, true);
        }
        assert_eq!(count, deliveries);
    }
}

#[test]
fn the_lower_limit_of_argument_and_policy_holds() {
    for (version, argument, policy, deliveries) in [
        (Version::V4_3, 5, 2, 3),
        (Version::V4_3, -1, 2, 3),
        (Version::V4_3, 2, -1, 3),
        (Version::V3_10, 2, 5, 3),
        (Version::V3_10, -1, 5, 1),
        (Version::V3_10, 5, 0, 1),
    ] {
        let mut world = World::new(version);
        let who = quorum(&mut world, Table::new().with("x-delivery-limit", argument));
        world.policy("p", "work", 0, serde_json::json!({"delivery-limit": policy}));
        let mut count = 0;
        while count < 40
            && let Some(got) = world.get(who, "work")
        {
            count += 1;
            world.reject(who, got.tag, true);
        }
        assert_eq!(count, deliveries, "{version} {argument} {policy}");
    }
}

#[test]
fn the_count_travels_with_a_dead_letter_on_4_3() {
    for version in BOTH {
        let mut world = World::new(version);
        let who = quorum(&mut world, dead_to(QueueKind::Quorum, "parking"));
        world.declare(who, "parking", of(QueueKind::Quorum).with("x-delivery-limit", 1_i32));
        world.reject_next(who, "work", true);
        world.reject_next(who, "work", false);
        let peek = world.get(who, "parking").expect("it is parked");
        world.reject(who, peek.tag, true);
        let lives = version == Version::V3_10;
        assert_eq!(world.ready("parking"), usize::from(lives), "one look is one too many on 4.3");
    }
}

#[test]
fn a_nack_leaves_no_count_on_a_dead_letter() {
    let mut world = World::new(Version::V4_3);
    let who = quorum(&mut world, dead_to(QueueKind::Quorum, "dead"));
    world.declare(who, "dead", of(QueueKind::Quorum));
    world.nack_next(who, "work", false);
    let dead = world.take(who, "dead").expect("a dead letter");
    assert_eq!((counts(&dead), dead.redelivered), ((None, None), false));
}

#[test]
fn a_rejected_message_was_delivered_before_on_4_3_only() {
    for (version, kind) in combinations() {
        let (mut world, who) = dead_lettering(version, kind);
        world.publish(who, "work", "x");
        world.reject_next(who, "work", false);
        assert_eq!(world.take(who, "dead").expect("it").redelivered, version == Version::V4_3);
    }
}

#[test]
fn a_classic_queue_counts_nothing() {
    for version in BOTH {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "work", of(QueueKind::Classic));
        world.publish_with(who, "", "work", "x", with_headers(Table::new().with("x-delivery-count", 9_i64)));
        for _ in 0..30 {
            let got = world.get(who, "work").expect("a message");
            assert_eq!(counts(&got), (Some(9), None), "the publisher's own header");
            world.reject(who, got.tag, true);
        }
    }
}

#[test]
fn a_closed_channel_gives_back_and_counts() {
    for version in BOTH {
        let mut world = World::new(version);
        let who = quorum(&mut world, Table::new());
        let got = world.get(who, "work").expect("a message");
        world.send(who, 1, channel::Close::default());
        world.open_channel(who, 1);
        let again = world.get(who, "work").expect("it came back");
        assert_eq!(
            (got.number("x-delivery-count").unwrap_or(0), again.number("x-delivery-count")),
            (0, Some(1))
        );
    }
}

fn retrying(kind: &str, min: i32, max: Option<i32>) -> Table {
    let table = Table::new().with("x-delayed-retry-type", kind).with("x-delayed-retry-min", min);
    match max {
        Some(max) => table.with("x-delayed-retry-max", max),
        None => table,
    }
}

#[test]
fn delayed_retry_waits_longer_each_time() {
    let mut world = World::new(Version::V4_3);
    let who = quorum(&mut world, retrying("all", 300, Some(1000)));
    for wait in [300, 600, 900, 1000, 1000] {
        world.reject_next(who, "work", true);
        assert_eq!(world.counts("work").delayed, 1);
        world.advance(wait - 1);
        assert_eq!(world.ready("work"), 0, "{wait}");
        world.advance(1);
        assert_eq!(world.ready("work"), 1, "{wait}");
    }
    let got = world.get(who, "work").expect("a message");
    assert!(got.redelivered);
    world.nack(who, got.tag, true);
    world.advance(999);
    assert_eq!(world.ready("work"), 0, "a nack waits too, as long as the failures say");
}

#[test]
fn without_a_maximum_the_delay_is_fixed() {
    let mut world = World::new(Version::V4_3);
    let who = quorum(&mut world, retrying("all", 300, None));
    for _ in 0..3 {
        world.reject_next(who, "work", true);
        world.advance(300);
    }
    assert_eq!(world.ready("work"), 1);
}

#[test]
fn the_type_says_which_returns_wait() {
    for (kind, nack_waits, reject_waits) in [
        ("all", true, true),
        ("failed", false, true),
        ("returned", true, false),
        ("disabled", false, false),
        ("odd", false, false),
    ] {
        let mut world = World::new(Version::V4_3);
        let who = quorum(&mut world, retrying(kind, 300, None));
        world.nack_next(who, "work", true);
        assert_eq!(world.ready("work") == 0, nack_waits, "{kind}");
        world.advance(300);
        world.reject_next(who, "work", true);
        assert_eq!(world.ready("work") == 0, reject_waits, "{kind}");
    }
}

#[test]
fn delayed_retry_without_a_minimum_or_on_3_10_does_nothing() {
    for (version, arguments) in [
        (Version::V4_3, Table::new().with("x-delayed-retry-type", "all")),
        (Version::V3_10, retrying("all", 300, None)),
    ] {
        let mut world = World::new(version);
        let who = quorum(&mut world, arguments);
        world.reject_next(who, "work", true);
        assert_eq!(world.ready("work"), 1);
    }
}

#[test]
fn a_crash_delays_and_no_other_message_waits_for_it() {
    let mut world = World::new(Version::V4_3);
    let who = quorum(&mut world, retrying("failed", 400, None));
    world.get(who, "work").expect("a message");
    world.cut(who);
    let who = world.client();
    world.publish(who, "work", "y");
    assert_eq!(world.drain(who, "work"), ["y"]);
    world.advance(400);
    assert_eq!(world.drain(who, "work"), ["x"]);
}

#[test]
fn a_delayed_message_expires_when_it_returns() {
    let mut world = World::new(Version::V4_3);
    let arguments = dead_to(QueueKind::Quorum, "dead")
        .with("x-delayed-retry-type", "all")
        .with("x-delayed-retry-min", 2000_i32)
        .with("x-message-ttl", 500_i32);
    let who = quorum(&mut world, arguments);
    world.declare(who, "dead", of(QueueKind::Quorum));
    world.reject_next(who, "work", true);
    world.advance(1999);
    assert_eq!(world.ready("dead"), 0);
    world.advance(1);
    assert_eq!(world.ready("dead"), 1);
}
