//! RabbitMQ as a transport.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use redrive_core::transport::{Facts, Needs, OpenError, Outline, Signals};
use redrive_core::{Message, Publisher, Transport, TransportError, TransportErrorKind};
use redrive_transport::{Inbox, Wish, Wishes};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::connection::url_from_env;
use crate::connections::{Connections, Ownership};
use crate::options::Options;
use crate::outline::outline;
use crate::preflight::preflight;
use crate::publisher::RoutePublisher;
use crate::receive::{Arrived, RabbitMqReceiver, intake};
use crate::shared::Shared;
use crate::shelves::{RabbitMqShelves, TakenNumbers};
use crate::topology::Route;
use crate::transfer::Transfer;

/// Time limit for a subscription that begins or ends when the transport is closed.
const INTAKE_ENDS_WITHIN: Duration = Duration::from_secs(15);

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
/// Queues, counters and limits: [the page on RabbitMQ](https://github.com/redrive-rs/redrive/blob/main/docs/transports/rabbitmq.md).
#[derive(Debug)]
pub struct RabbitMq {
    shared: Arc<Shared>,
    inbox: Inbox<Arrived>,
    /// Present while the transport is open.
    intake: Mutex<Option<JoinHandle<()>>>,
    /// One caller at a time.
    opening: tokio::sync::Mutex<()>,
    /// Entries that operators removed from the shelves.
    taken: Arc<TakenNumbers>,
}

impl RabbitMq {
    /// Connects to the broker at `url`, to consume `queue`, with default [`options`](Self::options).
    ///
    /// # Errors
    ///
    /// The same as [`Options::connect`].
    pub async fn connect(url: &str, queue: &str) -> Result<Self, TransportError> {
        Self::options(queue).connect(url).await
    }

    /// Connects to the broker at the URL in `REDRIVE_AMQP_URL`.
    ///
    /// # Errors
    ///
    /// If the variable is not set; otherwise the same as [`Options::connect`].
    pub async fn connect_from_env(queue: &str) -> Result<Self, TransportError> {
        Self::options(queue).connect(&url_from_env()?).await
    }

    /// Returns options for the transport of `queue`.
    pub fn options(queue: &str) -> Options {
        Options::new(queue)
    }

    async fn connected(
        options: Options,
        connections: Connections,
        ownership: Ownership,
    ) -> Result<Self, TransportError> {
        let transport = Self::over(options, connections, ownership)?;
        let Shared { options, connections, facts, .. } = &*transport.shared;
        let connection = connections.consuming().await?;
        facts.note_connection(&connection);
        if let Some(refused) = options.delay.refused_by(connection.version) {
            return Err(TransportError::new(TransportErrorKind::Unsupported, refused));
        }
        connections.publishing()?.connection().connection().await?;
        Ok(transport)
    }

    /// Creates the transport; it connects when needed.
    fn over(
        options: Options,
        connections: Connections,
        ownership: Ownership,
    ) -> Result<Self, TransportError> {
        let shared = Arc::new(Shared::new(options, connections, ownership)?);
        let inbox = Inbox::new(shared.queue());
        let (intake, opening) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { shared, inbox, intake, opening, taken: Arc::default() })
    }

    /// Sends the acknowledgements that wait for others ([`Options::ack_within`]). `close` does this too: this is only needed without
    /// a consumer, to be sure that the broker has them.
    pub fn flush(&self) {
        for channel in self.shared.deliveries.in_use() {
            channel.flush();
        }
    }

    /// Publishes to the queue that this transport consumes; with [`to`](Publisher::to), to any other one. Works without a
    /// consumer too: under `Topology::Declare` it declares the work queue and its dead-letter queue if they are missing, and nothing
    /// else. After that it waits for [`Options::new_queue_wait`], until a killed broker no longer loses what it confirms.
    ///
    /// [`publish_after`](Publisher::publish_after) works for the work queue:
    ///
    /// | this transport | accepts |
    /// |---|---|
    /// | is open | every wait that its retries can take, up to ten years |
    /// | is not open, and [`Options::wait`] names waits | every wait, made of those: a wait that they do not match exactly ends late, never early. A missing delay queue is declared |
    /// | is not open, and no wait is named | a wait whose delay queue exists, because a consumer elsewhere has this wait in its policy |
    /// | is not open, with `Delay::SingleQueue` | every wait, once a consumer elsewhere has declared the delay queue |
    /// | has `Delay::Staged`, open or not | none |
    ///
    /// In all other cases it returns `Unsupported`.
    ///
    /// A broker that is out of memory or disk notifies a connection only when that publishes: the first message is given up after
    /// [`Options::confirm_timeout`], and the broker may store it when it has room again; later messages are refused at once.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        Publisher::new(RoutePublisher::new(&self.shared, Route::queue(self.shared.queue())))
    }

    /// Publishes to an exchange, with this routing key. `Ok` means that the exchange routed the message to at least one queue, and
    /// that it is stored in each of them. Without delays.
    #[must_use]
    pub fn publisher_to_exchange(&self, exchange: &str, routing_key: &str) -> Publisher {
        let route = Route { exchange: exchange.into(), routing_key: routing_key.into() };
        Publisher::new(RoutePublisher::new(&self.shared, route))
    }

    /// Publishes a message to the queue that this transport consumes: [`publisher`](Self::publisher), then
    /// [`Publisher::publish`].
    ///
    /// # Errors
    ///
    /// The same as [`Publisher::publish`].
    pub async fn publish(&self, message: Message) -> Result<(), TransportError> {
        self.publisher().publish(message).await
    }

    /// Returns what users should know about the configured [`Delay`](crate::Delay) mode; may be empty. Logged as warnings when the
    /// transport is opened.
    #[must_use]
    pub fn caveats(&self) -> Vec<String> {
        self.shared.facts.strategy().caveats()
    }

    /// Returns the shelves of the queue, for operators.
    #[must_use]
    pub fn shelves(&self) -> RabbitMqShelves {
        RabbitMqShelves::new(Arc::clone(&self.shared), Arc::clone(&self.taken))
    }

    /// Moves waiting messages from the delay queues of another topology into those of this one, which is declared or verified
    /// first: for a change of the delay mode, or of the names or types of the delay queues.
    pub fn transfer_from(&self, old: Options) -> Transfer {
        Transfer::new(Arc::clone(&self.shared), old)
    }

    fn intake(&self) -> parking_lot::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.intake.lock()
    }

    /// Refuses needs that the broker cannot meet, then prepares the queues. An error leaves the transport unchanged.
    async fn prepare(&self, needs: &Needs, signals: Signals) -> Result<Facts, OpenError> {
        let facts = &self.shared.facts;
        let active = facts.prepared(needs);
        let known = facts.facts_for(&active);
        needs.check(self.shared.queue(), &known)?;
        let before = facts.activate(active);
        let prepared = self.prepare_queues(needs, &known, signals).await;
        if prepared.is_err() {
            facts.activate(before);
        }
        prepared
    }

    async fn prepare_queues(
        &self,
        needs: &Needs,
        known: &Facts,
        signals: Signals,
    ) -> Result<Facts, OpenError> {
        self.shared.queues.prepare().await?;
        let facts = &self.shared.facts;
        let now = facts.listen(signals);
        // Preparing the queues may have changed the facts.
        if now != *known
            && let Err(refused) = needs.check(self.shared.queue(), &now)
        {
            facts.stop_listening();
            return Err(refused);
        }
        Ok(now)
    }
}

/// Connecting.
impl Options {
    /// Connects to the broker at this URL, once: a broker that cannot be reached is an error now, not an endless wait.
    /// Several URLs separated by commas are nodes of one cluster: see [`connect_any`](Self::connect_any).
    ///
    /// # Errors
    ///
    /// If the broker does not answer or refuses the credentials, or the options contradict each other.
    pub async fn connect(self, url: &str) -> Result<RabbitMq, TransportError> {
        self.connect_any([url]).await
    }

    /// Connects to the first of these nodes of one cluster that answers, in this order, or in random order with
    /// [`shuffle_addresses`](Self::shuffle_addresses). If a connection is lost, the next node is tried, and after the last one the
    /// first again.
    ///
    /// # Errors
    ///
    /// If no node accepts the connection; the error names each. Otherwise the same as [`connect`](Self::connect).
    pub async fn connect_any<U: AsRef<str>>(
        self,
        urls: impl IntoIterator<Item = U>,
    ) -> Result<RabbitMq, TransportError> {
        self.check()?;
        let connections = Connections::new(&self.connection.addresses(urls)?, self.connection.clone());
        RabbitMq::connected(self, connections, Ownership::Own).await
    }

    /// Uses existing connections that other transports share: for many consumers in one process. Deliveries, acknowledgements and
    /// copies of one do not affect the others. But if a connection ends, it ends for all that share it: everything that they have
    /// in flight is redelivered.
    ///
    /// ```no_run
    /// # use redrive_rabbitmq::{Connections, RabbitMq};
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let connections = Connections::connect("amqp://localhost").await?;
    /// let orders = RabbitMq::options("orders").connect_over(&connections).await?;
    /// let bills = RabbitMq::options("bills").connect_over(&connections).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If an option was set that belongs to the connections (heartbeat, credentials, timeouts, …); set it in
    /// [`Connections::options`]. Otherwise the same as [`connect`](Self::connect).
    pub async fn connect_over(mut self, connections: &Connections) -> Result<RabbitMq, TransportError> {
        if let Some(option) = self.wants_own_connections {
            let message = format!(
                "`{option}` is a matter of the connections, which are shared: give it to `Connections::options`"
            );
            return Err(TransportError::new(TransportErrorKind::Unsupported, message));
        }
        self.connection = connections.options_of().clone();
        self.check()?;
        RabbitMq::connected(self, connections.clone(), Ownership::Shared).await
    }
}

impl Transport for RabbitMq {
    type Receiver = RabbitMqReceiver;

    fn queue(&self) -> &str {
        self.shared.queue()
    }

    fn publisher(&self) -> Publisher {
        Self::publisher(self)
    }

    async fn open(&self, needs: &Needs, signals: Signals) -> Result<(RabbitMqReceiver, Facts), OpenError> {
        let _one_at_a_time = self.opening.lock().await;
        if self.inbox.is_ended() {
            return Err(self.inbox.closed().into());
        }
        if self.intake().is_some() {
            return Err(TransportError::opened_before(self.shared.queue()).into());
        }
        let facts = self.prepare(needs, signals).await?;
        for caveat in self.caveats() {
            warn!(queue = %self.shared.queue(), delay = self.shared.options.delay.name(), "{caveat}");
        }
        tokio::spawn(send_recoveries(Arc::clone(&self.shared), self.inbox.wishes()));
        let intake = intake::run(Arc::clone(&self.shared), self.inbox.source());
        *self.intake() = Some(tokio::spawn(intake));
        Ok((RabbitMqReceiver::new(Arc::clone(&self.shared), self.inbox.clone()), facts))
    }

    fn outline(&self, needs: &Needs) -> Outline {
        let Shared { facts, plan, .. } = &*self.shared;
        outline(facts, plan, &facts.prepared(needs))
    }

    async fn preflight(&self, needs: &Needs) -> Result<Outline, TransportError> {
        preflight(&self.shared, needs).await
    }

    async fn close(&self) {
        let Shared { deliveries, connections, .. } = &*self.shared;
        // Held until the connections are closed: a channel without users closes by itself, and the client library logs an error if
        // the connection closes before the broker has answered to that.
        let _held = deliveries.in_use();
        self.inbox.end();
        let intake = self.intake().take();
        if let Some(intake) = intake {
            // It ends by itself, once a broker that stands still has had time to answer. After a panic there is nothing to end.
            let _ = timeout(INTAKE_ENDS_WITHIN, intake).await;
        }
        // Deliveries that were not received go back.
        drop(self.inbox.close());
        let channels = deliveries.in_use();
        for channel in &channels {
            channel.settle_down().await;
            channel.end();
            channel.give_back_all().await;
        }
        if connections.close().await == Ownership::Shared {
            for channel in &channels {
                channel.close().await;
            }
        }
        info!(queue = %self.shared.queue(), "closed");
    }

    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// Signals each time that the broker accepts messages again, until the transport is closed or dropped.
async fn send_recoveries(shared: Arc<Shared>, mut wishes: Wishes) {
    let mut recoveries = shared.connections.recoveries();
    loop {
        tokio::select! {
            Ok(()) = recoveries.changed() => shared.facts.send_recovered(),
            wish = wishes.changed() => if wish == Wish::End { return },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redrive_core::TransportErrorKind::{Unreachable, Unsupported};

    use super::*;
    use crate::connection::Address;

    #[tokio::test]
    async fn a_transport_that_was_not_opened_is_as_it_was() {
        let options = Options::new("orders").prefetch_up_to(200);
        let address = Address::parse("amqp://127.0.0.1:1", |_| None).unwrap();
        let connections = Connections::new(&address.into(), options.connection.clone());
        let transport = RabbitMq::over(options, connections, Ownership::Own).unwrap();
        let facts = &transport.shared.facts;
        let before = facts.facts();
        // Needs that the broker cannot meet are refused before it is contacted; nothing listens there.
        for (wait, why) in [(Duration::MAX, Unsupported), (Duration::from_secs(1), Unreachable)] {
            let mut needs = Needs::none();
            (needs.prefetch, needs.waits) = (10, [wait].into());
            let error = transport.open(&needs, Signals::ignored()).await.expect_err("not opened");
            assert_eq!(error.kind(), why, "{error}");
            assert_eq!(facts.facts(), before);
            assert!(!facts.knows_needs(), "what its publishers may declare is another matter then");
        }
    }
}
