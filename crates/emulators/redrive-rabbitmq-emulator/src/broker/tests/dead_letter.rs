//! What happens to a message that dies, and what it says about its death.

use redrive_amqp091::{Properties, Table, Value, basic, queue};
use serde_json::json;

use super::*;
use crate::broker::access::{Pattern, Permission};

/// Publishes, rejects, and returns the dead letter.
pub(super) fn rejected(world: &mut World, who: Who, properties: Properties) -> Got {
    world.publish_with(who, "", "work", "x", properties);
    world.nack_next(who, "work", false);
    world.take(who, "dead").expect("a dead letter")
}

#[test]
fn a_rejected_message_says_where_and_why_it_died() {
    for (version, kind) in combinations() {
        let (mut world, who) = dead_lettering(version, kind);
        world.declare_exchange(who, "in", "direct", Table::new());
        world.bind(who, "work", "in", "rk1");
        world.publish_with(who, "in", "rk1", "x", Properties::default());
        world.nack_next(who, "work", false);
        let dead = world.take(who, "dead").expect("a dead letter");
        let headers = dead.headers();
        let entry =
            headers.get("x-death").and_then(Value::as_array).expect("deaths")[0].as_table().cloned().unwrap();
        assert_eq!(entry.get("count"), Some(&Value::I64(1)));
        assert_eq!(entry.get("reason"), Some(&Value::from("rejected")));
        assert_eq!(entry.get("queue"), Some(&Value::from("work")));
        assert_eq!(entry.get("exchange"), Some(&Value::from("in")));
        assert_eq!(entry.get("routing-keys"), Some(&Value::Array(vec![Value::from("rk1")])));
        assert_eq!(entry.get("time"), Some(&Value::Timestamp(world.now.seconds())));
        assert_eq!(entry.get("original-expiration"), None);
        assert_eq!((dead.exchange.as_str(), dead.key.as_str()), ("", "dead"));
        for (what, value) in [("reason", "rejected"), ("queue", "work"), ("exchange", "in")] {
            assert_eq!(dead.text(&format!("x-first-death-{what}")).as_deref(), Some(value));
            let last = (version == Version::V4_3).then_some(value);
            assert_eq!(dead.text(&format!("x-last-death-{what}")).as_deref(), last);
        }
    }
}

#[test]
fn the_expiration_is_taken_off_and_remembered() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "work", dead_to(kind, "dead").with("x-message-ttl", 500_i32));
        world.declare(who, "dead", of(kind));
        let mut properties = expiring("9000");
        properties.message_id = Some(short("m1"));
        properties.headers =
            Some(Table::new().with("tries", 3_i32).with("blob", Value::Binary("b".into())).encode());
        world.publish_with(who, "", "work", "x", properties);
        world.advance(500);
        let dead = world.take(who, "dead").expect("it expired by the queue's time");
        assert_eq!(dead.properties.expiration, None);
        assert_eq!(dead.properties.message_id, Some(short("m1")));
        assert_eq!(dead.headers().get("tries"), Some(&Value::I32(3)));
        assert_eq!(dead.headers().get("blob"), Some(&Value::Binary("b".into())));
        assert_eq!(dead.deaths(), [death("work", "expired", 1)]);
        let headers = dead.headers();
        let entry = headers.get("x-death").and_then(Value::as_array).unwrap()[0].as_table().cloned().unwrap();
        assert_eq!(entry.get("original-expiration"), Some(&Value::from("9000")));
    }
}

#[test]
fn a_repeated_death_counts_up_and_moves_to_the_front() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "work", dead_to(kind, "delay"));
        world.declare(who, "delay", dead_to(kind, "work").with("x-message-ttl", 100_i32));
        world.publish(who, "work", "x");
        for round in 1..=3 {
            let got = world.get(who, "work").expect("it came back");
            let expected = match round {
                1 => vec![],
                round => vec![death("delay", "expired", round - 1), death("work", "rejected", round - 1)],
            };
            assert_eq!(got.deaths(), expected);
            world.reject(who, got.tag, false);
            world.advance(100);
        }
        let got = world.take(who, "work").expect("it came back");
        assert_eq!(got.text("x-first-death-queue").as_deref(), Some("work"));
        if version == Version::V4_3 {
            assert_eq!(got.text("x-last-death-queue").as_deref(), Some("delay"));
        }
    }
}

#[test]
fn purged_deleted_and_expired_queues_dead_letter_nothing() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "dead", of(kind));
        for queue in ["purged", "deleted"] {
            world.declare(who, queue, dead_to(kind, "dead"));
            world.publish(who, queue, "x");
        }
        world.declare(who, "expired", dead_to(kind, "dead").with("x-expires", 1000_i32));
        world.publish(who, "expired", "x");
        world.send(who, 1, queue::Purge { queue: short("purged"), ..Default::default() });
        world.send(who, 1, queue::Delete { queue: short("deleted"), ..Default::default() });
        world.advance(5_000);
        assert_eq!(world.queue("expired"), None);
        assert_eq!(world.ready("dead"), 0);
        let reasons: Vec<_> = world.dropped().into_iter().map(|(_, reason)| reason).collect();
        assert_eq!(reasons, [DropReason::Purged, DropReason::QueueDeleted, DropReason::QueueExpired]);
    }
}

#[test]
fn dead_letters_die_again() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "a", dead_to(kind, "b").with("x-message-ttl", 10_i32));
        world.declare(who, "b", dead_to(kind, "c").with("x-message-ttl", 10_i32));
        world.declare(who, "c", dead_to(kind, "d").with("x-max-length", 1_i32));
        world.declare(who, "d", of(kind));
        world.publish(who, "a", "1");
        world.publish(who, "a", "2");
        world.advance(20);
        assert_eq!(world.take(who, "c").expect("the last one").body, "2");
        let mut expected = [death("c", "maxlen", 1), death("b", "expired", 1), death("a", "expired", 1)];
        if version == Version::V3_10 {
            // It groups older entries, which turns their order around.
            expected[1..].reverse();
        }
        let first = world.take(who, "d").expect("the first one");
        assert_eq!((first.body.as_str(), first.deaths()), ("1", expected.to_vec()));
    }
}

#[test]
fn the_publishers_x_death_counts_on_3_10_only() {
    let forged = |count: i64| {
        let entry = Table::new().with("count", count).with("reason", "rejected").with("queue", "work");
        with_headers(Table::new().with("x-death", vec![Value::Table(entry)]))
    };
    for (version, kind) in combinations() {
        let (mut world, who) = dead_lettering(version, kind);
        world.publish_with(who, "", "dead", "x", forged(5));
        assert_eq!(
            world.take(who, "dead").expect("it").deaths(),
            [death("work", "rejected", 5)],
            "as it was sent"
        );
        let count = if version == Version::V3_10 { 6 } else { 1 };
        assert_eq!(rejected(&mut world, who, forged(5)).deaths(), [death("work", "rejected", count)]);
        let wrong = with_headers(Table::new().with("x-death", "text"));
        assert_eq!(rejected(&mut world, who, wrong).deaths(), [death("work", "rejected", 1)]);
    }
}

#[test]
fn the_argument_beats_the_policy_and_keys_combine() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        world.declare(who, "by-policy", of(kind));
        world.declare_exchange(who, "dlx", "direct", Table::new());
        world.bind(who, "by-policy", "dlx", "from-policy");
        world.declare(who, "work", of(kind).with("x-dead-letter-exchange", "dlx"));
        world.policy(
            "p",
            "^work$",
            0,
            json!({"dead-letter-exchange": "", "dead-letter-routing-key": "from-policy"}),
        );
        world.publish(who, "work", "x");
        world.nack_next(who, "work", false);
        assert_eq!(world.ready("by-policy"), 1, "the argument's exchange with the policy's key");
    }
}

#[test]
fn a_policy_applies_at_once_and_the_highest_priority_wins() {
    for (version, kind) in combinations() {
        let mut world = World::new(version);
        let who = world.client();
        for queue in ["work", "low", "high"] {
            world.declare(who, queue, of(kind));
        }
        let to = |target: &str| json!({"dead-letter-exchange": "", "dead-letter-routing-key": target});
        world.policy("low", "^wo", 1, to("low"));
        world.policy("high", "rk$", 7, to("high"));
        let reject = |world: &mut World| {
            world.publish(who, "work", "x");
            world.nack_next(who, "work", false);
        };
        reject(&mut world);
        assert_eq!((world.ready("low"), world.ready("high")), (0, 1));
        let vhost = world.broker.vhost_named("/").unwrap();
        assert!(world.broker.remove_policy(vhost, "high", world.now));
        reject(&mut world);
        assert_eq!((world.ready("low"), world.ready("high")), (1, 1));
    }
}

#[test]
fn permissions_are_checked_at_the_declaration() {
    for version in BOTH {
        let mut world = World::new(version);
        let only = |pattern: &str| Pattern::parse(pattern).unwrap();
        world.user(
            "bob",
            Permission { configure: Pattern::any(), write: only("^allowed$"), read: Pattern::any() },
        );
        world.user(
            "eve",
            Permission { configure: Pattern::any(), write: Pattern::any(), read: only("^other$") },
        );
        for (user, exchange, refused) in
            [("bob", "allowed", false), ("bob", "secret", true), ("bob", "", true), ("eve", "allowed", true)]
        {
            let who = world.connect(user, user, true);
            world.open_channel(who, 1);
            let arguments = Table::new().with("x-dead-letter-exchange", exchange);
            world.send(who, 1, declaration(&format!("q-{user}-{exchange}"), arguments));
            assert_eq!(world.closed(who).map(|(code, _)| code), refused.then_some(403), "{user} {exchange}");
        }
    }
}

#[test]
fn switched_off_nothing_is_dead_lettered() {
    for (version, kind) in combinations() {
        let mut options = Options::new(version);
        options.dead_lettering = false;
        let mut world = World::with(options);
        let who = world.client();
        world.declare(who, "work", dead_to(kind, "dead").with("x-message-ttl", 100_i32));
        assert!(
            matches!(&world.broker.take_events()[..], [event] if matches!(event.kind, EventKind::DeadLetteringIgnored { .. }))
        );
        world.declare(who, "dead", of(kind));
        world.publish(who, "work", "x");
        world.nack_next(who, "work", false);
        world.publish(who, "work", "y");
        world.advance(100);
        let dropped = world.dropped();
        assert_eq!(
            dropped,
            [("work".to_owned(), DropReason::Rejected), ("work".to_owned(), DropReason::Expired)]
        );
        assert_eq!(world.ready("dead"), 0);
    }
}

#[test]
fn every_property_survives_a_death() {
    for (version, kind) in combinations() {
        let (mut world, who) = dead_lettering(version, kind);
        let sent = Properties {
            content_type: Some(short("text/plain")),
            content_encoding: Some(short("gzip")),
            delivery_mode: Some(2),
            priority: Some(3),
            correlation_id: Some(short("c")),
            reply_to: Some(short("r")),
            message_id: Some(short("m")),
            timestamp: Some(7),
            kind: Some(short("t")),
            user_id: Some(short("guest")),
            app_id: Some(short("a")),
            cluster_id: Some(short("k")),
            ..Properties::default()
        };
        let dead = rejected(&mut world, who, sent.clone());
        assert_eq!(Properties { headers: None, ..dead.properties }, sent);
    }
}

#[test]
fn nothing_is_dead_lettered_that_was_accepted() {
    for (version, kind) in combinations() {
        let (mut world, who) = dead_lettering(version, kind);
        world.publish(who, "work", "x");
        world.take(who, "work");
        world.publish(who, "work", "y");
        world.send(who, 1, basic::Get { queue: short("work"), no_ack: true, ..Default::default() });
        assert_eq!((world.ready("work"), world.ready("dead")), (0, 0));
    }
}
