//! Dead letters that the broker moves, by an argument of the work queue or by a policy.

use std::time::Duration;

use crate::common::{
    self, Scene, complete, dead_letter, exchange, message, needs, next, publish, redriven, retry, settle,
    started, text, tidy_up, with_short_wait,
};
use lapin::options::{BasicAckOptions, BasicGetOptions, BasicRejectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, ExchangeKind};
use redrive_brokers::{Node, Version, node_in_turn};
use redrive_consumer::Consumer;
use redrive_contract::{Started, eventually, found};
use redrive_core::shelves::{Owner, Selection};
use redrive_core::transport::{Settlement, Signals};
use redrive_core::{Count, Message, Shelf, Shelves, Transport, TransportErrorKind, header_names};
use redrive_rabbitmq::{DeadLetterExchange, DeadLetters, DeathHistory, QueueType, RabbitMq, Topology};

crate::tests!(
    dead_letters_by_the_broker_tell_by_x_death_alone,
    dead_letters_go_through_a_named_exchange,
    a_dead_letter_target_that_is_missing_is_named,
    a_plain_set_up_is_taken_over_as_it_is,
    a_shelf_of_several_queues_gives_each_its_own,
    what_is_restored_or_parked_tells_of_its_deaths,
    a_stream_is_no_shelf,
    a_work_queue_that_loses_messages_is_refused,
    what_has_no_room_for_its_history_waits_for_its_shelf,
);

async fn dead_letters_by_the_broker_tell_by_x_death_alone(scene: Scene) {
    let options = with_short_wait(&scene).dead_letters(DeadLetters::Broker);
    let unknown =
        options.clone().topology(Topology::Verify).connect(&scene.url).await.expect_err("not known");
    assert_eq!(unknown.kind(), TransportErrorKind::Unsupported);
    assert!(unknown.to_string().contains("native_dead_letter"), "{unknown}");
    let transport = started(options, &scene, &needs(&[100], 10)).await;
    broker_dead_letters(&transport, &scene).await;
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

/// RabbitMQ ends the connection over a look at a stream (`basic.get`), and what is acknowledged stays in it.
async fn a_stream_is_no_shelf(scene: Scene) {
    let stream = format!("{}.stream", scene.queue);
    scene.declare_raw(&stream, &[("x-queue-type", text("stream"))]).await;
    scene.publish_raw(&stream, b"body", BasicProperties::default()).await;
    let options = scene.options().topology(Topology::Nothing).dead_letter_queue(&stream);
    for accept in [false, true] {
        let options = options.clone().accept_low_delivery_limit(accept);
        let transport = options.connect(&scene.url).await.expect("connected");
        let shelves = transport.shelves();
        for refused in [
            shelves.browse(Shelf::DeadLetter, None, 10).await.map(drop),
            shelves.redrive(Shelf::DeadLetter, &Selection::All).await.map(drop),
            shelves.discard(Shelf::DeadLetter, &Selection::All).await.map(drop),
        ] {
            let refused = refused.expect_err("nothing can be taken from it");
            assert_eq!(refused.kind(), TransportErrorKind::Unsupported);
            assert!(refused.to_string().contains("is a stream"), "{refused}");
        }
        transport.close().await;
    }
    scene.delete(&stream).await;
}

/// A stream keeps what is acknowledged, and a subscription begins at its end. An auto-delete queue goes with its last subscription, of which
/// a consumer makes more than one.
async fn a_work_queue_that_loses_messages_is_refused(scene: Scene) {
    let [stream, passing, fleeting] =
        ["stream", "passing", "fleeting"].map(|kind| format!("{}.{kind}", scene.queue));
    scene.declare_raw(&stream, &[("x-queue-type", text("stream"))]).await;
    for (queue, durable) in [(&passing, true), (&fleeting, false)] {
        let options = QueueDeclareOptions { durable, auto_delete: true, ..QueueDeclareOptions::default() };
        let channel = scene.channel().await;
        let declared = channel.queue_declare(queue.as_str().into(), options, FieldTable::default());
        declared.await.expect("declared");
    }
    for (queue, said) in [
        (&stream, "is a stream"),
        (&passing, "is an auto-delete queue"),
        (&fleeting, "is an auto-delete queue"),
    ] {
        for topology in [Topology::DeclareOwn, Topology::Verify, Topology::Nothing] {
            let options = RabbitMq::options(queue).queue_type(scene.queue_type).topology(topology);
            let options = options.dead_letter_queue(scene.dead_letters()).native_dead_letter(false);
            let transport = options.connect(&scene.url).await.expect("connected");
            let planned = Consumer::new(transport).handler(|| async {}).preflight().await.expect("asked");
            let refused = planned.findings.iter().any(|finding| finding.text.contains(said));
            assert!(refused && !planned.starts(), "{topology:?}: {planned}");
        }
        let options = RabbitMq::options(queue).queue_type(scene.queue_type).topology(Topology::DeclareOwn);
        let transport = options.connect(&scene.url).await.expect("connected");
        let refused = Started::open(transport, &needs(&[100], 5)).await.expect_err("not started");
        assert_eq!(refused.kind(), TransportErrorKind::Topology);
        assert!(refused.to_string().contains(said), "{refused}");
        scene.delete(queue).await;
        for shelf in [
            format!("{queue}--dead-letters"),
            format!("{queue}--parking-lot"),
            format!("{queue}--retry-100ms"),
        ] {
            scene.delete(&shelf).await;
        }
    }
}

/// A classic queue drops a dead letter whose queue is missing or full; a quorum queue keeps it, and looks again three minutes later.
async fn what_has_no_room_for_its_history_waits_for_its_shelf(scene: Scene) {
    /// More than a copy that goes on may take.
    const NO_ROOM_FOR_MORE: usize = 120_000;
    let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    let classic = scene.queue_type == QueueType::Classic;
    if classic {
        scene.delete(&scene.dead_letters()).await;
    }
    let fill = AMQPValue::LongString("h".repeat(NO_ROOM_FOR_MORE).into());
    let headers = common::table(&[("fill", fill)]);
    let properties = BasicProperties::default().with_message_id("large".into()).with_headers(headers);
    scene.publish_raw(&scene.queue, b"body", properties.with_expiration("600000".into())).await;
    let received = next(&transport).await;
    let settlement = dead_letter(&transport, &received.delivery);
    assert_eq!(settlement == Settlement::NativeDeadLetter, !classic, "{}", settlement.name());
    settle(&transport, received.receipt, settlement).await;
    let entries = found("it is on its shelf", async || {
        let entries = transport.shelves().browse(Shelf::DeadLetter, None, 10).await.ok()?.entries;
        (!entries.is_empty()).then_some(entries)
    })
    .await;
    let message = &entries[0].message;
    assert_eq!((entries.len(), message.id()), (1, Some("large")));
    let fill = message.headers().get("fill").and_then(|fill| fill.as_str());
    assert_eq!(fill.map(str::len), Some(NO_ROOM_FOR_MORE));
    assert_eq!(message.properties().expiration, None, "it would end there");
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

/// The set-up of every tutorial: `orders.dlx` leads to `orders.dlq`.
async fn dead_letters_go_through_a_named_exchange(scene: Scene) {
    let names = ["dlx", "fanout", "topic"].map(|kind| format!("{}.{kind}", scene.queue));
    let [direct, fanout, topic] = &names;
    let (work, spy) = (scene.queue.clone(), format!("{}.spy", scene.queue));
    scene.declare_raw(&spy, &[]).await;
    for (exchange, name, key) in [
        (DeadLetterExchange::from(direct.as_str()), direct, work.as_str()),
        (DeadLetterExchange::fanout(fanout), fanout, ""),
        (DeadLetterExchange::topic(topic).key("orders.failed"), topic, "orders.*"),
    ] {
        let options = with_short_wait(&scene).dead_letters(DeadLetters::Broker);
        let options = options.dead_letter_exchange(exchange).dead_letter_queue(format!("{work}.dlq"));
        let transport = started(options.clone(), &scene, &needs(&[100], 10)).await;
        common::bind(&scene, &spy, name, key).await;
        broker_dead_letters(&transport, &scene).await;
        transport.close().await;
        eventually("who else is bound there gets it too", async || {
            let got = scene.raw.basic_get(spy.as_str().into(), BasicGetOptions { no_ack: true }).await;
            got.expect("got").is_some()
        })
        .await;
        let verified = options.topology(Topology::Verify).native_dead_letter(true);
        started(verified, &scene, &needs(&[100], 10)).await.close().await;
        // With another exchange it would be refused.
        scene.delete(&work).await;
    }
    tidy_up(&scene, &[scene.rung(100), format!("{work}.dlq"), spy], &names).await;
}

async fn a_dead_letter_target_that_is_missing_is_named(scene: Scene) {
    let elsewhere = format!("{}.elsewhere", scene.queue);
    for (argument, what) in [("x-dead-letter-exchange", "exchange"), ("x-dead-letter-routing-key", "queue")] {
        let options = with_short_wait(&scene).argument(argument, elsewhere.as_str());
        let transport = options.clone().connect(&scene.url).await.expect("connected");
        let error = transport.open(&needs(&[100], 10), Signals::ignored()).await.expect_err("refused");
        assert_eq!(error.kind(), TransportErrorKind::Topology, "{error}");
        assert!(error.to_string().contains(&format!("{what} `{elsewhere}` does not exist")), "{error}");
        transport.close().await;
        match what {
            "queue" => scene.declare_raw(&elsewhere, &[]).await,
            _ => exchange(&scene, &elsewhere, ExchangeKind::Direct).await,
        }
        started(options, &scene, &needs(&[100], 10)).await.close().await;
        scene.delete(&scene.queue).await;
    }
    tidy_up(&scene, &[scene.rung(100), elsewhere.clone()], &[elsewhere]).await;
}

// `docs/moving-from-dlx.md`: a work queue that dead-letters into one delay queue, and a dead-letter queue with messages.
async fn a_plain_set_up_is_taken_over_as_it_is(scene: Scene) {
    let name = |part: &str| format!("{}.{part}", scene.queue);
    let kind = text(if scene.queue_type == QueueType::Classic { "classic" } else { "quorum" });
    let (dlx, wait, dlq) = (name("dlx"), name("wait"), name("dlq"));
    exchange(&scene, &dlx, ExchangeKind::Fanout).await;
    let leads_to = |exchange: &str| ("x-dead-letter-exchange", text(exchange));
    let back = ("x-dead-letter-routing-key", text(&scene.queue));
    scene.declare_raw(&wait, &[leads_to(""), back, ("x-message-ttl", AMQPValue::LongInt(100))]).await;
    common::bind(&scene, &wait, &dlx, "").await;
    scene.declare_raw(&dlq, &[]).await;
    scene.declare_raw(&scene.queue, &[("x-queue-type", kind), leads_to(&dlx)]).await;
    for (queue, id) in [(&dlq, "old"), (&scene.queue, "moved")] {
        scene.publish_raw(queue, b"body", BasicProperties::default().with_message_id(id.into())).await;
    }
    // The old consumer fails twice, and leaves the message where it waits.
    let channel = scene.channel().await;
    for _ in 0..2 {
        eventually("it comes round", async || reject_one(&channel, &scene.queue).await).await;
    }
    let options = with_short_wait(&scene).topology(Topology::DeclareOwn).attempts_from_deaths();
    let transport = started(options.clone(), &scene, &needs(&[100], 10)).await;
    let received = next(&transport).await;
    assert_eq!((received.delivery.id(), received.delivery.attempt()), ("moved", 3));
    let settlement = retry(&transport, &received.delivery, Duration::from_millis(100));
    settle(&transport, received.receipt, settlement).await;
    let received = next(&transport).await;
    assert_eq!((received.delivery.id(), received.delivery.attempt()), ("moved", 4));
    let settlement = dead_letter(&transport, &received.delivery);
    settle(&transport, received.receipt, settlement).await;
    let shelves = transport.shelves();
    let counted = async || shelves.count(Shelf::DeadLetter).await.expect("counted") == 1;
    eventually("the dead letter is counted", counted).await;
    // What rests in the old dead-letter queue, whatever its arguments are.
    let operator = scene.options().topology(Topology::Nothing).dead_letter_queue(dlq.as_str());
    let operator = operator.connect(&scene.url).await.expect("connected");
    let redriven = operator.shelves().redrive(Shelf::DeadLetter, &Selection::All).await.expect("redriven");
    assert_eq!(redriven.into_result().expect("redriven"), 1);
    operator.close().await;
    let again = next(&transport).await;
    assert_eq!((again.delivery.id(), again.delivery.attempt()), ("old", 1));
    complete(&transport, again.receipt).await;
    transport.close().await;
    if scene.queue_type == QueueType::Classic {
        let same_shelf = options.dead_letter_queue(dlq.as_str());
        started(same_shelf, &scene, &needs(&[100], 10)).await.close().await;
    }
    tidy_up(&scene, &[scene.rung(100), wait, dlq], &[dlx]).await;
}

/// One message fails, is retried, and dead-lettered.
async fn broker_dead_letters(transport: &Started<RabbitMq>, scene: &Scene) {
    publish(transport, message("a")).await;
    let received = next(transport).await;
    let settlement = retry(transport, &received.delivery, Duration::from_millis(100));
    settle(transport, received.receipt, settlement).await;
    let received = next(transport).await;
    assert_eq!(
        DeathHistory::read(received.delivery.message().headers()).deaths[0].reason,
        "expired",
        "of its wait"
    );
    let settlement = dead_letter(transport, &received.delivery);
    assert_eq!(settlement, Settlement::NativeDeadLetter);
    settle(transport, received.receipt, settlement).await;
    let shelves = transport.shelves();
    let arrived = async || shelves.count(Shelf::DeadLetter).await.expect("counted") > 0;
    eventually("the dead letter on the shelf", arrived).await;
    let shelved = shelves.browse(Shelf::DeadLetter, None, 10).await.expect("browsed").entries.remove(0);
    let deaths = DeathHistory::read(shelved.message.headers());
    assert_eq!(deaths.count_in(&scene.queue), 1);
    assert_eq!((&*deaths.deaths[0].queue, &*deaths.deaths[0].reason), (&*scene.queue, "rejected"));
    assert_eq!(shelved.broker_reason.as_deref(), Some("rejected"));
    assert_eq!(shelved.shelved_at, deaths.deaths[0].time);
    assert!(shelved.shelved_at.is_some());
    // Of the failure that led here nothing is written; of the one before what its copy carries.
    assert_eq!((shelved.message.id(), shelved.history.attempt), (Some("a"), Count::Known(1)));
    assert_eq!(redriven(&shelves).await, 1);
    let again = next(transport).await;
    assert_eq!((again.delivery.id(), again.delivery.attempt()), ("a", 1));
    complete(transport, again.receipt).await;
}

/// The same where a policy says where dead letters go.
async fn dead_letters_by_policy(version: Version) {
    let node = node_in_turn(version).await;
    for queue_type in [QueueType::Classic, QueueType::Quorum] {
        let scene = Scene::new(&node.url(), "policy", queue_type).await;
        let needs = needs(&[100], 10);
        let kind = if queue_type == QueueType::Classic { "classic" } else { "quorum" };
        dead_letter_to(&node, &scene, &scene.rung(100)).await;
        for queue in [scene.queue.clone(), scene.dead_letters(), scene.parking()] {
            scene.declare_raw(&queue, &[("x-queue-type", text(kind))]).await;
        }
        let back = [
            ("x-message-ttl", AMQPValue::LongInt(100)),
            ("x-dead-letter-exchange", text("")),
            ("x-dead-letter-routing-key", text(&scene.queue)),
        ];
        scene.declare_raw(&scene.rung(100), &back).await;
        attempts_go_on_where_a_plain_set_up_ended(&scene).await;
        dead_letter_to(&node, &scene, &scene.dead_letters()).await;
        until_dead_letters_go_to(&scene, &scene.dead_letters()).await;
        let options = with_short_wait(&scene).topology(Topology::Verify).native_dead_letter(true);
        let transport = started(options.dead_letters(DeadLetters::Broker), &scene, &needs).await;
        broker_dead_letters(&transport, &scene).await;
        transport.close().await;
    }
    node.pass_on();
}

/// Sets the policy by which dead letters of the work queue go to `queue`.
async fn dead_letter_to(node: &Node, scene: &Scene, queue: &str) {
    let (name, pattern) = (scene.queue.clone(), format!("^{}$", scene.queue));
    let definition = format!(r#"{{"dead-letter-exchange":"","dead-letter-routing-key":"{queue}"}}"#);
    let set = node.aside(move |node| {
        node.ctl(&["set_policy", &name, &pattern, &definition, "--apply-to", "queues"]).map(drop)
    });
    set.await.expect("the policy is set");
}

/// RabbitMQ 4 carries its count along: what the old consumer rejected looks like a message that killed as many processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v4_3_what_an_old_consumer_rejected_is_no_suspect() {
    const REJECTED: u32 = 12;
    let broker = common::rabbitmq(Version::V4_3).await;
    let scene = Scene::new(&broker.url, "rejected", QueueType::Quorum).await;
    let wait = format!("{}.wait", scene.queue);
    let leads_to = |queue: &str| {
        [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(queue))].to_vec()
    };
    let quorum = ("x-queue-type", text("quorum"));
    scene
        .declare_raw(
            &wait,
            &[leads_to(&scene.queue), vec![("x-message-ttl", AMQPValue::LongInt(20))]].concat(),
        )
        .await;
    scene.declare_raw(&scene.queue, &[leads_to(&wait), vec![quorum]].concat()).await;
    let properties = BasicProperties::default().with_message_id("moved".into());
    scene.publish_raw(&scene.queue, b"moved", properties).await;
    let channel = scene.channel().await;
    for _ in 0..REJECTED {
        eventually("it comes round", async || reject_one(&channel, &scene.queue).await).await;
    }
    let transport =
        started(with_short_wait(&scene).topology(Topology::DeclareOwn), &scene, &needs(&[100], 10)).await;
    let received = next(&transport).await;
    let deaths = DeathHistory::read(received.delivery.message().headers());
    assert!(deaths.delivery_count >= u64::from(REJECTED), "{deaths:?}");
    assert_eq!(received.delivery.broker_delivery_count(), 1);
    complete(&transport, received.receipt).await;
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100), wait], &[]).await;
}

/// Waits until the work queue knows of a new policy, which is later than the command ends: a message shows when.
async fn until_dead_letters_go_to(scene: &Scene, queue: &str) {
    let channel = scene.channel().await;
    let took = async |queue: &str| {
        let got = channel.basic_get(queue.into(), BasicGetOptions::default()).await.expect("asked");
        let Some(got) = got else { return false };
        got.ack(BasicAckOptions::default()).await.expect("acknowledged");
        true
    };
    eventually("the work queue knows of the policy", async || {
        scene.publish_raw(&scene.queue, b"probe", BasicProperties::default()).await;
        eventually("it can be rejected", async || reject_one(&channel, &scene.queue).await).await;
        found("it is there, or comes round", async || {
            if took(queue).await { Some(true) } else { took(&scene.queue).await.then_some(false) }
        })
        .await
    })
    .await;
}

/// Rejects the next message of a queue, without requeueing it; false where none is there.
async fn reject_one(channel: &Channel, queue: &str) -> bool {
    let got = channel.basic_get(queue.into(), BasicGetOptions::default()).await.expect("asked");
    let Some(got) = got else { return false };
    got.reject(BasicRejectOptions { requeue: false }).await.expect("rejected");
    true
}

/// A consumer without redrive rejects a message twice, which the broker sends round through a delay queue; then redrive takes over.
async fn attempts_go_on_where_a_plain_set_up_ended(scene: &Scene) {
    scene
        .publish_raw(&scene.queue, b"moved", BasicProperties::default().with_message_id("moved".into()))
        .await;
    let channel = scene.channel().await;
    for _ in 0..2 {
        eventually("it comes round", async || reject_one(&channel, &scene.queue).await).await;
    }
    let options = with_short_wait(scene).topology(Topology::Verify).attempts_from_deaths();
    let transport = started(options, scene, &needs(&[100], 10)).await;
    let received = next(&transport).await;
    assert_eq!((received.delivery.id(), received.delivery.attempt()), ("moved", 3));
    let settlement = retry(&transport, &received.delivery, Duration::from_millis(100));
    settle(&transport, received.receipt, settlement).await;
    let received = next(&transport).await;
    assert_eq!(received.delivery.attempt(), 4);
    let told = &received.delivery.history().past;
    assert!(
        told.iter().any(|past| past.error.contains("rejected 2 times")),
        "the copy keeps the deaths: {told:?}"
    );
    complete(&transport, received.receipt).await;
    transport.close().await;
}

mod policy {
    use super::*;

    mod v3_10 {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn dead_letters_go_where_it_says() {
            super::dead_letters_by_policy(super::Version::V3_10).await;
        }
    }

    mod v4_3 {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn dead_letters_go_where_it_says() {
            super::dead_letters_by_policy(super::Version::V4_3).await;
        }
    }
}

/// A message dies in `queue`, and goes to the shelf of the scene.
async fn dies_in(scene: &Scene, queue: &str, properties: BasicProperties) {
    let (dead_letters, nowhere) = (text(&scene.dead_letters()), text(""));
    let arguments = [("x-dead-letter-exchange", nowhere), ("x-dead-letter-routing-key", dead_letters)];
    scene.declare_raw(queue, &arguments).await;
    scene.publish_raw(queue, b"body", properties.with_message_id(queue.into())).await;
    let got = scene.raw.basic_get(queue.into(), BasicGetOptions { no_ack: false }).await.expect("got");
    let tag = got.expect("a message").delivery.delivery_tag;
    let reject = BasicRejectOptions { requeue: false };
    scene.raw.basic_reject(tag, reject).await.expect("rejected");
}

async fn has_dead_letters(shelves: &impl Shelves, count: u64) {
    let counted = async || shelves.count(Shelf::DeadLetter).await.expect("counted") == count;
    eventually("all are on the shelf", counted).await;
}

/// What the broker wrote on its dead letters tells where each failed, whatever a header says.
async fn a_shelf_of_several_queues_gives_each_its_own(scene: Scene) {
    let [partner, stranger] = ["partner", "stranger"].map(|name| format!("{}.{name}", scene.queue));
    let options = with_short_wait(&scene).shelves_shared_with([&partner]);
    let transport = started(options, &scene, &needs(&[100], 10)).await;
    let named = Message::new("body").with_id("own").with_header(header_names::SOURCE_QUEUE, &*stranger);
    publish(&transport, named).await;
    let received = next(&transport).await;
    settle(&transport, received.receipt, Settlement::NativeDeadLetter).await;
    for queue in [&partner, &stranger] {
        dies_in(&scene, queue, BasicProperties::default()).await;
    }
    let shelves = transport.shelves();
    has_dead_letters(&shelves, 3).await;
    let report = shelves.redrive(Shelf::DeadLetter, &Selection::All).await.expect("redriven");
    assert_eq!((report.done(), report.left_out), (2, 1), "{report:?}");
    let own = next(&transport).await;
    assert_eq!(own.delivery.id(), "own");
    complete(&transport, own.receipt).await;
    let got = scene.raw.basic_get(partner.as_str().into(), BasicGetOptions { no_ack: true }).await;
    assert!(got.expect("got").is_some(), "it shares the shelf");
    for report in
        [shelves.park(&Selection::All).await, shelves.discard(Shelf::DeadLetter, &Selection::All).await]
    {
        let report = report.expect("it begins");
        assert_eq!((report.entries.len(), report.left_out), (0, 1));
    }
    let page = shelves.browse(Shelf::DeadLetter, None, 10).await.expect("browsed");
    let [left] = &page.entries[..] else { panic!("{page:?}") };
    assert_eq!((left.owner, left.failed_in.as_deref()), (Owner::Other, Some(&*stranger)));
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100), partner, stranger], &[]).await;
}

/// A discarded dead letter of the broker is restored header for header; parked, it still tells how it died. A redrive tells nothing of it.
async fn what_is_restored_or_parked_tells_of_its_deaths(scene: Scene) {
    let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    publish(&transport, message("a")).await;
    let received = next(&transport).await;
    settle(&transport, received.receipt, Settlement::NativeDeadLetter).await;
    let shelves = transport.shelves();
    has_dead_letters(&shelves, 1).await;
    let only = async |shelf| {
        let page = shelves.browse(shelf, None, 10).await.expect("browsed");
        <[_; 1]>::try_from(page.entries).expect("one entry").into_iter().next().expect("one entry")
    };
    let before = only(Shelf::DeadLetter).await;
    assert_eq!(before.broker_reason.as_deref(), Some("rejected"));
    let handle = before.handle.clone().into();
    shelves.discard(Shelf::DeadLetter, &handle).await.expect("discarded").into_result().expect("discarded");
    shelves.restore(Shelf::DeadLetter, before.message.clone()).await.expect("restored");
    has_dead_letters(&shelves, 1).await;
    let restored = only(Shelf::DeadLetter).await;
    assert_eq!(restored.message, before.message);
    assert_eq!((restored.shelved_at, &restored.failed_in), (before.shelved_at, &Some(scene.queue.clone())));
    shelves.park(&Selection::All).await.expect("parked").into_result().expect("parked");
    assert_eq!(only(Shelf::Parking).await.broker_reason.as_deref(), Some("rejected"));
    let parked = shelves.redrive(Shelf::Parking, &Selection::All).await.expect("redriven");
    parked.into_result().expect("redriven");
    let again = next(&transport).await;
    assert!(again.delivery.message().headers().iter().all(|(name, _)| !name.contains("death")));
    complete(&transport, again.receipt).await;
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}
