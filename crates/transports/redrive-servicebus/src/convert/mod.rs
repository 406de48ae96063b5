//! Converts messages of Service Bus to messages of redrive and back:
//! [the table](https://github.com/redrive-rs/redrive/blob/main/docs/transports/servicebus.md#messages).

mod annotations;
pub(crate) mod body;
mod changes;
pub(crate) mod copy_id;
mod incoming;
pub(crate) mod later;
pub(crate) mod names;
mod outgoing;
pub(crate) mod values;

pub(crate) use body::WireMessage;
pub(crate) use changes::{changes, counted, cut, is_mark, marked, parked, unmarked};
pub(crate) use incoming::{Incoming, SetAside, id_text, incoming, without_reason_of_others};
#[cfg(any(test, feature = "rest"))]
pub(crate) use names::{DESCRIPTION, REASON, carried};
pub(crate) use names::{PARKED, SCHEDULED_AT};
pub(crate) use outgoing::{Outgoing, outgoing};

#[cfg(test)]
mod tests;
