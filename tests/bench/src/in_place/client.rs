//! A consumer by AMQP 1.0 that settles in one frame: a retry is `modified` with a time and annotations of our own.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::{Connection, Receiver, Session};
use fe2o3_amqp_types::definitions::Fields;
use fe2o3_amqp_types::messaging::annotations::AnnotationKey;
use fe2o3_amqp_types::messaging::{Body, Modified};
use fe2o3_amqp_types::primitives::{Symbol, Timestamp, Value};

/// Which attempt comes next, on the message.
const ATTEMPT: &str = "x-redrive-attempt";
const ERROR: &str = "x-redrive-error";
/// RabbitMQ's own: not before.
const DELIVERY_TIME: &str = "x-opt-delivery-time";

/// One arrival of a message.
pub(super) struct Arrival {
    pub(super) id: u32,
    /// 1 the first time; then as the annotation says.
    pub(super) attempt: u32,
    /// How often the broker counted a failed delivery.
    pub(super) broker_count: u32,
    settles: fe2o3_amqp::link::delivery::DeliveryInfo,
}

/// The connection of a consumer, with its link.
pub(super) struct Client {
    receiver: Receiver,
    _session: SessionHandle<()>,
    _connection: ConnectionHandle<()>,
}

impl Client {
    /// Receives from a queue, with this many deliveries in flight at most.
    pub(super) async fn attach(address: SocketAddr, queue: &str, prefetch: u32) -> Result<Self> {
        Self::attach_as("guest", address, queue, prefetch).await
    }

    /// As a user whose password is its name.
    pub(super) async fn attach_as(
        user: &str,
        address: SocketAddr,
        queue: &str,
        prefetch: u32,
    ) -> Result<Self> {
        let sasl_profile = SaslProfile::Plain { username: user.to_owned(), password: user.to_owned() };
        let stream = tokio::net::TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut connection = Connection::builder()
            .container_id(format!("in-place-{}", std::process::id()))
            .hostname("localhost")
            .scheme("amqp")
            .idle_time_out(20_000_u32)
            .sasl_profile(sasl_profile)
            .open_with_stream(stream)
            .await
            .context("the connection was not opened")?;
        let windows = 4 * prefetch.max(2048);
        let mut session = Session::builder()
            .incoming_window(windows)
            .outgoing_window(windows)
            .begin(&mut connection)
            .await?;
        let mut receiver = Receiver::builder()
            .name("in-place")
            .source(format!("/queues/{queue}"))
            .credit_mode(CreditMode::Manual)
            .attach(&mut session)
            .await?;
        receiver.set_credit(prefetch).await?;
        Ok(Self { receiver, _session: session, _connection: connection })
    }

    pub(super) async fn next(&mut self) -> Result<Arrival> {
        let delivery = self.receiver.recv::<Body<Value>>().await?;
        let (settles, message) = delivery.into_parts();
        let annotation = |name: &str| {
            let annotations = message.message_annotations.as_ref()?;
            annotations.0.get(&name as &dyn AnnotationKey)
        };
        let number = |name| match annotation(name) {
            Some(Value::Int(number)) => Some(i64::from(*number)),
            Some(Value::Long(number)) => Some(*number),
            Some(Value::Ulong(number)) => i64::try_from(*number).ok(),
            _ => None,
        };
        let Body::Data(data) = &message.body else { anyhow::bail!("the body is no data") };
        let text: Vec<u8> = data.iter().flat_map(|part| part.0.iter().copied()).collect();
        let id = std::str::from_utf8(&text)?.trim_end().parse().context("the body is no number")?;
        Ok(Arrival {
            id,
            attempt: number(ATTEMPT).map_or(Ok(1), u32::try_from)?,
            broker_count: message.header.map_or(0, |header| header.delivery_count),
            settles,
        })
    }

    /// Takes more, as many as were settled.
    pub(super) async fn allow(&mut self, prefetch: u32) -> Result<()> {
        Ok(self.receiver.set_credit(prefetch).await?)
    }

    pub(super) async fn accept(&self, arrival: Arrival) -> Result<()> {
        Ok(self.receiver.accept(arrival.settles).await?)
    }

    /// Sends it back for the next attempt, not before `wait` is over, with this text.
    pub(super) async fn retry(&self, arrival: Arrival, wait: Duration, error: &str) -> Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let due_at = i64::try_from((now + wait).as_millis())?;
        let annotations = fields([
            (DELIVERY_TIME, Value::Timestamp(Timestamp::from_milliseconds(due_at))),
            (ATTEMPT, Value::Long(i64::from(arrival.attempt) + 1)),
            (ERROR, Value::String(error.to_owned())),
        ]);
        self.modify(arrival, false, annotations).await
    }

    /// Has the broker dead-letter it, with this text.
    pub(super) async fn dead_letter(&self, arrival: Arrival, error: &str) -> Result<()> {
        let annotations = fields([
            (ATTEMPT, Value::Long(i64::from(arrival.attempt))),
            (ERROR, Value::String(error.to_owned())),
        ]);
        self.modify(arrival, true, annotations).await
    }

    async fn modify(&self, arrival: Arrival, undeliverable_here: bool, annotations: Fields) -> Result<()> {
        let modified = Modified {
            delivery_failed: Some(true),
            undeliverable_here: Some(undeliverable_here),
            message_annotations: Some(annotations),
        };
        Ok(self.receiver.modify(arrival.settles, modified).await?)
    }
}

fn fields<const N: usize>(of: [(&str, Value); N]) -> Fields {
    of.into_iter().map(|(name, value)| (Symbol::from(name), value)).collect()
}
