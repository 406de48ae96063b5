//! For authors of a transport: the contract of a redrive transport as a suite, one named test per clause; and transports that
//! fail on purpose ([`Faulty`]), lose deliveries in flight ([`LockLossTransport`]) or record settlements ([`Recording`]).
//!
//! A transport's tests implement [`Harness`] and call [`conformance!`], as described in
//! [Writing a transport](https://github.com/redrive-rs/redrive/blob/main/docs/writing-a-transport.md#run-the-suite).
// The documentation tests compile its code blocks; the page does not exist outside the repository.
#![cfg_attr(doctest, doc = include_str!("../../../../docs/writing-a-transport.md"))]

mod assertions;
mod case;
pub mod clauses;
mod eventually;
mod faulty;
mod harness;
mod lock_loss;
mod planning;
mod recording;
mod run;
mod samples;
mod started;
mod steps;
mod suite;
mod transcript;
mod wrapper;

#[doc(inline)]
pub use crate::__conformance as conformance;
pub use case::Case;
pub use eventually::{eventually, found};
pub use faulty::{Attempted, Fault, Faulty, FaultyReceipt, FaultyReceiver};
pub use harness::{Bench, Harness, Place, ReceiptOf, StartedOf, TransportOf};
pub use lock_loss::{InFlight, LockLossReceipt, LockLossReceiver, LockLossTransport};
pub use recording::{Log, Recorded, Recording, RecordingReceipt, RecordingReceiver};
pub use run::{Clock, Verdict, run};
pub use started::Started;
pub use suite::{CLAUSES, run_all};
