//! The transport: what a consumer sees of a queue or subscription.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use redrive_core::{
    Capabilities, Message, Needs, Publisher, Received, SettleError, Settlement, Transport, TransportError,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::address::Address;
use crate::broker::Broker;
use crate::connection::Link;
use crate::entity::Entity;
use crate::error::{self, Refusal, WireError};
use crate::intake::{Intake, Retired, Wanted};
use crate::options::Options;
use crate::publisher::EntityPublisher;
use crate::receipt::Receipt;
use crate::settle;
use crate::shelves::ServiceBusShelves;
use crate::slot::Slot;
use crate::wire::Disposal;

/// The transport of one queue or subscription.
///
/// ```no_run
/// # async fn connect(connection_string: &str) -> Result<(), Box<dyn std::error::Error>> {
/// use redrive_servicebus::ServiceBus;
///
/// let transport = ServiceBus::connect(connection_string, "orders").await?;
/// # Ok(()) }
/// ```
///
/// Everything about entities, counters, costs and limits stands in `docs/transports/servicebus.md`.
#[derive(Debug)]
pub struct ServiceBus {
    broker: Arc<Broker>,
    wanted: watch::Sender<Wanted>,
    started: AtomicBool,
    intakes: Mutex<Vec<JoinHandle<Vec<Retired>>>>,
    keeper: JoinHandle<()>,
}

impl ServiceBus {
    /// Connects to the namespace of this connection string, to consume a queue, or a subscription by its path
    /// (`topic/Subscriptions/name`), with all [`options`](Self::options) as they are.
    ///
    /// # Errors
    ///
    /// As [`Options::connect`].
    pub async fn connect(connection_string: &str, entity: impl Into<Entity>) -> Result<Self, TransportError> {
        Self::options(entity).connect(connection_string).await
    }

    /// Connects with the connection string in `REDRIVE_SERVICEBUS_CONNECTION_STRING`.
    ///
    /// # Errors
    ///
    /// When the variable is not set, and as [`Options::connect`].
    pub async fn connect_from_env(entity: impl Into<Entity>) -> Result<Self, TransportError> {
        Self::open(Self::options(entity), Address::from_env()?).await
    }

    /// Options for the transport of a queue or subscription.
    pub fn options(entity: impl Into<Entity>) -> Options {
        Options::new(entity)
    }

    pub(crate) async fn open(options: Options, address: Address) -> Result<Self, TransportError> {
        options.check(&address)?;
        let address = address.reached(&options.connection);
        let host = address.host.clone();
        let link = Arc::new(Link::new(address, options.protocol()));
        let connected = link.live().await;
        connected.map_err(|error| error.into_error(&format!("connecting to the namespace `{host}`")))?;
        let broker = Arc::new(Broker::new(options, Arc::clone(&link)));
        let locks = Arc::clone(&broker.locks);
        let keeper = tokio::spawn(async move { locks.keep(&link).await });
        let (wanted, _) = watch::channel(Wanted::Pause);
        Ok(Self { broker, wanted, started: AtomicBool::new(false), intakes: Mutex::default(), keeper })
    }

    /// Publishes to the queue, or to the subscription's topic; with [`to`](Publisher::to), to any other queue or topic of the
    /// namespace. With a delay the message is scheduled.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        let target = match &self.broker.options.entity {
            Entity::Queue(name) => name,
            Entity::Subscription { topic, .. } => topic,
        };
        Publisher::new(EntityPublisher::new(&self.broker.link, target))
    }

    /// Publishes a message to the queue, or to the subscription's topic: [`publisher`](Self::publisher), then
    /// [`Publisher::publish`].
    ///
    /// # Errors
    ///
    /// As [`Publisher::publish`].
    pub async fn publish(&self, message: Message) -> Result<(), TransportError> {
        self.publisher().publish(message).await
    }

    /// The shelves of the queue or subscription, for operators.
    #[must_use]
    pub fn shelves(&self) -> ServiceBusShelves {
        ServiceBusShelves::new(Arc::clone(&self.broker))
    }

    /// For tests: what the death of the process does. Nothing is settled or given back; locks run out by themselves.
    #[doc(hidden)]
    pub async fn crash(&self) {
        self.wanted.send_replace(Wanted::Close);
        for intake in self.take_intakes() {
            intake.abort();
            // What it held is lost with it.
            let _ = intake.await;
        }
        self.keeper.abort();
        self.broker.locks.take_all();
        drop(self.broker.inbox.close());
        self.broker.link.abort().await;
    }

    /// Whether what is to be read is there, and is what the options say.
    async fn look_for(&self, path: &str) -> Result<(), TransportError> {
        let tried = |error: WireError| error.into_error(&format!("attaching to `{path}`"));
        let wire = self.broker.link.live().await.map_err(tried)?;
        if self.broker.options.sessions.is_some() {
            return match wire.requires_sessions(path).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(error::has_no_sessions(path)),
                Err(error) => Err(tried(error)),
            };
        }
        match wire.receiver(path).await {
            Ok(receiver) => {
                receiver.close().await;
                Ok(())
            }
            Err(error) if error.speaks_of_sessions() => Err(error::needs_sessions(path)),
            Err(error) => Err(tried(error)),
        }
    }

    fn is_closed(&self) -> bool {
        *self.wanted.borrow() == Wanted::Close
    }

    fn take_intakes(&self) -> Vec<JoinHandle<Vec<Retired>>> {
        std::mem::take(&mut *self.intakes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is wanted already is not said again: the links would be made anew.
    fn want(&self, wanted: Wanted) {
        wanted.say(&self.wanted, false);
    }

    fn closed(&self) -> TransportError {
        error::closed(&self.broker.entity())
    }
}

impl Transport for ServiceBus {
    type Receipt = Receipt;

    fn capabilities(&self) -> Capabilities {
        self.broker.options.capabilities()
    }

    fn publisher(&self) -> Publisher {
        Self::publisher(self)
    }

    async fn start(&self, needs: &Needs) -> Result<(), TransportError> {
        if self.is_closed() {
            return Err(self.closed());
        }
        self.broker.options.check_needs(needs)?;
        if let Some(warning) = self.broker.options.warning() {
            warn!(entity = %self.broker.entity(), "{warning}");
        }
        self.broker.prefetch.store(needs.prefetch, Ordering::Relaxed);
        // Whatever is missing is missed here, before the first message is taken.
        let sources = self.broker.options.sources();
        for source in &sources {
            self.look_for(&source.path()).await?;
        }
        if self.started.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.broker.inbox.open(self.broker.options.intakes(), || self.want(Wanted::Deliveries));
        let mut intakes = self.intakes.lock().unwrap_or_else(PoisonError::into_inner);
        for source in sources {
            let number = intakes.len();
            match self.broker.options.sessions {
                None => {
                    let intake =
                        Intake::new(Arc::clone(&self.broker), number, source, self.wanted.subscribe());
                    intakes.push(tokio::spawn(intake.run()));
                }
                Some(sessions) => {
                    let slots = Slot::all(&self.broker, number, &source, sessions, &self.wanted);
                    let run = async |slot: Slot| {
                        slot.run().await;
                        Vec::new()
                    };
                    intakes.extend(slots.into_iter().map(|slot| tokio::spawn(run(slot))));
                }
            }
        }
        Ok(())
    }

    async fn receive(&self) -> Result<Option<Received<Receipt>>, TransportError> {
        if !self.started.load(Ordering::Acquire) && !self.is_closed() {
            return Err(error::not_started(&self.broker.entity()));
        }
        self.broker.inbox.next().await
    }

    async fn settle(&self, receipt: Receipt, settlement: Settlement) -> Result<(), SettleError<Receipt>> {
        settle::settle(receipt, settlement).await
    }

    async fn pause(&self) -> Result<(), TransportError> {
        if self.is_closed() || !self.started.load(Ordering::Acquire) {
            return Ok(());
        }
        self.want(Wanted::Pause);
        let mut wanted = self.wanted.subscribe();
        tokio::select! {
            () = self.broker.inbox.until_drained() => {}
            // Somebody else resumed it meanwhile.
            _ = wanted.wait_for(|wanted| *wanted == Wanted::Deliveries) => {}
        }
        Ok(())
    }

    async fn resume(&self) -> Result<(), TransportError> {
        if self.is_closed() {
            return Err(self.closed());
        }
        if !self.started.load(Ordering::Acquire) {
            return Err(error::not_started(&self.broker.entity()));
        }
        let wanted = *self.wanted.borrow();
        if wanted == Wanted::Deliveries && !self.broker.inbox.has_failed() {
            return Ok(());
        }
        // Also for an intake that had given up, and waits for this word.
        let say = || Wanted::Deliveries.say(&self.wanted, true);
        self.broker.inbox.open(self.broker.options.intakes(), say);
        Ok(())
    }

    fn narrow(&self, most: Option<u32>) {
        self.broker.narrowed.store(most.map_or(0, |most| most.max(1)), Ordering::Relaxed);
    }

    fn since_interruption(&self) -> Option<Duration> {
        self.broker.since_interruption()
    }

    fn lost(&self, receipt: &Receipt) -> impl Future<Output = ()> + Send + 'static {
        Arc::clone(&receipt.lost).heard()
    }

    async fn close(&self) {
        self.want(Wanted::Close);
        // Kept: once detached, the broker takes nothing back on a link, and what is in hand would wait for its lock to run out.
        let mut links = Vec::new();
        for intake in self.take_intakes() {
            // It ends by itself; had it panicked, there would be nothing left to end.
            links.extend(intake.await.unwrap_or_default());
        }
        self.keeper.abort();
        let unreceived = self.broker.inbox.close();
        let mut reached = true;
        // All that is in hand, received or not; from here on its receipts are worth nothing.
        for (lock, held) in self.broker.locks.take_all() {
            if held.handle.release(&held.tag).await {
                continue;
            }
            // Its link is gone: given back it counts, but it need not wait for its lock to run out. Where nobody answers, the
            // others do not wait for that one by one.
            if reached {
                let given_back = match self.broker.link.live().await {
                    Ok(wire) => wire.settle(&held.entity, &[lock], &Disposal::abandon()).await,
                    Err(error) => Err(error),
                };
                reached = !given_back.is_err_and(|error| error.refusal == Refusal::Interrupted);
            }
        }
        drop(unreceived);
        // Behind what was given back, and answered: the end of the connection may overtake what is still to be sent.
        join_all(links.into_iter().map(|(_, receiver)| receiver.close())).await;
        self.broker.link.close().await;
        info!(entity = %self.broker.entity(), "closed");
    }

    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

impl Drop for ServiceBus {
    fn drop(&mut self) {
        for intake in self.take_intakes() {
            intake.abort();
        }
        self.keeper.abort();
        // Receipts in there keep the broker, and the broker keeps them.
        drop(self.broker.inbox.close());
    }
}
