//! The ground floor of redrive. (Documentation follows with the whole.)

mod classify;
mod deaths;
mod delivery;
mod disposition;
mod failure;
pub mod header_names;
mod headers;
mod message;
mod needs;
mod operate;
mod redact;
mod retry;
mod settlement;
mod stage;
mod story;
mod text;
mod transport;

pub use bytes::Bytes;
pub use classify::{ErrorClass, ErrorClassifier};
pub use deaths::{Death, DeathHistory};
pub use delivery::Delivery;
pub use disposition::{BoxError, Disposition, Outcome, Shelf};
pub use failure::{Failure, MAX_ERROR_BYTES, Reason};
pub use headers::{Headers, Timestamp, Value};
pub use message::{Message, Properties};
pub use needs::Needs;
pub use operate::{Selection, Shelved, Shelves};
pub use redact::redact;
pub use retry::{Exponential, Fibonacci, Fixed, Jitter, Linear, NoRetry, RetryPolicy, millis, mins, secs};
pub use settlement::{DEFAULT_HEADER_BUDGET, Planning, Settlement, redriven};
pub use stage::Stage;
pub use story::{Count, PastFailure, Story};
pub use transport::{Capabilities, Received, SettleError, Transport, TransportError, TransportErrorKind};
