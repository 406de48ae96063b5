//! The transport: what a consumer sees of a queue or subscription.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[cfg(feature = "entra")]
use azure_core::credentials::TokenCredential;
use futures::future::join_all;
use redrive_core::{
    Facts, Message, Needs, OpenError, Outline, Publisher, Signals, Transport, TransportError,
};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::connection::address::Address;
use crate::connection::{Namespace, ReconnectingConnection};
use crate::entity::Entity;
use crate::error::Refusal;
use crate::options::Options;
use crate::outline::outline;
use crate::preflight::preflight;
use crate::publish::EntityPublisher;
use crate::receive::ServiceBusReceiver;
use crate::receive::arrival::Origin;
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
/// Entities, counters, costs and limits: [the page on Service Bus](https://github.com/redrive-rs/redrive/blob/main/docs/transports/servicebus.md).
#[derive(Debug)]
pub struct ServiceBus {
    shared: Arc<Shared>,
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
        options.check(address.entity_path.as_deref())?;
        let address = address.reached(&options.connection);
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
            // Without this task all locks would run out, and nothing would say so.
            let _guard = guard;
            locks.keep(&connection).await;
        });
        let (opened, intakes) = Default::default();
        Ok(Self { shared, queue, inbox, opened, intakes, keeper })
    }

    /// Publishes to the queue, or to the subscription's topic; with [`to`](Publisher::to), to any other queue or topic of the
    /// namespace. With a delay the message is scheduled.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        let target = match &self.shared.options.entity {
            Entity::Queue(name) => name,
            Entity::Subscription { topic, .. } => topic,
        };
        Publisher::new(EntityPublisher::new(&self.shared.connection, target))
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
        ServiceBusShelves::new(Arc::clone(&self.shared))
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
        self.shared.locks.take_all();
        drop(self.inbox.close());
        if let Some(wire) = self.shared.connection.close().await {
            wire.abort();
            wire.ended().await;
        }
    }

    fn take_intakes(&self) -> Vec<JoinHandle<Vec<Retired>>> {
        std::mem::take(&mut *self.intakes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts the tasks that take deliveries.
    fn start_intakes(&self, max_wait_time: Option<Duration>) {
        let mut intakes = self.intakes.lock().unwrap_or_else(PoisonError::into_inner);
        for entity in self.shared.options.sources() {
            let origin = Origin::new(Arc::clone(&self.shared), entity, max_wait_time);
            match self.shared.options.sessions {
                None => intakes.push(tokio::spawn(Intake::new(origin, self.inbox.source()).run())),
                Some(sessions) => {
                    let run = async |intake: SessionIntake| {
                        intake.run().await;
                        Vec::new()
                    };
                    let all = SessionIntake::all(&origin, &self.inbox, sessions).into_iter();
                    intakes.extend(all.map(|intake| tokio::spawn(run(intake))));
                }
            }
        }
    }
}

impl Options {
    /// Connects to the namespace of this connection string, as the Azure portal shows it; with
    /// `UseDevelopmentEmulator=true` without TLS. The rights of the key are checked when the transport is opened.
    ///
    /// # Errors
    ///
    /// When the connection string is malformed or for another entity, the options contradict each other, or the namespace
    /// cannot be reached or its certificate is not trusted.
    pub async fn connect(self, connection_string: &str) -> Result<ServiceBus, TransportError> {
        ServiceBus::open(self, Address::parse(connection_string)?).await
    }

    /// Connects to a namespace by its host name, `shop.servicebus.windows.net`, as an identity of Microsoft Entra ID; always
    /// on TLS. The identity is asked for a token for each entity, and again when half of the time is over that a token is good
    /// for; it has 30 s to answer. Its rights are checked when the transport is opened: it needs the roles `Azure Service
    /// Bus Data Receiver` and `Azure Service Bus Data Sender`.
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
    /// When that is no host name, the options contradict each other, or the namespace cannot be reached or its certificate is
    /// not trusted.
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
        // Whatever is missing is found here, before the first message is taken.
        topology::verify(&self.shared).await?;
        self.shared.locks.tell(signals);
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
        // Kept: once detached, the broker takes nothing back on a link, and what is in flight would wait for its lock to run out.
        let mut links = Vec::new();
        for intake in self.take_intakes() {
            // It ends by itself; had it panicked, there would be nothing left to end.
            links.extend(intake.await.unwrap_or_default());
        }
        self.keeper.abort();
        let unreceived = self.inbox.close();
        let mut reached = true;
        // All that is in flight, received or not; from here on its receipts are worth nothing.
        for (lock, held) in self.shared.locks.take_all() {
            if held.handle.release(&held.tag).await {
                continue;
            }
            // Its link is gone: given back it counts, but it need not wait for its lock to run out. Where nobody answers, the
            // others do not wait for that one by one.
            if reached {
                let given_back = match self.shared.connection.connection().await {
                    Ok(wire) => wire.settle(&held.entity, &[lock], &SettleAs::abandon()).await,
                    Err(error) => Err(error),
                };
                reached = !given_back.is_err_and(|error| error.refusal == Refusal::Interrupted);
            }
        }
        drop(unreceived);
        // Behind what was given back, and answered: the end of the connection may overtake what is still to be sent.
        join_all(links.into_iter().map(|(_, receiver)| receiver.close())).await;
        if let Some(wire) = self.shared.connection.close().await {
            wire.close().await;
        }
        info!(entity = %self.shared.entity(), "closed");
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
