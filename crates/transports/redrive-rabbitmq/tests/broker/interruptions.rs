//! What ends in the middle, and goes on.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{
    self, Scene, complete, dead_letter, message, needs, next, publish, publish_at_least_once, settle, settles,
};
use crate::fault_proxy::through_proxy;
use futures::FutureExt as _;
use redrive_brokers::Proxy;
use redrive_consumer::{Consumer, Event, Suspects};
use redrive_contract::{Started, eventually, found};
use redrive_core::shelves::Selection;
use redrive_core::transport::{Settlement, Signals};
use redrive_core::{Delivery, Shelf, Shelves as _, Transport, TransportErrorKind};
use redrive_rabbitmq::{Options, QueueType, RabbitMq, Topology};

crate::tests!(
    a_broker_that_gives_up_a_declaration_is_asked_again,
    a_deleted_work_queue_is_declared_again,
    a_deleted_work_queue_that_is_only_verified_is_waited_for,
    an_intake_that_is_refused_is_not_ended_by_a_pause_and_a_resume,
    what_is_in_flight_when_the_subscription_ends_comes_again_at_once,
    a_silent_connection_is_given_up_within_the_heartbeats_bounds,
    a_cut_connection_is_an_interruption,
    a_consumer_that_cannot_reach_its_broker_says_so,
    acknowledgements_that_wait_when_the_connection_is_cut_are_made_good,
    acknowledgements_that_wait_are_sent_before_the_end,
    a_burst_of_settlements_just_before_the_end_is_taken_in,
    a_delivery_that_is_held_too_long_is_taken_back,
    what_the_broker_may_not_have_is_not_reported_as_done,
);

/// The acknowledgement of a message on the shelf is written, and its connection ends.
async fn what_the_broker_may_not_have_is_not_reported_as_done(scene: Scene) {
    let needs = needs(&[100], 10);
    let transport = scene.started(&needs).await;
    for id in ["a", "b"] {
        publish(&transport, message(id)).await;
        let received = next(&transport).await;
        let settlement = dead_letter(&transport, &received.delivery);
        settle(&transport, received.receipt, settlement).await;
    }
    let (fault_proxy, url) = through_proxy(&scene).await;
    let operator = scene.options().connect(&url).await.expect("connected");
    let shelves = operator.shelves();
    let both_are_there = async || shelves.count(Shelf::DeadLetter).await.is_ok_and(|count| count == 2);
    eventually("both are there", both_are_there).await;
    fault_proxy.lose_acknowledgement();
    let report = shelves.discard(Shelf::DeadLetter, &Selection::All).await.expect("a report");
    assert_eq!(report.done(), 0, "{report:?}");
    eventually("both are there again", both_are_there).await;
    operator.close().await;
    transport.close().await;
    scene.tidy_up(&needs).await;
}

async fn a_broker_that_gives_up_a_declaration_is_asked_again(scene: Scene) {
    let needs = needs(&[100], 10);
    let (fault_proxy, url) = through_proxy(&scene).await;
    let transport = scene.options().connect(&url).await.expect("connected");
    fault_proxy.refuse_declarations(3);
    let transport = Started::open(transport, &needs).await.expect("started");
    assert_eq!(fault_proxy.refusals_left(), 0);
    publish(&transport, message("a")).await;
    transport.settle(next(&transport).await.receipt, Settlement::Complete).await.expect("completed");
    transport.close().await;

    // Not for ever.
    let transport = scene.options().connect(&url).await.expect("connected");
    fault_proxy.refuse_declarations(100);
    let error = transport.open(&needs, Signals::ignored()).await.expect_err("given up each time");
    assert_eq!(error.kind(), TransportErrorKind::Unreachable, "{error}");
    assert!(fault_proxy.refusals_left() > 0);
    transport.close().await;
    scene.tidy_up(&needs).await;
}

async fn a_deleted_work_queue_is_declared_again(scene: Scene) {
    let needs = needs(&[100], 10);
    let transport = scene.started(&needs).await;
    publish(&transport, message("before")).await;
    let hand = next(&transport).await;
    scene.delete(&scene.queue).await;
    // Nothing is published while the queue is being declared: it can be found by then, and takes no message yet.
    eventually("the queue is consumed again", async || is_consumed(&scene).await).await;
    // Each is stored once and arrives once.
    for id in ["after", "last"] {
        publish(&transport, message(id)).await;
        let hand = next(&transport).await;
        assert_eq!(hand.delivery.id(), id);
        complete(&transport, hand.receipt).await;
    }
    let lost = transport.settle(hand.receipt, Settlement::Complete).await.expect_err("its queue is gone");
    assert_eq!(lost.error.kind(), TransportErrorKind::Lost, "{}", lost.error);
    assert!(lost.receipt.is_none());
    transport.close().await;
    scene.tidy_up(&needs).await;
}

async fn is_consumed(scene: &Scene) -> bool {
    scene.find(&scene.queue).await.is_ok_and(|queue| queue.consumer_count() > 0)
}

async fn a_deleted_work_queue_that_is_only_verified_is_waited_for(scene: Scene) {
    let needs = needs(&[100], 10);
    scene.started(&needs).await.close().await;
    let transport = scene.options().topology(Topology::Verify).connect(&scene.url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    scene.delete(&scene.queue).await;
    let refused = transport.disconnected_by(TransportErrorKind::Topology);
    let error = tokio::time::timeout(common::ARRIVAL, refused).await.expect("it says so");
    assert!(error.to_string().contains(&scene.queue), "{error}");
    // A person declares it again, and the intake goes on by itself.
    scene.started(&needs).await.close().await;
    transport.connected().await;
    publish(&transport, message("a")).await;
    let hand = next(&transport).await;
    transport.settle(hand.receipt, Settlement::Complete).await.expect("completed");
    transport.close().await;
    scene.tidy_up(&needs).await;
}

/// A pause that finds the intake refused returns at once; the resume comes while the intake still takes the pause in.
async fn an_intake_that_is_refused_is_not_ended_by_a_pause_and_a_resume(scene: Scene) {
    let needs = needs(&[100], 10);
    scene.started(&needs).await.close().await;
    let transport = scene.options().topology(Topology::Verify).connect(&scene.url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    scene.delete(&scene.queue).await;
    for round in 0..50 {
        let refused = transport.disconnected_by(TransportErrorKind::Topology);
        tokio::time::timeout(common::ARRIVAL, refused).await.expect("it says so");
        assert!(transport.receive().now_or_never().is_none(), "the end, in round {round}");
        transport.pause().await.expect("paused");
        transport.resume().await.expect("resumed");
    }
    scene.started(&needs).await.close().await;
    publish(&transport, message("a")).await;
    let hand = next(&transport).await;
    transport.settle(hand.receipt, Settlement::Complete).await.expect("completed");
    transport.close().await;
    scene.tidy_up(&needs).await;
}

/// As when a queue is cancelled by the broker, the channel being open: it still has what it handed out.
async fn what_is_in_flight_when_the_subscription_ends_comes_again_at_once(scene: Scene) {
    let needs = needs(&[100], 10);
    let (fault_proxy, url) = through_proxy(&scene).await;
    let transport = scene.options().connect(&url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    let mut hands = Vec::new();
    for n in 0..3 {
        publish(&transport, message(format!("m{n}"))).await;
        hands.push(next(&transport).await);
    }
    fault_proxy.cancel_subscription();
    // The handlers have them still.
    let uncounted = !transport.facts().counting.releases && scene.queue_type == QueueType::Quorum;
    let mut again = BTreeSet::new();
    while again.len() < hands.len() {
        let hand = next(&transport).await;
        assert_eq!(hand.delivery.broker_delivery_count(), if uncounted { 1 } else { 2 });
        again.insert(hand.delivery.id().to_owned());
        transport.settle(hand.receipt, Settlement::Complete).await.expect("completed");
    }
    for hand in hands {
        let lost = transport.settle(hand.receipt, Settlement::Complete).await.expect_err("taken back");
        assert_eq!(lost.error.kind(), TransportErrorKind::Lost, "{}", lost.error);
    }
    publish(&transport, message("after")).await;
    let hand = next(&transport).await;
    assert_eq!(hand.delivery.id(), "after", "nothing comes a third time");
    transport.settle(hand.receipt, Settlement::Complete).await.expect("completed");
    transport.close().await;
    scene.tidy_up(&needs).await;
}

async fn proxied(scene: &Scene) -> (Proxy, String) {
    let address = common::address(&scene.url);
    let proxy = Proxy::start(address).await.expect("a proxy");
    let url = scene.url.replace(&address.to_string(), &proxy.addr().to_string());
    (proxy, url)
}

/// With a heartbeat of a second the connection can also end before the silence, or after it, on a machine that stands still.
async fn a_silent_connection_is_given_up_within_the_heartbeats_bounds(scene: Scene) {
    let needs = needs(&[100], 10);
    let (proxy, url) = proxied(&scene).await;
    scene.started(&needs).await.close().await;
    // Of queues that are only verified it is not known that what they reject is safe.
    let options = scene.options().topology(Topology::Verify).heartbeat(Duration::from_secs(1));
    let transport = Arc::new(connected(options, &url).await);
    let transport =
        found("it starts", async || Started::open(Arc::clone(&transport), &needs).await.ok()).await;
    publish_at_least_once(&transport, message("a")).await;
    let held = tokio::sync::Mutex::new(Some(next(&transport).await.receipt));
    proxy.freeze();
    // Nobody says that the connection ended: that it is lost shows in that its delivery is.
    eventually("given up in the silence", async || {
        let mut held = held.lock().await;
        let settled = transport.settle(held.take().unwrap(), Settlement::NativeDeadLetter).await;
        *held = settled.expect_err("not safe").receipt;
        held.is_none()
    })
    .await;
    proxy.thaw();
    let producer = scene.options().connect(&scene.url).await.expect("connected directly");
    publish(&producer, message("b")).await;
    let mut arrived = BTreeSet::new();
    while !arrived.contains("b") {
        let hand = next(&transport).await;
        arrived.insert(hand.delivery.id().to_owned());
        let _ = transport.settle(hand.receipt, Settlement::Complete).await;
    }
    // Publishing goes on as well.
    publish_at_least_once(&transport, message("c")).await;
    producer.close().await;
    transport.close().await;
    scene.tidy_up(&needs).await;
}

/// Connects, however often the connection ends meanwhile.
async fn connected(options: Options, url: &str) -> RabbitMq {
    found("a connection", async || options.clone().connect(url).await.ok()).await
}

async fn a_cut_connection_is_an_interruption(scene: Scene) {
    let needs = needs(&[100], 10);
    let (proxy, url) = proxied(&scene).await;
    let transport = scene.options().connect(&url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    for n in 0..5 {
        publish(&transport, message(format!("m{n}"))).await;
    }
    for round in 0..3 {
        let hand = next(&transport).await;
        proxy.cut();
        // What had arrived before the cut may still come first; it is redelivered with a later one.
        let again = loop {
            let again = next(&transport).await;
            if again.delivery.id() == hand.delivery.id() {
                break again;
            }
        };
        let settled = transport.settle(hand.receipt, Settlement::Complete).await;
        let lost = settled.expect_err("its connection is gone");
        assert_eq!(lost.error.kind(), TransportErrorKind::Lost, "round {round}: {}", lost.error);
        drop(again);
    }
    let mut arrived = BTreeSet::new();
    while arrived.len() < 5 {
        let hand = next(&transport).await;
        let id = hand.delivery.id().to_owned();
        transport.settle(hand.receipt, Settlement::Complete).await.expect("completed");
        arrived.insert(id);
    }
    transport.close().await;
    scene.tidy_up(&needs).await;
}

async fn a_consumer_that_cannot_reach_its_broker_says_so(scene: Scene) {
    let (proxy, url) = proxied(&scene).await;
    let transport = scene.options().connect(&url).await.expect("connected");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let queue = scene.queue.clone();
    let runner = Consumer::new(transport)
        .observer(move |event: &Event<'_>| {
            let (what, of) = match event {
                Event::Interrupted { queue, .. } => ("interrupted", *queue),
                Event::Recovered { queue, .. } => ("recovered", *queue),
                Event::Paused { queue } => ("paused", *queue),
                Event::Resumed { queue } => ("resumed", *queue),
                Event::Stopped { queue, error: None } => ("stopped", *queue),
                _ => return,
            };
            assert_eq!(of, queue);
            log.lock().unwrap().push(what);
        })
        .handler(async || ());
    let handle = runner.handle();
    assert!(handle.health().is_live() && !handle.health().is_ready(), "{}", handle.health());
    let running = tokio::spawn(runner.run());
    eventually("it runs", async || handle.health().is_ready()).await;

    proxy.refuse(true);
    proxy.cut();
    eventually("it is interrupted", async || handle.health().interrupted_for.is_some()).await;
    let health = handle.health();
    assert!(health.is_live() && !health.is_ready() && health.error.is_some(), "{health}");
    proxy.refuse(false);
    eventually("it has recovered", async || handle.health().is_ready()).await;

    handle.pause();
    eventually("it is paused", async || handle.health().paused_for.is_some()).await;
    handle.resume();
    eventually("it is resumed", async || handle.health().is_ready()).await;
    handle.stop();
    running.await.expect("no panic").expect("stopped");
    let health = handle.health();
    assert!(health.is_live() && !health.is_ready(), "{health}");
    let expected = ["interrupted", "recovered", "paused", "resumed", "stopped"];
    assert_eq!(*seen.lock().unwrap(), expected);
    scene.tidy_up(&needs(&[], 10)).await;
}

/// Longer than any test: nothing is told to the broker before there is a reason to.
const NEVER: Duration = Duration::from_secs(3600);

/// Handled and settled, and the broker was told of none when the connection is cut: each is redelivered, and none is handled
/// a second time.
async fn acknowledgements_that_wait_when_the_connection_is_cut_are_made_good(scene: Scene) {
    const MESSAGES: usize = 20;
    let (proxy, url) = proxied(&scene).await;
    let transport = scene.options().ack_within(NEVER).connect(&url).await.expect("connected");
    for n in 0..MESSAGES {
        publish(&transport, message(format!("m{n}"))).await;
    }
    let (events, mut told) = tokio::sync::mpsc::unbounded_channel();
    let handled = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&handled);
    let runner = Consumer::new(transport)
        .concurrency(4)
        .prefetch(4 * MESSAGES as u32)
        // They would have it begin with a prefetch of one, and then nothing waits.
        .suspects(Suspects::none())
        .observer(move |event: &Event<'_>| match event {
            Event::Settled { .. } => events.send("settled").unwrap_or_default(),
            Event::Deduplicated { .. } => events.send("on sight").unwrap_or_default(),
            _ => {}
        })
        .handler(move |delivery: Delivery| {
            noted.lock().unwrap().push(delivery.id().to_owned());
            std::future::ready(())
        });
    let handle = runner.handle();
    let running = tokio::spawn(runner.run());
    for expected in ["settled", "on sight"] {
        for n in 0..MESSAGES {
            let event = tokio::time::timeout(common::ARRIVAL, told.recv()).await;
            assert_eq!(event.unwrap_or_else(|_| panic!("{n} of {MESSAGES} {expected}")), Some(expected));
        }
        if expected == "settled" {
            proxy.cut();
        }
    }
    handle.stop();
    let report = running.await.expect("no panic").expect("an end in order");
    assert_eq!((report.acknowledged, report.lost), (MESSAGES as u64, 0), "{report:?}");
    assert_eq!(BTreeSet::from_iter(handled.lock().unwrap().iter()).len(), MESSAGES);
    assert_eq!(handled.lock().unwrap().len(), MESSAGES, "handled a second time");
    scene.tidy_up(&needs(&[], 1)).await;
}

/// What waits is told before the consumer parts from the broker: nothing is redelivered.
async fn acknowledgements_that_wait_are_sent_before_the_end(scene: Scene) {
    const MESSAGES: usize = 60;
    let needs = needs(&[100], 200);
    let transport = scene.options().ack_within(NEVER).connect(&scene.url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    let mut hands = Vec::new();
    for n in 0..MESSAGES {
        publish(&transport, message(format!("m{n}"))).await;
        hands.push(next(&transport).await);
    }
    // The last ones first, one in the middle is given back, one is still in flight: all ways to tell of them are needed.
    let in_flight = hands.remove(5);
    let given_back = hands.remove(30);
    for hand in hands.into_iter().rev() {
        transport.settle(hand.receipt, Settlement::Complete).await.expect("completed");
    }
    transport.pause().await.expect("paused");
    transport.settle(given_back.receipt, Settlement::Release).await.expect("released");
    transport.close().await;
    drop(in_flight);
    let transport = scene.started(&needs).await;
    let mut again = BTreeSet::new();
    for _ in 0..2 {
        let hand = next(&transport).await;
        again.insert(hand.delivery.id().to_owned());
        transport.settle(hand.receipt, Settlement::Complete).await.expect("completed");
    }
    assert_eq!(again, BTreeSet::from(["m31".to_owned(), "m5".to_owned()]));
    // One more, behind all that could still come.
    publish(&transport, message("last")).await;
    assert_eq!(next(&transport).await.delivery.id(), "last");
    transport.close().await;
    scene.tidy_up(&needs).await;
}

/// Nobody holds on to the subscription any more when the transport is closed: the intake has ended, the last receipt is gone.
async fn a_burst_of_settlements_just_before_the_end_is_taken_in(scene: Scene) {
    const MESSAGES: usize = 400;
    let needs = needs(&[100], 400);
    let transport = scene.options().ack_within(Duration::ZERO).connect(&scene.url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    let mut hands = Vec::new();
    for n in 0..MESSAGES {
        publish(&transport, message(format!("m{n}"))).await;
        hands.push(next(&transport).await);
    }
    transport.pause().await.expect("paused");
    for hand in hands.into_iter().rev() {
        transport.settle(hand.receipt, Settlement::Complete).await.expect("completed");
    }
    transport.close().await;
    let transport = scene.started(&needs).await;
    publish(&transport, message("last")).await;
    assert_eq!(next(&transport).await.delivery.id(), "last");
    transport.close().await;
    scene.tidy_up(&needs).await;
}

async fn a_delivery_that_is_held_too_long_is_taken_back(scene: Scene) {
    let needs = needs(&[100], 1);
    let limit = Duration::from_secs(2);
    let transport = scene.options().consumer_timeout(limit).connect(&scene.url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    let facts = transport.facts();
    let counts_acquired = !facts.counting.releases;
    let by_request = scene.queue_type == QueueType::Quorum && counts_acquired;
    let never = scene.queue_type == QueueType::Classic && is_4_3(&scene);
    assert_eq!(facts.limits.hold, (!never).then_some(limit));
    // Elsewhere it is only what the broker is said to be configured with.
    if by_request {
        publish(&transport, message("a")).await;
        let held = next(&transport).await;
        // On a machine that stands still it may be held too long once more.
        loop {
            let again = next(&transport).await;
            assert_eq!((again.delivery.id(), again.delivery.attempt()), ("a", 1), "it costs no attempt");
            assert_eq!(again.delivery.broker_delivery_count(), 1, "nor a delivery");
            if settles(&transport, again.receipt, Settlement::Complete).await {
                break;
            }
        }
        drop(held);
    }
    transport.close().await;
    scene.tidy_up(&needs).await;
}

fn is_4_3(scene: &Scene) -> bool {
    redrive_brokers::shared_url(redrive_brokers::Version::V4_3).is_some_and(|url| url == scene.url)
}
