use std::time::Duration;

use super::*;

fn world(version: Version, kind: QueueKind, arguments: Table) -> (World, Who) {
    let mut options = Options::new(version);
    options.consumer_timeout = Some(Duration::from_secs(8));
    let mut world = World::with(options);
    let who = world.client();
    let mut all = of(kind);
    for (key, value) in arguments {
        all.insert(key, value);
    }
    world.declare(who, "work", all);
    world.publish(who, "work", "x");
    world.consume(who, "work", "c");
    assert_eq!(world.bodies(who), ["x"]);
    (world, who)
}

#[test]
fn on_3_10_the_channel_ends_when_it_looks_at_the_clock() {
    for kind in KINDS {
        let (mut world, who) = world(Version::V3_10, kind, Table::new());
        world.advance(59_999);
        assert_eq!(world.closed(who), None);
        world.advance(1);
        let (code, text) = world.closed(who).expect("closed");
        assert_eq!(code, 406);
        assert!(
            text.starts_with("PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out."),
            "{text}"
        );
        assert_eq!(world.ready("work"), 1);
    }
}

#[test]
fn on_4_3_a_quorum_queue_ends_the_consumer_in_time() {
    let (mut world, who) = world(Version::V4_3, QueueKind::Quorum, Table::new());
    world.advance(7_999);
    assert_eq!(world.names(who).len(), 0);
    world.advance(1);
    assert_eq!(world.names(who), ["basic.Cancel"]);
    world.ack(who, 1);
    assert_eq!(world.closed(who), None, "settling late does nothing, and no harm");
    let again = world.take(who, "work").expect("it came back");
    assert_eq!((again.number("x-acquired-count"), again.number("x-delivery-count")), (Some(1), None));
}

#[test]
fn on_4_3_a_classic_queue_waits_for_ever() {
    let (mut world, who) = world(Version::V4_3, QueueKind::Classic, Table::new());
    world.advance(10_000_000);
    assert_eq!((world.names(who).len(), world.counts("work").unacked), (0, 1));
}

#[test]
fn a_queue_and_a_consumer_may_have_their_own_timeout() {
    let (mut world, who) =
        world(Version::V4_3, QueueKind::Quorum, Table::new().with("x-consumer-timeout", 2000_i32));
    world.advance(2_000);
    assert_eq!(world.names(who), ["basic.Cancel"]);
    world.consume_with(who, "work", "d", Table::new().with("x-consumer-timeout", 500_i32));
    assert_eq!(world.bodies(who), ["x"]);
    world.advance(500);
    assert_eq!(world.names(who), ["basic.Cancel"]);
}

#[test]
fn what_is_settled_in_time_has_no_timeout() {
    for (version, kind) in combinations() {
        let (mut world, who) = world(version, kind, Table::new());
        world.advance(7_000);
        world.ack(who, 1);
        world.publish(who, "work", "y");
        assert_eq!(world.bodies(who), ["y"]);
        world.advance(7_000);
        assert_eq!((world.closed(who), world.counts("work").unacked), (None, 1));
    }
}
