//! A service that ships orders. Its tests stand in `tests.rs`:
//!
//! ```console
//! $ cargo test -p testing-a-handler
//! ```

use std::sync::Arc;

use redrive::prelude::*;
use redrive::{ByType, Runner};
use serde::{Deserialize, Serialize};

/// What is to be shipped.
#[derive(Debug, Deserialize, Serialize)]
pub struct Order {
    /// The name of the item.
    pub item: String,
}

/// Why an order was not shipped.
#[derive(Debug, thiserror::Error)]
pub enum ShipError {
    /// Another attempt helps.
    #[error("the carrier does not answer")]
    CarrierDown,
    /// No attempt helps.
    #[error("no carrier takes a {0}")]
    TooLarge(String),
}

/// Books a shipment, and answers its number: in the service a client for HTTP, in its tests a closure.
pub type Carrier = Arc<dyn Fn(&Order) -> Result<u32, ShipError> + Send + Sync>;

/// The consumer of the service, on any broker: the service runs it on RabbitMQ, its tests in memory.
pub fn consumer<T: Transport>(orders: T, carrier: Carrier) -> Runner<T> {
    Consumer::new(orders).with_dead_letter_backoff(retries()).handler_with(carrier, ship)
}

/// Tries again after 1, 10 and 60 seconds, unless no attempt helps.
#[must_use]
pub fn retries() -> DeadLetterBackoff {
    DeadLetterBackoff::new([secs(1), secs(10), secs(60)]).classifier(ByType::new().classed(
        |error: &ShipError| match error {
            ShipError::CarrierDown => ErrorClass::Transient,
            ShipError::TooLarge(_) => ErrorClass::Permanent,
        },
    ))
}

/// Books the shipment of an order, and has a mail sent.
///
/// # Errors
///
/// When it is not booked, or the mail is not published.
pub async fn ship(
    State(carrier): State<Carrier>,
    Json(order): Json<Order>,
    delivery: Delivery,
    publisher: Publisher,
) -> Result<(), BoxError> {
    let number = carrier(&order)?;
    let mail = Message::new(format!("shipment {number}")).with_id(format!("mail-{}", delivery.id()));
    publisher.to("mails").publish(mail).await?;
    Ok(())
}
