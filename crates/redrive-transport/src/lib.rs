//! The toolkit for transports of redrive: what every transport needs, once.
//!
//! Services do not use this crate. Who writes a [`Transport`](redrive_core::Transport) for another broker takes from it what
//! fits; each part stands alone:
//!
//! | part | for |
//! |---|---|
//! | [`Inbox`], [`Source`] | the way from the tasks that take deliveries to [`receive`](redrive_core::Receiver::receive) and [`set_limit`](redrive_core::Receiver::set_limit) |
//! | [`Reconnecting`] | one connection for all callers, made again when it is lost, by one attempt at a time |
//! | [`Backoff`] | the waits between attempts |
//! | [`Batcher`] | requests that come together go together, each with its own answer |
//! | [`InFlight`] | a receipt that gives its delivery back when it is dropped |
//! | [`LossSignal`] | a delivery that is lost while its connection lives |
//! | [`header_size`] | a measure for brokers that limit the headers of a message |
//! | [`text`] | brokers whose headers are text: every header and property comes back with its type |
//!
//! [Writing a transport](https://github.com/redrive-rs/redrive/blob/main/docs/writing-a-transport.md) shows how a transport is built from these parts.

mod backoff;
mod batcher;
mod header_size;
mod in_flight;
mod inbox;
mod lanes;
mod loss;
mod reconnecting;
pub mod text;

pub use backoff::Backoff;
pub use batcher::{BatchWorker, Batcher};
pub use header_size::header_size;
pub use in_flight::{GiveBack, InFlight};
pub use inbox::{Arrival, Inbox, PanicGuard, Source, Wish, Wishes};
pub use lanes::{BatchLimits, Lanes};
pub use loss::LossSignal;
pub use reconnecting::{Connect, Reconnecting};
