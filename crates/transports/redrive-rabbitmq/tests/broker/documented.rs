//! What the documentation says of the broker and of names, held by tests.

use std::time::Duration;

use crate::common::{
    self, Scene, bind, complete, dead_letter, exchange, message, needs, next, publish, publish_to, retry,
    settle, started, text, tidy_up, try_published, with_short_wait,
};
use lapin::options::{BasicGetOptions, BasicRejectOptions, ExchangeDeclareOptions};
use lapin::types::{AMQPValue, FieldArray, FieldTable};
use lapin::{BasicProperties, ExchangeKind};
use redrive_brokers::{Node, Version, node_in_turn};
use redrive_contract::{Started, eventually, found};
use redrive_core::shelves::Selection;
use redrive_core::transport::Settlement;
use redrive_core::{Disposition, Shelf, Shelves, Transport, TransportErrorKind};
use redrive_rabbitmq::{
    DeadLetterExchange, DeadLetters, Delay, Entity, Options, QueueType, RabbitMq, SingleQueue, Staged,
    Topology,
};

crate::tests!(
    dead_letters_of_the_broker_reach_no_queue_of_cc_and_bcc,
    every_part_has_the_name_that_it_was_given,
    every_part_of_the_single_queue_has_the_name_that_it_was_given,
    every_stage_has_the_name_that_it_was_given,
);

/// RabbitMQ 4.3 leaves `CC` on a dead letter, so that a copy with it would reach those queues again.
async fn dead_letters_of_the_broker_reach_no_queue_of_cc_and_bcc(scene: Scene) {
    let dlx = format!("{}.dlx", scene.queue);
    let bystanders = [format!("{}-cc", scene.queue), format!("{}-bcc", scene.queue)];
    let mut headers = FieldTable::default();
    for (name, queue) in ["CC", "BCC"].into_iter().zip(&bystanders) {
        scene.declare_raw(queue, &[]).await;
        let list = FieldArray::from(vec![text(queue)]);
        headers.insert(name.into(), AMQPValue::FieldArray(list));
    }
    let through_exchange = with_short_wait(&scene).dead_letter_exchange(dlx.as_str());
    for options in [with_short_wait(&scene), through_exchange] {
        let transport = started(options.dead_letters(DeadLetters::Broker), &scene, &needs(&[100], 5)).await;
        let properties = BasicProperties::default().with_headers(headers.clone());
        scene.publish_raw(&scene.queue, b"body", properties).await;
        let hand = next(&transport).await;
        transport.settle(hand.receipt, Settlement::NativeDeadLetter).await.expect("dead-lettered");
        redriven(&transport, Shelf::DeadLetter).await;
        complete(&transport, next(&transport).await.receipt).await;
        transport.close().await;
        for queue in &bystanders {
            let get = || scene.raw.basic_get(queue.as_str().into(), BasicGetOptions { no_ack: true });
            assert!(get().await.expect("an answer").is_some(), "{queue} has the publisher's copy");
            assert!(get().await.expect("an answer").is_none(), "{queue} has another one");
        }
        scene.delete(&scene.queue).await;
    }
    tidy_up(&scene, &[scene.rung(100), bystanders[0].clone(), bystanders[1].clone()], &[dlx]).await;
}

async fn every_part_has_the_name_that_it_was_given(scene: Scene) {
    let name = |part: &str| format!("{}.{part}", scene.queue);
    let shop = name("shop");
    exchange(&scene, &shop, ExchangeKind::Direct).await;
    let options = with_short_wait(&scene)
        .dead_letter_exchange(DeadLetterExchange::direct(name("dlx")).key(name("dead")))
        .dead_letter_queue(name("dlq"))
        .parking_queue(name("parked"))
        .retry_prefix(name("wait"))
        .bind(&shop, [name("key")]);
    let transport = started(options, &scene, &needs(&[100], 5)).await;
    publish_to(&scene, &shop, &name("key"), BasicProperties::default().with_message_id("a".into())).await;
    goes_everywhere(&transport).await;
    rejected_goes_to_the_shelf(&scene, &transport).await;
    transport.close().await;
    let queues = [name("dlq"), name("parked"), name("wait-100ms")];
    let exchanges = [shop, name("dlx")];
    nothing_else_is_there(&scene, &queues, &exchanges).await;
    tidy_up(&scene, &queues, &exchanges).await;
}

async fn every_part_of_the_single_queue_has_the_name_that_it_was_given(scene: Scene) {
    let name = |part: &str| format!("{}.{part}", scene.queue);
    let delay = SingleQueue::durable()
        .queue(Entity::durable().named(name("waiting")))
        .backoff_exchange(Entity::durable().named(name("in")))
        .retry_exchange(Entity::durable().named(name("out")));
    delays_with_these_only(&scene, delay, name("waiting"), &[name("in"), name("out")]).await;
}

async fn every_stage_has_the_name_that_it_was_given(scene: Scene) {
    let name = |part: &str| format!("{}.{part}", scene.queue);
    exchange(&scene, &name("shop"), ExchangeKind::Direct).await;
    let delay = Staged::back_to(name("shop"))
        .stage(name("stage"), Duration::from_millis(100))
        .through(name("into-stage"))
        .other_key(name("key"))
        .declared(true);
    delays_with_these_only(&scene, delay, name("stage"), &[name("shop"), name("into-stage")]).await;
}

/// A message goes everywhere, with this delay queue and these exchanges.
async fn delays_with_these_only(
    scene: &Scene,
    delay: impl Into<Delay>,
    delay_queue: String,
    exchanges: &[String],
) {
    let name = |part: &str| format!("{}.{part}", scene.queue);
    let options =
        with_short_wait(scene).delay(delay).dead_letter_queue(name("dlq")).parking_queue(name("parked"));
    let transport = started(options, scene, &needs(&[100], 5)).await;
    publish(&transport, message("a")).await;
    goes_everywhere(&transport).await;
    transport.close().await;
    let queues = [name("dlq"), name("parked"), delay_queue];
    nothing_else_is_there(scene, &queues, exchanges).await;
    tidy_up(scene, &queues, exchanges).await;
}

/// The next message is retried, dead-lettered, redriven, parked, redriven and completed.
async fn goes_everywhere(transport: &Started<RabbitMq>) {
    let hand = next(transport).await;
    let settlement = retry(transport, &hand.delivery, Duration::from_millis(100));
    settle(transport, hand.receipt, settlement).await;
    for shelf in [Shelf::DeadLetter, Shelf::Parking] {
        let hand = next(transport).await;
        let settlement = match shelf {
            Shelf::Parking => transport.plan(&hand.delivery, Disposition::Park(common::failure())),
            _ => dead_letter(transport, &hand.delivery),
        };
        settle(transport, hand.receipt, settlement).await;
        redriven(transport, shelf).await;
    }
    complete(transport, next(transport).await.receipt).await;
}

/// The only message of a shelf is redriven, once it is there.
async fn redriven(transport: &Started<RabbitMq>, shelf: Shelf) {
    let shelves = transport.shelves();
    eventually("it is on the shelf", async || shelves.count(shelf).await.expect("counted") == 1).await;
    let redriven = shelves.redrive(shelf, &Selection::All).await.expect("redriven");
    assert_eq!(redriven.into_result().expect("redriven"), 1);
}

async fn rejected_goes_to_the_shelf(scene: &Scene, transport: &Started<RabbitMq>) {
    publish(transport, message("rejected")).await;
    let hand = next(transport).await;
    transport.settle(hand.receipt, Settlement::NativeDeadLetter).await.expect("dead-lettered");
    let shelf = format!("{}.dlq", scene.queue);
    eventually("the rejected one is there", async || {
        let got = scene.raw.basic_get(shelf.as_str().into(), BasicGetOptions { no_ack: true }).await;
        got.expect("an answer").is_some()
    })
    .await;
}

/// These queues and exchanges are there, and no queue with a name by default.
async fn nothing_else_is_there(scene: &Scene, queues: &[String], exchanges: &[String]) {
    for queue in queues {
        assert!(scene.find(queue).await.is_ok(), "{queue}");
    }
    for exchange in exchanges {
        let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        let (name, direct) = (exchange.as_str().into(), ExchangeKind::Direct);
        let found =
            scene.channel().await.exchange_declare(name, direct, passive, FieldTable::default()).await;
        assert!(found.is_ok(), "{exchange}");
    }
    let failed = format!("{}--failed", scene.queue);
    for queue in [scene.dead_letters(), scene.parking(), scene.rung(100), failed] {
        assert!(scene.find(&queue).await.is_err(), "{queue}");
    }
}

/// Tests on a node of their own: users and policies are for all of a broker.
mod own_node {
    use super::*;

    mod v3_10 {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn the_permissions_of_the_page_are_enough_and_needed() {
            super::the_permissions_of_the_page_are_enough_and_needed(super::Version::V3_10).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn an_argument_comes_before_a_policy() {
            super::an_argument_comes_before_a_policy(super::Version::V3_10).await;
        }
    }

    mod v4_3 {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn the_permissions_of_the_page_are_enough_and_needed() {
            super::the_permissions_of_the_page_are_enough_and_needed(super::Version::V4_3).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn an_argument_comes_before_a_policy() {
            super::an_argument_comes_before_a_policy(super::Version::V4_3).await;
        }
    }
}

async fn ctl<const N: usize>(node: &Node, arguments: [&str; N]) {
    let arguments = arguments.map(str::to_owned);
    let run = move |node: &Node| node.ctl(&arguments.each_ref().map(String::as_str));
    node.aside(run).await.expect("rabbitmqctl works");
}

/// What a user may do: patterns of names.
#[derive(Clone, Copy, Debug)]
struct Grants {
    configure: &'static str,
    write: &'static str,
    read: &'static str,
}

const NOTHING: &str = "^$";

async fn the_permissions_of_the_page_are_enough_and_needed(version: Version) {
    let node = node_in_turn(version).await;
    ctl(&node, ["add_user", "app", "s3cret"]).await;
    let scene = Scene::new(&node.url(), "permissions", QueueType::Quorum).await;
    exchange(&scene, "shop", ExchangeKind::Direct).await;
    let short = |options: Options| options.new_queue_wait(Duration::from_millis(300));
    let plain = || short(RabbitMq::options("orders"));
    let with_exchanges =
        || short(RabbitMq::options("bills").bind("shop", ["bills"]).dead_letter_exchange("bills.dlx"));
    let declare = Grants { configure: "^orders", write: "^amq\\.default$", read: "^orders(--retry.*)?$" };
    let exchanges = Grants {
        configure: "^bills",
        write: "^(amq\\.default|bills|bills\\.dlx|bills--dead-letters)$",
        read: "^(bills(--retry.*)?|bills\\.dlx|shop)$",
    };
    let own = Grants { configure: "^orders--", write: "^amq\\.default$", read: "^orders(--retry.*)?$" };
    // RabbitMQ 4.3 lets nobody look whether a queue exists who has no right on it.
    let verified = if version == Version::V3_10 { "^orders$" } else { "^orders" };
    let verify = Grants { configure: NOTHING, write: "^amq\\.default$", read: verified };
    let nothing = Grants { configure: NOTHING, write: "^amq\\.default$", read: "^orders$" };
    // First what is refused: where a queue exists already, RabbitMQ asks for less.
    for (options, grants) in [
        (plain(), Grants { configure: "^orders--", ..declare }),
        (plain(), Grants { read: "^orders--", ..declare }),
        (plain(), Grants { read: "^orders$", ..declare }),
        (plain(), Grants { write: NOTHING, ..declare }),
        (plain().topology(Topology::DeclareOwn), Grants { configure: NOTHING, ..own }),
        (with_exchanges(), Grants { configure: "^bills(--.*)?$", ..exchanges }),
        (with_exchanges(), Grants { write: "^(amq\\.default|bills|bills\\.dlx)$", ..exchanges }),
        (with_exchanges(), Grants { read: "^(bills(--retry.*)?|shop)$", ..exchanges }),
        (with_exchanges(), Grants { write: "^(amq\\.default|bills|bills--dead-letters)$", ..exchanges }),
        (
            with_exchanges(),
            Grants { write: "^(amq\\.default|bills\\.dlx|bills--dead-letters)$", ..exchanges },
        ),
        (with_exchanges(), Grants { read: "^(bills(--retry.*)?|bills\\.dlx)$", ..exchanges }),
    ] {
        let refused = works(&node, options.clone(), grants).await;
        assert_eq!(refused, Err(TransportErrorKind::Unauthorized), "{options:?} {grants:?}");
    }
    for (options, grants) in [
        (plain(), declare),
        (with_exchanges(), exchanges),
        (plain().topology(Topology::DeclareOwn), own),
        (plain().topology(Topology::Verify), verify),
        (plain().topology(Topology::Nothing), nothing),
    ] {
        assert_eq!(works(&node, options.clone(), grants).await, Ok(()), "{options:?} {grants:?}");
    }
    // An operator reads the shelves, and redrives what is there.
    let operator = Grants { configure: NOTHING, write: "^amq\\.default$", read: "^orders--" };
    let transport = connected(&node, plain().topology(Topology::Nothing), operator).await;
    let shelves = transport.shelves();
    shelves.browse(Shelf::DeadLetter, None, 10).await.expect("browsed");
    let redriven = shelves.redrive(Shelf::DeadLetter, &Selection::All).await.expect("redriven");
    assert!(redriven.done() > 0, "{redriven:?}");
    let refused = shelves.reported().await.expect_err("may not declare");
    assert_eq!(refused.kind(), TransportErrorKind::Unauthorized, "{refused}");
    // Who may not keep others out holds nothing from them.
    let leased = shelves.lease(Shelf::DeadLetter).await;
    assert!(matches!(leased, Ok(None)), "{leased:?}");
    if version != Version::V3_10 {
        let refused = shelves.work_queue().await.expect_err("may not look");
        assert_eq!(refused.kind(), TransportErrorKind::Unauthorized, "{refused}");
    }
    transport.close().await;
    let watching = Grants {
        configure: "^redrive-(reports|lease)\\.",
        read: "^(orders(--.*)?|redrive-(reports|lease)\\..*)$",
        ..operator
    };
    let transport = connected(&node, plain().topology(Topology::Nothing), watching).await;
    let mut reported = transport.shelves().reported().await.expect("declared").expect("reports");
    reported.reports.take().await.expect("read");
    transport.shelves().work_queue().await.expect("seen");
    let leased = transport.shelves().lease(Shelf::DeadLetter).await.expect("leased").expect("a lease");
    let other = connected(&node, plain().topology(Topology::Nothing), watching).await;
    let refused = other.shelves().lease(Shelf::DeadLetter).await.expect_err("it is leased");
    assert_eq!(refused.kind(), TransportErrorKind::Locked, "{refused}");
    other.close().await;
    leased.lease.end().await;
    transport.close().await;
    let transport = connected(&node, plain(), declare).await;
    let refused = transport.shelves().browse(Shelf::DeadLetter, None, 10).await.expect_err("may not read");
    assert_eq!(refused.kind(), TransportErrorKind::Unauthorized, "{refused}");
    transport.close().await;
    node.pass_on();
}

async fn connected(node: &Node, options: Options, Grants { configure, write, read }: Grants) -> RabbitMq {
    ctl(node, ["set_permissions", "app", configure, write, read]).await;
    options.connect(&node.url().replace("guest:guest@", "app:s3cret@")).await.expect("connected")
}

/// A message is retried and dead-lettered.
async fn works(node: &Node, options: Options, grants: Grants) -> Result<(), TransportErrorKind> {
    let transport = connected(node, options, grants).await;
    let transport = match Started::open(transport, &needs(&[100], 5)).await {
        Ok(transport) => transport,
        Err(refused) => return Err(refused.kind()),
    };
    if let Err(error) = try_published(&transport.publisher(), message("a")).await {
        assert!(error.to_string().contains("ACCESS_REFUSED"), "{error}");
        transport.close().await;
        return Err(TransportErrorKind::Unauthorized);
    }
    let hand = next(&transport).await;
    let settlement = retry(&transport, &hand.delivery, Duration::from_millis(100));
    settle(&transport, hand.receipt, settlement).await;
    let hand = next(&transport).await;
    assert_eq!(hand.delivery.attempt(), 2);
    let settlement = dead_letter(&transport, &hand.delivery);
    settle(&transport, hand.receipt, settlement).await;
    transport.close().await;
    Ok(())
}

async fn an_argument_comes_before_a_policy(version: Version) {
    let node = node_in_turn(version).await;
    for (queue_type, kind) in [(QueueType::Classic, "classic"), (QueueType::Quorum, "quorum")] {
        let scene = Scene::new(&node.url(), "both", queue_type).await;
        let queue = |name: &str| format!("{}.{name}", scene.queue);
        for name in ["argument", "policy"] {
            scene.declare_raw(&queue(name), &[]).await;
            exchange(&scene, &queue(name), ExchangeKind::Fanout).await;
            bind(&scene, &queue(name), &queue(name), "").await;
        }
        let definition = format!(
            r#"{{"dead-letter-exchange":"{}","dead-letter-routing-key":"of-policy"}}"#,
            queue("policy")
        );
        let pattern = format!("^{}\\.work", scene.queue);
        ctl(&node, ["set_policy", "both", &pattern, &definition, "--apply-to", "queues"]).await;
        let argument = ("x-dead-letter-exchange", text(&queue("argument")));
        let both = ("x-dead-letter-routing-key", text("of-argument"));
        let kind = ("x-queue-type", text(kind));
        for (name, arguments, goes_to, key) in [
            ("work-plain", &[kind.clone()][..], "policy", "of-policy"),
            ("work-both", &[kind.clone(), argument.clone(), both], "argument", "of-argument"),
            ("work-exchange", &[kind.clone(), argument], "argument", "of-policy"),
        ] {
            scene.declare_raw(&queue(name), arguments).await;
            scene.publish_raw(&queue(name), b"body", BasicProperties::default()).await;
            let get = async |name: &str| {
                let got = scene.raw.basic_get(queue(name).as_str().into(), BasicGetOptions::default()).await;
                got.expect("an answer").map(|got| got.delivery)
            };
            let rejected = found("it can be rejected", async || get(name).await).await;
            rejected.reject(BasicRejectOptions { requeue: false }).await.expect("rejected");
            let dead = found("it is dead-lettered", async || get(goes_to).await).await;
            assert_eq!(dead.routing_key.as_str(), key, "{name}");
            dead.ack(Default::default()).await.expect("acknowledged");
        }
    }
    node.pass_on();
}
