//! The contract of a redrive transport as a suite: one named test per clause, and transports that fail on purpose
//! ([`Faulty`]), lose what is in flight ([`LockLossTransport`]) or remember what was settled ([`Recording`]).
//!
//! A transport's tests implement [`Harness`] and call [`conformance!`]; how that goes stands in
//! `docs/writing-a-transport.md`.
// Its code blocks are compiled with the documentation tests; outside of the repository the page is not there.
#![cfg_attr(doctest, doc = include_str!("../../../docs/writing-a-transport.md"))]

mod assertions;
mod case;
pub mod clauses;
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

pub use case::Case;
pub use faulty::{Attempted, Fault, Faulty, FaultyReceipt, FaultyReceiver};
pub use harness::{Bench, Harness, ReceiptOf, StartedOf, TransportOf};
pub use lock_loss::{InHand, LockLossReceipt, LockLossReceiver, LockLossTransport};
pub use recording::{Log, Recorded, Recording, RecordingReceipt, RecordingReceiver};
pub use run::{Clock, Verdict, run};
pub use started::Started;
pub use suite::{CLAUSES, run_all};
