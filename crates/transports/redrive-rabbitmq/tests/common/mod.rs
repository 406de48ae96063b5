//! What the tests against brokers share.
#![allow(dead_code, unreachable_pub, unused_imports)] // each test binary uses some of it

use std::time::Duration;

use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
    QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ErrorKind, ExchangeKind, Queue};
pub use redrive_brokers::emulator;
use redrive_brokers::{Emulated, Refusals, Version};
use redrive_contract::{Started, eventually, found};
use redrive_core::shelves::Selection;
use redrive_core::transport::{Needs, Planning, Received, Settlement};
use redrive_core::{
    Delivery, Disposition, Failure, Message, Publisher, Reason, Shelf, Shelves, Transport, TransportError,
    TransportErrorKind,
};
use redrive_rabbitmq::{Options, QueueType, RabbitMq, RabbitMqReceiver, Receipt};
use tokio::sync::Mutex;

/// How long anything may take to arrive on a busy machine. It only tells a hang from an answer.
pub const ARRIVAL: Duration = Duration::from_secs(180);

/// How often a queue is declared: a new quorum queue that has no leader within 5 s RabbitMQ gives up, and ends the connection
/// over it (`INTERNAL_ERROR`).
pub const TRIES: u32 = 10;

/// One queue of its own on one broker, deleted in the end.
pub struct Scene {
    pub url: String,
    pub queue: String,
    pub queue_type: QueueType,
    pub raw: Channel,
    connection: Connection,
}

impl Scene {
    pub async fn new(url: &str, test: &str, queue_type: QueueType) -> Self {
        show_logs();
        let queue = format!("test-{test}-{:08x}", fastrand::u32(..));
        let connection =
            Connection::connect(url, ConnectionProperties::default()).await.expect("the broker answers");
        let raw = connection.create_channel().await.expect("a channel");
        raw.confirm_select(ConfirmSelectOptions::default()).await.expect("confirm mode");
        Self { url: url.to_owned(), queue, queue_type, raw, connection }
    }

    /// Ends the connection of the scene itself.
    pub async fn close(self) {
        self.connection.close(200, "OK".into()).await.expect("closed");
    }

    /// Another channel: a missing queue closes it.
    pub async fn channel(&self) -> Channel {
        self.connection.create_channel().await.expect("a channel")
    }

    /// Asks for a queue, on a channel of its own.
    pub async fn find(&self, queue: &str) -> lapin::Result<Queue> {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        self.channel().await.queue_declare(queue.into(), options, FieldTable::default()).await
    }

    pub fn options(&self) -> Options {
        RabbitMq::options(&self.queue).queue_type(self.queue_type)
    }

    pub async fn started(&self, needs: &Needs) -> Started<RabbitMq> {
        let transport = self.options().connect(&self.url).await.expect("connected");
        Started::open(transport, needs).await.expect("started")
    }

    /// Publishes as any client does, with properties of its own making.
    pub async fn publish_raw(&self, queue: &str, body: &[u8], properties: BasicProperties) {
        publish_as_any(&self.raw, "", queue, body, properties).await;
    }

    pub async fn declare_raw(&self, queue: &str, arguments: &[(&str, AMQPValue)]) {
        declare(&self.url, queue, arguments).await.expect("declared");
    }

    pub async fn delete(&self, queue: &str) {
        self.raw.queue_delete(queue.into(), QueueDeleteOptions::default()).await.expect("deleted");
    }

    pub async fn purge(&self, queue: &str) {
        self.raw.queue_purge(queue.into(), QueuePurgeOptions::default()).await.expect("purged");
    }

    pub fn rung(&self, millis: u64) -> String {
        format!("{}--retry-{millis}ms", self.queue)
    }

    pub fn dead_letters(&self) -> String {
        format!("{}--dead-letters", self.queue)
    }

    pub fn parking(&self) -> String {
        format!("{}--parking-lot", self.queue)
    }

    /// Deletes the queues; those of the default ladder too.
    pub async fn tidy_up(&self, needs: &Needs) {
        let mut names = vec![self.queue.clone(), self.dead_letters(), self.parking()];
        names.extend(needs.waits.iter().map(|wait| self.rung(u64::try_from(wait.as_millis()).unwrap())));
        let spare = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600].map(|secs| 1000 * secs);
        names.extend([50, 100, 200, 500].into_iter().chain(spare).map(|rung| self.rung(rung)));
        for name in names {
            self.delete(&name).await;
        }
    }
}

/// Declares a durable queue on a connection of its own, and again if the connection ended over it. Any other refusal is returned at once.
pub async fn declare(url: &str, queue: &str, arguments: &[(&str, AMQPValue)]) -> lapin::Result<()> {
    const INTERNAL_ERROR: u16 = 541;
    for _ in 1..TRIES {
        match declare_once(url, queue, arguments).await {
            Err(failed) => match failed.kind() {
                ErrorKind::ProtocolError(refused) if refused.get_id() != INTERNAL_ERROR => {
                    return Err(failed);
                }
                _ => {}
            },
            declared => return declared,
        }
    }
    declare_once(url, queue, arguments).await
}

async fn declare_once(url: &str, queue: &str, arguments: &[(&str, AMQPValue)]) -> lapin::Result<()> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.into(), options, table(arguments)).await?;
    connection.close(200, "OK".into()).await
}

pub fn table(arguments: &[(&str, AMQPValue)]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        table.insert((*name).into(), value.clone());
    }
    table
}

/// Options for tests that kill no broker while a queue is new.
pub fn with_short_wait(scene: &Scene) -> Options {
    scene.options().new_queue_wait(Duration::from_millis(300))
}

pub async fn started(options: Options, scene: &Scene, needs: &Needs) -> Started<RabbitMq> {
    let transport = options.connect(&scene.url).await.expect("connected");
    Started::open(transport, needs).await.expect("started")
}

/// Publishes to an exchange as any client does; it must lead into a queue.
pub async fn publish_to(scene: &Scene, exchange: &str, key: &str, properties: BasicProperties) {
    publish_as_any(&scene.raw, exchange, key, b"body", properties).await;
}

/// What is refused is published again: see [`Refusals`].
pub async fn publish_as_any(
    raw: &Channel,
    exchange: &str,
    key: &str,
    body: &[u8],
    properties: BasicProperties,
) {
    let mut refusals = Refusals::default();
    loop {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sent = raw.basic_publish(exchange.into(), key.into(), options, body, properties.clone()).await;
        let confirmed = sent.expect("sent").await.expect("confirmed");
        let is_stored = confirmed.is_ack();
        assert!(confirmed.take_message().is_none(), "`{exchange}` with `{key}` leads into a queue");
        if is_stored {
            return;
        }
        refusals.try_again(format!("`{exchange}` with `{key}`")).await;
    }
}

/// Publishes as producers do where nothing ends the connection: see [`try_published`].
pub async fn publish(transport: &RabbitMq, message: Message) {
    published(&transport.publisher(), message).await;
}

/// The same through a publisher.
pub async fn published(publisher: &Publisher, message: Message) {
    try_published(publisher, message).await.expect("published");
}

/// The same. What is refused is published again: see [`Refusals`]. Any other error is returned.
pub async fn try_published(publisher: &Publisher, message: Message) -> Result<(), TransportError> {
    let mut refusals = Refusals::default();
    loop {
        match publisher.publish(message.clone()).await {
            Err(error) if error.kind() == TransportErrorKind::Full => refusals.try_again(error).await,
            answered => return answered,
        }
    }
}

/// Publishes where the test itself ends connections: nobody knows what became of a message that was on its way, so it may be there
/// twice.
pub async fn publish_at_least_once(transport: &RabbitMq, message: Message) {
    eventually("the message is stored", async || {
        let Err(error) = transport.publish(message.clone()).await else { return true };
        assert!(is_tried_again(error.kind()), "{error}");
        false
    })
    .await;
}

/// Returns true for a copy that was not stored, or not confirmed, through no fault of its own.
fn is_tried_again(kind: TransportErrorKind) -> bool {
    use TransportErrorKind::{NotSent, Unconfirmed, Unroutable};
    matches!(kind, NotSent | Unconfirmed | Unroutable)
}

/// Settles as consumers do where the test itself ends connections: a copy that was not stored is tried again. False when the delivery
/// was lost, and is redelivered.
pub async fn settles(transport: &Started<RabbitMq>, receipt: Receipt, settlement: Settlement) -> bool {
    let held = Mutex::new(Some(receipt));
    found("the delivery is settled", async || {
        let mut held = held.lock().await;
        let receipt = held.take().expect("a refusal gives it back");
        let Err(refused) = transport.settle(receipt, settlement.clone()).await else { return Some(true) };
        *held = refused.receipt;
        if held.is_none() {
            assert_eq!(refused.error.kind(), TransportErrorKind::Lost, "{}", refused.error);
            return Some(false);
        }
        let kind = refused.error.kind();
        assert!(is_tried_again(kind) || kind == TransportErrorKind::Full, "{}", refused.error);
        None
    })
    .await
}

/// Settles as consumers do where nothing ends the connection. A copy that is refused is tried again: see [`Refusals`].
pub async fn settle(transport: &Started<RabbitMq>, mut receipt: Receipt, settlement: Settlement) {
    let mut refusals = Refusals::default();
    while let Err(refused) = transport.settle(receipt, settlement.clone()).await {
        assert_eq!(refused.error.kind(), TransportErrorKind::Full, "{}", refused.error);
        receipt = refused.receipt.expect("a refusal gives it back");
        refusals.try_again(refused.error).await;
    }
}

pub async fn exchange(scene: &Scene, name: &str, kind: ExchangeKind) {
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    scene.raw.exchange_declare(name.into(), kind, durable, FieldTable::default()).await.expect("declared");
}

pub async fn bind(scene: &Scene, queue: &str, exchange: &str, key: &str) {
    let (options, none) = (QueueBindOptions::default(), FieldTable::default());
    scene.raw.queue_bind(queue.into(), exchange.into(), key.into(), options, none).await.expect("bound");
}

pub fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

pub async fn complete(transport: &Started<RabbitMq>, receipt: Receipt) {
    transport.settle(receipt, Settlement::Complete).await.expect("completed");
}

/// Deletes the queues and shelves of every mode, and these.
pub async fn tidy_up(scene: &Scene, more_queues: &[String], exchanges: &[String]) {
    let own =
        ["", "--dead-letters", "--parking-lot", "--failed"].map(|suffix| format!("{}{suffix}", scene.queue));
    for queue in own.iter().chain(more_queues) {
        scene.delete(queue).await;
    }
    for exchange in exchanges {
        let _ = scene.raw.exchange_delete(exchange.as_str().into(), Default::default()).await;
    }
}

/// Where the broker of this URL listens.
pub fn address(url: &str) -> std::net::SocketAddr {
    let address = url.rsplit('@').next().and_then(|rest| rest.split('/').next());
    address.expect("a host").parse().expect("an IP address and a port")
}

/// The logs, shown with a test that fails.
pub fn show_logs() {
    let filter = tracing_subscriber::EnvFilter::new("warn,redrive_rabbitmq=debug");
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
}

/// Needs with these waits.
pub fn needs(waits: &[u64], prefetch: u32) -> Needs {
    let mut needs = Needs::none();
    needs.waits = waits.iter().copied().map(Duration::from_millis).collect();
    needs.prefetch = prefetch;
    needs
}

/// The next delivery; fails when none comes in time.
pub async fn next<T: Transport<Receiver = RabbitMqReceiver>>(transport: &Started<T>) -> Received<Receipt> {
    transport.next_within(ARRIVAL).await
}

pub fn retry(transport: &Started<RabbitMq>, delivery: &Delivery, wait: Duration) -> Settlement {
    transport.plan(delivery, Disposition::Retry(wait, failure()))
}

/// Redrives all dead letters, and returns their number.
pub async fn redriven(shelves: &impl Shelves) -> u64 {
    let outcome = shelves.redrive(Shelf::DeadLetter, &Selection::All).await.expect("redriven");
    outcome.into_result().expect("redriven")
}

pub fn dead_letter(transport: &Started<RabbitMq>, delivery: &Delivery) -> Settlement {
    transport.plan(delivery, Disposition::DeadLetter(failure()))
}

pub fn failure() -> Failure {
    Failure::new(Reason::RetryableError, "as the test wants it")
}

pub fn message(id: impl Into<String>) -> Message {
    Message::new("body").with_id(id)
}

/// Returns the shared RabbitMQ of this version, as [`emulator`](redrive_brokers::emulator) does.
pub async fn rabbitmq(version: Version) -> Emulated {
    Emulated { url: redrive_brokers::broker(version).url, emulator: None }
}

/// Makes the tests of a file for {3.10, 4.3} × {classic, quorum}: `tests!(one, two)` expects `async fn one(scene: Scene)`, and runs it on
/// RabbitMQ itself, `tests!(emulator: one, two)` on the emulator.
#[macro_export]
macro_rules! tests {
    (emulator: $($test:ident),* $(,)?) => {
        $crate::tests! { @version as_3_10 emulator V3_10 $($test)* }
        $crate::tests! { @version as_4_3 emulator V4_3 $($test)* }
    };
    ($($test:ident),* $(,)?) => {
        $crate::tests! { @version v3_10 rabbitmq V3_10 $($test)* }
        $crate::tests! { @version v4_3 rabbitmq V4_3 $($test)* }
    };
    (@version $module:ident $on:ident $version:ident $($test:ident)*) => {
        mod $module {
            mod classic { $( $crate::tests! { @test $test $on $version Classic } )* }
            mod quorum { $( $crate::tests! { @test $test $on $version Quorum } )* }
        }
    };
    (@test $test:ident $on:ident $version:ident $queue_type:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let broker = $crate::common::$on(redrive_brokers::Version::$version).await;
            let queue_type = redrive_rabbitmq::QueueType::$queue_type;
            let scene = $crate::common::Scene::new(&broker.url, stringify!($test), queue_type).await;
            super::super::$test(scene).await;
        }
    };
}
