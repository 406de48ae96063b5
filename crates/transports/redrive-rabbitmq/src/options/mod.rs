//! The options of a consumer's transport.

mod check;
mod connection;
mod consuming;
mod queues;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::transport::Needs;
use redrive_core::{TransportError, Value};

use crate::broker::QueueType;
use crate::connection::ConnectionOptions;
use crate::convert;
use crate::delay::{DeadLetters, Delay};
use crate::topology::{DeadLetterExchange, GivenNames, Plan, Topology, TopologyPlan};

const DEFAULT_DELIVERY_LIMIT: u32 = 20;
/// A new quorum queue whose broker is killed comes back empty, including confirmed messages, and may refuse messages in its first
/// moments.
const DEFAULT_NEW_QUEUE_WAIT: Duration = Duration::from_secs(3);

/// A request at this interval costs nothing. A consumer that gets nothing notices that within two intervals.
const DEFAULT_IDLE_CHECK: Duration = Duration::from_secs(30);

/// How to connect and which queues to use; made by [`RabbitMq::options`](crate::RabbitMq::options).
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
    pub(crate) dead_letter_exchange: Option<DeadLetterExchange>,
    pub(crate) bindings: Vec<(String, String)>,
    pub(crate) more_waits: Vec<Duration>,
    pub(crate) shelves_shared_with: Vec<String>,
    /// On shared connections: the options that they were made with.
    pub(crate) connection: ConnectionOptions,
    /// An option that was set and has no effect on shared connections.
    pub(crate) wants_own_connections: Option<&'static str>,
    pub(crate) attempts_from_deaths: bool,
    pub(crate) ack_within: Duration,
    pub(crate) prefetch_up_to: Option<u16>,
    pub(crate) consumer_priority: Option<i32>,
    pub(crate) idle_check: Duration,
    pub(crate) consumer_timeout: Option<Duration>,
    pub(crate) accepts_low_delivery_limit: bool,
    pub(crate) turn_within: Duration,
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
            dead_letter_exchange: None,
            bindings: Vec::new(),
            more_waits: Vec::new(),
            shelves_shared_with: Vec::new(),
            connection: ConnectionOptions::default().name(format!("redrive {queue}")),
            wants_own_connections: None,
            attempts_from_deaths: false,
            ack_within: Duration::from_millis(5),
            prefetch_up_to: None,
            consumer_priority: None,
            idle_check: DEFAULT_IDLE_CHECK,
            consumer_timeout: None,
            accepts_low_delivery_limit: false,
            turn_within: Duration::from_secs(15),
            #[cfg(feature = "management")]
            management_url: None,
        }
    }

    pub(crate) fn plan(&self) -> Result<Plan, TransportError> {
        let retry_queue_type = self.retry_queue_type.unwrap_or_else(|| self.delay.default_retry_queue_type());
        Ok(Plan {
            names: self.names.settled(self.delay.dead_letter_suffix()),
            queue_type: self.queue_type,
            retry_queue_type,
            topology: self.topology,
            delay_arguments: self.delay.work_queue_arguments(),
            delivery_limit: self.delivery_limit.unwrap_or(DEFAULT_DELIVERY_LIMIT),
            arguments: convert::arguments(&self.arguments)?,
            dead_letter_exchange: self.dead_letter_exchange.clone(),
            bindings: self.bindings.clone(),
        })
    }

    /// Returns what a consumer with these options needs on the broker. `waits` are those of its retry policies, which name the delay
    /// queues ([`RetryPolicy::waits`](redrive_core::RetryPolicy::waits)); without any, the default ones. Asks no broker. Leaves out
    /// exchanges of the application ([`bind`](Self::bind), [`Staged::back_to`](crate::Staged::back_to)).
    ///
    /// # Errors
    ///
    /// If the options contradict each other.
    pub fn topology_plan(
        &self,
        waits: impl IntoIterator<Item = Duration>,
    ) -> Result<TopologyPlan, TransportError> {
        self.check()?;
        let plan = Arc::new(self.plan()?);
        let mut needs = Needs::none();
        needs.waits.extend(waits);
        let delay = match &self.delay {
            Delay::Staged(staged) => staged.clone().declared(true).into(),
            other => other.clone(),
        };
        let waiting = delay.strategy(&plan, &needs, &self.more_waits).parts();
        let parts = plan.parts().into_iter().chain(waiting);
        Ok(TopologyPlan::new(parts.filter(|part| !part.is_other()).collect()))
    }

    /// Returns true if a rejected message is known to reach the dead-letter queue. Otherwise rejecting could lose it.
    pub(crate) fn broker_dead_letters(&self) -> bool {
        let as_declared = self.topology == Topology::Declare && !self.changes_dead_lettering();
        self.native_dead_letter.unwrap_or(as_declared)
    }

    /// Returns true if an argument changes where the dead letters of the work queue go, or whether they arrive.
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
