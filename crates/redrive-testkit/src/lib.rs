//! The contract of [`Transport`](redrive_core::Transport) as a suite of tests, one per clause.

mod case;
pub mod clauses;
mod harness;
mod looks;
mod planning;
mod run;
mod samples;
mod steps;
mod suite;

pub use case::Case;
pub use harness::{Bench, Harness, ReceiptOf, TransportOf};
pub use run::{Clock, Verdict, run};
pub use suite::CLAUSES;
