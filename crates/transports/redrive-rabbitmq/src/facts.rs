//! The facts of the broker and its queue, the needs that the transport serves, and signals of changes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock};
use redrive_core::transport::{Facts, HeaderLimit, NativeDeadLetter, Needs, Signal, Signals};
use redrive_core::{Delivery, TransportError, Value};
use redrive_transport::header_size;

use crate::broker::{QueueType, Version};
use crate::connection::Connection;
use crate::convert::max_header_bytes;
use crate::delay::{DeadLetters, DelayStrategy, MAX_WAIT};
use crate::options::Options;
use crate::topology::{Plan, Route, Topology};

/// Default delivery limit of a quorum queue from 4.0 on.
const DEFAULT_DELIVERIES_FROM_4_0: u32 = 21;

/// Computes the [`Facts`], and sends them to the consumer when they change.
#[derive(Debug)]
pub(crate) struct TransportFacts {
    options: Arc<Options>,
    plan: Arc<Plan>,
    broker: Mutex<BrokerFacts>,
    active: RwLock<ActiveNeeds>,
    /// None until the transport is open.
    listener: Mutex<Option<Listener>>,
}

/// What the last connection and the management API told about the broker.
#[derive(Clone, Copy, Debug, Default)]
struct BrokerFacts {
    version: Option<Version>,
    frame_max: u32,
    management: ManagementFacts,
}

/// What the management API tells about the work queue; empty if it was not asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ManagementFacts {
    pub(crate) delivery_limit: Option<u32>,
    pub(crate) consumer_timeout: Option<Duration>,
}

/// The needs that the transport serves.
#[derive(Clone, Debug)]
pub(crate) struct ActiveNeeds {
    strategy: Arc<dyn DelayStrategy>,
    /// The strategy with all its spare queues.
    whole: Arc<dyn DelayStrategy>,
    prefetch: u16,
    /// False before the transport is opened: the waits of the retries are not known yet.
    known: bool,
}

/// The consumer's signals, and the last facts that were sent.
struct Listener {
    signals: Signals,
    facts: Facts,
}

impl ActiveNeeds {
    fn new(strategy: Arc<dyn DelayStrategy>, prefetch: u16, known: bool) -> Self {
        Self { whole: Arc::clone(&strategy), strategy, prefetch, known }
    }

    /// Returns how messages wait.
    pub(crate) fn strategy(&self) -> Arc<dyn DelayStrategy> {
        Arc::clone(&self.strategy)
    }
}

impl TransportFacts {
    pub(crate) fn new(options: Arc<Options>, plan: Arc<Plan>) -> Self {
        let strategy = options.delay.strategy_before_needs(&plan, &options.more_waits);
        let active = RwLock::new(ActiveNeeds::new(strategy, 0, false));
        Self { options, plan, broker: Mutex::default(), active, listener: Mutex::default() }
    }

    /// Returns the current facts.
    pub(crate) fn facts(&self) -> Facts {
        self.facts_for(&self.active())
    }

    /// Returns the current facts for a transport that serves these needs.
    pub(crate) fn facts_for(&self, active: &ActiveNeeds) -> Facts {
        let broker = *self.broker();
        let quorum = self.options.queue_type == QueueType::Quorum;
        let mut facts = Facts::new("rabbitmq");
        facts.delays.longest = Some(MAX_WAIT);
        facts.delays.hop_durations = active.known.then(|| active.strategy.hops());
        facts.counting.deliveries = quorum;
        // An unknown version counts as old: a copy instead of a return is right on every version.
        facts.counting.releases = quorum && broker.version.is_none_or(|version| version < Version::V4_3);
        facts.limits.deliveries = self.most_deliveries(&broker).filter(|_| quorum);
        facts.limits.in_flight = self.grows_to(active.prefetch).map(u32::from);
        facts.limits.hold = hold_limit(&self.options, broker.version, broker.management.consumer_timeout);
        facts.dead_letter = match self.options.dead_letters {
            _ if !self.options.broker_dead_letters() => NativeDeadLetter::No,
            DeadLetters::Broker => NativeDeadLetter::Preferred,
            // A classic queue does not keep a dead letter for which the shelf has no room.
            _ if !quorum => NativeDeadLetter::No,
            _ => NativeDeadLetter::LastResort,
        };
        // A classic delay queue does not wait until an expired message is on the disk of its target queue. Queues that somebody else
        // declares may be classic, unless the options name their type.
        facts.delays.survive_crashes = match self.options.retry_queue_type {
            Some(queue_type) => queue_type == QueueType::Quorum,
            None => {
                let declared = self.options.delay.is_declared(self.options.topology);
                declared && self.plan.retry_queue_type == QueueType::Quorum
            }
        };
        facts.limits.headers =
            max_header_bytes(broker.frame_max).map(|bytes| HeaderLimit::new(bytes, header_size));
        active.strategy.describe(&mut facts);
        facts
    }

    /// Returns the maximum number of deliveries of one message from a quorum work queue, if known.
    fn most_deliveries(&self, broker: &BrokerFacts) -> Option<u32> {
        let found = broker.management.delivery_limit;
        let limit = match self.options.delivery_limit {
            Some(limit) => Some(limit),
            None if self.options.topology == Topology::Declare => {
                Some(found.unwrap_or(u32::MAX).min(self.plan.delivery_limit))
            }
            None => found,
        };
        let by_default = broker.version.is_some_and(|version| version >= Version::V4_0);
        let default = by_default.then_some(DEFAULT_DELIVERIES_FROM_4_0);
        limit.map(|limit| limit.saturating_add(1)).or(default)
    }

    /// Returns the maximum number of deliveries in flight, if that may exceed the prefetch.
    pub(crate) fn grows_to(&self, prefetch: u16) -> Option<u16> {
        // A single active consumer that subscribes again is no longer the active one.
        let single_active = self.options.arguments.contains_key("x-single-active-consumer");
        // A prefetch of 1 must stay 1.
        let may_grow = prefetch > 1 && !single_active;
        self.options.prefetch_up_to.filter(|&most| may_grow && most > prefetch)
    }

    /// Prepares these needs, to be [activated](Self::activate).
    pub(crate) fn prepared(&self, needs: &Needs) -> ActiveNeeds {
        let strategy = self.options.delay.strategy(&self.plan, needs, &self.options.more_waits);
        // RabbitMQ takes zero for no limit.
        let prefetch = u16::try_from(needs.prefetch.max(1)).unwrap_or(u16::MAX);
        ActiveNeeds::new(strategy, prefetch, true)
    }

    /// Serves these needs from now on. Returns the previous ones.
    pub(crate) fn activate(&self, needs: ActiveNeeds) -> ActiveNeeds {
        std::mem::replace(&mut *self.active.write(), needs)
    }

    /// Returns true once the waits of the retries are known.
    pub(crate) fn knows_needs(&self) -> bool {
        self.active().known
    }

    /// Returns how messages wait.
    pub(crate) fn strategy(&self) -> Arc<dyn DelayStrategy> {
        self.active().strategy
    }

    /// Uses a spare delay queue no more, until the next connection: the broker lets nobody declare it. Returns false if this route leads
    /// to no spare queue.
    pub(crate) fn leave_out(&self, route: &Route) -> bool {
        {
            let mut active = self.active.write();
            // Another copy may have met it before.
            if active.whole.spare(route).is_none() {
                return false;
            }
            if let Some(strategy) = active.strategy.without(route) {
                active.strategy = strategy;
            }
        }
        self.send_changes();
        true
    }

    /// Returns the consumer's prefetch.
    pub(crate) fn prefetch(&self) -> u16 {
        self.active().prefetch
    }

    /// Records what a connection tells about the broker: after a restart it may be another version.
    pub(crate) fn note_connection(&self, connection: &Connection) {
        {
            let mut broker = self.broker();
            broker.version = connection.version;
            broker.frame_max = connection.frame_max();
            let mut active = self.active.write();
            active.strategy = Arc::clone(&active.whole);
        }
        self.send_changes();
    }

    #[cfg(feature = "management")]
    pub(crate) fn note_management(&self, management: ManagementFacts) {
        self.broker().management = management;
        self.send_changes();
    }

    /// Sends signals to this listener from now on. Returns the current facts: later changes are signals.
    pub(crate) fn listen(&self, signals: Signals) -> Facts {
        let mut listener = self.listener();
        let facts = self.facts();
        *listener = Some(Listener { signals, facts: facts.clone() });
        facts
    }

    /// Stops sending signals.
    pub(crate) fn stop_listening(&self) {
        *self.listener() = None;
    }

    pub(crate) fn send_interrupted(&self, unreceived: Vec<Delivery>) {
        self.send(Signal::Interrupted { unreceived });
    }

    /// Signals whether deliveries can be received.
    pub(crate) fn send_connection(&self, connection: Result<(), TransportError>) {
        if let Some(signals) = self.signals() {
            signals.send_connection(connection);
        }
    }

    pub(crate) fn send_recovered(&self) {
        self.send(Signal::Recovered);
    }

    fn send_changes(&self) {
        // Locked until the signal is sent, so that the last change is sent last.
        let mut listener = self.listener();
        let Some(listener) = &mut *listener else { return };
        let facts = self.facts();
        if listener.facts != facts {
            listener.facts = facts.clone();
            listener.signals.send(Signal::FactsChanged(facts));
        }
    }

    fn send(&self, signal: Signal) {
        if let Some(signals) = self.signals() {
            signals.send(signal);
        }
    }

    fn signals(&self) -> Option<Signals> {
        self.listener().as_ref().map(|listener| listener.signals.clone())
    }

    fn active(&self) -> ActiveNeeds {
        self.active.read().clone()
    }

    fn broker(&self) -> MutexGuard<'_, BrokerFacts> {
        self.broker.lock()
    }

    fn listener(&self) -> MutexGuard<'_, Option<Listener>> {
        self.listener.lock()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// Returns the time after which the broker takes an unsettled delivery back, if known.
fn hold_limit(options: &Options, version: Option<Version>, found: Option<Duration>) -> Option<Duration> {
    const DEFAULT: Duration = Duration::from_secs(30 * 60);
    // From 4.3 on classic queues have no such time.
    if options.queue_type == QueueType::Classic && version >= Some(Version::V4_3) {
        return None;
    }
    let argument = options.arguments.get("x-consumer-timeout").and_then(Value::to_integer);
    let argument = argument.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
    options.consumer_timeout.or(argument).or(found).or(Some(DEFAULT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts_of(options: Options) -> TransportFacts {
        let plan = options.plan().unwrap();
        TransportFacts::new(Arc::new(options), Arc::new(plan))
    }

    #[test]
    fn it_says_how_many_it_may_have_in_flight() {
        let most = |options, prefetch| {
            let mut needs = Needs::none();
            needs.prefetch = prefetch;
            let facts = facts_of(options);
            facts.activate(facts.prepared(&needs));
            facts.facts().limits.in_flight
        };
        assert_eq!(most(Options::new("orders"), 10), None);
        assert_eq!(most(Options::new("orders").prefetch_up_to(200), 10), Some(200));
        assert_eq!(most(Options::new("orders").prefetch_up_to(200), 1), None);
        assert_eq!(most(Options::new("orders").prefetch_up_to(200).single_active_consumer(), 10), None);
    }

    #[test]
    fn dead_letters_that_were_led_elsewhere_are_not_relied_on() {
        let native = |options| facts_of(options).facts().dead_letter.is_possible();
        assert!(native(Options::new("orders")));
        assert!(native(Options::new("orders").argument("x-max-length", 7_i64)));
        let classic = Options::new("orders").queue_type(QueueType::Classic);
        assert!(!native(classic.clone()), "it drops what the shelf has no room for");
        assert!(native(classic.dead_letters(DeadLetters::Broker)), "asked for");
        for name in ["x-dead-letter-exchange", "x-dead-letter-routing-key", "x-overflow"] {
            assert!(!native(Options::new("orders").argument(name, "elsewhere")), "{name}");
        }
        assert!(native(Options::new("orders").argument("x-overflow", "drop-head").native_dead_letter(true)));
    }

    #[test]
    fn how_often_a_queue_delivers_is_said_or_found_or_the_default() {
        let most = |options: Options, found, version| {
            let facts = facts_of(options);
            *facts.broker() = BrokerFacts {
                version,
                management: ManagementFacts { delivery_limit: found, ..ManagementFacts::default() },
                ..BrokerFacts::default()
            };
            facts.facts().limits.deliveries
        };
        let verified = || Options::new("orders").topology(Topology::Verify);
        for (options, found, version, deliveries) in [
            (Options::new("orders"), None, None, Some(21)),
            (Options::new("orders"), Some(3), None, Some(4)),
            (Options::new("orders").delivery_limit(7), Some(3), None, Some(8)),
            (verified(), None, None, None),
            (verified(), None, Some(Version::V4_0), Some(21)),
            (verified(), Some(3), Some(Version::V4_0), Some(4)),
            (Options::new("orders").queue_type(QueueType::Classic), Some(3), Some(Version::V4_0), None),
        ] {
            assert_eq!(most(options, found, version), deliveries);
        }
    }

    #[test]
    fn what_is_known_of_the_hold_limit() {
        let limit = |options: Options, version| {
            hold_limit(&options, Some(version), None).map(|limit| limit.as_secs())
        };
        let options = || Options::new("orders");
        assert_eq!(limit(options(), Version::V4_3), Some(1800));
        assert_eq!(limit(options().queue_type(QueueType::Classic), Version::V4_0), Some(1800));
        assert_eq!(limit(options().queue_type(QueueType::Classic), Version::V4_3), None);
        let found = Some(Duration::from_secs(7));
        assert_eq!(hold_limit(&options(), None, found), found);
        let with_argument = || options().argument("x-consumer-timeout", 60_000_i64);
        assert_eq!(limit(with_argument(), Version::V4_3), Some(60));
        assert_eq!(limit(with_argument().consumer_timeout(Duration::from_secs(9)), Version::V4_3), Some(9));
    }
}
