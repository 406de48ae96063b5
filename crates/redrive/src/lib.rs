//! Retry and dead-letter middleware for message consumers: an async handler goes in; every message ends acknowledged,
//! waiting for its next attempt, or set aside with the history of its failure. None is ever lost.
//!
//! ```
//! use redrive::prelude::*;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize)]
//! struct Order {
//!     id: u32,
//! }
//!
//! async fn ship(Json(order): Json<Order>, Attempt(attempt): Attempt) -> Result<(), BoxError> {
//!     if order.id == 2 && attempt < 3 {
//!         return Err("the carrier does not answer".into());
//!     }
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let orders = Memory::new("orders");
//! orders.publish(Message::new(r#"{"id":1}"#).with_id("order-1")).await?;
//! orders.publish(Message::new(r#"{"id":2}"#).with_id("order-2")).await?;
//! let broker = orders.broker().clone();
//!
//! let report = Consumer::new(orders)
//!     .with_dead_letter_backoff(Exponential::from(secs(1)).attempts(6))
//!     .handler(ship)
//!     .run_until(async move { while broker.depth("orders") > 0 { tokio::time::sleep(secs(1)).await } })
//!     .await?;
//! assert_eq!((report.acknowledged, report.retried), (2, 2));
//! # Ok(()) }
//! ```
//!
//! Another broker is another feature and another line:
//!
//! ```
//! # #[cfg(feature = "rabbitmq")]
//! # async fn connect() -> Result<(), redrive::BoxError> {
//! use redrive::prelude::*;
//!
//! let orders = RabbitMq::connect("amqps://user:password@broker.example/vhost", "orders").await?;
//! # Ok(()) }
//! ```
//!
//! | feature | is |
//! |---|---|
//! | `memory` (default) | the in-process broker |
//! | `rabbitmq` | RabbitMQ 3.10 and newer, classic and quorum queues |
//! | `rabbitmq-management` | compares queues and policies with what redrive needs, through the management API |
//! | `servicebus` | Azure Service Bus, queues and subscriptions |
//! | `servicebus-websockets` | the same in WebSockets, for networks that let out port 443 only |
//! | `servicebus-entra` | the same as an identity of Microsoft Entra ID, instead of a key |
//! | `servicebus-rest` | the same by its REST API, where nothing but HTTPS gets through |
//! | `json` (default) | the `Json` extractor, `Message::json` and `Publisher::publish_json` |
//! | `anyhow` | classifiers see through `anyhow::Error` |
//! | `tower` | `with_dead_letter_backoff` on `tower::ServiceBuilder` |

pub use redrive_core::*;

/// The in-process broker.
#[cfg(feature = "memory")]
pub mod memory {
    pub use redrive_memory::*;
}

/// RabbitMQ.
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq {
    pub use redrive_rabbitmq::*;
}

/// Azure Service Bus.
#[cfg(feature = "servicebus")]
pub mod servicebus {
    pub use redrive_servicebus::*;
}

/// What a service usually needs.
pub mod prelude {
    #[cfg(feature = "json")]
    pub use redrive_core::Json;
    #[cfg(feature = "tower")]
    pub use redrive_core::ServiceBuilderExt;
    pub use redrive_core::{
        Attempt, BoxError, Bytes, Consumer, Delivery, Disposition, ErrorClass, Exponential, Failure, Fixed,
        Handler, Headers, Jitter, MarkError, Message, Publisher, Shelf, Shelves, Stage, State, millis, mins,
        secs,
    };
    #[cfg(feature = "memory")]
    pub use redrive_memory::Memory;
    #[cfg(feature = "rabbitmq")]
    pub use redrive_rabbitmq::RabbitMq;
    #[cfg(feature = "servicebus")]
    pub use redrive_servicebus::ServiceBus;
}

/// The code blocks of the README and of `docs/` are compiled with the documentation tests.
#[cfg(all(doctest, feature = "memory", feature = "json", feature = "tower"))]
mod pages {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/layers.md")]
    mod layers {}
    #[doc = include_str!("../../../docs/publishing.md")]
    mod publishing {}
    #[doc = include_str!("../../../docs/operating.md")]
    mod operating {}
    #[cfg(feature = "rabbitmq")]
    #[doc = include_str!("../../../docs/transports/rabbitmq.md")]
    mod rabbitmq {}
    #[cfg(feature = "servicebus")]
    #[doc = include_str!("../../../docs/transports/servicebus.md")]
    mod servicebus {}
    #[cfg(feature = "rabbitmq")]
    #[doc = include_str!("../../../docs/transports/rabbitmq-delays.md")]
    mod rabbitmq_delays {}
}
