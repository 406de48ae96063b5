//! One arrival of a message.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use crate::deaths::DeathHistory;
use crate::header_names;
use crate::headers::{Timestamp, Value};
use crate::history::FailureHistory;
use crate::message::Message;
use crate::publisher::Publisher;

/// One arrival of a message at this consumer. It goes through the layers to the handler; it cannot
/// settle anything: the right to do that is the transport's receipt, which stays with the consumer.
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
    message: Message,
    origin: Origin,
    received_at: SystemTime,
    enqueued_at: Option<SystemTime>,
    broker_delivery_count: u32,
    delivery_limit: Option<u32>,
    failures_in_place: u32,
    redelivered: bool,
    interruptions: u64,
    broker_number: Option<u64>,
    publisher: Option<Publisher>,
    /// None: nothing is written on the message, as on most.
    history: Option<Arc<FailureHistory>>,
}

impl Delivery {
    /// A delivery of `message` from `queue`, first time round, received at `received_at`. For
    /// transports and tests; the headers of earlier failures are read from the message. A message that came without an id
    /// gets one, which is new with every arrival until a copy carries it on.
    #[must_use]
    pub fn new(message: Message, queue: impl Into<Arc<str>>, received_at: SystemTime) -> Self {
        Self::from_origin(message, &Origin::new(queue, "", ""), received_at)
    }

    /// The same, for transports of which most deliveries come from where the one before came from.
    #[must_use]
    pub fn from_origin(mut message: Message, origin: &Origin, received_at: SystemTime) -> Self {
        let mut history = FailureHistory::is_on(&message).then(|| Arc::new(FailureHistory::read(&message)));
        if message.assign_id() {
            Arc::make_mut(history.get_or_insert_default()).id_assigned = true;
        }
        let origin = origin.clone();
        Self {
            message,
            origin,
            received_at,
            enqueued_at: None,
            broker_delivery_count: 1,
            delivery_limit: None,
            failures_in_place: 0,
            redelivered: false,
            interruptions: 0,
            broker_number: None,
            publisher: None,
            history,
        }
    }

    /// The headers that are the same with each delivery of this message.
    pub(crate) fn lasting_headers(&self) -> impl Iterator<Item = (&str, &Value)> {
        let counting = self.origin.names.counting_headers;
        self.message.headers().iter().filter(|(name, _)| !counting.contains(name))
    }

    /// The same delivery, as published to this exchange with this routing key.
    #[must_use]
    pub fn published_to(mut self, exchange: impl Into<Arc<str>>, routing_key: impl Into<Arc<str>>) -> Self {
        let names = Arc::make_mut(&mut self.origin.names);
        names.exchange = exchange.into();
        names.routing_key = routing_key.into();
        self
    }

    /// The same delivery, from a broker that tells when it put the message into its queue and counts its expiration from there.
    #[must_use]
    pub fn enqueued_at(mut self, time: Option<SystemTime>) -> Self {
        self.enqueued_at = time;
        self
    }

    /// The same delivery, handed out for the `times`th time by the broker's count: 1 the first time.
    #[must_use]
    pub fn with_broker_delivery_count(mut self, times: u32) -> Self {
        self.broker_delivery_count = times.max(1);
        self.redelivered |= self.broker_delivery_count > 1;
        self
    }

    /// The same delivery, from a broker that itself takes a message away after this many deliveries. The consumer says so of
    /// every delivery, from [`Limits::deliveries`](crate::Limits::deliveries).
    #[must_use]
    pub fn with_delivery_limit(mut self, limit: Option<u32>) -> Self {
        self.delivery_limit = limit;
        self
    }

    /// The same delivery, which failed this many times before without being copied, by the broker's count. Only where
    /// the broker retries [in place](crate::InPlace).
    #[must_use]
    pub fn failed_in_place(mut self, times: u32) -> Self {
        self.failures_in_place = times;
        self
    }

    /// The same delivery; somebody who counts better than the broker says that it was handed out so often.
    pub(crate) fn with_broker_delivery_count_of_at_least(mut self, times: u32) -> Self {
        let by_earlier_copies = self.history().deliveries_before;
        self.broker_delivery_count = self.broker_delivery_count.max(times.saturating_sub(by_earlier_copies));
        self
    }

    /// The same delivery, as if this copy of its message had come in its place.
    pub(crate) fn replaced_by(mut self, copy: Message, now: SystemTime) -> Self {
        self.history = FailureHistory::is_on(&copy).then(|| Arc::new(FailureHistory::read(&copy)));
        self.message = copy;
        self.received_at = now;
        (self.broker_delivery_count, self.failures_in_place, self.redelivered) = (1, 0, false);
        self
    }

    /// The same delivery, marked by the broker as handed out before.
    #[must_use]
    pub fn marked_redelivered(mut self, redelivered: bool) -> Self {
        self.redelivered = redelivered;
        self
    }

    /// The same delivery, handed out after this many interruptions of its transport: connections, channels and subscriptions
    /// that ended with deliveries in flight. What was in flight, and what was settled and the broker was not told of, comes again
    /// after one more.
    #[must_use]
    pub fn after_interruptions(mut self, times: u64) -> Self {
        self.interruptions = times;
        self
    }

    /// The same delivery, under the number that the broker has given its message: the same with every delivery of this copy,
    /// and another for every other message of the queue. By it, two messages that are alike in everything are told apart.
    #[must_use]
    pub fn with_broker_number(mut self, number: u64) -> Self {
        self.broker_number = Some(number);
        self
    }

    /// The same delivery, with what a handler publishes with. The consumer gives every delivery the publisher of its transport;
    /// a test gives one to a handler that asks for it.
    #[must_use]
    pub fn with_publisher(mut self, publisher: Publisher) -> Self {
        self.publisher = Some(publisher);
        self
    }

    /// The same delivery, of which the transport could not read a part; `what` says which. It is dead-lettered as
    /// [`MalformedHeaders`](crate::Reason::MalformedHeaders), and no handler sees it. The transport refuses to store a copy of
    /// it as [`TooLarge`](crate::TransportErrorKind::TooLarge), so that nothing of the message is lost.
    #[must_use]
    pub fn read_without(mut self, what: impl Into<String>) -> Self {
        Arc::make_mut(self.history.get_or_insert_default()).read_without = Some(what.into());
        self
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The message's id; one that was made on arrival where it came without one.
    #[must_use]
    pub fn id(&self) -> &str {
        self.message.id().unwrap_or_default()
    }

    /// The queue (or subscription) that it came from.
    #[must_use]
    pub fn queue(&self) -> &str {
        self.origin.queue()
    }

    /// The exchange (or topic) that it was published to, at this hop. Where it was published at
    /// first is in [`FailureHistory::source_exchange`].
    #[must_use]
    pub fn exchange(&self) -> &str {
        self.origin.exchange()
    }

    /// The routing key that it was published with, at this hop.
    #[must_use]
    pub fn routing_key(&self) -> &str {
        self.origin.routing_key()
    }

    /// When it arrived here, by the transport's clock.
    #[must_use]
    pub fn received_at(&self) -> SystemTime {
        self.received_at
    }

    /// Which attempt at this message this is: 1 the first time, and one more after each failure.
    /// Survives every republish; an operator's redrive starts again at 1. Where the broker retries
    /// [in place](crate::InPlace), the death of the process counts as a failure.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.history().failures().saturating_add(self.failures_in_place).saturating_add(1)
    }

    /// How many of its failures the broker counted, and are not written on the message.
    #[must_use]
    pub fn failures_in_place(&self) -> u32 {
        self.failures_in_place
    }

    /// How often this message was handed out since it last failed (or since it was published), this
    /// time included, even to processes that died with it. On a broker that does not count
    /// ([`Counting::deliveries`](crate::Counting::deliveries)), 2 means "at least 2".
    #[must_use]
    pub fn broker_delivery_count(&self) -> u32 {
        self.broker_delivery_count.saturating_add(self.history().deliveries_before)
    }

    /// After how many deliveries the broker itself takes a message away; `None`: never, or not known.
    #[must_use]
    pub fn delivery_limit(&self) -> Option<u32> {
        self.delivery_limit
    }

    /// True when the broker says that it may have been handed out before.
    #[must_use]
    pub fn redelivered(&self) -> bool {
        self.redelivered
    }

    /// When the publisher's expiration is over; `None` where it asked for none. It holds over all hops, and redrive's own
    /// waits count.
    ///
    /// Where the broker tells when it [put the message into its queue](Self::enqueued_at), the expiration is counted from there.
    /// Others do not tell. There it is counted from the publisher's `timestamp`, where
    /// there is one that is not later than the first delivery (to the end of its second, which is all that AMQP 0-9-1
    /// tells), and else from the first delivery: the time that the message lay in its queue before is then not counted.
    /// An operator's redrive restarts it.
    #[must_use]
    pub fn deadline(&self) -> Option<SystemTime> {
        if self.history().deadline.is_some() {
            return self.history().deadline;
        }
        if self.message.properties().expiration.is_some() {
            return self.own_deadline();
        }
        // Of a redriven message, or of one that failed before deadlines were written down.
        let expiration = self.message.headers().get(header_names::EXPIRATION).and_then(Value::to_integer)?;
        self.received_at.checked_add(Duration::from_millis(u64::try_from(expiration).ok()?))
    }

    /// When the expiration is over that the message itself carries, whatever its headers say; a copy carries none.
    pub(crate) fn own_deadline(&self) -> Option<SystemTime> {
        let properties = self.message.properties();
        let published = self.enqueued_at.or_else(|| properties.timestamp.and_then(Timestamp::to_system_time));
        let published = published.and_then(|time| time.checked_add(Duration::from_secs(1)));
        let from = published.map_or(self.received_at, |published| published.min(self.received_at));
        from.checked_add(properties.expiration?)
    }

    /// When the broker put the message into its queue; `None` where it does not tell.
    pub(crate) fn came_at(&self) -> Option<SystemTime> {
        self.enqueued_at
    }

    /// After how many interruptions of its transport it was handed out; 0 where the transport does not count them.
    #[must_use]
    pub fn interruptions(&self) -> u64 {
        self.interruptions
    }

    /// The number that the broker has given the message: for example the sequence number of Service Bus. `None` where it
    /// gives none, as RabbitMQ.
    #[must_use]
    pub fn broker_number(&self) -> Option<u64> {
        self.broker_number
    }

    /// Publishes on the broker that the delivery came from; `None` where no consumer has received it.
    #[must_use]
    pub fn publisher(&self) -> Option<&Publisher> {
        self.publisher.as_ref()
    }

    /// What redrive wrote on the message when it failed before.
    #[must_use]
    pub fn history(&self) -> &FailureHistory {
        static NONE: LazyLock<FailureHistory> = LazyLock::new(FailureHistory::default);
        self.history.as_deref().unwrap_or(&NONE)
    }

    /// What the broker wrote on the message when it was dead-lettered (`x-death`). Evidence only:
    /// redrive decides nothing by it.
    #[must_use]
    pub fn deaths(&self) -> DeathHistory {
        DeathHistory::read(self.message.headers())
    }

    /// W3C Trace Context of the publisher, when the message carries one.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.message.headers().get("traceparent").and_then(|value| value.as_str())
    }
}

/// Where a delivery came from: the queue, and what it was published with. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Origin {
    names: Arc<Names>,
}

#[derive(Clone, Debug)]
struct Names {
    queue: Arc<str>,
    exchange: Arc<str>,
    routing_key: Arc<str>,
    counting_headers: &'static [&'static str],
}

impl Origin {
    /// From this queue (or subscription), published to this exchange (or topic) with this routing key.
    #[must_use]
    pub fn new(
        queue: impl Into<Arc<str>>,
        exchange: impl Into<Arc<str>>,
        routing_key: impl Into<Arc<str>>,
    ) -> Self {
        let (queue, exchange, routing_key) = (queue.into(), exchange.into(), routing_key.into());
        Self { names: Arc::new(Names { queue, exchange, routing_key, counting_headers: &[] }) }
    }

    /// The same place, of a broker that writes its counts into these headers: they are other ones with each delivery of one
    /// message, and do not make another message of it.
    #[must_use]
    pub fn with_counting_headers(mut self, names: &'static [&'static str]) -> Self {
        Arc::make_mut(&mut self.names).counting_headers = names;
        self
    }

    /// The queue (or subscription).
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.names.queue
    }

    /// The exchange (or topic).
    #[must_use]
    pub fn exchange(&self) -> &str {
        &self.names.exchange
    }

    /// The routing key.
    #[must_use]
    pub fn routing_key(&self) -> &str {
        &self.names.routing_key
    }
}
