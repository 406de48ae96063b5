//! One arrival of a message.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use crate::afresh::begin_afresh;
use crate::extensions::Extensions;
use crate::failure::Reason;
use crate::header_names;
use crate::headers::Value;
use crate::history::FailureHistory;
use crate::message::Message;
use crate::origin::Origin;
use crate::publisher::Publisher;
use crate::times::plausible;
use crate::trace::TraceParent;

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
#[derive(Clone)]
pub struct Delivery {
    // One pointer: a delivery is passed on often, and cloned for layers and handlers.
    fields: Arc<Fields>,
}

#[derive(Clone)]
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
    /// Creates the first delivery of `message` from `queue`, received at `received_at`. For transports and tests. Reads the
    /// headers of earlier failures from the message. A message without an id gets one, which differs with every arrival until a
    /// copy carries it.
    #[must_use]
    pub fn new(message: Message, queue: impl Into<Arc<str>>, received_at: SystemTime) -> Self {
        Self::from_origin(message, &Origin::new(queue, "", ""), received_at)
    }

    /// Creates the first delivery from an existing [`Origin`]: cheap if most deliveries come from the same place as the one
    /// before.
    #[must_use]
    pub fn from_origin(mut message: Message, origin: &Origin, received_at: SystemTime) -> Self {
        let failed_before = FailureHistory::is_on(&message);
        let put_back = failed_before.then(|| begin_afresh(&mut message)).flatten();
        let mut history = failed_before.then(|| believed_history(&message, received_at));
        if message.assign_id() {
            Arc::make_mut(history.get_or_insert_default()).id_assigned = true;
        }
        let fields = Fields {
            message,
            origin: origin.clone(),
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
        Self { fields: Arc::new(fields) }
    }

    /// Applies a change, unless it would change nothing, as for most deliveries: the check is cheaper than the change.
    fn with_unless(self, unchanged: impl FnOnce(&Fields) -> bool, change: impl FnOnce(&mut Fields)) -> Self {
        if unchanged(&self.fields) { self } else { self.with(change) }
    }

    fn with(mut self, change: impl FnOnce(&mut Fields)) -> Self {
        change(Arc::make_mut(&mut self.fields));
        self
    }

    /// Returns the headers that do not change between deliveries of this message.
    pub fn lasting_headers(&self) -> impl Iterator<Item = (&str, &Value)> {
        let counting = self.fields.origin.counting_headers();
        self.fields.message.headers().iter().filter(|(name, _)| !counting.contains(name))
    }

    /// Sets the exchange and the routing key that the message was published with.
    #[must_use]
    pub fn published_to(self, exchange: impl Into<Arc<str>>, routing_key: impl Into<Arc<str>>) -> Self {
        self.with(|fields| {
            fields.origin = fields.origin.clone().published_to(exchange, routing_key);
        })
    }

    /// Sets when the broker put the message into its queue, for brokers that tell this and count the expiration from there.
    #[must_use]
    pub fn with_enqueued_at(self, time: Option<SystemTime>) -> Self {
        self.with(|fields| fields.enqueued_at = time)
    }

    /// Sets the broker's delivery count: 1 the first time.
    #[must_use]
    pub fn with_broker_delivery_count(self, times: u32) -> Self {
        self.with_unless(
            |fields| fields.broker_delivery_count == 1 && times <= 1,
            |fields| {
                fields.broker_delivery_count = times.max(1);
                fields.redelivered |= times > 1;
            },
        )
    }

    /// Sets the number of deliveries after which the broker itself removes a message. The consumer sets it on every delivery,
    /// from [`Limits::deliveries`](crate::transport::Limits::deliveries).
    #[must_use]
    pub fn with_delivery_limit(self, limit: Option<u32>) -> Self {
        self.with(|fields| fields.delivery_limit = limit)
    }

    /// Sets how many times the message failed before without being copied, by the broker's count. Only for brokers that retry
    /// [in place](crate::transport::InPlace).
    #[must_use]
    pub fn failed_in_place(self, times: u32) -> Self {
        self.with_unless(
            |fields| fields.failures_in_place == times,
            |fields| fields.failures_in_place = times,
        )
    }

    /// Sets what the consumer gives every delivery.
    #[must_use]
    pub fn taken_by_consumer(self, delivery_limit: Option<u32>, publisher: Publisher) -> Self {
        self.with(|fields| (fields.delivery_limit, fields.publisher) = (delivery_limit, Some(publisher)))
    }

    /// Raises the broker's delivery count to at least `times`, for a source that counts better than the broker.
    #[must_use]
    pub fn with_broker_delivery_count_of_at_least(self, times: u32) -> Self {
        let of_this_copy = times.saturating_sub(self.history().deliveries_before);
        self.with(|fields| {
            fields.broker_delivery_count = fields.broker_delivery_count.max(of_this_copy);
            fields.proven_deliveries = fields.proven_deliveries.max(times);
        })
    }

    /// Records that this process handled the message this often, and lost it each time before it could be settled.
    #[must_use]
    pub fn lost_here(self, times: u32) -> Self {
        self.with_broker_delivery_count_of_at_least(times.saturating_add(1))
            .with(|fields| fields.lost_here = times)
    }

    /// Replaces the message by this copy, as if the copy had arrived instead.
    #[must_use]
    pub fn replaced_by(self, copy: Message, now: SystemTime) -> Self {
        self.with(|fields| {
            fields.history = FailureHistory::is_on(&copy).then(|| believed_history(&copy, now));
            fields.message = copy;
            fields.received_at = now;
            (fields.broker_delivery_count, fields.failures_in_place, fields.redelivered) = (1, 0, false);
            (fields.proven_deliveries, fields.lost_here) = (0, 0);
            fields.unstored_copy = true;
        })
    }

    /// Returns true if it was [replaced](Self::replaced_by) by a copy that is stored nowhere.
    pub(crate) fn is_unstored_copy(&self) -> bool {
        self.fields.unstored_copy
    }

    /// Marks the delivery as handed out before, by the broker's word.
    #[must_use]
    pub fn marked_redelivered(self, redelivered: bool) -> Self {
        self.with_unless(
            |fields| fields.redelivered == redelivered,
            |fields| fields.redelivered = redelivered,
        )
    }

    /// Sets the number of interruptions of the transport before this delivery: connections, channels and subscriptions that ended
    /// with deliveries in flight. After each interruption, the deliveries that were in flight are redelivered, and so are those that
    /// were settled without the broker learning of it.
    #[must_use]
    pub fn after_interruptions(self, times: u64) -> Self {
        self.with_unless(|fields| fields.interruptions == times, |fields| fields.interruptions = times)
    }

    /// Sets the number that the broker gave the message. It is the same for every delivery of this copy, and differs for every
    /// other message of the queue. It tells two identical messages apart.
    #[must_use]
    pub fn with_broker_number(self, number: u64) -> Self {
        self.with(|fields| fields.broker_number = Some(number))
    }

    /// Sets the publisher for handlers. The consumer gives every delivery the publisher of its transport; a test gives one to a
    /// handler that asks for it.
    #[must_use]
    pub fn with_publisher(self, publisher: Publisher) -> Self {
        self.with(|fields| fields.publisher = Some(publisher))
    }

    /// Marks the delivery as read in part: the transport could not read `what`. The consumer dead-letters it as
    /// [`MalformedHeaders`](crate::Reason::MalformedHeaders), and no handler sees it. The transport refuses to store a copy of
    /// it, as [`TooLarge`](crate::TransportErrorKind::TooLarge), so that no part of the message is lost.
    #[must_use]
    pub fn read_without(self, what: impl Into<String>) -> Self {
        self.with(|fields| {
            Arc::make_mut(fields.history.get_or_insert_default()).read_without = Some(what.into());
        })
    }

    /// Returns the message.
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.fields.message
    }

    /// Returns the message's id, or the one assigned on arrival if it came without an id.
    #[must_use]
    pub fn id(&self) -> &str {
        self.fields.message.id().unwrap_or_default()
    }

    /// Returns the queue (or subscription) that it came from.
    #[must_use]
    pub fn queue(&self) -> &str {
        self.fields.origin.queue()
    }

    /// Returns the exchange (or topic) that this copy was published to. [`FailureHistory::source_exchange`] has the one that the
    /// message was first published to.
    #[must_use]
    pub fn exchange(&self) -> &str {
        self.fields.origin.exchange()
    }

    /// Returns the routing key that this copy was published with.
    #[must_use]
    pub fn routing_key(&self) -> &str {
        self.fields.origin.routing_key()
    }

    /// Returns when it arrived here, by the transport's clock.
    #[must_use]
    pub fn received_at(&self) -> SystemTime {
        self.fields.received_at
    }

    /// Returns which attempt at this message this is: 1 the first time, and one more after each failure. The count survives every
    /// republish; an operator's redrive restarts it at 1. Where the broker retries [in place](crate::transport::InPlace), the death of the
    /// process counts as a failure.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.history().failures().saturating_add(self.fields.failures_in_place).saturating_add(1)
    }

    /// Returns how many of its failures only the broker counted, without a record on the message.
    #[must_use]
    pub fn failures_in_place(&self) -> u32 {
        self.fields.failures_in_place
    }

    /// Returns how often this message was handed out since it last failed (or since it was published), including this time, and
    /// including processes that died with it. On a broker that does not count
    /// ([`Counting::deliveries`](crate::transport::Counting::deliveries)), 2 means "at least 2".
    #[must_use]
    pub fn broker_delivery_count(&self) -> u32 {
        self.fields.broker_delivery_count.saturating_add(self.history().deliveries_before)
    }

    /// Returns how many of its deliveries may have ended with a process, including this one. The broker counts as well what this
    /// process lost with a connection; at most one delivery of each message for each interruption.
    pub(crate) fn deliveries_without_end(&self) -> u32 {
        let interruptions = u32::try_from(self.fields.interruptions).unwrap_or(u32::MAX);
        let counted = self.broker_delivery_count().saturating_sub(interruptions);
        counted.max(self.fields.proven_deliveries).max(1)
    }

    /// Returns how often this process handled the message and lost it before it could be settled.
    pub(crate) fn times_lost_here(&self) -> u32 {
        self.fields.lost_here
    }

    /// Returns the number of deliveries after which the broker itself removes a message; `None`: never, or not known.
    #[must_use]
    pub fn delivery_limit(&self) -> Option<u32> {
        self.fields.delivery_limit
    }

    /// Returns true if the broker says that the message may have been handed out before.
    #[must_use]
    pub fn redelivered(&self) -> bool {
        self.fields.redelivered
    }

    /// Returns when the publisher's expiration ends; `None` if the publisher set none. It covers all copies, and time spent in
    /// redrive's own waits counts.
    ///
    /// If the broker tells when it [put the message into its queue](Self::with_enqueued_at), the expiration is counted from then.
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
    #[must_use]
    pub fn enqueued_at(&self) -> Option<SystemTime> {
        self.fields.enqueued_at
    }

    /// Returns the number of interruptions of its transport before it was handed out; 0 if the transport does not count them.
    #[must_use]
    pub fn interruptions(&self) -> u64 {
        self.fields.interruptions
    }

    /// Returns the number that the broker gave the message: for example the sequence number of Service Bus. `None` if the broker
    /// gives none, as with RabbitMQ.
    #[must_use]
    pub fn broker_number(&self) -> Option<u64> {
        self.fields.broker_number
    }

    /// Returns a publisher on the broker that the delivery came from; `None` if no consumer has received it.
    #[must_use]
    pub fn publisher(&self) -> Option<&Publisher> {
        self.fields.publisher.as_ref()
    }

    /// Returns the values that layers attached to the delivery.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.fields.extensions
    }

    /// Returns the same for changes: a layer attaches values that the layers and the handler inside it see.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut Arc::make_mut(&mut self.fields).extensions
    }

    /// Returns what redrive wrote on the message when it failed before.
    #[must_use]
    pub fn history(&self) -> &FailureHistory {
        static NONE: LazyLock<FailureHistory> = LazyLock::new(FailureHistory::default);
        self.fields.history.as_deref().unwrap_or(&NONE)
    }

    /// Returns why the message was on a shelf, if another program put it back into the work queue from there: a shovel, or a tool that
    /// moves messages. Such a message begins afresh, as after a redrive: as a first attempt, with no deadline and no count of before.
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
    #[must_use]
    pub fn trace_parent(&self) -> Option<TraceParent> {
        self.fields.message.headers().get("traceparent").and_then(Value::as_str).and_then(TraceParent::parse)
    }
}

fn believed_history(message: &Message, now: SystemTime) -> Arc<FailureHistory> {
    Arc::new(FailureHistory::read(message).believed(now))
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fields {
            message,
            origin,
            received_at,
            enqueued_at,
            broker_delivery_count,
            proven_deliveries,
            lost_here,
            delivery_limit,
            failures_in_place,
            redelivered,
            unstored_copy,
            interruptions,
            broker_number,
            publisher,
            extensions,
            history,
            put_back,
        } = &*self.fields;
        f.debug_struct("Delivery")
            .field("message", message)
            .field("origin", origin)
            .field("received_at", received_at)
            .field("enqueued_at", enqueued_at)
            .field("broker_delivery_count", broker_delivery_count)
            .field("proven_deliveries", proven_deliveries)
            .field("lost_here", lost_here)
            .field("delivery_limit", delivery_limit)
            .field("failures_in_place", failures_in_place)
            .field("redelivered", redelivered)
            .field("unstored_copy", unstored_copy)
            .field("interruptions", interruptions)
            .field("broker_number", broker_number)
            .field("publisher", publisher)
            .field("extensions", extensions)
            .field("history", history)
            .field("put_back", put_back)
            .finish()
    }
}
