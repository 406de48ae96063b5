//! redrive's own layers. Each is a [`Stage`](crate::Stage): a struct, its constructor, one hook, and tests of
//! the pure decision.

mod backoff;
mod deadline;
mod parking_lot;
mod poison;
mod preset;

pub use backoff::Backoff;
pub use deadline::{Deadline, Expired};
pub use parking_lot::ParkingLot;
pub use poison::Poison;
pub use preset::{DeadLetterBackoff, IntoDeadLetterBackoff};
