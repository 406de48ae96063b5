//! Up to 100 orders in one transaction; one of them is bad, and the others do not suffer for it.
//!
//! ```console
//! $ cargo run --package services -- batches
//! ```

use std::sync::{Arc, Mutex};

use redrive::Report;
use redrive::memory::MemoryBroker;
use redrive::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Deserialize, Serialize)]
struct Order {
    number: u32,
    item: String,
}

/// A table of orders, and how often somebody tried to write to it.
#[derive(Clone, Default)]
struct Db {
    orders: Arc<Mutex<Vec<Order>>>,
    transactions: Arc<Mutex<u32>>,
}

impl Db {
    /// All of them or none.
    fn insert_all(&self, orders: Vec<Order>) -> Result<(), BoxError> {
        *self.transactions.lock().unwrap() += 1;
        if let Some(order) = orders.iter().find(|order| order.item.is_empty()) {
            return Err(format!("order {} has no item", order.number).into());
        }
        self.orders.lock().unwrap().extend(orders);
        Ok(())
    }
}

async fn store(State(db): State<Db>, orders: Batch<Json<Order>>) -> Result<(), BoxError> {
    db.insert_all(orders.iter().map(|Json(order)| order.clone()).collect())
}

pub(crate) async fn run(broker: &MemoryBroker) -> Result<(), BoxError> {
    let db = Db::default();
    let report = serve(broker, &db).await?;
    let transactions = db.transactions.lock().unwrap();
    println!(
        "{} stored and {} dead-lettered in {transactions} transactions",
        report.acknowledged, report.dead_lettered
    );
    Ok(())
}

async fn serve(broker: &MemoryBroker, db: &Db) -> Result<Report, BoxError> {
    let orders = broker.transport("orders");
    for number in 1..=200 {
        let item = if number == 150 { "" } else { "lamp" }.to_owned();
        orders.publish(Message::json(&Order { number, item })?).await?;
    }
    let consumer = Consumer::new(orders)
        .with_dead_letter_backoff([secs(1)])
        .handler_with(db.clone(), store.in_batches(100, millis(200)));
    Ok(consumer.run_until(crate::empty(broker, &["orders"])).await?)
}

#[cfg(test)]
#[tokio::test(start_paused = true)]
async fn one_bad_order_ends_alone() -> Result<(), BoxError> {
    let (broker, db) = (MemoryBroker::new(), Db::default());
    let report = serve(&broker, &db).await?;
    assert_eq!((report.acknowledged, report.retried, report.dead_lettered), (199, 1, 1));
    assert_eq!(db.orders.lock().unwrap().len(), 199);
    // Two batches; 14 halves at most until the bad one is alone; its retry.
    assert!(*db.transactions.lock().unwrap() <= 17);
    Ok(())
}
