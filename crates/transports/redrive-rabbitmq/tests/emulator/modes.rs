//! What is particular to the single queue and to the stages; natively delayed retry has a file of its own.

use std::time::Duration;

use crate::common::{
    Scene, bind, complete, dead_letter, exchange, message, needs, next, publish, publish_to, redriven, retry,
    settle, settles, started, text, tidy_up, with_short_wait,
};
use lapin::options::BasicGetOptions;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, ExchangeKind};
use redrive_brokers::Proxy;
use redrive_contract::{Started, eventually};
use redrive_core::transport::{Settlement, Signals};
use redrive_core::{Count, Shelf, Shelves, Transport, TransportErrorKind, header_names};
use redrive_rabbitmq::{QueueType, SingleQueue, Staged, Topology};

crate::tests!(
    emulator:
    single_queue_goes_on_from_what_another_consumer_counted,
    single_queue_takes_over_what_is_declared_already,
    single_queue_waits_in_line_and_says_so,
    a_transient_single_queue_is_declared_anew_on_the_next_connection,
    staged_comes_back_with_the_original_routing_key,
    stages_are_verified_and_not_declared,
);

const RETRIES: &str = "x-kithara-retries";

/// What another consumer leaves: in the queue where messages wait, with its own count.
async fn leave(scene: &Scene, id: &str, retries: AMQPValue) {
    let mut headers = FieldTable::default();
    headers.insert(RETRIES.into(), retries);
    let properties = BasicProperties::default()
        .with_message_id(id.into())
        .with_expiration("50".into())
        .with_headers(headers);
    publish_to(scene, &format!("{}--backoff", scene.queue), "orders.eu", properties).await;
}

fn fanouts(scene: &Scene) -> Vec<String> {
    ["backoff", "retry"].map(|name| format!("{}--{name}", scene.queue)).to_vec()
}

async fn single_queue_goes_on_from_what_another_consumer_counted(scene: Scene) {
    let options = with_short_wait(&scene).with_durable_dead_letter_backoff();
    let transport = started(options, &scene, &needs(&[100], 10)).await;
    leave(&scene, "a", AMQPValue::LongLongInt(3)).await;
    let received = next(&transport).await;
    assert_eq!((received.delivery.id(), received.delivery.attempt()), ("a", 4));
    assert_eq!(received.delivery.routing_key(), "orders.eu");
    let settlement = retry(&transport, &received.delivery, Duration::from_secs(30));
    settle(&transport, received.receipt, settlement).await;
    // As the other consumer would read it.
    let waiting = scene.raw.basic_get(scene.dead_letters().as_str().into(), BasicGetOptions::default()).await;
    let waiting = waiting.expect("got").expect("it waits in the one queue").delivery;
    let headers = waiting.properties.headers().clone().expect("headers");
    assert_eq!(headers.inner().get(RETRIES), Some(&AMQPValue::LongLongInt(4)));
    assert_eq!(waiting.properties.expiration().as_ref().map(ShortString::as_str), Some("30000"));
    assert_eq!(waiting.routing_key.as_str(), "orders.eu");

    leave(&scene, "b", text("many")).await;
    let unreadable = next(&transport).await;
    assert_eq!(unreadable.delivery.attempt(), u32::MAX, "a count that cannot be read is not taken for none");
    complete(&transport, unreadable.receipt).await;

    leave(&scene, "c", AMQPValue::LongInt(7)).await;
    let received = next(&transport).await;
    let settlement = dead_letter(&transport, &received.delivery);
    settle(&transport, received.receipt, settlement).await;
    let shelves = transport.shelves();
    let shelved = shelves.browse(Shelf::DeadLetter, None, 10).await.expect("browsed").entries;
    assert_eq!(
        shelved[0].history.attempt,
        Count::Known(8),
        "the shelf is the end of it, and tells how often it failed"
    );
    assert_eq!(redriven(&shelves).await, 1);
    let again = next(&transport).await;
    assert_eq!((again.delivery.id(), again.delivery.attempt()), ("c", 1));
    complete(&transport, again.receipt).await;
    transport.close().await;
    tidy_up(&scene, &[], &fanouts(&scene)).await;
}

/// As the other consumer declares them, without redrive's arguments.
async fn single_queue_takes_over_what_is_declared_already(scene: Scene) {
    let queue_type = if scene.queue_type == QueueType::Classic { "classic" } else { "quorum" };
    let exchanges = fanouts(&scene);
    for name in &exchanges {
        exchange(&scene, name, ExchangeKind::Fanout).await;
    }
    scene.declare_raw(&scene.queue, &[("x-queue-type", text(queue_type))]).await;
    scene.declare_raw(&scene.dead_letters(), &[("x-dead-letter-exchange", text(&exchanges[1]))]).await;
    bind(&scene, &scene.queue, &exchanges[1], "#").await;
    bind(&scene, &scene.dead_letters(), &exchanges[0], "#").await;
    // The shelves are missing at first.
    for topology in [Topology::DeclareOwn, Topology::Verify] {
        let options = with_short_wait(&scene).delay(SingleQueue::durable()).topology(topology);
        let transport = started(options.delivery_limit(50), &scene, &needs(&[100], 10)).await;
        let facts = transport.facts();
        assert!(!facts.delays.survive_crashes && !facts.dead_letter.is_possible(), "{facts:?}");
        let properties = BasicProperties::default().with_message_id("a".into());
        scene.publish_raw(&scene.queue, b"body", properties).await;
        let received = next(&transport).await;
        let settlement = retry(&transport, &received.delivery, Duration::from_millis(100));
        settle(&transport, received.receipt, settlement).await;
        let again = next(&transport).await;
        assert_eq!((again.delivery.id(), again.delivery.attempt()), ("a", 2));
        complete(&transport, again.receipt).await;
        transport.close().await;
    }
    tidy_up(&scene, &[], &exchanges).await;
}

async fn single_queue_waits_in_line_and_says_so(scene: Scene) {
    let options =
        with_short_wait(&scene).with_durable_dead_letter_backoff().retry_queue_type(scene.queue_type);
    let transport = started(options, &scene, &needs(&[100], 10)).await;
    assert!(transport.caveats().iter().any(|caveat| caveat.contains("at least as long as those before it")));
    for id in ["long", "short"] {
        publish(&transport, message(id)).await;
    }
    // Both in flight before the first is stored: it may be back before the second is, and then it came first all the same.
    for (received, wait) in [(next(&transport).await, 1500), (next(&transport).await, 100)] {
        let settlement = retry(&transport, &received.delivery, Duration::from_millis(wait));
        settle(&transport, received.receipt, settlement).await;
    }
    for id in ["long", "short"] {
        let again = next(&transport).await;
        assert_eq!(again.delivery.id(), id, "a message passed the one before it");
        complete(&transport, again.receipt).await;
    }
    transport.close().await;
    tidy_up(&scene, &[], &fanouts(&scene)).await;
}

async fn a_transient_single_queue_is_declared_anew_on_the_next_connection(scene: Scene) {
    let address = scene.url.rsplit('@').next().unwrap().split('/').next().unwrap().to_owned();
    let proxy = Proxy::start(address.parse().unwrap()).await.expect("a proxy");
    let url = scene.url.replace(&address, &proxy.addr().to_string());
    let transport =
        with_short_wait(&scene).delay(SingleQueue::transient()).connect(&url).await.expect("connected");
    let transport = Started::open(transport, &needs(&[100], 10)).await.expect("started");
    assert!(!transport.facts().delays.survive_crashes);
    for connection in ["first", "second"] {
        // Through a connection that is not cut.
        let properties = BasicProperties::default().with_message_id(connection.into());
        scene.publish_raw(&scene.queue, b"body", properties).await;
        loop {
            let received = next(&transport).await;
            let delivery = &received.delivery;
            // What was acknowledged just before the cut may be redelivered.
            let settlement = match (delivery.id() == connection, delivery.attempt()) {
                (true, 1) => retry(&transport, delivery, Duration::from_millis(100)),
                _ => Settlement::Complete,
            };
            let came_back = delivery.id() == connection && delivery.attempt() == 2;
            // What came over the old connection just before its end is redelivered.
            if settles(&transport, received.receipt, settlement).await && came_back {
                break;
            }
        }
        proxy.cut();
    }
    transport.close().await;
    // The broker may notice a moment later that the connection is gone to which the queue belongs.
    let is_free = async || {
        let (channel, name) = (scene.channel().await, scene.dead_letters());
        channel.queue_delete(name.as_str().into(), Default::default()).await.is_ok()
    };
    eventually("the queue is free", is_free).await;
    tidy_up(&scene, &[], &fanouts(&scene)).await;
}

fn staged(scene: &Scene, main: &str) -> Staged {
    Staged::back_to(main)
        .stage(format!("{}.wait.100", scene.queue), Duration::from_millis(100))
        .stage(format!("{}.wait.60s", scene.queue), Duration::from_secs(60))
        .through(format!("{}.in.60s", scene.queue))
}

async fn staged_comes_back_with_the_original_routing_key(scene: Scene) {
    let main = format!("{}-main", scene.queue);
    exchange(&scene, &main, ExchangeKind::Topic).await;
    let options = with_short_wait(&scene)
        .delay(staged(&scene, &main).declared(true))
        .retry_queue_type(scene.queue_type);
    let transport = started(options, &scene, &needs(&[100], 10)).await;
    bind(&scene, &scene.queue, &main, "order.*").await;
    publish_to(&scene, &main, "order.eu", BasicProperties::default().with_message_id("a".into())).await;
    for attempt in 1..=3 {
        let received = next(&transport).await;
        let delivery = &received.delivery;
        assert_eq!((delivery.id(), delivery.attempt()), ("a", attempt));
        assert_eq!((delivery.exchange(), delivery.routing_key()), (&*main, "order.eu"));
        let settlement = match attempt {
            3 => Settlement::Complete,
            _ => retry(&transport, delivery, Duration::from_millis(100)),
        };
        settle(&transport, received.receipt, settlement).await;
    }
    // Straight into the queue: its key was never one of the main exchange.
    publish(&transport, message("b")).await;
    let received = next(&transport).await;
    let settlement = retry(&transport, &received.delivery, Duration::from_millis(100));
    settle(&transport, received.receipt, settlement).await;
    let again = next(&transport).await;
    assert_eq!((again.delivery.id(), again.delivery.routing_key()), ("b", &*scene.queue));
    complete(&transport, again.receipt).await;
    // A publisher claims that it came another way: the key leads nowhere, and the message would be gone.
    let forged = [
        (header_names::SOURCE_QUEUE, &*scene.queue),
        (header_names::SOURCE_EXCHANGE, &*main),
        (header_names::SOURCE_ROUTING_KEY, "nowhere"),
    ];
    let forged =
        forged.into_iter().fold(message("c"), |message, (name, value)| message.with_header(name, value));
    publish(&transport, forged).await;
    let received = next(&transport).await;
    let settlement = retry(&transport, &received.delivery, Duration::from_millis(100));
    settle(&transport, received.receipt, settlement).await;
    let again = next(&transport).await;
    assert_eq!((again.delivery.id(), again.delivery.routing_key()), ("c", &*scene.queue));
    complete(&transport, again.receipt).await;
    transport.close().await;
    let stages = ["wait.100", "wait.60s"].map(|name| format!("{}.{name}", scene.queue));
    let exchanges = ["wait.100", "in.60s"].map(|name| format!("{}.{name}", scene.queue));
    tidy_up(&scene, &stages, &[exchanges.to_vec(), vec![main]].concat()).await;
}

async fn stages_are_verified_and_not_declared(scene: Scene) {
    let main = format!("{}-main", scene.queue);
    exchange(&scene, &main, ExchangeKind::Topic).await;
    let (short, long) = (format!("{}.wait.100", scene.queue), format!("{}.wait.60s", scene.queue));
    let through = format!("{}.in.60s", scene.queue);
    let refused = async || {
        let transport = with_short_wait(&scene)
            .delay(staged(&scene, &main))
            .connect(&scene.url)
            .await
            .expect("connected");
        let error =
            transport.open(&needs(&[100], 10), Signals::ignored()).await.expect_err("something is missing");
        transport.close().await;
        assert_eq!(error.kind(), TransportErrorKind::Topology, "{error}");
        error.to_string()
    };
    assert!(refused().await.contains(&short));
    for (queue, ttl) in [(&short, 100), (&long, 60_000)] {
        let back = ("x-dead-letter-exchange", text(&main));
        scene.declare_raw(queue, &[("x-message-ttl", AMQPValue::LongInt(ttl)), back]).await;
    }
    exchange(&scene, &short, ExchangeKind::Fanout).await;
    assert!(refused().await.contains(&through));
    exchange(&scene, &through, ExchangeKind::Fanout).await;
    bind(&scene, &short, &short, "").await;
    bind(&scene, &long, &through, "").await;
    let transport =
        started(with_short_wait(&scene).delay(staged(&scene, &main)), &scene, &needs(&[100], 10)).await;
    assert!(!transport.facts().delays.survive_crashes, "nobody said that the stages are quorum queues");
    transport.close().await;
    tidy_up(&scene, &[short.clone(), long], &[short, through, main]).await;
}
