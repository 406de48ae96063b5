//! What all parts of one transport share: the connections, the queues, and what is known of the broker.

mod known;
mod preparing;
mod publishing;
mod storing;
mod telling;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use redrive_core::{Facts, HeaderLimit, NativeDeadLetter, Needs, TransportError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::connection::Live;
use crate::connections::{Connections, Ownership};
use crate::consume::hold_limit;
use crate::delay::{DeadLetters, LONGEST, Mode};
use crate::error;
use crate::inbox::Inbox;
use crate::options::Options;
use crate::publish::{PublishPool, max_header_bytes};
use crate::shelves::Taken;
use crate::topology::{Plan, QueueType, Topology};
use crate::version::Version;
use known::Known;
#[cfg(feature = "management")]
pub(crate) use known::Told;
use storing::is_missing;
pub(crate) use storing::stored;
use telling::Listener;
pub(crate) use telling::tell_recoveries;

/// A quorum queue without a limit of its own hands a message out this often, from 4.0 on.
const DEFAULT_HAND_OUTS_FROM_4_0: u32 = 21;

#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) options: Options,
    pub(crate) plan: Arc<Plan>,
    pub(crate) inbox: Inbox,
    connections: Connections,
    ownership: Ownership,
    /// From then on nothing goes over the connections, also where others still use them.
    closed: AtomicBool,
    known: Mutex<Known>,
    active: RwLock<ActiveNeeds>,
    /// It was said that the queue does not count what it hands out.
    warned: AtomicBool,
    /// The consuming connection for which the queues were declared or verified last; 0 for none.
    prepared_in: AtomicU64,
    /// One at a time: many copies that come back at once need the queues declared once.
    declaring: tokio::sync::Mutex<()>,
    /// Until then a queue is younger than [`Options::new_queue_wait`], and nothing is entrusted to it.
    young_until: Mutex<Option<Instant>>,
    /// Who is told what happens beside the deliveries, from the time when the transport is open.
    listener: Mutex<Option<Listener>>,
    /// What operators took off the shelves.
    pub(crate) taken: Taken,
}

/// The needs that the transport serves.
#[derive(Clone, Debug)]
pub(crate) struct ActiveNeeds {
    /// How messages wait.
    mode: Arc<dyn Mode>,
    prefetch: u16,
    /// False before the transport is opened: which waits will be asked for is not known yet.
    known: bool,
}

impl Broker {
    pub(crate) fn new(options: Options, plan: Plan, connections: Connections, ownership: Ownership) -> Self {
        let plan = Arc::new(plan);
        let mode = options.delay.at_work(&plan, &Needs::none(), &options.more_waits);
        let active = ActiveNeeds { mode, prefetch: 0, known: false };
        Self {
            options,
            plan,
            inbox: Inbox::default(),
            connections,
            ownership,
            closed: AtomicBool::new(false),
            known: Mutex::default(),
            active: RwLock::new(active),
            warned: AtomicBool::new(false),
            prepared_in: AtomicU64::new(0),
            declaring: tokio::sync::Mutex::default(),
            young_until: Mutex::default(),
            listener: Mutex::default(),
            taken: Taken::default(),
        }
    }

    pub(crate) fn queue(&self) -> &str {
        &self.plan.names.work
    }

    /// The consuming connection, made now if there is none.
    pub(crate) async fn live(&self) -> Result<Arc<Live>, TransportError> {
        self.check_open()?;
        self.connections.consuming().live().await
    }

    /// The connection for questions that the broker may answer by closing the channel, or worse: where others share the
    /// consuming one, another. But queues that live as long as their connection are declared where they are consumed.
    pub(crate) async fn asking(&self) -> Result<Arc<Live>, TransportError> {
        if self.ownership == Ownership::Own || self.mode().is_transient() {
            return self.live().await;
        }
        self.check_open()?;
        self.connections.asking().live().await
    }

    pub(crate) fn publisher(&self) -> Result<&PublishPool, TransportError> {
        self.check_open()?;
        Ok(self.connections.publisher())
    }

    /// Changes when the broker takes messages again: after an alarm, or on a new connection.
    pub(crate) fn recoveries(&self) -> watch::Receiver<u64> {
        self.connections.publisher().link().recoveries()
    }

    /// The first address.
    #[cfg(feature = "management")]
    pub(crate) fn uri(&self) -> lapin::uri::AMQPUri {
        self.connections.consuming().uri()
    }

    /// Ends the connections; or, where others use them too, what of ours is on them.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        match self.ownership {
            Ownership::Own => self.connections.close().await,
            Ownership::Shared => {
                for session in self.sessions() {
                    let closing = session.channel().close(200, "OK".into());
                    // Where that fails the channel is gone already.
                    let _ = session.connection().answered(closing).await;
                }
            }
        }
    }

    /// What is known of the broker now.
    pub(crate) fn facts(&self) -> Facts {
        self.facts_for(&self.active())
    }

    /// What is known of the broker, for a transport that serves these needs.
    pub(crate) fn facts_for(&self, active: &ActiveNeeds) -> Facts {
        let known = self.known();
        let quorum = self.options.queue_type == QueueType::Quorum;
        let declares = self.options.topology == Topology::Declare;
        let mut facts = Facts::new("rabbitmq");
        facts.delays.longest = Some(LONGEST);
        facts.delays.hops = active.known.then(|| active.mode.hops());
        facts.counting.hand_outs = quorum;
        // Unknown counts as old: a copy in place of a return is right on every version.
        facts.counting.releases = quorum && known.version.is_none_or(|version| version < Version::V4_3);
        facts.limits.hand_outs = match self.options.delivery_limit {
            _ if !quorum => None,
            None if declares => {
                let limit = known.told.delivery_limit.unwrap_or(u32::MAX).min(self.plan.delivery_limit);
                Some(limit.saturating_add(1))
            }
            Some(limit) => Some(limit.saturating_add(1)),
            None if known.told.delivery_limit.is_some() => {
                known.told.delivery_limit.map(|limit| limit.saturating_add(1))
            }
            None => known
                .version
                .is_some_and(|version| version >= Version::V4_0)
                .then_some(DEFAULT_HAND_OUTS_FROM_4_0),
        };
        facts.limits.in_hand = self.grows_to(active.prefetch).map(u32::from);
        facts.limits.hold = hold_limit(&self.options, known.version, known.told.consumer_timeout);
        facts.dead_letter = match self.options.dead_letters {
            _ if !self.options.broker_dead_letters() => NativeDeadLetter::No,
            DeadLetters::Broker => NativeDeadLetter::Preferred,
            _ => NativeDeadLetter::LastResort,
        };
        // A classic delay queue does not wait until what expired is on the disk of the queue that it goes to. Queues that
        // others declared may be classic, as long as nobody says that they are not.
        facts.delays.survive_crashes = match self.options.retry_queue_type {
            Some(queue_type) => queue_type == QueueType::Quorum,
            None => {
                let declared = self.options.delay.is_declared(self.options.topology);
                declared && self.plan.retry_queue_type == QueueType::Quorum
            }
        };
        facts.limits.headers = max_header_bytes(known.frame_max).map(HeaderLimit::bytes);
        active.mode.describe(&mut facts);
        facts
    }

    /// These needs, once they are [activated](Self::activate).
    pub(crate) fn prepared(&self, needs: &Needs) -> ActiveNeeds {
        let mode = self.options.delay.at_work(&self.plan, needs, &self.options.more_waits);
        // Zero would mean no limit to RabbitMQ.
        let prefetch = u16::try_from(needs.prefetch.max(1)).unwrap_or(u16::MAX);
        ActiveNeeds { mode, prefetch, known: true }
    }

    /// Serves these needs from now on; answers those before.
    pub(crate) fn activate(&self, needs: ActiveNeeds) -> ActiveNeeds {
        std::mem::replace(&mut *self.active.write().unwrap_or_else(PoisonError::into_inner), needs)
    }

    /// True once it is known which waits will be asked for.
    pub(crate) fn is_started(&self) -> bool {
        self.active().known
    }

    pub(crate) fn mode(&self) -> Arc<dyn Mode> {
        self.active().mode
    }

    fn active(&self) -> ActiveNeeds {
        self.active.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn check_open(&self) -> Result<(), TransportError> {
        if self.closed.load(Ordering::Acquire) { Err(error::closed()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;

    impl Broker {
        /// One that has no connection; nobody listens at its address.
        pub(crate) fn unconnected(options: Options) -> Self {
            let plan = options.plan().unwrap();
            let address = Address::parse("amqp://127.0.0.1:1", |_| None).unwrap();
            let connections = Connections::new(address.into(), options.connection.clone());
            Self::new(options, plan, connections, Ownership::Own)
        }
    }

    #[test]
    fn it_says_how_many_it_may_take_in_hand() {
        let most = |options, prefetch| {
            let broker = Broker::unconnected(options);
            let mut needs = Needs::none();
            needs.prefetch = prefetch;
            broker.activate(broker.prepared(&needs));
            // As it is when a consumer asks.
            broker.set_limit(1);
            broker.facts().limits.in_hand
        };
        assert_eq!(most(Options::new("orders"), 10), None);
        assert_eq!(most(Options::new("orders").prefetch_up_to(200), 10), Some(200));
        assert_eq!(most(Options::new("orders").prefetch_up_to(200), 1), None);
        assert_eq!(most(Options::new("orders").prefetch_up_to(200).single_active_consumer(), 10), None);
    }

    #[test]
    fn dead_letters_that_were_led_elsewhere_are_not_relied_on() {
        let native = |options| Broker::unconnected(options).facts().dead_letter.is_possible();
        assert!(native(Options::new("orders")));
        assert!(native(Options::new("orders").argument("x-max-length", 7_i64)));
        for name in ["x-dead-letter-exchange", "x-dead-letter-routing-key", "x-overflow"] {
            assert!(!native(Options::new("orders").argument(name, "elsewhere")), "{name}");
        }
        assert!(native(Options::new("orders").argument("x-overflow", "drop-head").native_dead_letter(true)));
    }
}
