//! The consumer of redrive: the loop that takes deliveries from a transport, runs a handler for each, and settles every one; with
//! handlers, their arguments, and the adapter to tower. Services use the facade, `redrive`; everything that this crate decides is
//! decided by `redrive-core`.
//!
//! The path of one message through the code:
//! [architecture](https://github.com/redrive-rs/redrive/blob/main/docs/architecture.md).

mod catching;
mod consumer;
mod handler;
#[cfg(feature = "config")]
mod options;
mod rate_limit;
mod readiness;
mod redelivery;
mod service;
#[cfg(feature = "tower")]
mod service_builder;
mod signal_state;

#[cfg(feature = "signal")]
pub use consumer::shutdown_signal;
pub use consumer::{
    Consumer, ConsumerError, ConsumerHandle, Consumers, ConsumersError, ConsumersHandle, Event, Health,
    LayerOfHandlers, Observer, Phase, Report, Runner, Tracer,
};
#[cfg(feature = "json")]
pub use handler::Json;
pub use handler::{
    Attempt, Batch, BatchHandler, BatchIter, BatchOutcome, Body, DuplicateRoute, Extension, FromRef, Handler,
    Header, InBatches, IntoBatchOutcome, IntoOutcome, PerConsumer, Router, RouterBuilder, State, TypedHeader,
    UnknownKey, WithStage,
};
#[cfg(feature = "config")]
pub use options::{ConnectionString, ConsumerOptions};
pub use rate_limit::{RateLimit, RateLimited};
pub use readiness::{NamedLayer, NamedService};
pub use redelivery::Suspects;
pub use service::{StageFuture, StageLayer, StageService};
#[cfg(feature = "tower")]
pub use service_builder::{ServiceBuilderExt, WithPreset};
