use redrive_amqp091::basic;
use serde_json::json;

use super::*;
use crate::broker::definitions::Definitions;
use crate::broker::manage::AckMode;
use crate::broker::{Command, ConfirmFault};

#[test]
fn an_alarm_blocks_connections_that_publish() {
    let mut world = World::new(Version::V4_3);
    let (publisher, idle) = (world.client(), world.client());
    world.declare(publisher, "q", of(QueueKind::Classic));
    world.publish(publisher, "q", "before");
    world.broker.raise_alarm("low on memory", world.now);
    assert_eq!(world.names(publisher), ["connection.Blocked"]);
    assert_eq!(world.names(idle).len(), 0, "it hears of it with its first publish");
    world.publish(publisher, "q", "waits");
    world.send(publisher, 1, basic::Get { queue: short("q"), ..Default::default() });
    assert_eq!((world.ready("q"), world.names(publisher).len()), (1, 0), "not even other methods are read");
    world.publish(idle, "q", "passes");
    assert_eq!(world.names(idle), ["connection.Blocked"]);
    world.broker.clear_alarm(world.now);
    assert_eq!(world.names(publisher), ["connection.Unblocked", "basic.GetOk"]);
    assert_eq!(world.ready("q"), 2);
}

#[test]
fn confirms_can_be_held_and_refused() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.declare(who, "q", of(QueueKind::Classic));
    world.confirms(who);
    world.broker.set_confirms(ConfirmFault::Hold, world.now);
    world.publish(who, "q", "x");
    assert_eq!((world.names(who).len(), world.ready("q")), (0, 1));
    world.broker.set_confirms(ConfirmFault::None, world.now);
    assert_eq!(world.names(who), ["basic.Ack"]);
    world.broker.set_confirms(ConfirmFault::Refuse(1), world.now);
    world.publish(who, "q", "refused");
    world.publish(who, "q", "y");
    assert_eq!(world.names(who), ["basic.Nack", "basic.Ack"]);
    assert_eq!(world.drain(who, "q"), ["x", "y"]);
}

#[test]
fn a_queue_without_a_leader_delivers_nothing() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.declare(who, "q", of(QueueKind::Quorum));
    let id = world.queue("q").unwrap();
    world.consume(who, "q", "c");
    world.heard(who);
    world.broker.set_leaderless(id, true, world.now);
    world.publish(who, "q", "x");
    assert_eq!(world.bodies(who).len(), 0);
    world.broker.set_leaderless(id, false, world.now);
    assert_eq!(world.bodies(who), ["x"]);
    assert_eq!(world.broker.give_back_unsettled(id, world.now), 1);
    assert_eq!(world.deliveries(who)[0].number("x-delivery-count"), Some(1));
}

#[test]
fn an_operator_closes_connections_with_320() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.broker.close_all("maintenance", world.now);
    assert_eq!(world.closed(who), Some((320, "CONNECTION_FORCED - maintenance".to_owned())));
}

#[test]
fn definitions_are_exported_as_they_were_imported() {
    let mut world = World::new(Version::V4_3);
    let definitions = json!({
        "users": [{"name": "bob", "password": "secret", "tags": "management"}],
        "vhosts": [{"name": "/"}, {"name": "other"}],
        "permissions": [{"user": "bob", "vhost": "other", "configure": "^a", "write": ".*", "read": ""}],
        "policies": [{"vhost": "other", "name": "p", "pattern": "^q", "apply-to": "queues", "definition": {"message-ttl": 5}, "priority": 3}],
        "exchanges": [{"name": "x", "vhost": "other", "type": "topic", "durable": true, "auto_delete": false, "internal": false, "arguments": {}}],
        "queues": [{"name": "q", "vhost": "other", "durable": true, "auto_delete": false, "arguments": {"x-queue-type": "quorum", "x-max-length": 7}}],
        "bindings": [{"source": "x", "vhost": "other", "destination": "q", "destination_type": "queue", "routing_key": "a.#", "arguments": {}}],
    });
    let parsed: Definitions = serde_json::from_value(definitions).unwrap();
    world.broker.apply_definitions(&parsed, world.now).unwrap();
    let exported = world.broker.export_definitions(None);
    let mut again = World::new(Version::V4_3);
    let parsed: Definitions = serde_json::from_value(exported.clone()).unwrap();
    again.broker.apply_definitions(&parsed, again.now).unwrap();
    assert_eq!(again.broker.export_definitions(None), exported);
    assert_eq!(exported["queues"][0]["arguments"]["x-max-length"], 7);
    assert_eq!(exported["bindings"][0]["routing_key"], "a.#");
    let vhost = again.broker.vhost_named("other").unwrap();
    let queue = again.broker.queue_named(vhost, &short("q")).unwrap();
    assert_eq!(again.broker.info(queue).unwrap().policy.as_deref(), Some("p"));
    assert!(again.broker.user_named("bob").unwrap().password.is(b"secret"));
}

#[test]
fn wrong_definitions_say_what_is_wrong() {
    for (definitions, what) in [
        (json!({"queues": [{"name": "q", "vhost": "no", "arguments": {}}]}), "there is no virtual host 'no'"),
        (json!({"queues": [{"name": "q", "arguments": {"x-message-ttl": -1}}]}), "value_negative"),
        (
            json!({"exchanges": [{"name": "x", "type": "odd", "arguments": {}}]}),
            "unknown exchange type 'odd'",
        ),
        (json!({"users": [{"name": "u", "tags": []}]}), "neither password nor password_hash"),
        (json!({"policies": [{"name": "p", "pattern": "(", "definition": {}}]}), "the pattern '('"),
        (
            json!({"bindings": [{"source": "amq.direct", "destination": "q", "destination_type": "queue"}]}),
            "there is no queue 'q'",
        ),
    ] {
        let mut world = World::new(Version::V4_3);
        let parsed: Definitions = serde_json::from_value(definitions).unwrap();
        let error = world.broker.apply_definitions(&parsed, world.now).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn an_operator_looks_at_messages() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.declare(who, "q", dead_to(QueueKind::Classic, "dead"));
    world.declare(who, "dead", of(QueueKind::Classic));
    world.publish(who, "q", "a");
    world.publish(who, "q", "b");
    let id = world.queue("q").unwrap();
    let mut get = |mode| world.broker.get_messages(id, 1, mode, false, world.now)[0]["payload"].clone();
    assert_eq!(get(AckMode::AckRequeue), "a");
    assert_eq!(get(AckMode::Reject), "a");
    assert_eq!(get(AckMode::Ack), "b");
    assert_eq!((world.ready("q"), world.ready("dead")), (0, 1));
}

#[test]
fn a_drawing_shows_bindings_and_dead_letter_routes() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.declare(who, "work", dead_to(QueueKind::Quorum, "retry"));
    world.declare(who, "retry", dead_to(QueueKind::Quorum, "work").with("x-message-ttl", 5000_i32));
    world.declare_exchange(who, "in", "direct", Table::new());
    world.bind(who, "work", "in", "orders");
    let vhost = world.broker.vhost_named("/").unwrap();
    let mermaid = world.broker.mermaid(vhost);
    for line in
        ["[[\"queue work\"]]", "((\"exchange in\"))", "-- \"orders\" -->", "-. \"dead, after 5000 ms\" .->"]
    {
        assert!(mermaid.contains(line), "{line} in {mermaid}");
    }
    let dot = world.broker.dot(vhost);
    assert!(dot.contains("\"exchange in\" -> \"queue work\" [label=\"orders\"];"), "{dot}");
}

#[test]
fn nothing_that_a_client_sends_stops_the_broker() {
    use proptest::prelude::*;
    let config = ProptestConfig::with_cases(200);
    proptest!(config, |(bytes in proptest::collection::vec(any::<u8>(), 0..200), channel in 0_u16..3)| {
        let mut world = World::new(Version::V4_3);
        let who = world.client();
        world.send_bytes(who, &bytes);
        let who = world.client();
        let mut frame = BytesMut::new();
        redrive_amqp091::write_frame(FrameKind::Method, channel, &bytes, &mut frame);
        world.send_bytes(who, &frame);
        world.heard(who);
    });
    // A connection that is gone takes no commands.
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.cut(who);
    let id = world.id(who);
    world.broker.handle(id, [Command::Header], world.now);
}
