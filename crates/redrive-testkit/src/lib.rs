#![doc = include_str!("../../../docs/writing-a-transport.md")]

mod case;
pub mod clauses;
mod faulty;
mod harness;
mod looks;
mod planning;
mod recording;
mod run;
mod samples;
mod steps;
mod suite;

pub use case::Case;
pub use faulty::{Attempted, Fault, Faulty, FaultyReceipt};
pub use harness::{Bench, Harness, ReceiptOf, TransportOf};
pub use recording::{Log, Recorded, Recording, RecordingReceipt};
pub use run::{Clock, Verdict, run};
pub use suite::CLAUSES;
