//! A transport that is closed or paused while it still begins.

use std::time::Duration;

use redrive_core::{Message, Needs, Settlement, Transport as _};
use redrive_rabbitmq::{Connections, RabbitMq};
use redrive_rabbitmq_emulator::Emulator;
use redrive_testkit::contract::{Started, eventually};

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
