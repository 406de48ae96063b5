//! The core of redrive: messages, stages, retry policies, classifiers, the plan of a settlement, and the traits of a transport. It
//! decides and does nothing: it knows no broker, starts no task and reads no clock. The crate `redrive-consumer` carries out what
//! is decided here. Services use the facade, `redrive`; authors of a [`Transport`] use this crate.
//!
//! The path of one message through the code:
//! [architecture](https://github.com/redrive-rs/redrive/blob/main/docs/architecture.md).

mod afresh;
mod classify;
mod codec;
mod delivery;
mod disposition;
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
mod origin;
#[doc(hidden)]
pub mod own_file;
pub mod panic;
mod publisher;
mod redact;
mod rejected;
mod retry;
mod retry_plan;
mod settlement;
pub mod stage;
mod stages;
pub mod text;
mod times;
mod trace;
mod transport;
mod transport_error;

pub use bytes::Bytes;
pub use classify::{
    ByMarker, ByPattern, ByType, ErrorClass, ErrorClassifier, MarkError, Permanent, Throttled, chain,
    into_box_error,
};
#[cfg(feature = "json")]
pub use codec::JsonCodec;
pub use codec::{Codec, Decode, Encode};
pub use delivery::Delivery;
pub use disposition::{BoxError, Disposition, Outcome, Shelf};
pub use extensions::Extensions;
pub use extract::{FromDelivery, OptionalFromDelivery};
pub use facts::{Counting, Delays, Facts, HeaderLimit, Limits, NativeDeadLetter};
pub use failure::{Failure, MAX_ERROR_BYTES, Reason};
pub use headers::{Headers, Timestamp, Value};
pub use history::{Count, FailureHistory, PastFailure};
pub use in_place::InPlace;
pub use layers::{Backoff, DeadLetterBackoff, Deadline, Expired, IntoDeadLetterBackoff, ParkingLot, Poison};
pub use message::{Message, Properties};
pub use needs::Needs;
pub use operate::{
    EntryHandle, EntryOutcome, EntryResult, Holder, Lease, Leased, Owner, ParseCursorError, ParseHandleError,
    REPORT_QUEUE_PREFIX, ReportRequest, Reported, Reports, Selection, ShelfCursor, ShelfPage, ShelfReport,
    Shelved, Shelves, WorkQueue, edited,
};
#[cfg(feature = "config")]
pub use options::{OptionsError, ShelfQueues};
pub use origin::Origin;
pub use panic::Panicked;
pub use publisher::{Outgoing, Publish, Publisher};
pub use redact::redact;
pub use rejected::Rejected;
pub use retry::{Exponential, Fibonacci, Fixed, Jitter, Linear, NoRetry, RetryPolicy, millis, mins, secs};
pub use retry_plan::{
    Amount, Case, Course, Limit, Resting, RetryPlan, RouteCourses, Setting, Simulation, Span, Step,
};
pub use settlement::{DEFAULT_HEADER_BUDGET, Planning, Settlement, redriven};
pub use stage::Stage;
pub use stages::Stages;
pub use text::plural;
pub use times::{parse_rfc3339, plausible, rfc3339};
pub use trace::TraceParent;
pub use transport::{
    Finding, NoReceiver, Outline, ReceiptOf, Received, Receiver, Rest, Severity, Signal, Signals, Transport,
    Unconnected,
};
pub use transport_error::{OpenError, SettleError, TransportError, TransportErrorKind};
