//! How a consumer's transport is set up.

mod check;
mod connection;
mod consuming;
mod queues;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use redrive_core::{TransportError, TransportErrorKind, Value};

pub use connection::ConnectionOptions;

use crate::connections::{Connections, Ownership};
use crate::convert::value_to;
use crate::delay::{DeadLetters, Delay};
use crate::topology::{GivenNames, Plan, QueueType, Topology};
use crate::transport::RabbitMq;

const DEFAULT_DELIVERY_LIMIT: u32 = 20;
/// A quorum queue whose broker is killed within the first moments of its life comes back empty, confirmed messages
/// included; and it may refuse what is published in that time.
const DEFAULT_NEW_QUEUE_WAIT: Duration = Duration::from_secs(3);

/// One question to the broker in this time costs nothing, and a consumer that hears nothing notices within two of them.
const DEFAULT_IDLE_CHECK: Duration = Duration::from_secs(30);

/// How to connect and which queues to use; made by [`RabbitMq::options`].
///
/// ```no_run
/// # use redrive_rabbitmq::{QueueType, RabbitMq, Topology};
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let transport = RabbitMq::options("orders")
///     .queue_type(QueueType::Quorum)
///     .delivery_limit(50)
///     .argument("x-max-length", 100_000_i64)
///     .connect("amqp://localhost")
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until `connect`"]
pub struct Options {
    pub(crate) names: GivenNames,
    pub(crate) queue_type: QueueType,
    pub(crate) retry_queue_type: Option<QueueType>,
    pub(crate) delay: Delay,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) new_queue_wait: Duration,
    pub(crate) topology: Topology,
    pub(crate) delivery_limit: Option<u32>,
    pub(crate) native_dead_letter: Option<bool>,
    pub(crate) arguments: BTreeMap<String, Value>,
    pub(crate) more_waits: Vec<Duration>,
    pub(crate) shelves_shared_with: Vec<String>,
    /// Of the connections that are shared, where they are.
    pub(crate) connection: ConnectionOptions,
    /// An option that was given and means nothing on connections that others share.
    wants_own_connections: Option<&'static str>,
    pub(crate) ack_within: Duration,
    pub(crate) prefetch_up_to: Option<u16>,
    pub(crate) consumer_priority: Option<i32>,
    pub(crate) idle_check: Duration,
    pub(crate) consumer_timeout: Option<Duration>,
    #[cfg(feature = "management")]
    pub(crate) management_url: Option<String>,
}

impl Options {
    pub(crate) fn new(queue: &str) -> Self {
        Self {
            names: GivenNames::of(queue),
            queue_type: QueueType::default(),
            retry_queue_type: None,
            delay: Delay::default(),
            dead_letters: DeadLetters::default(),
            new_queue_wait: DEFAULT_NEW_QUEUE_WAIT,
            topology: Topology::default(),
            delivery_limit: None,
            native_dead_letter: None,
            arguments: BTreeMap::new(),
            more_waits: Vec::new(),
            shelves_shared_with: Vec::new(),
            connection: ConnectionOptions::default().name(format!("redrive {queue}")),
            wants_own_connections: None,
            ack_within: Duration::from_millis(5),
            prefetch_up_to: None,
            consumer_priority: None,
            idle_check: DEFAULT_IDLE_CHECK,
            consumer_timeout: None,
            #[cfg(feature = "management")]
            management_url: None,
        }
    }

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
        let connections = Connections::new(self.connection.addresses(urls)?, self.connection.clone());
        RabbitMq::open(self, connections, Ownership::Own).await
    }

    /// Takes connections that are there, and that other transports use too: for many consumers in one process. What is
    /// handed out, acknowledged and stored for one of them does not touch the others. But a connection that ends does so for
    /// all that share it: what all of them have in hand comes again.
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
        self.connection = connections.made_with().clone();
        self.check()?;
        RabbitMq::open(self, connections.clone(), Ownership::Shared).await
    }

    pub(crate) fn plan(&self) -> Result<Plan, TransportError> {
        let arguments = self.arguments.iter().map(|(name, value)| Ok((name.clone(), value_to(value)?)));
        let retry_queue_type = self.retry_queue_type.unwrap_or_else(|| self.delay.default_retry_queue_type());
        Ok(Plan {
            names: self.names.settled(&self.delay),
            queue_type: self.queue_type,
            retry_queue_type,
            topology: self.topology,
            native: match self.delay {
                Delay::Native(native) => Some(native),
                _ => None,
            },
            delivery_limit: self.delivery_limit.unwrap_or(DEFAULT_DELIVERY_LIMIT),
            arguments: arguments.collect::<Result<_, TransportError>>()?,
        })
    }

    /// True when what is rejected is known to reach the dead-letter queue. Rejected where the dead letters go elsewhere, or
    /// nowhere, a message would be gone.
    pub(crate) fn broker_dead_letters(&self) -> bool {
        let as_declared = self.topology == Topology::Declare && !self.changes_dead_lettering();
        self.native_dead_letter.unwrap_or(as_declared)
    }

    /// True when an argument changes where the dead letters of the work queue go, or whether they arrive.
    fn changes_dead_lettering(&self) -> bool {
        self.arguments.keys().any(|name| name.starts_with("x-dead-letter-") || name == "x-overflow")
    }
}

/// Without the TLS key.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("names", &self.names)
            .field("queue_type", &self.queue_type)
            .field("topology", &self.topology)
            .field("delay", &self.delay)
            .field("dead_letters", &self.dead_letters)
            .field("delivery_limit", &self.delivery_limit)
            .field("arguments", &self.arguments)
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}
