//! Several kinds of message in one queue, each with a handler and a policy of its own, and another queue beside it.
//!
//! ```console
//! $ cargo run --package services -- kinds
//! ```

use redrive::memory::MemoryBroker;
use redrive::prelude::*;
use redrive::{Backoff, Report};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
struct Placed {
    order: u32,
}

#[derive(Deserialize, Serialize)]
struct Cancelled {
    order: u32,
    reason: String,
}

async fn ship(Json(placed): Json<Placed>) {
    println!("shipping {}", placed.order);
}

/// Refunds at the second attempt: banks are slow.
async fn refund(Json(cancelled): Json<Cancelled>, Attempt(attempt): Attempt) -> Result<(), BoxError> {
    if attempt == 1 {
        return Err("the bank does not answer".into());
    }
    println!("refunding {}: {}", cancelled.order, cancelled.reason);
    Ok(())
}

async fn send(mail: String) {
    println!("sending: {mail}");
}

pub(crate) async fn run(broker: &MemoryBroker) -> Result<(), BoxError> {
    for (queue, report) in serve(broker).await? {
        println!("{queue}: {} acknowledged, {} dead-lettered", report.acknowledged, report.dead_lettered);
    }
    Ok(())
}

async fn serve(broker: &MemoryBroker) -> Result<Vec<(String, Report)>, BoxError> {
    let (orders, mails) = (broker.transport("orders"), broker.transport("mails"));
    let cancelled = Cancelled { order: 1, reason: "too late".to_owned() };
    orders.publish(Message::json(&Placed { order: 1 })?.with_kind("order.placed")).await?;
    orders.publish(Message::json(&cancelled)?.with_kind("order.cancelled")).await?;
    orders.publish(Message::new("?").with_kind("order.moved")).await?;
    mails.publish(Message::new("your order is on its way")).await?;

    let kinds = Router::by_kind()
        .route("order.placed", ship)
        // A policy of its own, in the place of the consumer's.
        .route("order.cancelled", refund.with_stage(Backoff::new([secs(2), mins(10)])))
        .unknown(UnknownKey::DeadLetter)?;
    let orders = Consumer::new(orders).with_dead_letter_backoff([secs(1), secs(10)]).handler(kinds);
    let mails = Consumer::new(mails).concurrency(2).with_dead_letter_backoff([secs(30)]).handler(send);

    let done = crate::empty(broker, &["orders", "mails"]);
    Ok(Consumers::new().with(orders).with(mails).run_until(done).await?)
}

#[cfg(test)]
#[tokio::test(start_paused = true)]
async fn each_kind_has_its_handler_and_its_policy() -> Result<(), BoxError> {
    let began = tokio::time::Instant::now();
    let broker = MemoryBroker::new();
    let reports = serve(&broker).await?;
    assert_eq!(began.elapsed().as_secs(), 2, "the policy of the refund");
    let ended: Vec<_> =
        reports.iter().map(|(queue, it)| (&**queue, it.acknowledged, it.dead_lettered)).collect();
    assert_eq!(ended, [("orders", 2, 1), ("mails", 1, 0)]);
    let shelved = broker.shelf("orders", Shelf::DeadLetter);
    assert_eq!(shelved[0].properties().kind.as_deref(), Some("order.moved"));
    Ok(())
}
