//! The transport of one queue or subscription.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

#[cfg(feature = "entra")]
use azure_core::credentials::TokenCredential;
use futures::future::join_all;
use parking_lot::Mutex;
use redrive_core::transport::{Facts, Needs, OpenError, Outline, Signals};
use redrive_core::{Message, Publisher, Transport, TransportError};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::address::Address;
use crate::connection::{Namespace, ReconnectingConnection};
use crate::entity::Entity;
use crate::options::Options;
use crate::outline::outline;
use crate::preflight::preflight;
use crate::publish::EntityPublisher;
use crate::receive::ServiceBusReceiver;
use crate::receive::arrival::ConsumedEntity;
use crate::receive::inbox::Inbox;
use crate::receive::intake::{Intake, Retired};
use crate::receive::session_intake::SessionIntake;
use crate::shared::Shared;
use crate::shelves::ServiceBusShelves;
use crate::topology;
use crate::wire::SettleAs;

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
/// Entities, counters, costs and limits:
/// [the page on Service Bus](https://github.com/redrive-rs/redrive/blob/main/docs/transports/servicebus.md).
#[derive(Debug)]
pub struct ServiceBus {
    shared: Arc<Shared>,
    /// The path of the consumed entity.
    queue: String,
    inbox: Inbox,
    /// True once the transport is opened. Locked while it is being opened.
    opened: tokio::sync::Mutex<bool>,
    intakes: Mutex<Vec<JoinHandle<Vec<Retired>>>>,
    keeper: JoinHandle<()>,
}

impl ServiceBus {
    /// Connects to the namespace of a connection string with the default [`options`](Self::options). A subscription is named by
    /// its path (`topic/Subscriptions/name`).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Options::connect`].
    pub async fn connect(connection_string: &str, entity: impl Into<Entity>) -> Result<Self, TransportError> {
        Self::options(entity).connect(connection_string).await
    }

    /// Connects with the connection string in `REDRIVE_SERVICEBUS_CONNECTION_STRING`.
    ///
    /// # Errors
    ///
    /// Returns an error if the variable is not set, and the errors of [`Options::connect`].
    pub async fn connect_from_env(entity: impl Into<Entity>) -> Result<Self, TransportError> {
        Self::open(Self::options(entity), Address::from_env()?).await
    }

    /// Returns the default options for the transport of a queue or subscription.
    pub fn options(entity: impl Into<Entity>) -> Options {
        Options::new(entity)
    }

    pub(crate) async fn open(options: Options, address: Address) -> Result<Self, TransportError> {
        options.check(address.entity_path.as_deref())?;
        let address = address.with_options(&options.connection);
        let host = address.host.clone();
        let connection = ReconnectingConnection::new(Namespace::new(address, options.protocol()));
        let connected = connection.connection().await;
        connected.map_err(|error| error.into_error(&format!("connecting to the namespace `{host}`")))?;
        let shared = Arc::new(Shared::new(options, connection));
        let queue = shared.entity();
        let inbox = Inbox::new(&*queue);
        let (locks, connection, guard) =
            (Arc::clone(&shared.locks), Arc::clone(&shared.connection), inbox.panic_guard());
        let keeper = tokio::spawn(async move {
            // If this task panicked, all locks would expire unnoticed.
            let _guard = guard;
            locks.keep(&connection).await;
        });
        let (opened, intakes) = Default::default();
        Ok(Self { shared, queue, inbox, opened, intakes, keeper })
    }

    /// Returns a publisher to the queue, or to the subscription's topic. [`to`](Publisher::to) selects another queue or topic of
    /// the namespace. A message with a delay is scheduled.
    ///
    /// # Cancel safety
    ///
    /// If a future of it is dropped, its messages may be stored, and no other sender is harmed. By AMQP, one link that is being attached
    /// is attached to its end, for the next message. A message of several frames whose sending has begun is sent with the next
    /// message to the same target, and is dropped if there is none.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        let target = match &self.shared.options.entity {
            Entity::Queue(name) => name,
            Entity::Subscription { topic, .. } => topic,
        };
        Publisher::new(EntityPublisher::new(&self.shared.connection, target))
    }

    /// Publishes a message to the queue, or to the subscription's topic. Shorthand for [`publisher`](Self::publisher) and
    /// [`Publisher::publish`]. The same holds if its future is dropped.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Publisher::publish`].
    pub async fn publish(&self, message: Message) -> Result<(), TransportError> {
        self.publisher().publish(message).await
    }

    /// Returns the shelves of the queue or subscription, for operators.
    #[must_use]
    pub fn shelves(&self) -> ServiceBusShelves {
        ServiceBusShelves::new(Arc::clone(&self.shared))
    }

    /// Does what a crash of the process does, for tests. Nothing is settled or given back; locks expire.
    #[doc(hidden)]
    pub async fn crash(&self) {
        self.inbox.end();
        for intake in self.take_intakes() {
            intake.abort();
            // Its links and sessions are dropped when the task has ended.
            let _ = intake.await;
        }
        self.keeper.abort();
        self.shared.locks.take_all();
        drop(self.inbox.close());
        if let Some(wire) = self.shared.connection.close().await {
            wire.abort();
            wire.ended().await;
        }
    }

    fn take_intakes(&self) -> Vec<JoinHandle<Vec<Retired>>> {
        std::mem::take(&mut *self.intakes.lock())
    }

    /// Starts the tasks that receive deliveries.
    fn start_intakes(&self, max_wait_time: Option<Duration>) {
        let mut intakes = self.intakes.lock();
        for entity in self.shared.options.sources() {
            let consumed = ConsumedEntity::new(Arc::clone(&self.shared), &entity, max_wait_time);
            match self.shared.options.sessions {
                None => intakes.push(tokio::spawn(Intake::new(consumed, self.inbox.source()).run())),
                Some(sessions) => {
                    let run = async |intake: SessionIntake| {
                        intake.run().await;
                        Vec::new()
                    };
                    let all = SessionIntake::all(&consumed, &self.inbox, sessions).into_iter();
                    intakes.extend(all.map(|intake| tokio::spawn(run(intake))));
                }
            }
        }
    }
}

impl Options {
    /// Connects to the namespace of a connection string, as the Azure portal shows it. With `UseDevelopmentEmulator=true` the
    /// connection does not use TLS. The rights of the key are checked when the transport is opened.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection string is malformed or for another entity, the options contradict each other, the
    /// namespace cannot be reached, or its certificate is not trusted.
    pub async fn connect(self, connection_string: &str) -> Result<ServiceBus, TransportError> {
        ServiceBus::open(self, Address::parse(connection_string)?).await
    }

    /// Connects to a namespace by its host name, such as `shop.servicebus.windows.net`, as an identity of Microsoft Entra ID. The
    /// connection always uses TLS. The transport requests a token for each entity, and a new one when half of its lifetime is
    /// over; each request times out after 30 s. The rights of the identity are checked when the transport is opened: it needs the
    /// roles `Azure Service Bus Data Receiver` and `Azure Service Bus Data Sender`.
    ///
    /// ```no_run
    /// # async fn connect(
    /// #     credential: std::sync::Arc<dyn azure_core::credentials::TokenCredential>,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use redrive_servicebus::ServiceBus;
    ///
    /// // From the crate `azure_identity`, for example: ManagedIdentityCredential::new(None)?
    /// let transport = ServiceBus::options("orders")
    ///     .connect_with("shop.servicebus.windows.net", credential)
    ///     .await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if `namespace` is not a host name, the options contradict each other, the namespace cannot be reached, or
    /// its certificate is not trusted.
    #[cfg(feature = "entra")]
    pub async fn connect_with(
        self,
        namespace: &str,
        credential: Arc<dyn TokenCredential>,
    ) -> Result<ServiceBus, TransportError> {
        ServiceBus::open(self, Address::of_identity(namespace, credential)?).await
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
        self.shared.options.check_needs(needs)?;
        if let Some(warning) = self.shared.options.warning() {
            warn!(entity = %self.queue, "{warning}");
        }
        // Finds missing entities before the first message is received.
        topology::verify(&self.shared).await?;
        self.shared.locks.set_signals(signals);
        *opened = true;
        self.start_intakes(needs.max_wait_time);
        let most = self.shared.options.max_in_flight(needs.prefetch);
        Ok((ServiceBusReceiver::new(self.inbox.clone(), most), self.shared.options.facts()))
    }

    fn outline(&self, needs: &Needs) -> Outline {
        outline(&self.shared.options, needs)
    }

    async fn preflight(&self, needs: &Needs) -> Result<Outline, TransportError> {
        preflight(&self.shared, needs).await
    }

    async fn close(&self) {
        self.inbox.end();
        // The links stay open: deliveries cannot be released on a detached link, and would wait until their locks expire.
        let mut links = Vec::new();
        for intake in self.take_intakes() {
            // The intake ends because the inbox ended. If it panicked, it left no links.
            links.extend(intake.await.unwrap_or_default());
        }
        self.keeper.abort();
        let unreceived = self.inbox.close();
        let mut reached = true;
        // All deliveries in flight, received or not: from here on their receipts settle nothing.
        for (lock, held) in self.shared.locks.take_all() {
            if held.handle.release(&held.tag).await {
                continue;
            }
            // The link is gone: abandoning counts a delivery, but the message need not wait until its lock expires. If one
            // request is not answered, the others are skipped, so that closing does not wait for each of them.
            if reached {
                let given_back = match self.shared.connection.connection().await {
                    Ok(wire) => wire.settle(&held.entity, &[lock], &SettleAs::abandon()).await,
                    Err(error) => Err(error),
                };
                reached = !given_back.is_err_and(|error| error.is_interruption());
            }
        }
        drop(unreceived);
        // The links are closed, with an answer, after the releases: ending the connection could overtake what is not yet sent.
        join_all(links.into_iter().map(Retired::close)).await;
        if let Some(wire) = self.shared.connection.close().await {
            wire.close().await;
        }
        info!(entity = %self.shared.entity(), "closed");
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
        drop(self.inbox.close());
    }
}
