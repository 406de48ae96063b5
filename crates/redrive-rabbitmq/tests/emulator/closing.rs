//! A transport that is closed while it still begins.

use std::time::Duration;

use redrive_core::{Message, Needs, Transport as _};
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
