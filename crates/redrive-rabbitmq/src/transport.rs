//! RabbitMQ as a transport.

use std::sync::{Arc, Mutex, PoisonError};

use redrive_core::{
    Facts, Message, Needs, OpenError, Outline, Publisher, Signals, Transport, TransportError,
    TransportErrorKind,
};
use redrive_transport::{Inbox, Wish, Wishes};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::connection::{Connections, Ownership, url_from_env};
use crate::options::Options;
use crate::outline::outline;
use crate::preflight::preflight;
use crate::publish::RoutePublisher;
use crate::receive::{Arrived, RabbitMqReceiver, intake};
use crate::shared::Shared;
use crate::shelves::{RabbitMqShelves, Taken};
use crate::topology::Route;
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
/// Queues, counters and limits: [the page on RabbitMQ](https://github.com/redrive-rs/redrive/blob/main/docs/transports/rabbitmq.md).
#[derive(Debug)]
pub struct RabbitMq {
    shared: Arc<Shared>,
    inbox: Inbox<Arrived>,
    /// Some while the transport is open.
    intake: Mutex<Option<JoinHandle<()>>>,
    /// One caller at a time.
    opening: tokio::sync::Mutex<()>,
    /// What operators took off the shelves.
    taken: Arc<Taken>,
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

    /// Connects when that is needed.
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

    /// Sends the acknowledgements that still wait for others ([`Options::ack_within`]). `close` does it too: this is for a caller
    /// that uses the transport without a consumer, and wants to know when the broker has them.
    pub fn flush(&self) {
        for channel in self.shared.deliveries.in_use() {
            channel.flush();
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
        Publisher::new(RoutePublisher::new(&self.shared, Route::queue(self.shared.queue())))
    }

    /// Publishes to an exchange, with this routing key. `Ok` means that the message is stored in every queue that the exchange
    /// led to, of which there was at least one. Without delays.
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
    /// As [`Publisher::publish`].
    pub async fn publish(&self, message: Message) -> Result<(), TransportError> {
        self.publisher().publish(message).await
    }

    /// What people should know of the [`Delay`](crate::Delay) mode as it is configured; empty where there is nothing.
    /// Logged as warnings when the transport is opened.
    #[must_use]
    pub fn caveats(&self) -> Vec<String> {
        self.shared.facts.strategy().caveats()
    }

    /// The shelves of the queue, for operators.
    #[must_use]
    pub fn shelves(&self) -> RabbitMqShelves {
        RabbitMqShelves::new(Arc::clone(&self.shared), Arc::clone(&self.taken))
    }

    /// Moves what waits in the delay queues of another topology into those of this one, which is declared or verified
    /// first: for when the delay mode, the names or the types of the delay queues change.
    pub fn transfer_from(&self, old: Options) -> Transfer {
        Transfer::new(Arc::clone(&self.shared), old)
    }

    fn intake(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.intake.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses needs that the broker cannot meet, then prepares the queues. After an error the transport is as it was.
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
    /// Connects to the broker at this URL, once: a broker that cannot be reached is an error now, and no endless wait.
    /// Several URLs with commas between them are as many nodes of one cluster: see [`connect_any`](Self::connect_any).
    ///
    /// # Errors
    ///
    /// When the broker does not answer, refuses the credentials, or the options contradict each other.
    pub async fn connect(self, url: &str) -> Result<RabbitMq, TransportError> {
        self.connect_any([url]).await
    }

    /// Connects to the first of these nodes of one cluster that answers, in this order, unless
    /// [`shuffle_addresses`](Self::shuffle_addresses) was asked for. When a connection is lost the next node is tried,
    /// and after the last one the first again.
    ///
    /// # Errors
    ///
    /// When none of them lets us in; the error names each. Else as [`connect`](Self::connect).
    pub async fn connect_any<U: AsRef<str>>(
        self,
        urls: impl IntoIterator<Item = U>,
    ) -> Result<RabbitMq, TransportError> {
        self.check()?;
        let connections = Connections::new(&self.connection.addresses(urls)?, self.connection.clone());
        RabbitMq::connected(self, connections, Ownership::Own).await
    }

    /// Takes connections that are there, and that other transports use too: for many consumers in one process. What is
    /// handed out, acknowledged and stored for one of them does not touch the others. But a connection that ends does so for
    /// all that share it: what all of them have in flight comes again.
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
    /// When an option was given that belongs to the connections (heartbeat, credentials, timeouts, …); give it to
    /// [`Connections::options`]. Else as [`connect`](Self::connect).
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
        // Held until the connections are closed: a channel without users closes by itself, and the client library logs an error when
        // the connection closes before the broker has answered to that.
        let _held = deliveries.in_use();
        self.inbox.end();
        let intake = self.intake().take();
        if let Some(intake) = intake {
            // It ends by itself. After a panic nothing is left to end.
            let _ = intake.await;
        }
        // Deliveries that nobody received go back.
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
        // What the broker cannot hold is refused before anything is asked; else nobody listens.
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
