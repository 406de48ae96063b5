//! The transport: what a consumer sees of a queue or subscription.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::join_all;
use redrive_core::{Facts, Message, Needs, OpenError, Publisher, Signals, Transport, TransportError};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::address::Address;
use crate::broker::Broker;
use crate::connection::Link;
use crate::entity::Entity;
use crate::error::{self, Refusal, WireError};
use crate::inbox::Inbox;
use crate::intake::{Intake, Retired};
use crate::options::Options;
use crate::publisher::EntityPublisher;
use crate::receive::ServiceBusReceiver;
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
    /// The path of what is consumed.
    queue: String,
    inbox: Inbox,
    /// Held while it is being opened.
    opened: tokio::sync::Mutex<bool>,
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
        let queue = broker.entity();
        let inbox = Inbox::new(&*queue);
        let guard = inbox.panic_guard();
        let keeper = tokio::spawn(async move {
            // Without this task all locks would run out without a word.
            let _guard = guard;
            locks.keep(&link).await;
        });
        Ok(Self {
            broker,
            inbox,
            queue,
            opened: tokio::sync::Mutex::default(),
            intakes: Mutex::default(),
            keeper,
        })
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
        self.inbox.end();
        for intake in self.take_intakes() {
            intake.abort();
            // What it held is lost with it.
            let _ = intake.await;
        }
        self.keeper.abort();
        self.broker.locks.take_all();
        drop(self.inbox.close());
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

    fn take_intakes(&self) -> Vec<JoinHandle<Vec<Retired>>> {
        std::mem::take(&mut *self.intakes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins to take from these, once that is wanted.
    fn take_from(&self, sources: Vec<Entity>) {
        let mut intakes = self.intakes.lock().unwrap_or_else(PoisonError::into_inner);
        for source in sources {
            match self.broker.options.sessions {
                None => {
                    let intake = Intake::new(Arc::clone(&self.broker), self.inbox.source(), source);
                    intakes.push(tokio::spawn(intake.run()));
                }
                Some(sessions) => {
                    let slots = Slot::all(&self.broker, &self.inbox, &source, sessions);
                    let run = async |slot: Slot| {
                        slot.run().await;
                        Vec::new()
                    };
                    intakes.extend(slots.into_iter().map(|slot| tokio::spawn(run(slot))));
                }
            }
        }
    }
}

impl Transport for ServiceBus {
    type Receiver = ServiceBusReceiver;

    fn queue(&self) -> &str {
        &self.queue
    }

    fn publisher(&self) -> Publisher {
        Self::publisher(self)
    }

    async fn open(&self, needs: &Needs, signals: Signals) -> Result<(ServiceBusReceiver, Facts), OpenError> {
        let mut opened = self.opened.lock().await;
        if self.inbox.is_ended() {
            return Err(self.inbox.closed().into());
        }
        if *opened {
            return Err(TransportError::opened_before(&self.queue).into());
        }
        self.broker.options.check_needs(needs)?;
        if let Some(warning) = self.broker.options.warning() {
            warn!(entity = %self.queue, "{warning}");
        }
        // Whatever is missing is missed here, before the first message is taken.
        let sources = self.broker.options.sources();
        for source in &sources {
            self.look_for(&source.path()).await?;
        }
        self.broker.signals.listen(signals);
        *opened = true;
        self.take_from(sources);
        let most = self.broker.options.most_in_hand(needs.prefetch);
        Ok((ServiceBusReceiver::new(self.inbox.clone(), most), self.broker.options.facts()))
    }

    async fn close(&self) {
        self.inbox.end();
        // Kept: once detached, the broker takes nothing back on a link, and what is in hand would wait for its lock to run out.
        let mut links = Vec::new();
        for intake in self.take_intakes() {
            // It ends by itself; had it panicked, there would be nothing left to end.
            links.extend(intake.await.unwrap_or_default());
        }
        self.keeper.abort();
        let unreceived = self.inbox.close();
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
}

impl Drop for ServiceBus {
    fn drop(&mut self) {
        for intake in self.take_intakes() {
            intake.abort();
        }
        self.keeper.abort();
        drop(self.inbox.close());
    }
}
