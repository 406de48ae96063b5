//! What a transport knows of a delivery.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Delivery, Fields, Origin, believed_history};
use crate::afresh::begin_afresh;
use crate::extensions::Extensions;
use crate::history::FailureHistory;
use crate::message::Message;

/// Builds a [`Delivery`] from what a transport reads from its broker. Each setter stands for something that not every broker tells:
/// a transport leaves out what its broker does not.
///
/// Everything here is the broker's own word. It must not come from headers that a publisher can write.
///
/// ```
/// use std::time::SystemTime;
/// use redrive_core::Message;
/// use redrive_core::transport::{DeliveryBuilder, Origin};
///
/// let origin = Origin::new("orders", "shop", "orders.eu");
/// let delivery = DeliveryBuilder::new(Message::new("a lamp").with_id("order-1"), origin, SystemTime::now())
///     .broker_delivery_count(3)
///     .broker_number(4711)
///     .build();
///
/// assert_eq!((delivery.queue(), delivery.exchange()), ("orders", "shop"));
/// assert!(delivery.redelivered());
/// assert_eq!(delivery.attempt(), 1, "the broker handed it out three times; no handler failed");
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct DeliveryBuilder {
    fields: Fields,
}

impl DeliveryBuilder {
    /// Begins a delivery of `message` that arrived at `received_at`. The builder reads the headers of earlier failures from the
    /// message. A message without an id gets one, which differs with every arrival until a copy carries it.
    pub fn new(mut message: Message, origin: Origin, received_at: SystemTime) -> Self {
        let failed_before = FailureHistory::is_on(&message);
        let put_back = failed_before.then(|| begin_afresh(&mut message)).flatten();
        let mut history = failed_before.then(|| believed_history(&message, received_at));
        if message.assign_id() {
            Arc::make_mut(history.get_or_insert_default()).id_assigned = true;
        }
        let fields = Fields {
            message,
            origin,
            received_at,
            enqueued_at: None,
            broker_delivery_count: 1,
            proven_deliveries: 0,
            lost_here: 0,
            delivery_limit: None,
            failures_in_place: 0,
            redelivered: false,
            unstored_copy: false,
            interruptions: 0,
            broker_number: None,
            publisher: None,
            extensions: Extensions::default(),
            history,
            put_back,
        };
        Self { fields }
    }

    /// Sets when the broker put the message into its queue. The publisher's expiration is counted from there.
    #[inline]
    pub fn enqueued_at(mut self, time: Option<SystemTime>) -> Self {
        self.fields.enqueued_at = time;
        self
    }

    /// Sets how often the broker handed this copy out, including this time: 1 the first time. More than 1 also marks the delivery
    /// as [redelivered](Self::redelivered).
    #[inline]
    pub fn broker_delivery_count(mut self, times: u32) -> Self {
        self.fields.broker_delivery_count = times.max(1);
        self.redelivered(times > 1)
    }

    /// Marks the delivery, if `redelivered` is true, as one that the broker may have handed out before.
    #[inline]
    pub fn redelivered(mut self, redelivered: bool) -> Self {
        self.fields.redelivered |= redelivered;
        self
    }

    /// Sets how many times this copy failed before, by the broker's count. Only for brokers that retry
    /// [in place](crate::transport::InPlace).
    #[inline]
    pub fn failures_in_place(mut self, times: u32) -> Self {
        self.fields.failures_in_place = times;
        self
    }

    /// Sets the number of interruptions of the transport before this delivery: connections, channels and subscriptions that ended
    /// with deliveries in flight. After each interruption, the deliveries that were in flight are redelivered, and so are those that
    /// were settled without the broker learning of it.
    #[inline]
    pub fn interruptions(mut self, times: u64) -> Self {
        self.fields.interruptions = times;
        self
    }

    /// Sets the number that the broker gave the message. It is the same for every delivery of this copy, and differs for every
    /// other message of the queue. It tells two identical messages apart.
    #[inline]
    pub fn broker_number(mut self, number: u64) -> Self {
        self.fields.broker_number = Some(number);
        self
    }

    /// Marks the delivery as read in part: the transport could not read `what`. The consumer dead-letters it as
    /// [`MalformedHeaders`](crate::Reason::MalformedHeaders), and no handler sees it. The transport refuses to store a copy of
    /// it, as [`TooLarge`](crate::TransportErrorKind::TooLarge), so that no part of the message is lost.
    #[inline]
    pub fn read_without(mut self, what: impl Into<String>) -> Self {
        Arc::make_mut(self.fields.history.get_or_insert_default()).read_without = Some(what.into());
        self
    }

    /// Returns the delivery.
    #[inline]
    #[must_use]
    pub fn build(self) -> Delivery {
        Delivery { fields: Arc::new(self.fields) }
    }
}

/// Begins with everything that is known of this delivery, for a transport around another one.
impl From<Delivery> for DeliveryBuilder {
    fn from(delivery: Delivery) -> Self {
        Self { fields: Arc::unwrap_or_clone(delivery.fields) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redelivery_is_told_by_the_mark_or_by_the_count_in_any_order() {
        let arrived =
            || DeliveryBuilder::new(Message::new(""), Origin::new("q", "", ""), SystemTime::UNIX_EPOCH);
        assert!(!arrived().broker_delivery_count(1).redelivered(false).build().redelivered());
        assert!(arrived().redelivered(true).broker_delivery_count(1).build().redelivered());
        assert!(arrived().broker_delivery_count(2).redelivered(false).build().redelivered());
        assert_eq!(arrived().broker_delivery_count(0).build().broker_delivery_count(), 1);
    }
}
