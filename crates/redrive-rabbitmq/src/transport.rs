//! RabbitMQ as a transport.

use std::sync::{Arc, Mutex, PoisonError};

use redrive_core::{
    Facts, Message, Needs, OpenError, Publisher, Signals, Transport, TransportError, TransportErrorKind,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::address::url_from_env;
use crate::broker::{Broker, tell_recoveries};
use crate::connections::{Connections, Ownership};
use crate::consume::{self, Wanted};
use crate::delay::Way;
use crate::error;
use crate::options::Options;
use crate::publisher::WayPublisher;
use crate::receive::{RabbitMqReceiver, want};
use crate::shelves::RabbitMqShelves;
use crate::transfer::Transfer;

/// The transport of one RabbitMQ queue.
///
/// ```no_run
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// use redrive_rabbitmq::RabbitMq;
///
/// let transport = RabbitMq::connect("amqp://localhost", "orders").await?;
/// # Ok(()) }
/// ```
///
/// Everything about queues, counters and limits stands in `docs/transports/rabbitmq.md`.
#[derive(Debug)]
pub struct RabbitMq {
    broker: Arc<Broker>,
    wanted: Arc<watch::Sender<Wanted>>,
    intake: Mutex<Option<JoinHandle<()>>>,
    /// One at a time.
    opening: tokio::sync::Mutex<()>,
}

impl RabbitMq {
    /// Connects to the broker at `url`, to consume `queue`, with all [`options`](Self::options) as they are.
    ///
    /// # Errors
    ///
    /// As [`Options::connect`].
    pub async fn connect(url: &str, queue: &str) -> Result<Self, TransportError> {
        Self::options(queue).connect(url).await
    }

    /// Connects to the broker at the URL in `REDRIVE_AMQP_URL`.
    ///
    /// # Errors
    ///
    /// When the variable is not set, and as [`Options::connect`].
    pub async fn connect_from_env(queue: &str) -> Result<Self, TransportError> {
        Self::options(queue).connect(&url_from_env()?).await
    }

    /// Options for the transport of `queue`.
    pub fn options(queue: &str) -> Options {
        Options::new(queue)
    }

    pub(crate) async fn open(
        options: Options,
        connections: Connections,
        ownership: Ownership,
    ) -> Result<Self, TransportError> {
        let plan = options.plan()?;
        let broker = Broker::new(options, plan, connections, ownership);
        let live = broker.live().await?;
        broker.note_connection(&live);
        if let Some(refused) = broker.options.delay.refused_by(live.version) {
            return Err(TransportError::new(TransportErrorKind::Unsupported, refused));
        }
        broker.publisher()?.link().live().await?;
        Ok(Self::over(broker))
    }

    fn over(broker: Broker) -> Self {
        let wanted = Arc::new(watch::Sender::new(Wanted::Pause));
        let (intake, opening) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { broker: Arc::new(broker), wanted, intake, opening }
    }

    /// Sends the acknowledgements that still wait for others ([`Options::ack_within`]). `close` does it too: this is
    /// for who uses the transport without a consumer, and wants to know when the broker is told.
    pub fn flush(&self) {
        for session in self.broker.sessions() {
            session.tell_all();
        }
    }

    /// Publishes to the queue that this transport consumes; with [`to`](Publisher::to), to any other one. Works without a
    /// consumer too: under `Topology::Declare` the work queue and the dead-letter queue that it leads to are then declared when
    /// they are missing, and nothing else. It waits [`Options::new_queue_wait`] after that, until a broker that is killed no
    /// longer loses what it confirms.
    ///
    /// [`publish_after`](Publisher::publish_after) works for the work queue:
    ///
    /// | this transport | takes |
    /// |---|---|
    /// | is open | every wait that its retries can take, up to ten years |
    /// | is not open, and [`Options::wait`] names waits | every wait, made of those: one that they do not make exactly ends late, never early. A delay queue that is missing is declared |
    /// | is not open, and no wait is named | a wait whose delay queue exists, because a consumer elsewhere has this wait in its policy |
    /// | is not open, with `Delay::SingleQueue` | every wait, once a consumer elsewhere has declared the delay queue |
    /// | has `Delay::Staged`, open or not | none |
    ///
    /// Everything else answers `Unsupported`.
    ///
    /// A broker that is out of memory or disk tells a connection so when that publishes: the first message is then given up
    /// after [`Options::confirm_timeout`], and the broker may store it when it has room again; those after it are refused at
    /// once.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        Publisher::new(WayPublisher::new(&self.broker, Way::queue(self.broker.queue())))
    }

    /// Publishes to an exchange, with this routing key. `Ok` means that the message is stored in every queue that the exchange
    /// led to, of which there was at least one. Without delays.
    #[must_use]
    pub fn publisher_to_exchange(&self, exchange: &str, routing_key: &str) -> Publisher {
        let way = Way { exchange: exchange.into(), routing_key: routing_key.into() };
        Publisher::new(WayPublisher::new(&self.broker, way))
    }

    /// Publishes a message to the queue that this transport consumes: [`publisher`](Self::publisher), then
    /// [`Publisher::publish`].
    ///
    /// # Errors
    ///
    /// As [`Publisher::publish`].
    pub async fn publish(&self, message: Message) -> Result<(), TransportError> {
        self.publisher().publish(message).await
    }

    /// What people should know of the [`Delay`](crate::Delay) mode as it is configured; empty where there is nothing.
    /// Logged as warnings when the transport is opened.
    #[must_use]
    pub fn caveats(&self) -> Vec<String> {
        self.broker.mode().caveats()
    }

    /// The shelves of the queue, for operators.
    #[must_use]
    pub fn shelves(&self) -> RabbitMqShelves {
        RabbitMqShelves::new(Arc::clone(&self.broker))
    }

    /// Moves what waits in the delay queues of another topology into those of this one, which is declared or verified
    /// first: for when the delay mode, the names or the types of the delay queues change.
    pub fn transfer_from(&self, old: Options) -> Transfer {
        Transfer::new(Arc::clone(&self.broker), old)
    }

    fn is_closed(&self) -> bool {
        *self.wanted.borrow() == Wanted::Close
    }

    fn intake(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.intake.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what the broker cannot do, then prepares the queues. After an error the transport is as it was.
    async fn prepare(&self, needs: &Needs, signals: Signals) -> Result<Facts, OpenError> {
        let active = self.broker.prepared(needs);
        let facts = self.broker.facts_for(&active);
        needs.check(self.broker.queue(), &facts)?;
        let before = self.broker.activate(active);
        let prepared = self.prepare_queues(needs, &facts, signals).await;
        if prepared.is_err() {
            self.broker.activate(before);
        }
        prepared
    }

    async fn prepare_queues(
        &self,
        needs: &Needs,
        facts: &Facts,
        signals: Signals,
    ) -> Result<Facts, OpenError> {
        self.broker.prepare().await?;
        let now = self.broker.tell_to(signals);
        // The queues may have told more.
        if now != *facts
            && let Err(refused) = needs.check(self.broker.queue(), &now)
        {
            self.broker.tell_nobody();
            return Err(refused);
        }
        Ok(now)
    }
}

impl Transport for RabbitMq {
    type Receiver = RabbitMqReceiver;

    fn queue(&self) -> &str {
        self.broker.queue()
    }

    fn publisher(&self) -> Publisher {
        Self::publisher(self)
    }

    async fn open(&self, needs: &Needs, signals: Signals) -> Result<(RabbitMqReceiver, Facts), OpenError> {
        let _one_at_a_time = self.opening.lock().await;
        if self.is_closed() {
            return Err(error::closed().into());
        }
        if self.intake().is_some() {
            return Err(TransportError::opened_before(self.broker.queue()).into());
        }
        let facts = self.prepare(needs, signals).await?;
        for caveat in self.caveats() {
            warn!(queue = %self.broker.queue(), delay = self.broker.options.delay.name(), "{caveat}");
        }
        tokio::spawn(tell_recoveries(Arc::clone(&self.broker), self.wanted.subscribe()));
        let taking = consume::run(Arc::clone(&self.broker), self.wanted.subscribe());
        *self.intake() = Some(tokio::spawn(taking));
        Ok((RabbitMqReceiver::new(Arc::clone(&self.broker), Arc::clone(&self.wanted)), facts))
    }

    async fn close(&self) {
        want(&self.wanted, Wanted::Close);
        let intake = self.intake().take();
        if let Some(intake) = intake {
            // It ends by itself; had it panicked, there would be nothing left to end.
            let _ = intake.await;
        }
        consume::give_back_unreceived(&self.broker).await;
        for session in self.broker.sessions() {
            session.settle_down().await;
            session.end();
            session.give_back_all().await;
        }
        self.broker.close().await;
        info!(queue = %self.broker.queue(), "closed");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redrive_core::TransportErrorKind::{Unreachable, Unsupported};

    use super::*;

    #[tokio::test]
    async fn a_transport_that_was_not_opened_is_as_it_was() {
        let transport = RabbitMq::over(Broker::unconnected(Options::new("orders").prefetch_up_to(200)));
        let before = transport.broker.facts();
        // What the broker cannot hold is refused before anything is asked; else nobody listens.
        for (wait, why) in [(Duration::MAX, Unsupported), (Duration::from_secs(1), Unreachable)] {
            let mut needs = Needs::none();
            (needs.prefetch, needs.waits) = (10, [wait].into());
            let error = transport.open(&needs, Signals::ignored()).await.expect_err("not opened");
            assert_eq!(error.kind(), why, "{error}");
            assert_eq!(transport.broker.facts(), before);
            assert!(!transport.broker.is_started(), "what its publishers may declare is another matter then");
        }
    }
}
