//! A connection that ends while nothing is subscribed: acknowledgements may be lost with it.

use std::time::Duration;

use redrive_contract::{Started, eventually};
use redrive_core::transport::{Needs, Received, Settlement};
use redrive_core::{Message, Transport as _};
use redrive_rabbitmq::{RabbitMq, Receipt};
use redrive_rabbitmq_emulator::Emulator;

struct Orders {
    emulator: Emulator,
    transport: Started<RabbitMq>,
}

impl Orders {
    /// With one message in flight.
    async fn one_in_flight() -> (Self, Received<Receipt>) {
        let emulator = Emulator::builder().start().await.expect("started");
        let options = RabbitMq::options("orders").new_queue_wait(Duration::ZERO);
        let transport = options.connect(&emulator.url()).await.expect("connected");
        let transport = Started::open(transport, &Needs::none()).await.expect("opened");
        transport.publish(Message::new("an order")).await.expect("stored");
        let orders = Self { emulator, transport };
        let first = orders.next().await;
        (orders, first)
    }

    async fn next(&self) -> Received<Receipt> {
        let next = tokio::time::timeout(Duration::from_secs(60), self.transport.receive());
        next.await.expect("in time").expect("received").expect("open")
    }

    /// Cuts the connections, and waits until the message is back: what was written before does not arrive any more.
    async fn cut(&self) {
        self.emulator.cut_connections();
        let vhost = self.emulator.default_vhost().expect("it is there");
        let is_back = async || vhost.counts("orders").expect("the queue").ready == 1;
        eventually("the message is back", is_back).await;
    }

    /// The message comes again, and its delivery says that there was an interruption.
    async fn comes_again_after_an_interruption(self) {
        let again = self.next().await;
        assert!(again.delivery.redelivered());
        assert!(again.delivery.interruptions() > 0, "the interruption was not counted");
        assert_eq!(self.transport.interruptions(), 1, "nor told once");
        self.transport.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interruption_during_a_pause_counts() {
    let (orders, first) = Orders::one_in_flight().await;
    orders.transport.pause().await.expect("paused");
    orders.cut().await;
    // Whether that is noticed by now or not: the acknowledgement does not arrive.
    let _ = orders.transport.settle(first.receipt, Settlement::Complete).await;
    orders.transport.resume().await.expect("resumed");
    orders.comes_again_after_an_interruption().await;
}
