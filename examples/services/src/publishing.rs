//! A handler that publishes, and a consumer of what it published that is not confused by a message that comes twice.
//!
//! ```console
//! $ cargo run --package services -- publishing
//! ```

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use redrive::Report;
use redrive::memory::MemoryBroker;
use redrive::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
struct Order {
    customer: String,
    cents: u64,
}

#[derive(Deserialize, Serialize)]
struct Invoice {
    customer: String,
    cents: u64,
}

/// Publishes the invoice of an order, and only then succeeds: an invoice may come twice, and is never missing.
async fn bill(
    Json(order): Json<Order>,
    delivery: Delivery,
    Attempt(attempt): Attempt,
    publisher: Publisher,
) -> Result<(), BoxError> {
    let invoice = Invoice { customer: order.customer, cents: order.cents };
    // The id of a delivery stays the same over its attempts, and so does that of the invoice.
    let id = format!("invoice-{}", delivery.id());
    publisher.to("invoices").publish(Message::json(&invoice)?.with_id(id)).await?;
    if attempt == 1 {
        return Err("the process was busy, after the invoice was published".into());
    }
    Ok(())
}

/// Stands for a table with the ids of invoices as its key.
#[derive(Clone, Default)]
struct Books(Arc<Mutex<HashSet<String>>>);

/// Books each invoice once, however often it comes.
async fn book(State(books): State<Books>, Json(invoice): Json<Invoice>, delivery: Delivery) {
    if books.0.lock().expect("nobody panics here").insert(delivery.id().to_owned()) {
        println!("{}: {} cents for {}", delivery.id(), invoice.cents, invoice.customer);
    } else {
        println!("{}: is booked already", delivery.id());
    }
}

pub(crate) async fn run(broker: &MemoryBroker) -> Result<(), BoxError> {
    for (queue, report) in serve(broker, Books::default()).await? {
        println!("{queue}: {} handled", report.acknowledged);
    }
    Ok(())
}

async fn serve(broker: &MemoryBroker, books: Books) -> Result<Vec<(String, Report)>, BoxError> {
    let orders = broker.transport("orders");
    let order = Order { customer: "Ada".to_owned(), cents: 8900 };
    orders.publish(Message::json(&order)?.with_id("order-1")).await?;

    let orders = Consumer::new(orders).with_dead_letter_backoff([secs(1), secs(10)]).handler(bill);
    let invoices = Consumer::new(broker.transport("invoices"))
        .with_dead_letter_backoff([secs(1), secs(10)])
        .handler_with(books, book);
    let consumers = Consumers::new().with(orders).with(invoices);
    Ok(consumers.run_until(crate::empty(broker, &["orders", "invoices"])).await?)
}

#[cfg(test)]
#[tokio::test(start_paused = true)]
async fn an_invoice_that_comes_twice_is_booked_once() -> Result<(), BoxError> {
    let books = Books::default();
    let reports = serve(&MemoryBroker::new(), books.clone()).await?;
    let handled: Vec<_> = reports.iter().map(|(_, report)| report.acknowledged).collect();
    assert_eq!(handled, [1, 2], "one order, and its invoice twice");
    assert_eq!(books.0.lock().unwrap().len(), 1);
    Ok(())
}
