//! The contract between a consumer and its broker, for authors of a [`Transport`](crate::Transport).

pub use crate::contract::{
    Finding, NoReceiver, Outline, ReceiptOf, Received, Receiver, Rest, Severity, Signal, Signals, Unconnected,
};
pub use crate::delivery::{DeliveryBuilder, Origin};
pub use crate::facts::{Counting, Delays, Facts, HeaderLimit, Limits, NativeDeadLetter};
pub use crate::in_place::InPlace;
pub use crate::needs::Needs;
pub use crate::publisher::{Outgoing, Publish};
pub use crate::settlement::{DEFAULT_HEADER_BUDGET, Planning, Settlement, redriven};
pub use crate::transport_error::{OpenError, SettleError};
pub use crate::unmet_need::UnmetNeed;
