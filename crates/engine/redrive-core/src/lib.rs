//! The core of redrive: messages, stages, retry policies, classifiers, the plan of a settlement, and the traits of a transport. It
//! decides and does nothing: it knows no broker, starts no task and reads no clock. The crate `redrive-consumer` carries out what
//! is decided here. Services use the facade, `redrive`; authors of a [`Transport`] use this crate.
//!
//! The path of one message through the code:
//! [architecture](https://github.com/redrive-rs/redrive/blob/main/docs/architecture.md).

mod afresh;
mod classify;
mod codec;
mod contract;
mod delivery;
mod disposition;
#[doc(hidden)]
pub mod engine;
mod extensions;
mod extract;
mod facts;
#[doc(hidden)]
pub mod fail_point;
mod failure;
pub mod header_names;
mod headers;
mod history;
mod in_place;
mod layers;
mod message;
mod needs;
mod operate;
#[cfg(feature = "config")]
pub mod options;
#[doc(hidden)]
pub mod own_file;
pub mod panic;
pub mod plan;
mod publisher;
mod redact;
mod rejected;
mod retry;
mod retry_plan;
mod settlement;
pub mod shelves;
pub mod stage;
mod stages;
pub mod text;
mod times;
mod trace;
pub mod transport;
mod transport_error;
mod unmet_need;

pub use bytes::Bytes;
pub use classify::{
    ByMarker, ByPattern, ByType, ErrorClass, ErrorClassifier, MarkError, Permanent, Throttled, chain,
    into_box_error,
};
#[cfg(feature = "json")]
pub use codec::JsonCodec;
pub use codec::{Codec, Decode, Encode};
pub use contract::Transport;
pub use delivery::Delivery;
pub use disposition::{BoxError, Disposition, Outcome, Shelf};
pub use extensions::Extensions;
pub use extract::{FromDelivery, OptionalFromDelivery};
pub use failure::{Failure, MAX_ERROR_BYTES, Reason};
pub use headers::{Headers, Timestamp, Value};
pub use history::{Count, FailureHistory, PastFailure};
pub use layers::{Backoff, DeadLetterBackoff, Deadline, Expired, IntoDeadLetterBackoff, ParkingLot, Poison};
pub use message::{Message, Properties};
pub use operate::Shelves;
pub use publisher::Publisher;
pub use redact::redact;
pub use rejected::Rejected;
pub use retry::{Exponential, Fibonacci, Fixed, Jitter, Linear, NoRetry, RetryPolicy, millis, mins, secs};
pub use retry_plan::RetryPlan;
pub use stage::Stage;
pub use times::{parse_rfc3339, plausible, rfc3339};
pub use trace::TraceParent;
pub use transport_error::{TransportError, TransportErrorKind};
