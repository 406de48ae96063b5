//! An operator's morning: look at what failed and why, then edit, redrive or discard each entry.
//!
//! ```console
//! $ cargo run --package services -- operator
//! ```

use redrive::Reason;
use redrive::memory::MemoryBroker;
use redrive::prelude::*;
use redrive::shelves::Shelved;
use serde::Deserialize;

#[derive(Deserialize)]
struct Order {
    item: String,
}

/// Whether the carrier answers. It did not tonight, and does in the morning.
#[derive(Clone, Copy)]
struct Carrier {
    answers: bool,
}

async fn ship(State(carrier): State<Carrier>, Json(order): Json<Order>) -> Result<(), BoxError> {
    if order.item == "unicorn" {
        Err("no such item").permanent()?;
    }
    if carrier.answers { Ok(()) } else { Err("the carrier does not answer".into()) }
}

async fn serve(broker: &MemoryBroker, carrier: Carrier) -> Result<u64, BoxError> {
    let report = Consumer::new(broker.transport("orders"))
        .with_dead_letter_backoff([millis(100), millis(200)])
        .handler_with(carrier, ship)
        .run_until(crate::empty(broker, &["orders"]))
        .await?;
    Ok(report.acknowledged)
}

pub(crate) async fn run(broker: &MemoryBroker) -> Result<(), BoxError> {
    println!("at night {} orders were shipped", night(broker).await?);
    // Any broker's shelves are `Shelves`.
    operate(&broker.shelves("orders")).await?;
    println!("in the morning {} orders were shipped", serve(broker, Carrier { answers: true }).await?);
    Ok(())
}

async fn night(broker: &MemoryBroker) -> Result<u64, BoxError> {
    let orders = [
        ("lamp", r#"{"item":"lamp"}"#),
        ("chair", r#"{"itm":"chair"}"#),
        ("unicorn", r#"{"item":"unicorn"}"#),
    ];
    for (id, body) in orders {
        broker.publish("orders", Message::new(body).with_id(id))?;
    }
    serve(broker, Carrier { answers: false }).await
}

async fn operate(shelves: &dyn Shelves) -> Result<(), BoxError> {
    println!("{} entries", shelves.count(Shelf::DeadLetter).await?);
    for entry in all(shelves, Shelf::DeadLetter).await? {
        let id = entry.message.id().unwrap_or_default();
        let error = entry.history.error.as_deref().unwrap_or_default();
        println!("{} {id}: {:?}, {error}", entry.handle, entry.history.reason);
        match (&entry.history.reason, id) {
            // It failed too often, for a reason that is gone: send it back as it is.
            (Some(Reason::MaxDeliveryCountExceeded), _) => {
                shelves.redrive(Shelf::DeadLetter, &entry.handle.into()).await?.into_result()?;
            }
            // Its publisher wrote a wrong body: send back a right one. The history stays.
            (_, "chair") => {
                let mended = entry.message.clone().with_body(r#"{"item":"chair"}"#);
                shelves.redrive_as(&entry.handle, mended).await?;
            }
            // Nothing helps: remove it for good.
            _ => {
                shelves.discard(Shelf::DeadLetter, &entry.handle.into()).await?.into_result()?;
            }
        }
    }
    Ok(())
}

/// Every entry of a shelf, page by page.
async fn all(shelves: &dyn Shelves, shelf: Shelf) -> Result<Vec<Shelved>, BoxError> {
    let mut entries = Vec::new();
    let mut after = None;
    loop {
        let page = shelves.browse(shelf, after.as_ref(), 100).await?;
        entries.extend(page.entries);
        after = page.next;
        if after.is_none() {
            return Ok(entries);
        }
    }
}

#[cfg(test)]
#[tokio::test(start_paused = true)]
async fn what_was_redriven_and_edited_is_shipped_and_the_rest_discarded() -> Result<(), BoxError> {
    let broker = MemoryBroker::new();
    assert_eq!(night(&broker).await?, 0);
    operate(&broker.shelves("orders")).await?;
    assert!(broker.shelf("orders", Shelf::DeadLetter).is_empty());
    assert_eq!(serve(&broker, Carrier { answers: true }).await?, 2);
    Ok(())
}
