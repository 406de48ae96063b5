//! The test kit on the emulator of RabbitMQ.
#![cfg(feature = "rabbitmq")]

use std::sync::Arc;
use std::time::Duration;

use redrive_consumer::{Consumer, Runner};
use redrive_core::{BoxError, Disposition, Message, Publisher, Reason, mins, secs};
use redrive_rabbitmq::{Native, Options, QueueType, RabbitMq, SingleQueue};
use redrive_rabbitmq_emulator::{Emulator, Version};
use redrive_testkit::{End, OnRabbitMqEmulator, Script, TestConsumer};

async fn ship(_order: String) -> Result<(), BoxError> {
    Ok(())
}

fn order(id: &str) -> Message {
    Message::new("a lamp").with_id(id)
}

async fn emulator(version: Version) -> Arc<Emulator> {
    Arc::new(Emulator::builder().version(version).virtual_clock().start().await.unwrap())
}

fn options(queue: &str) -> Options {
    RabbitMq::options(queue).new_queue_wait(Duration::ZERO)
}

/// A consumer with this script before its handler.
async fn scripted(version: Version, script: Script) -> TestConsumer<OnRabbitMqEmulator> {
    let emulator = emulator(version).await;
    let orders = options("orders").connect(&emulator.url()).await.unwrap();
    TestConsumer::on_rabbitmq(emulator, orders, |orders| retried(orders, script))
}

fn retried(orders: RabbitMq, script: Script) -> Runner<RabbitMq> {
    Consumer::new(orders).with_dead_letter_backoff([secs(1), mins(10), mins(60)]).handler(script.then(ship))
}

fn carrier_down(times: usize) -> Script {
    Script::new().fail(times, || "the carrier does not answer")
}

#[tokio::test]
async fn a_ladder_of_an_hour_is_climbed_at_the_right_times() {
    for version in [Version::V3_10, Version::V4_3] {
        let real = std::time::Instant::now();
        let mut test = scripted(version, carrier_down(usize::MAX)).await;
        let run = test.send(order("order-1")).run().await;
        run.assert("order-1")
            .attempts_at([secs(0), secs(1), secs(601), secs(4201)])
            .failed_with("the carrier does not answer")
            .dead_lettered(Reason::MaxDeliveryCountExceeded)
            .header("redrive-attempt", 4);
        assert!(real.elapsed() < secs(60));
        assert_eq!(
            test.emulator().default_vhost().unwrap().messages("orders--dead-letters").unwrap().len(),
            1
        );
    }
}

#[tokio::test]
async fn every_delay_mode_waits_on_the_clock_of_the_broker() {
    for (version, mode) in [(Version::V4_3, "native"), (Version::V3_10, "single queue")] {
        let emulator = emulator(version).await;
        let options = options("orders").queue_type(QueueType::Quorum);
        let options = match mode {
            "native" => options.delay(Native::between(secs(2), secs(4))),
            _ => options.delay(SingleQueue::durable()),
        };
        let orders = options.connect(&emulator.url()).await.unwrap();
        let run = TestConsumer::on_rabbitmq(emulator, orders, |orders| {
            Consumer::new(orders)
                .with_dead_letter_backoff([secs(2), secs(4)])
                .handler(carrier_down(2).then(ship))
        })
        .send(order("order-1"))
        .run()
        .await;
        run.assert("order-1").attempts_at([secs(0), secs(2), secs(6)]).acknowledged();
    }
}

#[tokio::test]
async fn a_run_that_is_cut_short_goes_on_later() {
    let mut test = scripted(Version::V4_3, carrier_down(2)).await;
    let run = test.send(order("order-1")).run_for(mins(10)).await;
    run.assert("order-1").attempts(2).waiting();
    assert_eq!(run.message("order-1").end, End::Waiting(secs(601)));
    test.run().await.assert("order-1").attempts_at([secs(0), secs(1), secs(601)]).acknowledged();
}

#[tokio::test]
async fn a_message_is_redriven() {
    let mut test = scripted(Version::V3_10, carrier_down(4)).await;
    test.send(order("order-1"))
        .run()
        .await
        .assert("order-1")
        .attempts(4)
        .dead_lettered(Reason::MaxDeliveryCountExceeded);
    test.redrive("order-1").await.run().await.assert("order-1").attempts(5).acknowledged();
}

#[tokio::test]
async fn what_a_handler_publishes_is_shown() {
    let emulator = emulator(Version::V4_3).await;
    let orders = options("orders").connect(&emulator.url()).await.unwrap();
    // Declares it.
    options("invoices").connect(&emulator.url()).await.unwrap().publish(order("first")).await.unwrap();
    let invoice = async |publisher: Publisher| {
        let invoice = Message::new("90.00").with_id("invoice-1").with_header("tenant", "blue");
        publisher.to("invoices").publish(invoice).await
    };
    let mut test =
        TestConsumer::on_rabbitmq(emulator, orders, |orders| Consumer::new(orders).handler(invoice));
    let run = test.send(order("order-1")).run().await;
    run.assert("order-1").acknowledged();
    run.assert_published("invoices", ["first", "invoice-1"]);
    let invoice = &run.published("invoices")[1].message;
    assert_eq!(invoice.headers().get("tenant").and_then(|tenant| tenant.as_str()), Some("blue"));
}

/// Two delay queues take it, one after the other, and it is late by a tenth at most.
#[tokio::test]
async fn a_wait_that_has_no_delay_queue_is_as_long_as_on_rabbitmq() {
    let script = Script::new().only("snoozed").answer(1, Disposition::snooze(secs(37)));
    let mut test = scripted(Version::V4_3, script).await;
    let run = test.send(order("snoozed")).send(order("handled")).run_for(secs(1)).await;
    run.assert("snoozed").waiting();
    run.assert("handled").acknowledged();
    test.run().await.assert("snoozed").attempts_at([secs(0), secs(40)]).acknowledged();
}
