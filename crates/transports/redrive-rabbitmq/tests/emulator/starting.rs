//! What is refused at the start, and in which words.

use std::time::{Duration, Instant};

use crate::common::{
    self, Scene, dead_letter, exchange, message, needs, next, publish, publish_to, retry, settle, started,
    text, with_short_wait,
};
use lapin::types::AMQPValue;
use lapin::{BasicProperties, ExchangeKind};
use redrive_contract::Started;
use redrive_core::transport::{Settlement, Signals};
use redrive_core::{Transport, TransportError, TransportErrorKind};
use redrive_rabbitmq::{QueueType, RabbitMq, Topology};

crate::tests!(
    emulator:
    a_wrong_password_is_refused_at_once,
    a_queue_with_other_arguments_is_refused,
    all_missing_queues_are_named_with_their_arguments,
    only_redrives_own_queues_are_declared,
    the_work_queue_is_bound_to_exchanges_of_the_application,
    needs_that_cannot_be_met_are_refused,
    verified_queues_are_used_as_they_are,
    queues_that_are_found_at_the_start_may_be_new,
);

async fn a_wrong_password_is_refused_at_once(scene: Scene) {
    let url = scene.url.replace("guest:guest@", "guest:s3cret-and-wrong@");
    assert_ne!(url, scene.url, "the broker's URL has guest's password");
    let since = Instant::now();
    let error = RabbitMq::connect(&url, &scene.queue).await.expect_err("refused");
    assert_eq!(error.kind(), TransportErrorKind::Unauthorized, "{error}");
    assert!(!everything_said(&error).contains("s3cret"), "{}", everything_said(&error));
    assert!(error.to_string().contains("REDRIVE_AMQP_PASSWORD"), "{error}");
    assert!(since.elapsed() < Duration::from_secs(120), "{:?}", since.elapsed());
}

async fn a_queue_with_other_arguments_is_refused(scene: Scene) {
    let text = |text: &str| AMQPValue::LongString(text.into());
    let queue_type = if scene.queue_type == QueueType::Classic { "classic" } else { "quorum" };
    scene.declare_raw(&scene.queue, &[("x-queue-type", text(queue_type))]).await;
    let transport = scene.options().connect(&scene.url).await.expect("connected");
    let error = transport.open(&needs(&[100], 1), Signals::ignored()).await.expect_err("refused");
    assert_eq!(error.kind(), TransportErrorKind::Topology, "{error}");
    let said = error.to_string();
    for part in [&*scene.queue, "PRECONDITION_FAILED", "x-dead-letter", "Topology::Verify"] {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
    transport.close().await;
    scene.tidy_up(&needs(&[100], 1)).await;
}

async fn all_missing_queues_are_named_with_their_arguments(scene: Scene) {
    let needs = needs(&[100, 60_000], 1);
    scene.started(&needs).await.close().await;
    let [work, parking, rung] = [scene.queue.clone(), scene.parking(), scene.rung(60_000)];
    let every = [&*work, &*parking, &*rung];
    for missing in [&every[..1], &every[1..2], &every[2..], &every] {
        for queue in missing {
            scene.delete(queue).await;
        }
        let transport =
            scene.options().topology(Topology::Verify).connect(&scene.url).await.expect("connected");
        let error = transport.open(&needs, Signals::ignored()).await.expect_err("refused");
        assert_eq!(error.kind(), TransportErrorKind::Topology, "{error}");
        let said = error.to_string();
        for queue in every {
            assert_eq!(
                said.contains(&format!("queue `{queue}` (durable, ")),
                missing.contains(&queue),
                "{said}"
            );
        }
        assert_eq!(said.contains("x-message-ttl=60000"), missing.contains(&&*rung), "{said}");
        transport.close().await;
        scene.started(&needs).await.close().await;
    }
    scene.tidy_up(&needs).await;
}

/// The work queue is that of somebody else, with arguments that redrive would not choose.
async fn only_redrives_own_queues_are_declared(scene: Scene) {
    let needs = needs(&[100], 5);
    let own = || with_short_wait(&scene).topology(Topology::DeclareOwn);
    let transport = own().connect(&scene.url).await.expect("connected");
    let error = transport.open(&needs, Signals::ignored()).await.expect_err("the work queue is missing");
    assert_eq!(error.kind(), TransportErrorKind::Topology, "{error}");
    assert!(error.to_string().contains(&format!("queue `{}` (durable, ", scene.queue)), "{error}");
    transport.close().await;

    let queue_type = if scene.queue_type == QueueType::Classic { "classic" } else { "quorum" };
    let arguments = [("x-queue-type", text(queue_type)), ("x-max-length", AMQPValue::LongInt(1000))];
    scene.declare_raw(&scene.queue, &arguments).await;
    let transport = own().connect(&scene.url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    assert!(!transport.facts().dead_letter.is_possible(), "only the user knows");
    assert!(transport.facts().delays.survive_crashes, "the delay queues are redrive's own");
    publish(&transport, message("a")).await;
    let hand = next(&transport).await;
    let settlement = retry(&transport, &hand.delivery, Duration::from_millis(100));
    settle(&transport, hand.receipt, settlement).await;
    let hand = next(&transport).await;
    assert_eq!(hand.delivery.attempt(), 2);
    // A shelf that somebody deletes is declared again.
    scene.delete(&scene.dead_letters()).await;
    let settlement = dead_letter(&transport, &hand.delivery);
    settle(&transport, hand.receipt, settlement).await;
    transport.close().await;
    scene.tidy_up(&needs).await;
}

async fn the_work_queue_is_bound_to_exchanges_of_the_application(scene: Scene) {
    let needs = needs(&[100], 5);
    let (shop, bank) = (format!("{}.shop", scene.queue), format!("{}.bank", scene.queue));
    let bound = |topology| {
        let options = with_short_wait(&scene).topology(topology);
        options.bind(&shop, ["order.*", "return.#"]).bind(&bank, [""])
    };
    for topology in [Topology::Declare, Topology::Verify] {
        let transport = bound(topology).connect(&scene.url).await.expect("connected");
        let error = transport.open(&needs, Signals::ignored()).await.expect_err("the exchanges are missing");
        assert_eq!(error.kind(), TransportErrorKind::Topology, "{error}");
        for exchange in [&shop, &bank] {
            assert!(error.to_string().contains(&format!("exchange `{exchange}`")), "{error}");
        }
        transport.close().await;
    }
    exchange(&scene, &shop, ExchangeKind::Topic).await;
    exchange(&scene, &bank, ExchangeKind::Fanout).await;
    for topology in [Topology::Declare, Topology::Verify] {
        let transport = started(bound(topology), &scene, &needs).await;
        for (from, key) in [(&shop, "order.paid"), (&shop, "return.late.today"), (&bank, "any")] {
            publish_to(&scene, from, key, BasicProperties::default()).await;
            let hand = next(&transport).await;
            assert_eq!(hand.delivery.routing_key(), key);
            settle(&transport, hand.receipt, Settlement::Complete).await;
        }
        transport.close().await;
    }
    scene.tidy_up(&needs).await;
    common::tidy_up(&scene, &[], &[shop, bank]).await;
}

async fn needs_that_cannot_be_met_are_refused(scene: Scene) {
    let transport = scene.options().delivery_limit(3).connect(&scene.url).await.expect("connected");
    let mut impossible = needs(&[315_360_000_001], 1);
    let error =
        transport.open(&impossible, Signals::ignored()).await.expect_err("longer than the broker can hold");
    assert_eq!(error.kind(), TransportErrorKind::Unsupported, "{error}");
    if scene.queue_type == QueueType::Quorum {
        impossible = needs(&[100], 1);
        impossible.deliveries = Some(4);
        let error = transport.open(&impossible, Signals::ignored()).await.expect_err("the broker is first");
        assert_eq!(error.kind(), TransportErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("delivery limit"), "{error}");
    }
    transport.close().await;
}

async fn verified_queues_are_used_as_they_are(scene: Scene) {
    let needs = needs(&[100], 5);
    scene.started(&needs).await.close().await;
    let transport = scene.options().topology(Topology::Verify).connect(&scene.url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    assert!(!transport.facts().dead_letter.is_possible(), "only the user knows");
    publish(&transport, message("a")).await;
    let hand = next(&transport).await;
    let refused =
        transport.settle(hand.receipt, Settlement::NativeDeadLetter).await.expect_err("not known to be safe");
    assert_eq!(refused.error.kind(), TransportErrorKind::Unsupported);
    let receipt = refused.receipt.expect("still in flight");
    transport.settle(receipt, Settlement::Complete).await.expect("completed");
    transport.close().await;
    scene.tidy_up(&needs).await;
}

#[tokio::test]
async fn nobody_listens() {
    // Taken, so that nobody else comes to listen there; and not listened on.
    let taken = tokio::net::TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = taken.local_addr().unwrap().port();
    let url = format!("amqp://guest:s3cret@127.0.0.1:{port}/");
    let error = RabbitMq::connect(&url, "orders").await.expect_err("unreachable");
    assert_eq!(error.kind(), TransportErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains(&port.to_string()), "{error}");
    assert!(!everything_said(&error).contains("s3cret"), "{}", everything_said(&error));
}

#[tokio::test]
async fn somebody_listens_and_says_nothing() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("amqp://{}/", listener.local_addr().unwrap());
    let options = RabbitMq::options("orders").connect_timeout(Duration::from_millis(300));
    let error = options.connect(&url).await.expect_err("unreachable");
    assert_eq!(error.kind(), TransportErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("300ms"), "{error}");
}

/// The error and all that caused it, in both forms.
fn everything_said(error: &TransportError) -> String {
    let mut said = format!("{error:?}");
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        said.push_str(&format!(" {error} {error:?}"));
        cause = error.source();
    }
    said
}

/// Another replica may have declared them a moment ago: a broker that is killed then loses what it confirmed.
async fn queues_that_are_found_at_the_start_may_be_new(scene: Scene) {
    let (needs, wait) = (needs(&[100], 1), Duration::from_secs(1));
    let connected =
        async || scene.options().new_queue_wait(wait).connect(&scene.url).await.expect("connected");
    let first = Started::open_only(connected().await, &needs).await.expect("opened");
    let since = Instant::now();
    let second = Started::open(connected().await, &needs).await.expect("started");
    publish(&second, message("a")).await;
    let received = next(&second).await;
    let settlement = retry(&second, &received.delivery, Duration::from_millis(100));
    settle(&second, received.receipt, settlement).await;
    if scene.queue_type == QueueType::Quorum {
        assert!(since.elapsed() >= wait, "the copy was stored after {:?}", since.elapsed());
    }
    first.close().await;
    second.close().await;
    scene.tidy_up(&needs).await;
}
