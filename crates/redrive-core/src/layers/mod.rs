//! redrive's own layers. Each but [`RateLimit`] is a [`Stage`](crate::Stage): a struct, its constructor, one hook, and tests of
//! the pure decision.

mod backoff;
mod deadline;
mod parking_lot;
mod poison;
mod preset;
mod rate_limit;

pub use backoff::Backoff;
pub use deadline::{Deadline, Expired};
pub use parking_lot::ParkingLot;
pub use poison::Poison;
pub use preset::{DeadLetterBackoff, IntoDeadLetterBackoff};
pub use rate_limit::{RateLimit, RateLimited};

#[cfg(feature = "tower")]
pub use preset::{ServiceBuilderExt, WithPreset};
