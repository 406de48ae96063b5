//! What a handler can ask for: parts of the state, headers, what a layer found out, the body if there is one, and types of
//! its own.
//!
//! ```console
//! $ cargo run --package services -- extractors
//! ```

use std::sync::{Arc, Mutex};

use redrive::memory::MemoryBroker;
use redrive::prelude::*;
use redrive::{Extension, FromDelivery, FromRef, Header, Rejected, TypedHeader, Value};
use serde::Deserialize;
use tower::util::MapRequestLayer;

/// The state: what all handlers of the service share.
#[derive(Clone, Default)]
struct App {
    log: Log,
    prices: Prices,
}

/// Stands for a database.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

#[derive(Clone, Default)]
struct Prices;

// A handler asks for the part that it needs, and can be tested with that part alone.
impl FromRef<App> for Log {
    fn from_ref(app: &App) -> Self {
        app.log.clone()
    }
}

impl FromRef<App> for Prices {
    fn from_ref(app: &App) -> Self {
        app.prices.clone()
    }
}

#[derive(Deserialize)]
struct Order {
    item: String,
}

/// A header with a type.
struct Priority(i128);

impl TypedHeader for Priority {
    const NAME: &'static str = "priority";

    fn read(value: &Value) -> Option<Self> {
        value.as_integer().map(Self)
    }
}

/// An argument of its own. Without it the message is dead-lettered, and the handler never runs.
struct Customer(String);

impl<S> FromDelivery<S> for Customer {
    fn from_delivery(delivery: &Delivery, _: &S) -> Result<Self, Rejected> {
        let found = delivery.message().headers().get("customer").and_then(|it| it.as_str());
        found.map(|it| Self(it.to_owned())).ok_or_else(|| Rejected::new("no header `customer`", "missing"))
    }
}

/// Where the service runs; a layer puts it beside each delivery.
#[derive(Clone)]
struct Region(&'static str);

async fn ship(
    State(log): State<Log>,
    State(_prices): State<Prices>,
    Customer(customer): Customer,
    priority: Option<Header<Priority>>,
    Extension(Region(region)): Extension<Region>,
    order: Option<Json<Order>>,
) {
    let item = order.map_or_else(|| "a catalogue".to_owned(), |Json(order)| order.item);
    let priority = priority.map_or(0, |Header(Priority(priority))| priority);
    log.0.lock().expect("nobody panics here").push(format!("{item} to {customer} from {region}, {priority}"));
}

pub(crate) async fn run(broker: &MemoryBroker) -> Result<(), BoxError> {
    let app = App::default();
    serve(broker, app.clone()).await?;
    app.log.0.lock().expect("nobody panics here").iter().for_each(|line| println!("{line}"));
    Ok(())
}

async fn serve(broker: &MemoryBroker, app: App) -> Result<(), BoxError> {
    let orders = broker.transport("orders");
    let lamp = || Message::new(r#"{"item":"a lamp"}"#);
    orders.publish(lamp().with_header("customer", "Ada").with_header("priority", 9_i64)).await?;
    orders.publish(Message::new("").with_header("customer", "Grace")).await?;
    orders.publish(lamp().with_id("for nobody")).await?;
    orders
        .publish(lamp().with_id("urgent").with_header("customer", "Joan").with_header("priority", "now"))
        .await?;

    Consumer::new(orders)
        .concurrency(1)
        .with_dead_letter_backoff([secs(1), secs(10)])
        .layer(MapRequestLayer::new(|mut delivery: Delivery| {
            delivery.extensions_mut().insert(Region("Berlin"));
            delivery
        }))
        .handler_with(app, ship)
        .run_until(crate::empty(broker, &["orders"]))
        .await?;
    Ok(())
}

#[cfg(test)]
#[tokio::test(start_paused = true)]
async fn what_is_absent_is_none_and_what_is_wrong_is_dead_lettered() -> Result<(), BoxError> {
    let (broker, app) = (MemoryBroker::new(), App::default());
    serve(&broker, app.clone()).await?;
    assert_eq!(
        *app.log.0.lock().unwrap(),
        ["a lamp to Ada from Berlin, 9", "a catalogue to Grace from Berlin, 0"]
    );
    let shelved = broker.shelf("orders", Shelf::DeadLetter);
    let ids: Vec<_> = shelved.iter().filter_map(Message::id).collect();
    assert_eq!(ids, ["for nobody", "urgent"]);
    Ok(())
}
