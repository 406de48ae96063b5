//! How long queues live, who may consume them, and direct replies.

use redrive_amqp091::{basic, queue};

use super::*;

#[test]
fn a_deleted_queue_cancels_its_consumers() {
    for capable in [true, false] {
        let mut world = World::new(Version::V4_3);
        let (admin, who) = (world.client(), world.connect("guest", "guest", capable));
        world.open_channel(who, 1);
        world.declare(admin, "q", of(QueueKind::Classic));
        world.publish(admin, "q", "x");
        world.consume(who, "q", "c");
        let got = world.deliveries(who).remove(0);
        world.send(admin, 1, queue::Delete { queue: short("q"), ..Default::default() });
        let expected: &[&str] = if capable { &["basic.Cancel"] } else { &[] };
        assert_eq!(world.names(who), expected);
        world.ack(who, got.tag);
        assert_eq!(world.closed(who), None, "settling what was lost does no harm");
    }
}

#[test]
fn exclusive_and_automatic_queues_end_with_their_users() {
    let mut world = World::new(Version::V3_10);
    let (one, other) = (world.client(), world.client());
    world.send(one, 1, queue::Declare { queue: short("mine"), exclusive: true, ..Default::default() });
    world.send(other, 1, queue::Declare { queue: short("mine"), passive: true, ..Default::default() });
    assert_eq!(world.closed(other).map(|(code, _)| code), Some(405));
    world.send(one, 1, queue::Declare { queue: short("auto"), auto_delete: true, ..Default::default() });
    world.consume(one, "auto", "c");
    assert!(world.queue("auto").is_some());
    world.send(one, 1, basic::Cancel { consumer_tag: short("c"), no_wait: true });
    assert!(world.queue("auto").is_none());
    world.cut(one);
    assert!(world.queue("mine").is_none());
}

#[test]
fn a_server_names_queues_and_the_last_one_can_be_left_out() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.send(who, 1, queue::Declare { exclusive: true, ..Default::default() });
    let Some(Method::Queue(redrive_amqp091::Queue::DeclareOk(ok))) = world.methods(who).pop() else {
        panic!()
    };
    assert!(ok.queue.to_str().starts_with("amq.gen-"));
    world.send(who, 1, queue::Bind { exchange: short("amq.direct"), ..Default::default() });
    assert_eq!(world.names(who), ["queue.BindOk"]);
    world.publish_with(who, "amq.direct", &ok.queue.to_str(), "x", Properties::default());
    assert_eq!(world.get(who, "").expect("bound by its own name").body, "x");
}

#[test]
fn exclusive_consumers_are_alone() {
    let mut world = World::new(Version::V4_3);
    let (one, other) = (world.client(), world.client());
    world.declare(one, "q", of(QueueKind::Classic));
    world.send(one, 1, basic::Consume { queue: short("q"), exclusive: true, ..Default::default() });
    world.heard(one);
    world.consume(other, "q", "c");
    assert_eq!(
        world.closed(other),
        Some((403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use".to_owned()))
    );
}

#[test]
fn direct_replies_need_no_queue() {
    let mut world = World::new(Version::V4_3);
    let (client, server) = (world.client(), world.client());
    world.declare(server, "rpc", of(QueueKind::Classic));
    world.send(
        client,
        1,
        basic::Consume { queue: short("amq.rabbitmq.reply-to"), no_ack: true, ..Default::default() },
    );
    world.heard(client);
    let request = Properties { reply_to: Some(short("amq.rabbitmq.reply-to")), ..Properties::default() };
    world.publish_with(client, "", "rpc", "ping", request);
    let got = world.take(server, "rpc").expect("a request");
    let address = got.properties.reply_to.expect("an address").to_string();
    world.publish(server, &address, "pong");
    assert_eq!(world.bodies(client), ["pong"]);
    world.cut(client);
    world.publish_as(
        server,
        1,
        basic::Publish { routing_key: short(&address), mandatory: true, ..Default::default() },
        "late",
        &Properties::default(),
    );
    assert_eq!(world.names(server), ["basic.Return"]);
}

#[test]
fn a_direct_reply_consumer_cannot_acknowledge_and_is_needed() {
    let mut world = World::new(Version::V4_3);
    let who = world.client();
    world.send(who, 1, basic::Consume { queue: short("amq.rabbitmq.reply-to"), ..Default::default() });
    assert_eq!(
        world.closed(who),
        Some((406, "PRECONDITION_FAILED - reply consumer cannot acknowledge".to_owned()))
    );
    let who = world.client();
    let request = Properties { reply_to: Some(short("amq.rabbitmq.reply-to")), ..Properties::default() };
    world.publish_with(who, "", "q", "x", request);
    assert_eq!(
        world.closed(who),
        Some((406, "PRECONDITION_FAILED - fast reply consumer does not exist".to_owned()))
    );
}
