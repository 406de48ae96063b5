//! The service: what a service author writes. It knows nothing of the broker.

use redrive::MarkError;
use redrive::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
pub struct Order {
    item: String,
}

/// Stands for whatever a handler needs: a database, a client.
#[derive(Clone)]
pub struct Warehouse;

#[derive(Debug, thiserror::Error)]
pub enum ShipError {
    #[error("the carrier does not answer")]
    CarrierDown,
    #[error("no such item: {0}")]
    NoSuchItem(String),
    #[error("the customs office lost the form")]
    FormLost,
}

/// Ships an order. Another attempt helps when the carrier is down; none helps when there is no such item.
pub async fn ship(
    State(_warehouse): State<Warehouse>,
    Json(order): Json<Order>,
    Attempt(attempt): Attempt,
) -> Result<(), BoxError> {
    match order.item.as_str() {
        "lamp" if attempt < 3 => Err(ShipError::CarrierDown.into()),
        "unicorn" => Ok(Err(ShipError::NoSuchItem(order.item)).permanent()?),
        "vase" if attempt == 1 => panic!("the vase broke"),
        "violin" => Err(ShipError::FormLost.into()),
        _ => Ok(()),
    }
}

/// The order that fails whatever one does.
pub const KEEPS_COMING_BACK: &str = "order-8";
pub const HOW_MANY: usize = 8;

pub fn some_orders() -> Vec<Message> {
    let items = ["chair", "table", "lamp", "unicorn", "", "vase", "lamp", "violin"];
    let message = |(index, item): (usize, &&str)| {
        let body = match *item {
            "" => b"{ not an order".to_vec(),
            item => serde_json::to_vec(&Order { item: item.to_owned() }).expect("an order is JSON"),
        };
        Message::new(body).with_id(format!("order-{}", index + 1)).with_content_type("application/json")
    };
    let messages: Vec<_> = items.iter().enumerate().map(message).collect();
    assert_eq!(messages.len(), HOW_MANY);
    messages
}
