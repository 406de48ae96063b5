//! Queues that somebody else replaced: what is relied on is compared before each subscription.

use std::time::Duration;

use crate::common::{
    self, ARRIVAL, Scene, complete, dead_letter, message, needs, next, publish, publish_at_least_once, retry,
    settle, text, with_short_wait,
};
use crate::fault_proxy::{FaultProxy, through_proxy};
use futures::FutureExt as _;
use futures::future::join_all;
use lapin::BasicProperties;
use lapin::types::AMQPValue;
use redrive_brokers::Proxy;
use redrive_contract::{Started, eventually};
use redrive_core::transport::Received;
use redrive_core::{Shelf, Shelves as _, Transport, TransportError, TransportErrorKind};
use redrive_rabbitmq::{DeadLetters, QueueType, RabbitMq};

crate::tests!(
    a_work_queue_that_came_back_without_its_arguments_is_waited_for,
    a_work_queue_that_came_back_as_another_type_is_waited_for,
    a_work_queue_that_is_replaced_under_its_consumer_is_waited_for,
    what_waits_in_the_single_queue_finds_its_way_back,
    what_waits_in_the_single_queue_finds_its_way_into_a_queue_that_does_not_fit,
    a_consumer_that_the_broker_forgot_subscribes_again,
    a_delay_queue_out_of_reach_does_not_hold_up_the_work,
    a_work_queue_out_of_reach_is_waited_for,
    a_new_subscription_asks_on_one_channel,
    copies_that_come_back_together_declare_their_queue_once,
);

/// What the queue has when somebody declares it who knows nothing of redrive.
fn foreign(queue_type: QueueType) -> Vec<(&'static str, AMQPValue)> {
    vec![("x-queue-type", text(if queue_type == QueueType::Quorum { "quorum" } else { "classic" }))]
}

/// What redrive gives the work queue.
fn ours(scene: &Scene, dead_letters: &str) -> Vec<(&'static str, AMQPValue)> {
    let mut arguments = foreign(scene.queue_type);
    arguments
        .extend([("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(dead_letters))]);
    if scene.queue_type == QueueType::Quorum {
        arguments.extend([
            ("x-delivery-limit", AMQPValue::LongLongInt(20)),
            ("x-dead-letter-strategy", text("at-least-once")),
            ("x-overflow", text("reject-publish")),
        ]);
    }
    arguments
}

async fn proxied(scene: &Scene) -> (Proxy, String) {
    let address = common::address(&scene.url);
    let proxy = Proxy::start(address).await.expect("a proxy");
    let url = scene.url.replace(&address.to_string(), &proxy.addr().to_string());
    (proxy, url)
}

/// Deletes the work queue and declares another one, while the consumer has no connection.
async fn replaced_in_an_outage(scene: &Scene, proxy: &Proxy, arguments: &[(&str, AMQPValue)]) {
    proxy.refuse(true);
    proxy.cut();
    scene.delete(&scene.queue).await;
    scene.declare_raw(&scene.queue, arguments).await;
    proxy.refuse(false);
}

/// One message there and back: the subscription is there.
async fn works(transport: &Started<RabbitMq>) {
    publish(transport, message("a")).await;
    let hand = next(transport).await;
    complete(transport, hand.receipt).await;
}

/// Waits until the transport says that the queue does not fit, and checks that it takes nothing.
async fn is_refused(transport: &Started<RabbitMq>) -> TransportError {
    let refused = transport.disconnected_by(TransportErrorKind::Topology);
    let error = tokio::time::timeout(ARRIVAL, refused).await.expect("it says so");
    let received = transport.receive().now_or_never();
    assert!(received.is_none(), "it takes nothing, and does not end");
    error
}

async fn ready(scene: &Scene, queue: &str) -> u32 {
    scene.find(queue).await.expect("it is there").message_count()
}

/// With dead letters that the broker moves each of these messages would be lost at its first failure.
async fn a_work_queue_that_came_back_without_its_arguments_is_waited_for(scene: Scene) {
    let needs = needs(&[100], 10);
    let (proxy, url) = proxied(&scene).await;
    let options = scene.options().dead_letters(DeadLetters::Broker);
    let transport = options.connect(&url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    replaced_in_an_outage(&scene, &proxy, &foreign(scene.queue_type)).await;
    for _ in 0..3 {
        scene.publish_raw(&scene.queue, b"body", BasicProperties::default()).await;
    }
    let error = is_refused(&transport).await;
    assert_eq!(error.kind(), TransportErrorKind::Topology, "{error}");
    for part in [&*scene.queue, "other arguments", "Delete the queue"] {
        assert!(error.to_string().contains(part), "`{part}` is not in: {error}");
    }
    eventually("all three stay", async || ready(&scene, &scene.queue).await == 3).await;
    // A person mends it, and the intake goes on by itself.
    scene.delete(&scene.queue).await;
    transport.connected().await;
    publish_at_least_once(&transport, message("a")).await;
    complete(&transport, next(&transport).await.receipt).await;
    transport.close().await;
    scene.tidy_up(&needs).await;
}

async fn a_work_queue_that_came_back_as_another_type_is_waited_for(scene: Scene) {
    let needs = needs(&[100], 10);
    let (proxy, url) = proxied(&scene).await;
    let transport = scene.options().connect(&url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    let other = match scene.queue_type {
        QueueType::Classic => QueueType::Quorum,
        _ => QueueType::Classic,
    };
    replaced_in_an_outage(&scene, &proxy, &foreign(other)).await;
    let error = is_refused(&transport).await;
    assert_eq!(error.kind(), TransportErrorKind::Topology, "{error}");
    assert!(error.to_string().contains("other arguments"), "{error}");
    transport.close().await;
    scene.tidy_up(&needs).await;
}

/// The connection stays, and the broker ends the subscription.
async fn a_work_queue_that_is_replaced_under_its_consumer_is_waited_for(scene: Scene) {
    let needs = needs(&[100], 10);
    let (proxy, direct) = (Proxy::start(common::address(&scene.url)).await.expect("a proxy"), &scene.url);
    let fault_proxy = FaultProxy::start(proxy.addr()).await;
    let url = direct.replace(&common::address(direct).to_string(), &fault_proxy.addr().to_string());
    let transport = scene.options().connect(&url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    // RabbitMQ 4.3 may give up all its quorum queues over one that is deleted when it is new. A copy waits until it is older.
    publish(&transport, message("a")).await;
    let hand = next(&transport).await;
    let settlement = retry(&transport, &hand.delivery, Duration::from_millis(100));
    settle(&transport, hand.receipt, settlement).await;
    complete(&transport, next(&transport).await.receipt).await;
    // The consumer, which would declare the queue first, hears of it when it is replaced.
    proxy.freeze();
    scene.delete(&scene.queue).await;
    scene.declare_raw(&scene.queue, &foreign(scene.queue_type)).await;
    proxy.thaw();
    // RabbitMQ 3.10 may not have told.
    fault_proxy.cancel_subscription();
    let error = is_refused(&transport).await;
    assert_eq!(error.kind(), TransportErrorKind::Topology, "{error}");
    assert!(error.to_string().contains(&scene.queue), "{error}");
    transport.close().await;
    scene.tidy_up(&needs).await;
}

/// The binding to the exchange that messages come back through went with the queue.
async fn what_waits_in_the_single_queue_finds_its_way_back(scene: Scene) {
    let needs = needs(&[100], 10);
    let (proxy, url) = proxied(&scene).await;
    let options = with_short_wait(&scene).with_durable_dead_letter_backoff();
    let transport = options.connect(&url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    replaced_in_an_outage(&scene, &proxy, &ours(&scene, &format!("{}--failed", scene.queue))).await;
    publish_at_least_once(&transport, message("a")).await;
    let hand = next(&transport).await;
    let settlement = retry(&transport, &hand.delivery, Duration::from_millis(100));
    settle(&transport, hand.receipt, settlement).await;
    let again = next(&transport).await;
    assert_eq!((again.delivery.id(), again.delivery.attempt()), ("a", 2));
    complete(&transport, again.receipt).await;
    transport.close().await;
    let exchanges = ["backoff", "retry"].map(|name| format!("{}--{name}", scene.queue));
    common::tidy_up(&scene, &[], &exchanges).await;
}

/// Also where the intake waits: else the broker would drop what comes due.
async fn what_waits_in_the_single_queue_finds_its_way_into_a_queue_that_does_not_fit(scene: Scene) {
    let needs = needs(&[100], 10);
    let (proxy, url) = proxied(&scene).await;
    let options = with_short_wait(&scene).with_durable_dead_letter_backoff();
    let transport = options.connect(&url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    replaced_in_an_outage(&scene, &proxy, &foreign(scene.queue_type)).await;
    assert_eq!(is_refused(&transport).await.kind(), TransportErrorKind::Topology);
    common::publish_to(&scene, &format!("{}--retry", scene.queue), "any", BasicProperties::default()).await;
    eventually("it is there", async || ready(&scene, &scene.queue).await == 1).await;
    transport.close().await;
    let exchanges = ["backoff", "retry"].map(|name| format!("{}--{name}", scene.queue));
    common::tidy_up(&scene, &[], &exchanges).await;
}

/// RabbitMQ 3.10 does not tell the consumers of a quorum queue that is deleted and declared again back to back. It takes the
/// prefetch for handed out, and the rest waits.
async fn a_consumer_that_the_broker_forgot_subscribes_again(scene: Scene) {
    const MESSAGES: usize = 5;
    let needs = needs(&[100], 2);
    let options = scene.options().idle_check(Duration::from_secs(1)).new_queue_wait(Duration::from_secs(2));
    let transport = options.connect(&scene.url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    publish(&transport, message("a")).await;
    // Deleted in its first second, a quorum queue would not be replaced in order. A copy waits until it is older.
    let hand = next(&transport).await;
    let settlement = retry(&transport, &hand.delivery, Duration::from_millis(100));
    settle(&transport, hand.receipt, settlement).await;
    let again = next(&transport).await;
    complete(&transport, again.receipt).await;
    scene.delete(&scene.queue).await;
    scene.declare_raw(&scene.queue, &ours(&scene, &scene.dead_letters())).await;
    // The channel of the deletion is forgotten, too.
    let producer = Scene::new(&scene.url, "another", scene.queue_type).await;
    for _ in 0..MESSAGES {
        producer.publish_raw(&scene.queue, b"body", BasicProperties::default()).await;
    }
    for _ in 0..MESSAGES {
        let hand = next(&transport).await;
        complete(&transport, hand.receipt).await;
    }
    transport.close().await;
    scene.tidy_up(&needs).await;
}

/// Their queue is declared once, and not by each of them.
async fn copies_that_come_back_together_declare_their_queue_once(scene: Scene) {
    const TOGETHER: u32 = 30;
    let needs = needs(&[100], TOGETHER);
    let (fault_proxy, url) = through_proxy(&scene).await;
    let options = scene.options().new_queue_wait(Duration::from_millis(300));
    let transport = options.connect(&url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    let mut hands = Vec::new();
    for number in 0..TOGETHER {
        publish(&transport, message(number.to_string())).await;
        hands.push(next(&transport).await);
    }
    scene.delete(&scene.dead_letters()).await;
    let before = fault_proxy.opened();
    join_all(hands.into_iter().map(async |Received { delivery, receipt }| {
        let settlement = dead_letter(&transport, &delivery);
        settle(&transport, receipt, settlement).await;
    }))
    .await;
    let opened = fault_proxy.opened() - before;
    assert!(opened < TOGETHER, "{opened} channels were opened for {TOGETHER} copies");
    let shelves = transport.shelves();
    eventually("all are on the shelf", async || {
        shelves.count(Shelf::DeadLetter).await.is_ok_and(|count| count == u64::from(TOGETHER))
    })
    .await;
    transport.close().await;
    scene.tidy_up(&needs).await;
}

/// A copy for it is refused, and the message stays in flight: nothing is lost, and the others need not wait.
async fn a_delay_queue_out_of_reach_does_not_hold_up_the_work(scene: Scene) {
    let needs = needs(&[100], 10);
    let (fault_proxy, url) = through_proxy(&scene).await;
    let transport = scene.options().connect(&url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    works(&transport).await;
    fault_proxy.take_down(Some(&scene.rung(100)));
    fault_proxy.cancel_subscription();
    eventually("asked for", async || fault_proxy.missed() > 0).await;
    works(&transport).await;
    transport.close().await;
    scene.tidy_up(&needs).await;
}

async fn a_work_queue_out_of_reach_is_waited_for(scene: Scene) {
    let needs = needs(&[100], 10);
    let (fault_proxy, url) = through_proxy(&scene).await;
    let transport = scene.options().connect(&url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    works(&transport).await;
    fault_proxy.take_down(Some(&scene.queue));
    fault_proxy.cancel_subscription();
    eventually("asked for again and again", async || fault_proxy.missed() > 4).await;
    fault_proxy.take_down(None);
    works(&transport).await;
    transport.close().await;
    scene.tidy_up(&needs).await;
}

/// Hundreds of consumers may come back at once.
async fn a_new_subscription_asks_on_one_channel(scene: Scene) {
    let needs = needs(&[100, 200, 300, 400, 500], 10);
    let (fault_proxy, url) = through_proxy(&scene).await;
    let transport = scene.options().connect(&url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    publish(&transport, message("before")).await;
    let held = next(&transport).await;
    let before = fault_proxy.opened();
    fault_proxy.cancel_subscription();
    let again = next(&transport).await;
    assert_eq!(again.delivery.id(), held.delivery.id());
    assert_eq!(fault_proxy.opened() - before, 2, "one to ask, and one to take deliveries");
    complete(&transport, again.receipt).await;
    transport.close().await;
    scene.tidy_up(&needs).await;
}
