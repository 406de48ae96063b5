use redrive_amqp091::{Value, basic, exchange, queue};

use super::*;

fn world_with(kind: &str, bindings: &[(&str, &str)]) -> (World, Who) {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.declare_exchange(who, "x", kind, Table::new());
    for (queue, key) in bindings {
        if world.queue(queue).is_none() {
            world.declare(who, queue, of(QueueKind::Classic));
        }
        world.bind(who, queue, "x", key);
    }
    (world, who)
}

fn reached(world: &World, queues: &[&str]) -> Vec<usize> {
    queues.iter().map(|queue| world.ready(queue)).collect()
}

#[test]
fn each_type_routes_by_its_rule() {
    let (mut world, who) = world_with("direct", &[("a", "k"), ("b", "k"), ("c", "other")]);
    world.publish_with(who, "x", "k", "m", Properties::default());
    assert_eq!(reached(&world, &["a", "b", "c"]), [1, 1, 0]);
    let (mut world, who) = world_with("fanout", &[("a", "k"), ("b", "")]);
    world.publish_with(who, "x", "any", "m", Properties::default());
    assert_eq!(reached(&world, &["a", "b"]), [1, 1]);
    let (mut world, who) = world_with("topic", &[("a", "orders.*"), ("b", "#.eu"), ("c", "bills")]);
    world.publish_with(who, "x", "orders.eu", "m", Properties::default());
    assert_eq!(reached(&world, &["a", "b", "c"]), [1, 1, 0]);
}

#[test]
fn headers_route_by_all_or_any() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.declare_exchange(who, "x", "headers", Table::new());
    let arguments = |kind: &str| Table::new().with("x-match", kind).with("a", 1_i32).with("b", "two");
    for kind in ["all", "any"] {
        world.declare(who, kind, of(QueueKind::Classic));
        world.bind_with(who, kind, "x", "", arguments(kind));
    }
    world.publish_with(who, "x", "", "m", with_headers(Table::new().with("a", 1_i64)));
    assert_eq!(reached(&world, &["all", "any"]), [0, 1]);
    world.publish_with(who, "x", "", "m", with_headers(Table::new().with("a", 1_i64).with("b", "two")));
    assert_eq!(reached(&world, &["all", "any"]), [1, 2]);
}

#[test]
fn a_queue_that_is_bound_twice_gets_one_copy() {
    let (mut world, who) = world_with("topic", &[("a", "#"), ("a", "k")]);
    world.publish_with(who, "x", "k", "m", Properties::default());
    assert_eq!(reached(&world, &["a"]), [1]);
}

#[test]
fn exchanges_lead_to_exchanges_once() {
    let (mut world, who) = world_with("fanout", &[("a", "")]);
    world.declare_exchange(who, "y", "fanout", Table::new());
    world.declare(who, "b", of(QueueKind::Classic));
    world.bind(who, "b", "y", "");
    for (source, destination) in [("x", "y"), ("y", "x")] {
        let bind =
            exchange::Bind { source: short(source), destination: short(destination), ..Default::default() };
        world.send(who, 1, bind);
        assert_eq!(world.names(who), ["exchange.BindOk"]);
    }
    world.publish_with(who, "x", "k", "m", Properties::default());
    assert_eq!(reached(&world, &["a", "b"]), [1, 1]);
    let unbind = exchange::Unbind { source: short("x"), destination: short("y"), ..Default::default() };
    world.send(who, 1, unbind);
    world.publish_with(who, "x", "k", "m", Properties::default());
    assert_eq!(reached(&world, &["a", "b"]), [2, 1]);
}

#[test]
fn an_alternate_exchange_takes_what_has_no_route() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.declare_exchange(who, "rest", "fanout", Table::new());
    world.declare_exchange(who, "x", "direct", Table::new().with("alternate-exchange", "rest"));
    world.declare_exchange(who, "y", "direct", Table::new());
    world.policy("p", "^y$", 0, serde_json::json!({"alternate-exchange": "rest"}));
    world.declare(who, "caught", of(QueueKind::Classic));
    world.bind(who, "caught", "rest", "");
    for exchange in ["x", "y"] {
        let publish = basic::Publish { exchange: short(exchange), mandatory: true, ..Default::default() };
        world.publish_as(who, 1, publish, "m", &Properties::default());
        assert_eq!(world.names(who).len(), 0, "it has a route");
    }
    assert_eq!(world.ready("caught"), 2);
}

#[test]
fn internal_exchanges_take_no_publishes() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    let declare = exchange::Declare {
        exchange: short("x"),
        kind: short("fanout"),
        internal: true,
        ..Default::default()
    };
    world.send(who, 1, declare);
    world.heard(who);
    world.publish_with(who, "x", "", "m", Properties::default());
    let text = "ACCESS_REFUSED - cannot publish to internal exchange 'x' in vhost '/'";
    assert_eq!(world.closed(who), Some((403, text.to_owned())));
}

#[test]
fn automatic_exchanges_end_with_their_last_binding() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    let declare = exchange::Declare {
        exchange: short("x"),
        kind: short("fanout"),
        auto_delete: true,
        ..Default::default()
    };
    world.send(who, 1, declare);
    world.heard(who);
    world.declare(who, "q", of(QueueKind::Classic));
    world.bind(who, "q", "x", "");
    world.send(who, 1, queue::Unbind { queue: short("q"), exchange: short("x"), ..Default::default() });
    world.heard(who);
    world.publish_with(who, "x", "", "m", Properties::default());
    assert_eq!(world.closed(who).map(|(code, _)| code), Some(404));
}

#[test]
fn cc_and_bcc_reach_further_queues() {
    let (mut world, who) = world_with("direct", &[("a", "a"), ("b", "b"), ("c", "c")]);
    let keys = |key: &str| Value::Array(vec![Value::from(key)]);
    world.publish_with(
        who,
        "x",
        "a",
        "m",
        with_headers(Table::new().with("CC", keys("b")).with("BCC", keys("c"))),
    );
    assert_eq!(reached(&world, &["a", "b", "c"]), [1, 1, 1]);
    world.publish_with(who, "x", "a", "m", with_headers(Table::new().with("CC", "b")));
    let text = "PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,\"CC\",longstr}";
    assert_eq!(world.closed(who), Some((406, text.to_owned())));
}

#[test]
fn bindings_go_with_their_queue() {
    let (mut world, who) = world_with("direct", &[("a", "k")]);
    world.send(who, 1, queue::Delete { queue: short("a"), ..Default::default() });
    world.heard(who);
    world.send(who, 1, exchange::Delete { exchange: short("x"), if_unused: true, ..Default::default() });
    assert_eq!(world.names(who), ["exchange.DeleteOk"]);
}
