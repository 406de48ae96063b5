//! What the consumer knows of a delivery beyond its transport.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Delivery, believed_history};
use crate::headers::Value;
use crate::history::FailureHistory;
use crate::message::Message;

/// Sets the number of deliveries after which the broker itself removes a message, from
/// [`Limits::deliveries`](crate::transport::Limits::deliveries).
#[must_use]
pub fn with_delivery_limit(mut delivery: Delivery, limit: Option<u32>) -> Delivery {
    Arc::make_mut(&mut delivery.fields).delivery_limit = limit;
    delivery
}

/// Raises the delivery count to at least `times`: the ledger, or this process, counts better than the broker.
#[must_use]
pub fn with_proven_deliveries(mut delivery: Delivery, times: u32) -> Delivery {
    let of_this_copy = times.saturating_sub(delivery.history().deliveries_before);
    let fields = Arc::make_mut(&mut delivery.fields);
    fields.broker_delivery_count = fields.broker_delivery_count.max(of_this_copy);
    fields.proven_deliveries = fields.proven_deliveries.max(times);
    delivery
}

/// Records that this process handled the message this often, and lost it each time before it could be settled.
#[must_use]
pub fn lost_here(delivery: Delivery, times: u32) -> Delivery {
    let mut delivery = with_proven_deliveries(delivery, times.saturating_add(1));
    Arc::make_mut(&mut delivery.fields).lost_here = times;
    delivery
}

/// Replaces the message by this copy, which is stored nowhere, as if the copy had arrived instead.
#[must_use]
pub fn replaced_by(mut delivery: Delivery, copy: Message, now: SystemTime) -> Delivery {
    let fields = Arc::make_mut(&mut delivery.fields);
    fields.history = FailureHistory::is_on(&copy).then(|| believed_history(&copy, now));
    fields.message = copy;
    fields.received_at = now;
    (fields.broker_delivery_count, fields.failures_in_place, fields.redelivered) = (1, 0, false);
    (fields.proven_deliveries, fields.lost_here) = (0, 0);
    fields.unstored_copy = true;
    delivery
}

/// Returns the headers that do not change between deliveries of this message.
pub fn lasting_headers(delivery: &Delivery) -> impl Iterator<Item = (&str, &Value)> {
    let counting = delivery.fields.origin.counting_headers();
    delivery.message().headers().iter().filter(|(name, _)| !counting.contains(name))
}
