//! Retry and dead-letter middleware for message consumers: an async handler goes in; every message ends acknowledged,
//! waiting for its next attempt, or on a dead-letter shelf with the history of its failures. A process that dies leaves the
//! message, or the message and one copy; the exceptions are in
//! [the guarantees](https://github.com/redrive-rs/redrive/blob/main/docs/guarantees.md).
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
//! | `ops` | for operators: groups of failures, snapshots, views and filters of shelves, plans, exports, edits |
//! | `ops-exporter` | the same, and metrics of shelves as text for Prometheus |
//! | `ops-runner` | the same, and runs of plans: entries sent back slowly, with a journal |
//! | `ops-socket` | the same, and a Unix domain socket by which operators reach the shelves of a service |
//! | `json` (default) | the `Json` extractor, `Message::json` and `Publisher::publish_json` |
//! | `config` | `ConsumerOptions` and `ShelfQueues`: options from a section of a configuration, by serde |
//! | `macros` (default) | `#[debug_handler]`: compiler messages that name the cause |
//! | `metrics` (default) | [`telemetry`]: metrics of a consumer, on the `metrics` facade |
//! | `opentelemetry` | the same on OpenTelemetry, and links between the spans of one message |
//! | `signal` (default) | `shutdown_signal`: Ctrl-C and SIGTERM |
//! | `anyhow` | classifiers see through `anyhow::Error` |
//! | `tower` | `with_dead_letter_backoff` on `tower::ServiceBuilder` |

#[cfg(feature = "json")]
pub use redrive_consumer::Json;
#[cfg(feature = "signal")]
pub use redrive_consumer::shutdown_signal;
pub use redrive_consumer::{
    Attempt, Batch, BatchHandler, BatchIter, BatchOutcome, Body, Consumer, ConsumerError, ConsumerHandle,
    Consumers, ConsumersError, ConsumersHandle, DuplicateRoute, Event, Extension, FromRef, Handler, Header,
    Health, InBatches, IntoBatchOutcome, IntoOutcome, Observer, PerConsumer, Phase, RateLimit, RateLimited,
    Report, Router, RouterBuilder, Runner, StageFuture, StageLayer, StageService, State, Suspects, Tracer,
    TypedHeader, UnknownKey, WithStage,
};
#[cfg(feature = "config")]
pub use redrive_consumer::{ConnectionString, ConsumerOptions};
#[cfg(feature = "tower")]
pub use redrive_consumer::{ServiceBuilderExt, WithPreset};
#[cfg(feature = "json")]
pub use redrive_core::JsonCodec;
#[cfg(feature = "config")]
pub use redrive_core::options::{OptionsError, ShelfQueues};
pub use redrive_core::panic::Panicked;
pub use redrive_core::text::plural;
pub use redrive_core::{
    Backoff, BoxError, ByMarker, ByPattern, ByType, Bytes, Codec, Count, DeadLetterBackoff, Deadline, Decode,
    Delivery, Disposition, Encode, ErrorClass, ErrorClassifier, Expired, Exponential, Extensions, Failure,
    FailureHistory, Fibonacci, Fixed, FromDelivery, Headers, IntoDeadLetterBackoff, Jitter, Linear,
    MAX_ERROR_BYTES, MarkError, Message, NoRetry, OptionalFromDelivery, Outcome, ParkingLot, PastFailure,
    Permanent, Poison, Properties, Publisher, Reason, Rejected, RetryPlan, RetryPolicy, Shelf, Shelves,
    Stage, Throttled, Timestamp, TraceParent, Transport, TransportError, TransportErrorKind, Value, chain,
    header_names, into_box_error, millis, mins, parse_rfc3339, plan, plausible, redact, rfc3339, secs,
    shelves, transport,
};
#[cfg(feature = "macros")]
pub use redrive_macros::debug_handler;

#[doc(hidden)]
pub use redrive_core::fail_point;

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

/// Metrics and traces.
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
pub mod telemetry {
    pub use redrive_telemetry::*;
}

/// For operators: groups of failures, snapshots of shelves, metrics of shelves.
#[cfg(feature = "ops")]
pub mod ops {
    pub use redrive_ops::*;
}

/// What a service usually needs.
pub mod prelude {
    #[cfg(feature = "json")]
    pub use redrive_consumer::Json;
    #[cfg(feature = "tower")]
    pub use redrive_consumer::ServiceBuilderExt;
    #[cfg(feature = "signal")]
    pub use redrive_consumer::shutdown_signal;
    pub use redrive_consumer::{
        Attempt, Batch, BatchHandler, Consumer, Consumers, Event, Handler, Observer, RateLimit, Router,
        State, UnknownKey,
    };
    pub use redrive_core::shelves::Selection;
    pub use redrive_core::{
        BoxError, ByType, Bytes, DeadLetterBackoff, Delivery, Disposition, ErrorClass, ErrorClassifier,
        Exponential, Failure, Fixed, Headers, Jitter, MarkError, Message, Permanent, Publisher, RetryPolicy,
        Shelf, Shelves, Stage, Throttled, Transport, millis, mins, secs, stage,
    };
    #[cfg(feature = "macros")]
    pub use redrive_macros::debug_handler;
    #[cfg(feature = "memory")]
    pub use redrive_memory::Memory;
    #[cfg(feature = "rabbitmq")]
    pub use redrive_rabbitmq::RabbitMq;
    #[cfg(feature = "servicebus")]
    pub use redrive_servicebus::ServiceBus;
}

// The code blocks of the README and of `docs/` are compiled with the documentation tests.
#[cfg(all(doctest, feature = "memory", feature = "json", feature = "tower"))]
mod pages {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/getting-started.md")]
    mod getting_started {}
    #[doc = include_str!("../../../docs/handlers.md")]
    mod handlers {}
    #[doc = include_str!("../../../docs/observability.md")]
    mod observability {}
    #[doc = include_str!("../../../docs/errors.md")]
    mod errors {}
    #[doc = include_str!("../../../docs/classifying-errors.md")]
    mod classifying_errors {}
    #[cfg(feature = "config")]
    #[doc = include_str!("../../../docs/configuration.md")]
    mod configuration {}
    #[doc = include_str!("../../../docs/layers.md")]
    mod layers {}
    #[doc = include_str!("../../../docs/batches.md")]
    mod batches {}
    #[doc = include_str!("../../../docs/queues-and-kinds.md")]
    mod queues_and_kinds {}
    #[doc = include_str!("../../../docs/publishing.md")]
    mod publishing {}
    #[doc = include_str!("../../../docs/operating.md")]
    mod operating {}
    #[doc = include_str!("../../../docs/testing.md")]
    mod testing {}
    #[doc = include_str!("../../../docs/retry-plan.md")]
    mod retry_plan {}
    #[cfg(feature = "rabbitmq")]
    #[doc = include_str!("../../../docs/transports/rabbitmq.md")]
    mod rabbitmq {}
    #[cfg(feature = "servicebus")]
    #[doc = include_str!("../../../docs/transports/servicebus.md")]
    mod servicebus {}
    #[cfg(feature = "rabbitmq")]
    #[doc = include_str!("../../../docs/transports/rabbitmq-delays.md")]
    mod rabbitmq_delays {}
    #[cfg(feature = "rabbitmq")]
    #[doc = include_str!("../../../docs/moving-from-dlx.md")]
    mod moving_from_dlx {}
}
