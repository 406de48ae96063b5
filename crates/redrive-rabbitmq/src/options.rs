//! How a consumer's transport is set up.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use lapin::tcp::{OwnedIdentity, OwnedTLSConfig};
use redrive_core::{TransportError, TransportErrorKind, Value};

use crate::address::Address;
use crate::convert::value_to;
use crate::topology::{Names, Plan, QueueType, Topology};
use crate::transport::RabbitMq;

const DEFAULT_DELIVERY_LIMIT: u32 = 20;
/// Names longer than this are no AMQP names; the rungs need room for their wait.
const LONGEST_NAME: usize = 255;
const LONGEST_RUNG_SUFFIX: usize = "-315360000000ms".len();

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
    pub(crate) names: Names,
    pub(crate) queue_type: QueueType,
    pub(crate) retry_queue_type: Option<QueueType>,
    pub(crate) topology: Topology,
    pub(crate) delivery_limit: Option<u32>,
    pub(crate) native_dead_letter: Option<bool>,
    pub(crate) arguments: BTreeMap<String, Value>,
    pub(crate) more_waits: Vec<Duration>,
    pub(crate) heartbeat: Duration,
    pub(crate) connection_name: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) confirm_timeout: Duration,
    pub(crate) publish_channels: usize,
    pub(crate) tls: OwnedTLSConfig,
}

impl Options {
    pub(crate) fn new(queue: &str) -> Self {
        Self {
            names: Names::of(queue),
            queue_type: QueueType::default(),
            retry_queue_type: None,
            topology: Topology::default(),
            delivery_limit: None,
            native_dead_letter: None,
            arguments: BTreeMap::new(),
            more_waits: Vec::new(),
            heartbeat: Duration::from_secs(10),
            connection_name: format!("redrive {queue}"),
            connect_timeout: Duration::from_secs(10),
            confirm_timeout: Duration::from_secs(30),
            publish_channels: 32,
            tls: OwnedTLSConfig::default(),
        }
    }

    /// The type of the work queue and of the shelves: quorum, unless told otherwise.
    pub fn queue_type(mut self, queue_type: QueueType) -> Self {
        self.queue_type = queue_type;
        self
    }

    /// The type of the delay queues: quorum, unless told otherwise, also beside a classic work queue. A classic delay
    /// queue passes on what expired without waiting for the disk of the queue that it goes to, and a broker that is
    /// killed just then can lose it. With [`Topology::Verify`] and [`Topology::Nothing`]: what they are.
    pub fn retry_queue_type(mut self, queue_type: QueueType) -> Self {
        self.retry_queue_type = Some(queue_type);
        self
    }

    /// Whether the queues are declared, only verified, or neither: declared, unless told otherwise.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = topology;
        self
    }

    /// After how many returns the broker takes a message off a quorum work queue: 20, unless told otherwise. With
    /// [`Topology::Verify`] and [`Topology::Nothing`]: what the queue has.
    pub fn delivery_limit(mut self, limit: u32) -> Self {
        self.delivery_limit = Some(limit);
        self
    }

    /// Whether the work queue's dead letters reach the dead-letter queue by themselves. Declared queues do; of others
    /// only you know.
    pub fn native_dead_letter(mut self, native: bool) -> Self {
        self.native_dead_letter = Some(native);
        self
    }

    /// The queue of dead letters: `{queue}--dead-letters`, unless told otherwise.
    pub fn dead_letter_queue(mut self, name: impl Into<String>) -> Self {
        self.names.dead_letters = name.into();
        self
    }

    /// The queue that only people take from: `{queue}--parking-lot`, unless told otherwise.
    pub fn parking_queue(mut self, name: impl Into<String>) -> Self {
        self.names.parking = name.into();
        self
    }

    /// What the names of the delay queues begin with: `{queue}--retry`, unless told otherwise; `-1000ms` is added.
    pub fn retry_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.names.retry_prefix = prefix.into();
        self
    }

    /// One more argument of the work queue, or another value for one of redrive's. Where it changes how the queue
    /// dead-letters, redrive no longer relies on that, unless [`native_dead_letter`](Self::native_dead_letter) says so.
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.arguments.insert(name.into(), value.into());
        self
    }

    /// A delay queue for one more wait, besides those that the retry policies ask for: for snoozes, and for waits that
    /// errors ask for.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.more_waits.push(wait);
        self
    }

    /// How often a sign of life is asked for, in whole seconds: 10 s, unless told otherwise. A dead connection is
    /// noticed after twice that time.
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// The name that the broker shows for the connections; what each is for is added.
    pub fn connection_name(mut self, name: impl Into<String>) -> Self {
        self.connection_name = name.into();
        self
    }

    /// How long connecting may take: 10 s, unless told otherwise.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long storing a copy may take: 30 s, unless told otherwise. After that it is not known whether it was
    /// stored, and the original stays.
    pub fn confirm_timeout(mut self, timeout: Duration) -> Self {
        self.confirm_timeout = timeout;
        self
    }

    /// How many copies may be on their way at once: 32, unless told otherwise. Each takes a channel of its own.
    pub fn publish_channels(mut self, channels: usize) -> Self {
        self.publish_channels = channels.max(1);
        self
    }

    /// Certificates (PEM) to trust besides those of the system.
    pub fn ca_certificates(mut self, pem: impl Into<String>) -> Self {
        self.tls.cert_chain = Some(pem.into());
        self
    }

    /// The certificate and key (PEM, PKCS #8) to show to the broker.
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls.identity = Some(OwnedIdentity::PKCS8 { pem: certificate.into(), key: key.into() });
        self
    }

    /// Connects to the broker at this URL, once: a broker that cannot be reached is an error now, and no endless wait.
    ///
    /// # Errors
    ///
    /// When the broker does not answer, refuses the credentials, or the options contradict each other.
    pub async fn connect(self, url: &str) -> Result<RabbitMq, TransportError> {
        self.check()?;
        let address = Address::parse(url, |name| std::env::var(name).ok())?;
        RabbitMq::open(self, address).await
    }

    pub(crate) fn plan(&self) -> Result<Plan, TransportError> {
        let arguments = self.arguments.iter().map(|(name, value)| Ok((name.clone(), value_to(value)?)));
        Ok(Plan {
            names: self.names.clone(),
            queue_type: self.queue_type,
            retry_queue_type: self.retry_queue_type.unwrap_or_default(),
            delivery_limit: self.delivery_limit.unwrap_or(DEFAULT_DELIVERY_LIMIT),
            arguments: arguments.collect::<Result<_, TransportError>>()?,
        })
    }

    /// True when an argument changes where the dead letters of the work queue go, or whether they arrive.
    pub(crate) fn changes_dead_lettering(&self) -> bool {
        self.arguments.keys().any(|name| name.starts_with("x-dead-letter-") || name == "x-overflow")
    }

    fn check(&self) -> Result<(), TransportError> {
        let refuse = |message: String| Err(TransportError::new(TransportErrorKind::Unsupported, message));
        let names = &self.names;
        for name in [&names.work, &names.dead_letters, &names.parking] {
            if name.is_empty() || name.len() > LONGEST_NAME {
                return refuse(format!(
                    "`{name}` is no name for a queue: it must have 1 to {LONGEST_NAME} bytes"
                ));
            }
        }
        if names.retry_prefix.len() + LONGEST_RUNG_SUFFIX > LONGEST_NAME {
            let most = LONGEST_NAME - LONGEST_RUNG_SUFFIX;
            return refuse(format!(
                "the names of the delay queues begin with `{}`, which is too long: set a retry_prefix of at most {most} bytes",
                names.retry_prefix
            ));
        }
        if names.work == names.dead_letters
            || names.work == names.parking
            || names.dead_letters == names.parking
        {
            return refuse(format!(
                "work, dead-letter and parking queue must be three queues, but are `{}`, `{}` and `{}`",
                names.work, names.dead_letters, names.parking
            ));
        }
        for (argument, option) in [("x-queue-type", "queue_type"), ("x-delivery-limit", "delivery_limit")] {
            if self.arguments.contains_key(argument) {
                return refuse(format!(
                    "redrive must know `{argument}`, and cannot when it is an argument: set it with `{option}`"
                ));
            }
        }
        if self.connect_timeout.is_zero() || self.confirm_timeout.is_zero() {
            return refuse(
                "a timeout of zero is over before RabbitMQ can answer: set connect_timeout and confirm_timeout to more"
                    .to_owned(),
            );
        }
        if self.delivery_limit == Some(0) {
            return refuse(
                "a delivery limit of 0 hands each message out once: ask for at least 1".to_owned(),
            );
        }
        Ok(())
    }
}

/// Without the TLS key.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("names", &self.names)
            .field("queue_type", &self.queue_type)
            .field("topology", &self.topology)
            .field("delivery_limit", &self.delivery_limit)
            .field("arguments", &self.arguments)
            .field("heartbeat", &self.heartbeat)
            .field("connection_name", &self.connection_name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_that_is_over_at_once_is_refused() {
        for options in [
            Options::new("orders").confirm_timeout(Duration::ZERO),
            Options::new("orders").connect_timeout(Duration::ZERO),
        ] {
            assert!(options.check().unwrap_err().to_string().contains("timeout of zero"));
        }
    }

    #[test]
    fn an_argument_does_not_contradict_an_option() {
        for argument in ["x-queue-type", "x-delivery-limit"] {
            let refused = Options::new("orders").argument(argument, 2_i64).check().unwrap_err();
            assert_eq!(refused.kind(), TransportErrorKind::Unsupported);
        }
        Options::new("orders").argument("x-max-length", 2_i64).check().unwrap();
    }
}
