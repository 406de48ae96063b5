//! A transport that is closed or paused while it still begins.

use std::sync::Arc;
use std::time::Duration;

use redrive_consumer::Consumer;
use redrive_contract::{Started, eventually};
use redrive_core::transport::{Needs, Settlement};
use redrive_core::{Disposition, Failure, Message, Transport as _, millis, mins, secs};
use redrive_rabbitmq::{Connections, RabbitMq};
use redrive_rabbitmq_emulator::Emulator;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// On connections that live on: what a forgotten subscription holds would come to nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_delivery_stays_behind_at_any_moment() {
    let emulator = Emulator::builder().start().await.expect("started");
    let connections = Connections::connect(&emulator.url()).await.expect("connected");
    let transport = async || RabbitMq::options("orders").connect_over(&connections).await.expect("connected");
    let first = Started::open(transport().await, &Needs::none()).await.expect("opened");
    first.publish(Message::new("an order")).await.expect("stored");
    first.close().await;
    let vhost = emulator.default_vhost().expect("it is there");
    for moment in (0..40).map(|step| Duration::from_micros(step * 250)) {
        let started = Started::open(transport().await, &Needs::none()).await.expect("opened");
        tokio::time::sleep(moment).await;
        started.close().await;
        let is_back = async || {
            let counts = vhost.counts("orders").expect("the queue");
            counts.ready == 1 && counts.unacked == 0
        };
        eventually(&format!("closed after {moment:?}, it is back"), is_back).await;
    }
}

/// On connections of its own, which close with it: what RabbitMQ delivers to a channel that ends counts as a delivery that failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_during_the_start_costs_no_delivery() {
    let emulator = Emulator::builder().start().await.expect("started");
    let transport = async || {
        let options = RabbitMq::options("orders").new_queue_wait(Duration::ZERO);
        options.connect(&emulator.url()).await.expect("connected")
    };
    let opened = async || Started::open(transport().await, &Needs::none()).await.expect("opened");
    let first = Started::open_only(transport().await, &Needs::none()).await.expect("opened");
    first.publish(Message::new("an order")).await.expect("stored");
    first.close().await;
    for moment in (0..40).map(|step| Duration::from_micros(step * 100)) {
        let started = opened().await;
        tokio::time::sleep(moment).await;
        started.close().await;
    }
    let last = opened().await;
    let order = last.receive().await.expect("received").expect("open");
    assert_eq!(order.delivery.broker_delivery_count(), 1, "closing was counted");
    last.settle(order.receipt, Settlement::Complete).await.expect("settled");
    last.close().await;
}

/// Wherever the pause meets the subscription that begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_during_the_start_costs_no_delivery() {
    let emulator = Emulator::builder().start().await.expect("started");
    let options = RabbitMq::options("orders").new_queue_wait(Duration::ZERO);
    let transport = options.connect(&emulator.url()).await.expect("connected");
    let started = Started::open_only(transport, &Needs::none()).await.expect("opened");
    started.publish(Message::new("an order")).await.expect("stored");
    for moment in (0..300).map(|round| Duration::from_micros(round % 50 * 40)) {
        started.resume().await.expect("resumed");
        tokio::time::sleep(moment).await;
        started.pause().await.expect("paused");
        while let Ok(Some(order)) = started.receive().await {
            assert_eq!(order.delivery.broker_delivery_count(), 1, "the pause after {moment:?} was counted");
        }
    }
    started.close().await;
}

/// A broker without memory does not read from a connection that publishes: it would not answer to its close.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_during_an_alarm_takes_no_longer_than_the_grace_period() {
    const GRACE: Duration = secs(1);
    /// A connection that is not answered is waited for 5 s.
    const LESS_THAN_AN_ANSWER: Duration = secs(4);
    const PATIENCE: Duration = secs(30);
    const ORDERS: usize = 50;
    let emulator = Emulator::builder().start().await.expect("started");
    let options = || RabbitMq::options("orders").new_queue_wait(Duration::ZERO);
    let publisher = options().connect(&emulator.url()).await.expect("connected");
    let fails = Arc::new(Semaphore::new(0));
    let allowed = Arc::clone(&fails);
    let runner = Consumer::new(options().connect(&emulator.url()).await.expect("connected"))
        .concurrency(ORDERS)
        .grace(GRACE)
        .with_dead_letter_backoff([mins(1)])
        .handler(move || {
            let allowed = Arc::clone(&allowed);
            async move {
                allowed.acquire().await.expect("it is never closed").forget();
                Disposition::Retry(mins(1), Failure::custom("Broken", "no answer"))
            }
        });
    let handle = runner.handle();
    let task = tokio::spawn(runner.run());
    handle.wait_for_health(redrive_consumer::Health::is_ready).await;
    for order in 0..ORDERS {
        publisher.publish(Message::new("an order").with_id(format!("{order}"))).await.expect("stored");
    }
    let vhost = emulator.default_vhost().expect("it is there");
    eventually("all are in flight", async || vhost.counts("orders").expect("the queue").unacked == ORDERS)
        .await;
    emulator.raise_alarm("low on memory");
    // One copy after the other: what is sent before the client knows of the alarm is not refused.
    let is_blocked = || handle.wait_for_health(|health| health.blocked_for.is_some());
    for _ in 0..ORDERS {
        fails.add_permits(1);
        if timeout(millis(100), is_blocked()).await.is_ok() {
            break;
        }
    }
    timeout(PATIENCE, is_blocked()).await.expect("a copy is refused");
    handle.stop();
    let ended = timeout(GRACE + LESS_THAN_AN_ANSWER, task).await.expect("it waits for no answer");
    ended.expect("no panic").expect("it ends in order");
    emulator.clear_alarm();
}
