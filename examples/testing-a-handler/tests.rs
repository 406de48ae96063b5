//! What becomes of orders when things go wrong. Each test takes milliseconds, whatever the policy waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redrive::Reason;
use redrive::prelude::*;
use redrive_testkit::{Script, TestConsumer};
use testing_a_handler::{Carrier, Order, ShipError, consumer, retries, ship};

fn order(id: &str, item: &str) -> Message {
    Message::json(&Order { item: item.to_owned() }).expect("it is JSON").with_id(id)
}

/// Books everything.
fn carrier() -> Carrier {
    Arc::new(|_: &Order| Ok(4711))
}

#[tokio::test(start_paused = true)]
async fn an_order_is_shipped_and_a_mail_is_sent() {
    let run =
        TestConsumer::new(|orders| consumer(orders, carrier())).send(order("order-1", "lamp")).run().await;
    run.assert("order-1").attempts(1).acknowledged();
    run.assert_published("mails", ["mail-order-1"]);
    assert_eq!(run.published("mails")[0].message.body(), "shipment 4711");
}

#[tokio::test(start_paused = true)]
async fn a_carrier_that_is_down_is_asked_four_times() {
    let down: Carrier = Arc::new(|_: &Order| Err(ShipError::CarrierDown));
    let run = TestConsumer::new(|orders| consumer(orders, down)).send(order("order-1", "lamp")).run().await;
    run.assert("order-1")
        .attempts_at([secs(0), secs(1), secs(11), secs(71)])
        .failed_with("the carrier does not answer")
        .dead_lettered(Reason::MaxDeliveryCountExceeded);
    run.assert_published("mails", []);
}

#[tokio::test(start_paused = true)]
async fn what_no_attempt_mends_is_not_tried_again() {
    let large: Carrier = Arc::new(|order: &Order| Err(ShipError::TooLarge(order.item.clone())));
    let mut test = TestConsumer::new(|orders| consumer(orders, large));
    test.send(order("order-1", "piano")).send(Message::new("{ not an order").with_id("order-2"));
    let run = test.run().await;
    run.assert("order-1").attempts(1).failed_with("takes a piano").dead_lettered(Reason::NonRetryableError);
    run.assert("order-2").attempts(1).failed_with("the body is not").dead_lettered(Reason::NonRetryableError);
}

/// A script fails before the handler: no carrier has to be written for it.
#[tokio::test(start_paused = true)]
async fn an_order_survives_a_failure_and_a_panic() {
    let script = Script::new().only("order-1").fail(1, || ShipError::CarrierDown).panic(1, "out of range");
    let mut test = TestConsumer::new(|orders| {
        Consumer::new(orders).with_dead_letter_backoff(retries()).handler_with(carrier(), script.then(ship))
    });
    let run = test.send(order("order-1", "lamp")).send(order("order-2", "chair")).run().await;
    run.assert("order-1").attempts_at([secs(0), secs(1), secs(11)]).acknowledged();
    run.assert("order-2").attempts(1).acknowledged();
    run.assert_published("mails", ["mail-order-2", "mail-order-1"]);
}

#[tokio::test(start_paused = true)]
async fn an_operator_redrives_once_the_carrier_is_back() {
    let back = Arc::new(AtomicBool::new(false));
    let is_back = Arc::clone(&back);
    let carrier: Carrier = Arc::new(move |_: &Order| match is_back.load(Ordering::Relaxed) {
        true => Ok(4711),
        false => Err(ShipError::CarrierDown),
    });
    let mut test = TestConsumer::new(|orders| consumer(orders, carrier));
    let run = test.send(order("order-1", "lamp")).run().await;
    run.assert("order-1").attempts(4).dead_lettered(Reason::MaxDeliveryCountExceeded);

    back.store(true, Ordering::Relaxed);
    let run = test.redrive("order-1").await.run().await;
    run.assert("order-1").attempts(5).acknowledged();
}
