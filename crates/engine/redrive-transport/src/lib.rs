//! The toolkit for transports of redrive: the parts that every transport needs.
//!
//! Services do not use this crate. Authors of a [`Transport`](redrive_core::Transport) use the parts they need; each works alone:
//!
//! | part | does |
//! |---|---|
//! | [`Inbox`], [`Source`] | pass deliveries from the tasks that take them to [`receive`](redrive_core::transport::Receiver::receive), and implement [`set_limit`](redrive_core::transport::Receiver::set_limit) |
//! | [`Reconnecting`] | shares one connection among all callers, and replaces a lost one with one attempt at a time |
//! | [`ReconnectBackoff`] | computes the waits between tries to reconnect |
//! | [`Batcher`] | groups concurrent requests into batches, and returns each request's own answer |
//! | [`Lanes`] | decides which waiting items share a batch, for transports that run the batches themselves |
//! | [`InFlight`] | gives a delivery back when its receipt is dropped |
//! | [`LossSignal`] | signals that a delivery was lost while its connection lives |
//! | [`header_size`] | measures the headers of a message, for brokers that limit them |
//! | [`text`] | converts headers and properties to text and back with their types, for brokers whose headers are text |
//!
//! [Writing a transport](https://github.com/redrive-rs/redrive/blob/main/docs/writing-a-transport.md) shows how to build a
//! transport from these parts.

mod backoff;
mod batcher;
mod header_size;
mod in_flight;
mod inbox;
mod lanes;
mod loss;
mod reconnecting;
pub mod text;

pub use backoff::ReconnectBackoff;
pub use batcher::{BatchWorker, Batcher};
pub use header_size::header_size;
pub use in_flight::{GiveBack, InFlight};
pub use inbox::{Arrival, Inbox, Inlet, PanicGuard, Source, Wish, Wishes};
pub use lanes::{BatchLimits, Lanes};
pub use loss::LossSignal;
pub use reconnecting::{Connect, Reconnecting};
