//! What all parts of one transport share: the two connections, the queues, and what is known of the broker.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime};

use redrive_core::{Capabilities, Message, Needs, TransportError, TransportErrorKind};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::connection::{Link, Live};
use crate::consume::hold_limit;
use crate::delay::{DeadLetters, LONGEST, Mode, Way};
use crate::error;
use crate::inbox::Inbox;
use crate::options::Options;
use crate::prefetch::Sizing;
use crate::publish::{Answer, Publisher, Target, max_header_bytes};
use crate::session::Session;
use crate::topology::{self, Declared, Part, Plan, QueueType, Topology};
use crate::version::Version;

/// A quorum queue without a limit of its own hands a message out this often, from 4.0 on.
const DEFAULT_HAND_OUTS_FROM_4_0: u32 = 21;

#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) options: Options,
    pub(crate) plan: Arc<Plan>,
    pub(crate) consuming: Link,
    pub(crate) publisher: Publisher,
    pub(crate) inbox: Inbox,
    known: Mutex<Known>,
    mode: RwLock<Arc<dyn Mode>>,
    /// True once the mode knows which waits will be asked for.
    started: AtomicBool,
    /// The connection on which the queues were declared or verified last; 0 for none.
    prepared_in: AtomicU64,
    /// One at a time: many copies that come back at once need the queues declared once.
    declaring: tokio::sync::Mutex<()>,
    /// Until then a queue is younger than [`Options::new_queue_wait`], and nothing is entrusted to it.
    young_until: Mutex<Option<Instant>>,
}

/// What the last connection and the start told.
#[derive(Debug, Default)]
struct Known {
    version: Option<Version>,
    frame_max: u32,
    prefetch: u16,
    /// What the intake made of it, where it may.
    sized: u16,
    /// At most so many in hand, from the next subscription on; 0: as many as `prefetch` says.
    narrowed: u16,
    interrupted_at: Option<SystemTime>,
    sessions: Vec<Weak<Session>>,
    told: Told,
}

/// What the management API told of the work queue; nothing, where it was not asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    pub(crate) delivery_limit: Option<u32>,
    pub(crate) consumer_timeout: Option<Duration>,
}

impl Broker {
    pub(crate) fn new(options: Options, plan: Plan, consuming: Link, publisher: Publisher) -> Self {
        let plan = Arc::new(plan);
        let mode = options.delay.at_work(&plan, &Needs::none(), &options.more_waits);
        Self {
            options,
            plan,
            consuming,
            publisher,
            inbox: Inbox::default(),
            known: Mutex::default(),
            mode: RwLock::new(mode),
            started: AtomicBool::new(false),
            prepared_in: AtomicU64::new(0),
            declaring: tokio::sync::Mutex::default(),
            young_until: Mutex::default(),
        }
    }

    pub(crate) fn queue(&self) -> &str {
        &self.plan.names.work
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        let known = self.known();
        let quorum = self.options.queue_type == QueueType::Quorum;
        let declares = self.options.topology == Topology::Declare;
        let mut capabilities = Capabilities::new("rabbitmq", self.queue());
        capabilities.longest_wait = Some(LONGEST);
        capabilities.hops = self.is_started().then(|| self.mode().hops());
        capabilities.counts_hand_outs = quorum;
        // Unknown counts as old: a copy in place of a return is right on every version.
        capabilities.release_counts = quorum && known.version.is_none_or(|version| version < Version::V4_3);
        capabilities.hand_out_limit = match self.options.delivery_limit {
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
        capabilities.hold_limit = hold_limit(&self.options, known.version, known.told.consumer_timeout);
        capabilities.native_dead_letter = self.options.broker_dead_letters();
        capabilities.prefers_native_dead_letter = self.options.dead_letters == DeadLetters::Broker;
        // A classic delay queue does not wait until what expired is on the disk of the queue that it goes to. Queues that
        // others declared may be classic, as long as nobody says that they are not.
        capabilities.keeps_delayed_copies = match self.options.retry_queue_type {
            Some(queue_type) => queue_type == QueueType::Quorum,
            None => {
                let declared = self.options.delay.is_declared(self.options.topology);
                declared && self.plan.retry_queue_type == QueueType::Quorum
            }
        };
        capabilities.max_header_bytes = max_header_bytes(known.frame_max);
        capabilities.keeps_order = false;
        self.mode().describe(&mut capabilities);
        capabilities
    }

    /// Takes in what a connection tells of the broker; it may be another version after each restart.
    pub(crate) fn note_connection(&self, live: &Live) {
        let mut known = self.known();
        known.version = live.version;
        known.frame_max = live.frame_max();
    }

    pub(crate) fn set_needs(&self, needs: &Needs) {
        // Zero would mean no limit to RabbitMQ.
        self.known().prefetch = u16::try_from(needs.prefetch.max(1)).unwrap_or(u16::MAX);
        let mode = self.options.delay.at_work(&self.plan, needs, &self.options.more_waits);
        *self.mode.write().unwrap_or_else(PoisonError::into_inner) = mode;
        self.started.store(true, Ordering::Release);
    }

    /// True once it is known which waits will be asked for.
    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    pub(crate) fn prefetch(&self) -> u16 {
        let known = self.known();
        let most = if known.narrowed == 0 { u16::MAX } else { known.narrowed };
        known.prefetch.max(known.sized).clamp(1, most)
    }

    /// Between which bounds the intake may size what is in hand; `None` where it may not, or not now.
    pub(crate) fn may_size(&self) -> Option<Sizing> {
        let most = self.options.prefetch_up_to?;
        let known = self.known();
        // Who subscribes anew is no longer the active one.
        let active = self.options.arguments.contains_key("x-single-active-consumer");
        // Who asks for one at a time means it.
        let may = known.narrowed == 0 && known.prefetch > 1 && !active;
        may.then(|| Sizing::between(known.prefetch.max(1), most))
    }

    /// From the next subscription on.
    pub(crate) fn size(&self, in_hand: u16) {
        self.known().sized = in_hand;
    }

    pub(crate) fn narrow(&self, most: Option<u32>) {
        let most = most.map_or(0, |most| u16::try_from(most.max(1)).unwrap_or(u16::MAX));
        self.known().narrowed = most;
    }

    /// What was in hand when the last subscription was cut comes again from now on.
    pub(crate) fn note_interruption(&self, now: SystemTime) {
        self.known().interrupted_at = Some(now);
    }

    pub(crate) fn interrupted_at(&self) -> Option<SystemTime> {
        self.known().interrupted_at
    }

    pub(crate) fn mode(&self) -> Arc<dyn Mode> {
        Arc::clone(&self.mode.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Declares or verifies the queues, on the consuming connection: the other one may be blocked.
    pub(crate) async fn prepare(&self) -> Result<(), TransportError> {
        let _one_at_a_time = self.declaring.lock().await;
        let live = self.consuming.live().await?;
        self.note_connection(&live);
        let ours: Vec<_> = self.plan.queues().into_iter().map(Part::Queue).collect();
        let waiting = self.mode().parts();
        for (parts, declared) in [
            (&ours, self.options.topology == Topology::Declare),
            (&waiting, self.options.delay.is_declared(self.options.topology)),
        ] {
            match self.options.topology {
                _ if declared => self.declare(&live, parts).await?,
                Topology::Declare | Topology::Verify => topology::verify(&live, parts).await?,
                Topology::Nothing => {}
            }
        }
        #[cfg(feature = "management")]
        self.compare(&ours.iter().chain(&waiting).collect::<Vec<_>>()).await?;
        self.prepared_in.store(live.epoch, Ordering::Release);
        let parts = ours.len() + waiting.len();
        info!(queue = %self.queue(), parts, topology = ?self.options.topology, "queues are there");
        Ok(())
    }

    /// Declares again what went with the last connection.
    pub(crate) async fn prepare_anew(&self) -> Result<(), TransportError> {
        let epoch = self.consuming.live().await?.epoch;
        if self.mode().is_transient() && self.prepared_in.load(Ordering::Acquire) != epoch {
            self.prepare().await?;
        }
        Ok(())
    }

    /// Stores a copy in a queue, for good. On success it is confirmed and lies in the queue.
    pub(crate) async fn store(&self, way: &Way, copy: Message) -> Result<(), TransportError> {
        self.until_grown_up().await;
        self.publish_to(way, copy, true).await
    }

    /// Publishes this way, and waits until it lies in a queue. What is ours and not there (yet, or any more) is declared,
    /// where that is ours to do.
    pub(crate) async fn publish_to(
        &self,
        way: &Way,
        message: Message,
        persistent: bool,
    ) -> Result<(), TransportError> {
        let target = Target { exchange: &way.exchange, routing_key: &way.routing_key };
        let answer = self.publisher.publish(target, message.clone(), persistent).await;
        let missing = match &answer {
            Ok(answer) => matches!(answer, Answer::Returned(_)),
            Err(error) => error::is_missing_exchange(error),
        };
        if !(missing && self.is_ours_to_declare(way)) {
            return stored(answer?, way.shown());
        }
        // Those that are live now are subscribed to a queue that is gone; not those that come after.
        let sessions = if *way == Way::queue(self.queue()) { self.sessions() } else { Vec::new() };
        self.declare_again(way).await.map_err(|error| {
            let message = format!("the message was not stored: {error}");
            TransportError::new(TransportErrorKind::NotStored, message).with_source(error)
        })?;
        // RabbitMQ 3.10 may not tell the consumer of a deleted quorum queue that is declared again at once.
        sessions.iter().for_each(|session| session.end());
        self.until_grown_up().await;
        stored(self.publisher.publish(target, message, persistent).await?, way.shown())
    }

    /// Where a copy goes to be held back for `wait`.
    pub(crate) fn way(&self, wait: Duration, copy: &mut Message) -> Result<Way, TransportError> {
        if wait.is_zero() {
            return Ok(Way::queue(self.queue()));
        }
        self.mode().way(wait, copy).ok_or_else(|| {
            let message = format!(
                "no delay queue of `{}` holds a message for {}: start the transport with this wait, or ask for it with \
                 `Options::wait`",
                self.queue(),
                humantime::format_duration(wait)
            );
            TransportError::new(TransportErrorKind::Unsupported, message)
        })
    }

    pub(crate) fn remember(&self, session: &Arc<Session>) {
        let sessions = &mut self.known().sessions;
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(session));
    }

    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        self.known().sessions.iter().filter_map(Weak::upgrade).collect()
    }

    /// Declares what is missing: a spare delay queue that is needed for the first time, or whatever was deleted.
    async fn declare_again(&self, way: &Way) -> Result<(), TransportError> {
        if let Some(spare) = self.mode().spare(way) {
            info!(queue = way.shown(), "declaring a delay queue for a wait that was not known at the start");
            let _one_at_a_time = self.declaring.lock().await;
            return self.declare(&*self.consuming.live().await?, &[spare]).await;
        }
        warn!(queue = way.shown(), "the queue is not there: declaring it");
        self.prepare().await
    }

    async fn declare(&self, live: &Live, parts: &[Part]) -> Result<(), TransportError> {
        if topology::declare(live, parts).await? == Declared::SomeQuorumQueueIsNew {
            let mut young_until = self.young_until.lock().unwrap_or_else(PoisonError::into_inner);
            *young_until = Some(Instant::now() + self.options.new_queue_wait);
        }
        Ok(())
    }

    async fn until_grown_up(&self) {
        let young_until = *self.young_until.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(grown_up) = young_until {
            tokio::time::sleep_until(grown_up).await;
        }
    }

    /// True when this way leads to what redrive declares.
    fn is_ours_to_declare(&self, way: &Way) -> bool {
        let leads_here = |part: &Part| match part {
            Part::Queue(queue) => *way == Way::queue(&queue.name),
            Part::Exchange(exchange) => way.exchange == exchange.name,
            Part::Binding(_) => false,
        };
        let queues = self.plan.queues();
        let ours = queues.iter().any(|queue| *way == Way::queue(&queue.name));
        let mode = self.mode();
        let waiting = mode.parts().iter().any(leads_here) || mode.spare(way).is_some();
        ours && self.options.topology == Topology::Declare
            || waiting && self.options.delay.is_declared(self.options.topology)
    }

    #[cfg(feature = "management")]
    pub(crate) fn note_told(&self, told: Told) {
        self.known().told = told;
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Only one answer means that the message lies in the queue.
pub(crate) fn stored(answer: Answer, target: &str) -> Result<(), TransportError> {
    let message = match answer {
        Answer::Stored => return Ok(()),
        Answer::Returned(text) => {
            format!("the message was not stored: `{target}` leads to no queue ({text}); declare the queue")
        }
        Answer::Refused => {
            format!(
                "the message was not stored: RabbitMQ refuses it for `{target}`; most often the queue is full"
            )
        }
    };
    Err(TransportError::new(TransportErrorKind::NotStored, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use crate::connection::Role;

    fn broker(options: Options) -> Broker {
        let plan = options.plan().unwrap();
        let address = Address::parse("amqp://host", |_| None).unwrap();
        let link = |role| Link::new(role, &options, address.clone());
        let (consuming, publishing) = (link(Role::Consuming), link(Role::Publishing));
        Broker::new(options, plan, consuming, Publisher::new(publishing, 1, Duration::from_secs(1)))
    }

    #[test]
    fn dead_letters_that_were_led_elsewhere_are_not_relied_on() {
        let native = |options| broker(options).capabilities().native_dead_letter;
        assert!(native(Options::new("orders")));
        assert!(native(Options::new("orders").argument("x-max-length", 7_i64)));
        for name in ["x-dead-letter-exchange", "x-dead-letter-routing-key", "x-overflow"] {
            assert!(!native(Options::new("orders").argument(name, "elsewhere")), "{name}");
        }
        assert!(native(Options::new("orders").argument("x-overflow", "drop-head").native_dead_letter(true)));
    }
}
