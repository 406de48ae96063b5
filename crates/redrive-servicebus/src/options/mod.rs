//! How a transport is set up, in the words that people know from Service Bus.

mod connection;

use std::time::Duration;

use redrive_core::{Capabilities, InPlace, Needs, TransportError, TransportErrorKind};

use crate::address::Address;
use crate::entity::Entity;
use crate::sessions::Sessions;
use crate::wire::Protocol;

pub(crate) use connection::ConnectionOptions;
pub use connection::TransportType;

/// The most bytes that properties and headers of a copy may take: Service Bus allows 64 KiB, written a little longer.
const MAX_HEADER_BYTES: usize = 48 * 1024;

/// The most sessions that are held over one connection: Azure allows 5000 links on it, and others are needed too.
const MOST_SESSIONS: usize = 4000;

/// How a [`ServiceBus`](crate::ServiceBus) transport is set up.
///
/// ```no_run
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// use redrive_servicebus::{Entity, ServiceBus};
///
/// let transport = ServiceBus::options(Entity::subscription("orders", "billing"))
///     .retry_queue("orders-billing-retry")
///     .max_delivery_count(20)
///     .connect("Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=…;SharedAccessKey=…")
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are connected"]
pub struct Options {
    pub(crate) entity: Entity,
    pub(crate) retry_queue: Option<String>,
    pub(crate) parking_queue: Option<String>,
    pub(crate) prefetch_count: Option<u32>,
    pub(crate) max_delivery_count: u32,
    pub(crate) max_wait_time: Duration,
    pub(crate) max_lock_renewal: Duration,
    pub(crate) hold_lock_up_to: Option<Duration>,
    pub(crate) receive_mode: ReceiveMode,
    pub(crate) transactions: Transactions,
    pub(crate) sessions: Option<Sessions>,
    pub(crate) connection: ConnectionOptions,
    pub(crate) backend: Backend,
    #[cfg(feature = "rest")]
    pub(crate) rest: crate::rest::RestOptions,
}

/// By which protocol the namespace is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// AMQP 1.0.
    #[default]
    Amqp,
    /// The run-time REST API, by HTTPS: for networks that let nothing else through. It can do less; what, stands in
    /// `docs/transports/servicebus.md`. Dead letters need a queue of their own (`Options::dead_letter_queue`).
    #[cfg(feature = "rest")]
    Rest,
}

/// How messages are received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveMode {
    /// Locked, until they are settled.
    #[default]
    PeekLock,
    /// Removed as they are handed out. Refused: a message would be gone before its handler has seen it.
    ReceiveAndDelete,
}

/// Whether a copy is stored and its original completed in one transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transactions {
    /// Wherever the namespace has them. Where it has none (the Basic tier), the copy is stored first and the original
    /// completed then: a crash in between leaves two. Told once, as a warning.
    #[default]
    Auto,
    /// Never: the copy is stored first and the original completed then.
    Off,
}

impl Options {
    pub(crate) fn new(entity: impl Into<Entity>) -> Self {
        Self {
            entity: entity.into(),
            retry_queue: None,
            parking_queue: None,
            prefetch_count: None,
            max_delivery_count: 10,
            max_wait_time: Duration::from_secs(5),
            max_lock_renewal: Duration::from_secs(5 * 60),
            hold_lock_up_to: None,
            receive_mode: ReceiveMode::PeekLock,
            transactions: Transactions::Auto,
            sessions: None,
            connection: ConnectionOptions::default(),
            backend: Backend::Amqp,
            #[cfg(feature = "rest")]
            rest: crate::rest::RestOptions::default(),
        }
    }

    /// The queue through which retried and redriven messages of a subscription come back. A copy that is sent to the topic
    /// would reach every subscription; one that is sent to this queue reaches this consumer, which reads it too, beside the
    /// subscription and with a prefetch of its own. It must exist, and nobody else may read it. Without one, a subscription can
    /// only be consumed without retries. For a queue: where its copies wait, instead of in the queue itself.
    pub fn retry_queue(mut self, name: impl Into<String>) -> Self {
        self.retry_queue = Some(name.into());
        self
    }

    /// The queue that parked messages are moved to. By default they stay in the dead-letter queue, marked.
    pub fn parking_queue(mut self, name: impl Into<String>) -> Self {
        self.parking_queue = Some(name.into());
        self
    }

    /// How many messages are held at most, handled or about to be; by default what the consumer asks for.
    pub fn prefetch_count(mut self, count: u32) -> Self {
        self.prefetch_count = Some(count.max(1));
        self
    }

    /// The entity's `MaxDeliveryCount`: after so many hand-outs the broker itself dead-letters a message. 10 unless said
    /// otherwise, as in Azure. It cannot be asked for with the rights to listen and send, so it is said here, and the limits
    /// of the layers are compared with it at the start.
    pub fn max_delivery_count(mut self, count: u32) -> Self {
        self.max_delivery_count = count.max(1);
        self
    }

    /// How long operators' work waits for a message that was seen on a shelf and is not handed out; 5 s unless said
    /// otherwise. It may be in the hand of somebody else.
    pub fn max_wait_time(mut self, wait: Duration) -> Self {
        self.max_wait_time = wait;
        self
    }

    /// For how long the lock of a delivery is renewed at most; 5 min unless said otherwise. Afterwards it runs out, and the
    /// message is handed out again, counted.
    pub fn max_lock_renewal(mut self, longest: Duration) -> Self {
        self.max_lock_renewal = longest;
        self
    }

    /// Retries with waits up to this one keep the lock and wait here, instead of sending a copy: nothing is sent, and the
    /// broker counts the attempts ([`InPlace`]). Attempts are then bounded by `MaxDeliveryCount`. Not by default.
    pub fn hold_lock_up_to(mut self, longest: Duration) -> Self {
        self.hold_lock_up_to = Some(longest);
        self
    }

    /// How messages are received: [`ReceiveMode::PeekLock`], and nothing else is accepted.
    pub fn receive_mode(mut self, mode: ReceiveMode) -> Self {
        self.receive_mode = mode;
        self
    }

    /// For an entity that requires sessions (and for its retry queue, which then requires them too): how many are consumed at
    /// a time. A retry keeps its place in its session: the message is given back with its story written on it, and its session
    /// rests until the wait is over. For how long at most says [`hold_lock_up_to`](Self::hold_lock_up_to), and else
    /// [`max_lock_renewal`](Self::max_lock_renewal): a start whose layers ask for longer waits is refused.
    pub fn sessions(mut self, sessions: Sessions) -> Self {
        self.sessions = Some(sessions);
        self
    }

    /// Whether transactions are used.
    pub fn transactions(mut self, transactions: Transactions) -> Self {
        self.transactions = transactions;
        self
    }

    /// By which protocol the namespace is spoken to: [`Backend::Amqp`] unless said otherwise.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Refuses what can be refused without asking the broker.
    pub(crate) fn check(&self, address: &Address) -> Result<(), TransportError> {
        let entity = &self.entity;
        #[cfg(feature = "rest")]
        self.check_rest()?;
        if self.receive_mode == ReceiveMode::ReceiveAndDelete {
            return Err(refused(format!(
                "`{entity}` cannot be consumed by `ReceiveAndDelete`: a message would be gone when its handler fails or the \
                 process dies; leave `ReceiveMode::PeekLock`"
            )));
        }
        if let Some(path) = &address.entity_path
            && !path.eq_ignore_ascii_case(&entity.path())
            && !matches!(entity, Entity::Subscription { topic, .. } if path.eq_ignore_ascii_case(topic))
        {
            return Err(refused(format!(
                "the connection string is for the entity `{path}` only, and `{entity}` is to be consumed: use the connection \
                 string of the namespace, or that of `{entity}`"
            )));
        }
        if self.sessions.is_some() && self.intakes() > MOST_SESSIONS {
            return Err(refused(format!(
                "`{entity}` is to be consumed by {} sessions at a time, and one connection carries {MOST_SESSIONS} at most: \
                 lower `Sessions::concurrent`, and start more processes",
                self.intakes()
            )));
        }
        if let (Some(sessions), Some(count)) = (self.sessions, self.prefetch_count)
            && count < sessions.concurrent
        {
            return Err(refused(format!(
                "`{entity}` is to be consumed by {} sessions at a time with one message each, and `prefetch_count` allows \
                 {count} messages in hand: leave `prefetch_count` away, or say `Sessions::concurrent({count})`",
                sessions.concurrent
            )));
        }
        if let (Some(hold), longest) = (self.hold_lock_up_to, self.max_lock_renewal)
            && hold > longest
        {
            return Err(refused(format!(
                "`hold_lock_up_to` asks for {}, but a lock of `{entity}` is renewed for {} only: raise `max_lock_renewal`, or \
                 lower `hold_lock_up_to`",
                humantime::format_duration(hold),
                humantime::format_duration(longest),
            )));
        }
        Ok(())
    }

    /// Refuses what cannot be done for these needs.
    pub(crate) fn check_needs(&self, needs: &Needs) -> Result<(), TransportError> {
        let mut unmet = needs.unmet(&self.capabilities());
        unmet.extend(self.unmet_in_sessions(needs));
        let retries = needs.attempts.is_some() || !needs.waits.is_empty();
        let longest_held = self.hold_lock_up_to.unwrap_or_default();
        let copies =
            retries && self.sessions.is_none() && needs.waits.last().is_none_or(|&wait| wait > longest_held);
        if let (Entity::Subscription { .. }, None, true) = (&self.entity, &self.retry_queue, copies) {
            unmet.push(format!(
                "retries of the subscription `{}` would be copies sent to its topic, and reach every other subscription: \
                 name a queue of its own with `Options::retry_queue`",
                self.entity
            ));
        }
        #[cfg(feature = "rest")]
        unmet.extend(self.unmet_by_rest());
        if unmet.is_empty() { Ok(()) } else { Err(refused(unmet.join("; "))) }
    }

    /// In a session each attempt is a hand-out of the same message, and one must be left for the death of a process.
    fn unmet_in_sessions(&self, needs: &Needs) -> Option<String> {
        let (entity, limit) = (&self.entity, self.max_delivery_count);
        let attempts = needs.attempts.filter(|&attempts| self.sessions.is_some() && attempts >= limit)?;
        let asked = match attempts {
            u32::MAX => "without an end that is known".to_owned(),
            attempts => format!("{attempts} times"),
        };
        Some(format!(
            "the retry policy tries a message of `{entity}` {asked}, and in a session each attempt counts towards the \
             entity's MaxDeliveryCount, which is {limit} (`Options::max_delivery_count`): limit the policy's attempts to \
             fewer, or raise both"
        ))
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("servicebus", self.entity.path());
        capabilities.hand_out_limit = Some(self.max_delivery_count);
        capabilities.hold_limit = Some(self.max_lock_renewal);
        capabilities.native_dead_letter = true;
        capabilities.max_header_bytes = Some(MAX_HEADER_BYTES);
        if self.holds_locks() {
            capabilities.in_place = self.hold_lock_up_to.map(|longest| InPlace::linear(longest, longest));
        }
        if self.sessions.is_some() {
            capabilities.longest_wait = Some(self.longest_rest());
            capabilities.keeps_order = true;
            // A session that ends with its connection, as with that of a dead process, counts nothing.
            capabilities.counts_hand_outs = false;
        }
        #[cfg(feature = "rest")]
        self.limit_to_rest(&mut capabilities);
        capabilities
    }

    /// Whether locks of messages are held instead of sending copies.
    pub(crate) fn holds_locks(&self) -> bool {
        self.hold_lock_up_to.is_some() && self.sessions.is_none()
    }

    /// For how long a session rests for a retry.
    pub(crate) fn longest_rest(&self) -> Duration {
        self.hold_lock_up_to.unwrap_or(self.max_lock_renewal)
    }

    /// How many tasks take deliveries.
    pub(crate) fn intakes(&self) -> usize {
        self.sources().len() * self.sessions.map_or(1, |sessions| sessions.concurrent as usize)
    }

    pub(crate) fn protocol(&self) -> Protocol {
        match self.backend {
            Backend::Amqp => Protocol::Amqp,
            #[cfg(feature = "rest")]
            Backend::Rest => Protocol::Rest { poll_wait: self.rest.poll_wait, polls: self.rest.polls },
        }
    }

    /// Where dead letters are moved to; `None`: the broker itself dead-letters them.
    pub(crate) fn dead_letter_target(&self) -> Option<&str> {
        #[cfg(feature = "rest")]
        if self.backend == Backend::Rest {
            return self.rest.dead_letter_queue.as_deref();
        }
        None
    }

    /// Whether a copy can be stored and its original completed in one transaction.
    pub(crate) fn has_transactions(&self) -> bool {
        self.transactions == Transactions::Auto && self.backend == Backend::Amqp
    }

    /// Where copies are sent to come back; `None` where they would reach others.
    pub(crate) fn retry_target(&self) -> Option<&str> {
        match (&self.retry_queue, &self.entity) {
            (Some(queue), _) => Some(queue),
            (None, Entity::Queue(queue)) => Some(queue),
            (None, Entity::Subscription { .. }) => None,
        }
    }

    /// What is read: the entity, and the queue through which its copies come back.
    pub(crate) fn sources(&self) -> Vec<Entity> {
        let retry = self.retry_queue.as_ref().map(Entity::queue);
        std::iter::once(self.entity.clone()).chain(retry).collect()
    }
}

pub(crate) fn refused(message: String) -> TransportError {
    TransportError::new(TransportErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(entity_path: &str) -> Address {
        let text =
            format!("Endpoint=sb://h;SharedAccessKeyName=a;SharedAccessKey=b;EntityPath={entity_path}");
        Address::parse(&text).expect("it is well-formed")
    }

    fn retries() -> Needs {
        let mut needs = Needs::none();
        needs.attempts = Some(5);
        needs.waits.insert(Duration::from_secs(1));
        needs
    }

    #[test]
    fn receive_and_delete_is_refused_with_the_reason() {
        let options = Options::new("orders").receive_mode(ReceiveMode::ReceiveAndDelete);
        let error = options.check(&address("")).expect_err("it loses messages").to_string();
        assert!(error.contains("gone") && error.contains("PeekLock"), "{error}");
    }

    #[test]
    fn a_key_of_another_entity_is_refused() {
        assert!(Options::new("orders").check(&address("Orders")).is_ok());
        assert!(Options::new("orders").check(&address("")).is_ok());
        let subscription = Options::new(Entity::subscription("orders", "billing"));
        assert!(subscription.check(&address("orders")).is_ok());
        assert!(Options::new("orders").check(&address("payments")).is_err());
    }

    #[test]
    fn retries_of_a_subscription_need_a_queue_of_their_own() {
        let options = Options::new(Entity::subscription("orders", "billing"));
        let error = options.check_needs(&retries()).expect_err("they would reach others").to_string();
        assert!(error.contains("retry_queue"), "{error}");
        assert!(options.check_needs(&Needs::none()).is_ok());
        assert!(options.clone().retry_queue("r").check_needs(&retries()).is_ok());
        assert!(options.hold_lock_up_to(Duration::from_secs(1)).check_needs(&retries()).is_ok());
        assert!(Options::new("orders").check_needs(&retries()).is_ok());
    }

    #[test]
    fn hand_outs_must_stay_below_the_brokers_limit() {
        let mut needs = Needs::none();
        needs.hand_outs = Some(10);
        assert!(Options::new("orders").check_needs(&needs).is_err());
        assert!(Options::new("orders").max_delivery_count(11).check_needs(&needs).is_ok());
    }

    #[test]
    fn a_lock_is_not_held_longer_than_it_is_renewed() {
        let options = Options::new("orders").hold_lock_up_to(Duration::from_secs(301));
        assert!(options.check(&address("")).is_err());
    }

    #[test]
    fn attempts_in_sessions_must_stay_below_the_brokers_limit() {
        let options = Options::new("orders").sessions(Sessions::concurrent(1)).max_delivery_count(6);
        let mut needs = retries();
        assert!(options.check_needs(&needs).is_ok());
        needs.attempts = Some(6);
        let error = options.check_needs(&needs).expect_err("a death would be one too many").to_string();
        assert!(error.contains("6 times") && error.contains("MaxDeliveryCount"), "{error}");
        needs.attempts = Some(u32::MAX);
        assert!(options.check_needs(&needs).is_err());
        assert!(
            Options::new("orders").max_delivery_count(6).check_needs(&needs).is_ok(),
            "copies count anew"
        );
    }

    #[test]
    fn a_session_rests_no_longer_than_said() {
        let options = Options::new("orders").sessions(Sessions::concurrent(1));
        let mut needs = retries();
        needs.waits.insert(Duration::from_secs(300));
        assert!(options.check_needs(&needs).is_ok());
        let short = options.clone().hold_lock_up_to(Duration::from_secs(299));
        let error = short.check_needs(&needs).expect_err("it is longer").to_string();
        assert!(error.contains("5m") && error.contains("4m 59s"), "{error}");
        needs.waits.insert(Duration::from_secs(301));
        assert!(options.check_needs(&needs).is_err());
        assert!(options.max_lock_renewal(Duration::from_secs(600)).check_needs(&needs).is_ok());
    }

    #[test]
    fn each_session_has_a_message_in_hand() {
        let options = Options::new("orders").sessions(Sessions::concurrent(8));
        assert!(options.clone().prefetch_count(8).check(&address("")).is_ok());
        let error = options.prefetch_count(7).check(&address("")).expect_err("too few").to_string();
        assert!(error.contains("concurrent(7)"), "{error}");
        let many = Options::new("orders").sessions(Sessions::concurrent(4001));
        let error = many.check(&address("")).expect_err("too many").to_string();
        assert!(error.contains("4000"), "{error}");
    }

    #[test]
    fn retries_in_sessions_of_a_subscription_reach_no_other() {
        let options = Options::new(Entity::subscription("orders", "billing"));
        assert!(options.sessions(Sessions::concurrent(1)).check_needs(&retries()).is_ok());
    }

    #[test]
    fn copies_go_where_only_this_consumer_reads() {
        assert_eq!(Options::new("orders").retry_target(), Some("orders"));
        let subscription = Options::new(Entity::subscription("orders", "billing"));
        assert_eq!(subscription.retry_target(), None);
        let subscription = subscription.retry_queue("back");
        assert_eq!(subscription.retry_target(), Some("back"));
        assert_eq!(subscription.sources().len(), 2);
    }
}
