//! One arrival of a message.

mod builder;
pub(crate) mod by_consumer;
mod origin;

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use crate::extensions::Extensions;
use crate::failure::Reason;
use crate::header_names;
use crate::headers::Value;
use crate::history::FailureHistory;
use crate::message::Message;
use crate::publisher::Publisher;
use crate::times::plausible;
use crate::trace::TraceParent;

pub use builder::DeliveryBuilder;
pub use origin::Origin;

/// One arrival of a message at this consumer. It passes through the layers to the handler. It cannot settle anything: that right
/// is the transport's receipt, which stays with the consumer.
///
/// Three counters, never mixed:
///
/// | counter | counts | by |
/// |---|---|---|
/// | [`attempt`](Self::attempt) | failures of this message, in its headers | redrive |
/// | [`broker_delivery_count`](Self::broker_delivery_count) | how often this copy was handed out, even to processes that died | the broker |
/// | [`FailureHistory::redrives`] | how often an operator sent it back | operators |
#[derive(Clone, Debug)]
pub struct Delivery {
    // One pointer: a delivery is passed on often, and cloned for layers and handlers.
    fields: Arc<Fields>,
}

#[derive(Clone, Debug)]
struct Fields {
    message: Message,
    origin: Origin,
    received_at: SystemTime,
    enqueued_at: Option<SystemTime>,
    broker_delivery_count: u32,
    /// The least number of deliveries that is known from elsewhere: from the ledger, or from this process itself.
    proven_deliveries: u32,
    /// How often this process handled the message and lost it.
    lost_here: u32,
    delivery_limit: Option<u32>,
    failures_in_place: u32,
    redelivered: bool,
    /// True if the broker holds the original, and this copy of it is stored nowhere.
    unstored_copy: bool,
    interruptions: u64,
    broker_number: Option<u64>,
    publisher: Option<Publisher>,
    extensions: Extensions,
    /// `None`: the message carries nothing that redrive wrote, which is true of most.
    history: Option<Arc<FailureHistory>>,
    put_back: Option<Reason>,
}

impl Delivery {
    /// Creates the first delivery of `message` from `queue`, received at `received_at`, to call a handler without a consumer. A
    /// transport uses a [`DeliveryBuilder`].
    #[must_use]
    pub fn new(message: Message, queue: impl Into<Arc<str>>, received_at: SystemTime) -> Self {
        DeliveryBuilder::new(message, Origin::new(queue, "", ""), received_at).build()
    }

    /// Sets the publisher for handlers. The consumer gives every delivery the publisher of its transport; a test gives one to a
    /// handler that asks for it.
    #[inline]
    #[must_use]
    pub fn with_publisher(mut self, publisher: Publisher) -> Self {
        Arc::make_mut(&mut self.fields).publisher = Some(publisher);
        self
    }

    /// Returns the message.
    #[inline]
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.fields.message
    }

    /// Returns the message's id, or the one assigned on arrival if it came without an id.
    #[inline]
    #[must_use]
    pub fn id(&self) -> &str {
        self.fields.message.id().unwrap_or_default()
    }

    /// Returns the queue (or subscription) that it came from.
    #[inline]
    #[must_use]
    pub fn queue(&self) -> &str {
        self.fields.origin.queue()
    }

    /// Returns the exchange (or topic) that this copy was published to. [`FailureHistory::source_exchange`] has the one that the
    /// message was first published to.
    #[inline]
    #[must_use]
    pub fn exchange(&self) -> &str {
        self.fields.origin.exchange()
    }

    /// Returns the routing key that this copy was published with.
    #[inline]
    #[must_use]
    pub fn routing_key(&self) -> &str {
        self.fields.origin.routing_key()
    }

    /// Returns when it arrived here, by the transport's clock.
    #[inline]
    #[must_use]
    pub fn received_at(&self) -> SystemTime {
        self.fields.received_at
    }

    /// Returns which attempt at this message this is: 1 the first time, and one more after each failure. The count survives every
    /// republish; an operator's redrive restarts it at 1. Where the broker retries [in place](crate::transport::InPlace), the death of the
    /// process counts as a failure.
    #[inline]
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.history().failures().saturating_add(self.fields.failures_in_place).saturating_add(1)
    }

    /// Returns how many of its failures only the broker counted, without a record on the message.
    #[inline]
    #[must_use]
    pub fn failures_in_place(&self) -> u32 {
        self.fields.failures_in_place
    }

    /// Returns how often this message was handed out since it last failed (or since it was published), including this time, and
    /// including processes that died with it. On a broker that does not count
    /// ([`Counting::deliveries`](crate::transport::Counting::deliveries)), 2 means "at least 2".
    #[inline]
    #[must_use]
    pub fn broker_delivery_count(&self) -> u32 {
        self.fields.broker_delivery_count.saturating_add(self.history().deliveries_before)
    }

    /// Returns how many of its deliveries may have ended with a process, including this one. The broker counts as well what this
    /// process lost with a connection; at most one delivery of each message for each interruption.
    #[inline]
    pub(crate) fn deliveries_without_end(&self) -> u32 {
        let interruptions = u32::try_from(self.fields.interruptions).unwrap_or(u32::MAX);
        let counted = self.broker_delivery_count().saturating_sub(interruptions);
        counted.max(self.fields.proven_deliveries).max(1)
    }

    /// Returns true if the consumer [replaced](by_consumer::replaced_by) it by a copy that is stored nowhere.
    #[inline]
    pub(crate) fn is_unstored_copy(&self) -> bool {
        self.fields.unstored_copy
    }

    /// Returns how often this process handled the message and lost it before it could be settled.
    #[inline]
    pub(crate) fn times_lost_here(&self) -> u32 {
        self.fields.lost_here
    }

    /// Returns the number of deliveries after which the broker itself removes a message; `None`: never, or not known.
    #[inline]
    #[must_use]
    pub fn delivery_limit(&self) -> Option<u32> {
        self.fields.delivery_limit
    }

    /// Returns true if the broker says that the message may have been handed out before.
    #[inline]
    #[must_use]
    pub fn redelivered(&self) -> bool {
        self.fields.redelivered
    }

    /// Returns when the publisher's expiration ends; `None` if the publisher set none. It covers all copies, and time spent in
    /// redrive's own waits counts.
    ///
    /// If the broker tells when it [put the message into its queue](Self::enqueued_at), the expiration is counted from then.
    /// Otherwise it is counted from the publisher's `timestamp`, if there is one that is not later than the first delivery (to
    /// the end of its second, because AMQP 0-9-1 tells no more); else from the first delivery, so that the time that the message
    /// spent in its queue before is not counted. An operator's redrive restarts it. A time that is not [plausible] is not known.
    #[must_use]
    pub fn deadline(&self) -> Option<SystemTime> {
        if self.history().deadline.is_some() {
            return self.history().deadline;
        }
        if self.fields.message.properties().expiration.is_some() {
            return self.own_deadline();
        }
        // For a redriven message, or one that failed before redrive recorded deadlines.
        let expiration =
            self.fields.message.headers().get(header_names::EXPIRATION).and_then(Value::to_integer)?;
        self.fields.received_at.checked_add(Duration::from_millis(u64::try_from(expiration).ok()?))
    }

    /// Returns when the expiration that the message itself carries ends, whatever its headers say; a copy carries none.
    pub(crate) fn own_deadline(&self) -> Option<SystemTime> {
        let properties = self.fields.message.properties();
        let received_at = self.fields.received_at;
        let enqueued_at = self.fields.enqueued_at.and_then(|time| plausible(time, received_at));
        let published = enqueued_at.or_else(|| self.published_at(received_at));
        let published = published.and_then(|time| time.checked_add(Duration::from_secs(1)));
        let from =
            published.map_or(self.fields.received_at, |published| published.min(self.fields.received_at));
        from.checked_add(properties.expiration?)
    }

    /// Returns the publisher's `timestamp`, if a decision at `now` may rely on it.
    fn published_at(&self, now: SystemTime) -> Option<SystemTime> {
        let time = self.fields.message.properties().timestamp?.to_system_time()?;
        plausible(time, now)
    }

    /// Returns when the broker put the message into its queue; `None` if the broker does not tell.
    #[inline]
    #[must_use]
    pub fn enqueued_at(&self) -> Option<SystemTime> {
        self.fields.enqueued_at
    }

    /// Returns the number of interruptions of its transport before it was handed out; 0 if the transport does not count them.
    #[inline]
    #[must_use]
    pub fn interruptions(&self) -> u64 {
        self.fields.interruptions
    }

    /// Returns the number that the broker gave the message: for example the sequence number of Service Bus. `None` if the broker
    /// gives none, as with RabbitMQ.
    #[inline]
    #[must_use]
    pub fn broker_number(&self) -> Option<u64> {
        self.fields.broker_number
    }

    /// Returns a publisher on the broker that the delivery came from; `None` if no consumer has received it.
    #[inline]
    #[must_use]
    pub fn publisher(&self) -> Option<&Publisher> {
        self.fields.publisher.as_ref()
    }

    /// Returns the values that layers attached to the delivery.
    #[inline]
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.fields.extensions
    }

    /// Returns the same for changes: a layer attaches values that the layers and the handler inside it see.
    #[inline]
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut Arc::make_mut(&mut self.fields).extensions
    }

    /// Returns what redrive wrote on the message when it failed before.
    #[inline]
    #[must_use]
    pub fn history(&self) -> &FailureHistory {
        static NONE: LazyLock<FailureHistory> = LazyLock::new(FailureHistory::default);
        self.fields.history.as_deref().unwrap_or(&NONE)
    }

    /// Returns why the message was on a shelf, if another program put it back into the work queue from there: a shovel, or a tool that
    /// moves messages. Such a message begins afresh, as after a redrive: as a first attempt, with no deadline and no count of before.
    #[inline]
    #[must_use]
    pub fn put_back(&self) -> Option<&Reason> {
        self.fields.put_back.as_ref()
    }

    /// Returns how old the message is at this time: since its publisher's `timestamp`, where it has one; else since its first
    /// failure; else since it came into its queue, or here.
    #[must_use]
    pub fn age(&self, now: SystemTime) -> Duration {
        let enqueued_at = self.fields.enqueued_at.and_then(|time| plausible(time, now));
        let since = self.published_at(now).or(self.history().first_failed_at).or(enqueued_at);
        // A clock may be ahead of ours.
        now.duration_since(since.unwrap_or(self.fields.received_at)).unwrap_or_default()
    }

    /// Returns the publisher's position in its trace, if the message carries one as W3C Trace Context.
    #[inline]
    #[must_use]
    pub fn trace_parent(&self) -> Option<TraceParent> {
        self.fields.message.headers().get("traceparent").and_then(Value::as_str).and_then(TraceParent::parse)
    }
}

fn believed_history(message: &Message, now: SystemTime) -> Arc<FailureHistory> {
    Arc::new(FailureHistory::read(message).believed(now))
}
