//! RabbitMQ as a transport.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use redrive_core::{
    Capabilities, Delivery, Message, Needs, Publisher, Received, SettleError, Settlement, Transport,
    TransportError, TransportErrorKind,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use crate::address::url_from_env;
use crate::broker::Broker;
use crate::connections::{Connections, Ownership};
use crate::consume::{self, Wanted};
use crate::delay::Way;
use crate::error;
use crate::hand_outs;
use crate::inbox::{Arrived, Phase};
use crate::options::Options;
use crate::publish::AlarmTime;
use crate::publisher::WayPublisher;
use crate::session::Receipt;
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
    wanted: watch::Sender<Wanted>,
    intake: Mutex<Option<JoinHandle<()>>>,
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
        let (wanted, _) = watch::channel(Wanted::Pause);
        Ok(Self { broker: Arc::new(broker), wanted, intake: Mutex::new(None) })
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
    /// [`publish_after`](Publisher::publish_after) works for the work queue. On a transport that is not started it takes the
    /// waits that [`Options::wait`] names, and others only where their delay queues exist.
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
    /// Logged as warnings at the start.
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

    fn delivery(&self, arrived: Arrived) -> Received<Receipt> {
        let Arrived { message, left_out, origin, redelivered, tag, session } = arrived;
        if hand_outs::are_not_counted(message.headers(), redelivered) {
            self.broker.warn_of_missing_counts();
        }
        let times = hand_outs::count(
            message.headers(),
            redelivered,
            self.broker.options.queue_type,
            session.version(),
        );
        // Where failures are counted by the broker, each hand-out before this one was one.
        let failures = if self.broker.plan.native.is_some() { times - 1 } else { 0 };
        let delivery = Delivery::from_origin(message, &origin, self.now())
            .handed_out_times(times)
            .failed_in_place(failures)
            .marked_redelivered(redelivered)
            .after_interruptions(session.interruptions());
        let receipt = Receipt::new(tag, session).came_by(origin);
        match left_out {
            None => Received { delivery, receipt },
            Some(left_out) => {
                Received { delivery: delivery.read_without(left_out), receipt: receipt.for_a_part() }
            }
        }
    }

    async fn settle_by_copy(
        &self,
        receipt: Receipt,
        way: Result<Way, TransportError>,
        copy: Message,
    ) -> Result<(), SettleError<Receipt>> {
        let stored = match way {
            Ok(way) => self.broker.store(&way, copy, AlarmTime::DoesNotCount).await,
            Err(error) => Err(error),
        };
        match stored {
            // The copy is stored: when the original comes again it must not be copied a second time.
            Ok(()) => receipt.ack().await.map_err(SettleError::lost_after_copy),
            Err(error) => {
                debug!(queue = %self.broker.queue(), %error, "a copy was not stored; the delivery stays in hand");
                Err(SettleError::held(error, receipt))
            }
        }
    }

    /// What is wanted already is not said again: a subscription that is being made would begin anew, and what it was
    /// handed out already would come again, counted.
    fn want(&self, wanted: Wanted) {
        self.wanted.send_if_modified(|before| std::mem::replace(before, wanted) != wanted);
    }

    fn check_met(&self, needs: &Needs) -> Result<(), TransportError> {
        let unmet = needs.unmet(&self.broker.capabilities());
        if unmet.is_empty() {
            return Ok(());
        }
        Err(TransportError::new(TransportErrorKind::Unsupported, unmet.join("; ")))
    }

    fn is_closed(&self) -> bool {
        *self.wanted.borrow() == Wanted::Close
    }

    fn intake(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.intake.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for RabbitMq {
    type Receipt = Receipt;

    fn capabilities(&self) -> Capabilities {
        self.broker.capabilities()
    }

    fn publisher(&self) -> Publisher {
        Self::publisher(self)
    }

    async fn start(&self, needs: &Needs) -> Result<(), TransportError> {
        if self.is_closed() {
            return Err(error::closed());
        }
        self.check_met(needs)?;
        self.broker.set_needs(needs);
        self.broker.prepare().await?;
        // The queues may have told more.
        self.check_met(needs)?;
        for caveat in self.caveats() {
            warn!(queue = %self.broker.queue(), delay = self.broker.options.delay.name(), "{caveat}");
        }
        self.want(Wanted::Deliveries);
        let mut intake = self.intake();
        if intake.is_none() {
            *intake = Some(tokio::spawn(consume::run(Arc::clone(&self.broker), self.wanted.subscribe())));
        }
        Ok(())
    }

    async fn receive(&self) -> Result<Option<Received<Receipt>>, TransportError> {
        let arrived = self.broker.inbox.next().await?;
        Ok(arrived.map(|arrived| self.delivery(arrived)))
    }

    async fn settle(&self, receipt: Receipt, settlement: Settlement) -> Result<(), SettleError<Receipt>> {
        if settlement == Settlement::Complete {
            return receipt.ack().await.map_err(SettleError::lost);
        }
        // Nothing is copied for a delivery that comes again anyway.
        receipt.check().map_err(SettleError::lost)?;
        if settlement.stores_copy() && !receipt.is_whole() {
            return Err(SettleError::held(error::read_in_part(), receipt));
        }
        let (way, copy) = match settlement {
            Settlement::Complete => return receipt.ack().await.map_err(SettleError::lost),
            Settlement::Release => return receipt.nack(true).await.map_err(SettleError::lost),
            Settlement::Reject if self.broker.capabilities().native_dead_letter => {
                return receipt.nack(false).await.map_err(SettleError::lost);
            }
            Settlement::Reject => {
                let message = "the work queue is not known to have a dead-letter exchange: rejected, the message would \
                               be gone; say `native_dead_letter(true)` if it has one";
                let error = TransportError::new(TransportErrorKind::Unsupported, message);
                return Err(SettleError::held(error, receipt));
            }
            // On an older broker it would come again at once, and again.
            Settlement::HoldBack { .. } => match self.broker.options.delay.refused_by(receipt.version()) {
                None => return receipt.reject_to_retry().await.map_err(SettleError::lost),
                Some(refused) => {
                    let error = TransportError::new(TransportErrorKind::Unsupported, refused);
                    return Err(SettleError::held(error, receipt));
                }
            },
            Settlement::Reschedule { wait, mut copy } => {
                (self.broker.way(wait, &mut copy, receipt.origin()), copy)
            }
            Settlement::Move { shelf, copy } => (self.broker.plan.names.shelf(shelf).map(Way::queue), copy),
        };
        // In a box: most deliveries are completed, and need not carry the room for this along.
        Box::pin(self.settle_by_copy(receipt, way, copy)).await
    }

    async fn pause(&self) -> Result<(), TransportError> {
        if self.is_closed() {
            return Ok(());
        }
        self.want(Wanted::Pause);
        if self.intake().is_some() {
            self.broker.inbox.until_drained().await;
        }
        Ok(())
    }

    async fn resume(&self) -> Result<(), TransportError> {
        if self.is_closed() {
            return Err(error::closed());
        }
        self.want(Wanted::Deliveries);
        if self.broker.inbox.reopen() {
            // The intake had given up, and waits for this word.
            self.wanted.send_replace(Wanted::Deliveries);
        }
        Ok(())
    }

    fn narrow(&self, most: Option<u32>) {
        self.broker.narrow(most);
    }

    fn since_interruption(&self) -> Option<Duration> {
        self.broker.since_interruption()
    }

    fn unreceived(&self) -> Option<Vec<Delivery>> {
        self.broker.inbox.take_unreceived()
    }

    async fn close(&self) {
        self.want(Wanted::Close);
        let intake = self.intake().take();
        if let Some(intake) = intake {
            // It ends by itself; had it panicked, there would be nothing left to end.
            let _ = intake.await;
        }
        self.broker.inbox.enter(Phase::Closed);
        for Arrived { tag, session, .. } in self.broker.inbox.take_all() {
            // Where that fails the broker takes it back with the channel.
            let _ = Receipt::new(tag, session).nack(true).await;
        }
        for session in self.broker.sessions() {
            session.settle_down().await;
            session.end();
            session.give_back_all().await;
        }
        self.broker.close().await;
        info!(queue = %self.broker.queue(), "closed");
    }

    fn recovered(&self) -> impl Future<Output = ()> + Send {
        self.broker.recovered()
    }

    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}
