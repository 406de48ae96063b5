//! A shop whose orders fail, the command line, and the page. Each test program uses a part of it.
#![allow(dead_code, reason = "each test program uses a part")]

mod program;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use lapin::options::QueueDeleteOptions;
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties};
#[cfg(unix)]
use redrive::memory::MemoryBroker;
use redrive::prelude::*;
use redrive::servicebus::Entity;
use redrive::{
    ConsumerHandle, IntoOutcome, NoRetry, Phase, Publisher, Report, TransportError, TransportErrorKind,
};
use redrive_brokers::{Proxy, Refusals, Version, broker};
use redrive_rabbitmq_emulator::Emulator as RabbitMqEmulator;
use redrive_servicebus_emulator::{Emulator, Settings, Topic};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[allow(unused_imports, reason = "each test program uses a part")]
pub(crate) use self::program::{Cli, Output, Page};

/// A queue of orders on a broker.
pub(crate) struct Shop {
    pub(crate) queue: String,
    /// The exchange or topic that its queue is one of several of.
    events: Option<String>,
    on: On,
}

enum On {
    RabbitMq {
        url: String,
        emulator: Option<Box<RabbitMqEmulator>>,
    },
    ServiceBus(Arc<Emulator>),
    /// In this process, which is the service.
    #[cfg(unix)]
    Memory(OwnBroker),
}

/// An in-process broker with a socket for operators.
#[cfg(unix)]
struct OwnBroker {
    broker: MemoryBroker,
    socket: redrive::ops::OperatorSocket,
    _folder: tempfile::TempDir,
}

impl Shop {
    /// Returns true if consumers can report what they handled.
    pub(crate) fn has_reports(&self) -> bool {
        !matches!(self.on, On::ServiceBus(_))
    }

    #[cfg(unix)]
    pub(crate) async fn memory() -> Self {
        Self::on_memory(MemoryBroker::new()).await
    }

    /// Each shelf has room for five messages.
    #[cfg(unix)]
    pub(crate) async fn small_memory() -> Self {
        Self::on_memory(MemoryBroker::with(redrive::memory::MemoryOptions::new().shelf_capacity(5))).await
    }

    #[cfg(unix)]
    async fn on_memory(broker: MemoryBroker) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = redrive::ops::OperatorSocket::builder().queue("orders", broker.shelves("orders"));
        let socket = socket.bind(folder.path().join("redrive.sock")).await.expect("it opens");
        Self {
            queue: "orders".into(),
            events: None,
            on: On::Memory(OwnBroker { broker, socket, _folder: folder }),
        }
    }

    /// Returns true if the broker keeps other machines from a shelf that a run works on.
    pub(crate) fn has_leases(&self) -> bool {
        matches!(self.on, On::RabbitMq { .. })
    }

    pub(crate) async fn rabbitmq(version: Version) -> Self {
        let broker = tokio::task::spawn_blocking(move || broker(version)).await.expect("a broker");
        let queue = format!("test-cli-{:x}", std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos());
        Self { queue, events: None, on: On::RabbitMq { url: broker.url.clone(), emulator: None } }
    }

    pub(crate) async fn rabbitmq_emulator(version: redrive_rabbitmq_emulator::Version) -> Self {
        let emulator = RabbitMqEmulator::builder().version(version).start().await.expect("started");
        let on = On::RabbitMq { url: emulator.url(), emulator: Some(Box::new(emulator)) };
        Self { queue: "orders".into(), events: None, on }
    }

    /// The same with its state in a file, so that it can crash and come back.
    pub(crate) async fn durable_rabbitmq_emulator() -> (Self, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let builder = RabbitMqEmulator::builder().state_file(folder.path().join("state"));
        let emulator = builder.start().await.expect("started");
        let on = On::RabbitMq { url: emulator.url(), emulator: Some(Box::new(emulator)) };
        (Self { queue: "orders".into(), events: None, on }, folder)
    }

    fn emulator(&self) -> &RabbitMqEmulator {
        let On::RabbitMq { emulator: Some(emulator), .. } = &self.on else {
            panic!("no emulator of RabbitMQ")
        };
        emulator
    }

    /// As in a service without redrive.
    pub(crate) async fn delete_parking_queue(&self) {
        let (channel, _connection) = self.channel().await;
        let queue = format!("{}--parking-lot", self.queue);
        channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.expect("deleted");
    }

    /// A proxy before the broker.
    pub(crate) async fn proxy(&self) -> Proxy {
        Proxy::start(self.emulator().address()).await.expect("it listens")
    }

    /// How often the broker counts that each dead letter came back from a client that died.
    pub(crate) async fn deaths_of_readers(&self) -> Vec<i64> {
        let (channel, _connection) = self.channel().await;
        let mut counts = Vec::new();
        let queue = format!("{}--dead-letters", self.queue);
        while let Some(got) =
            channel.basic_get(queue.as_str().into(), Default::default()).await.expect("an answer")
        {
            let headers = got.delivery.properties.headers().clone().unwrap_or_default();
            let count =
                headers.inner().get("x-delivery-count").and_then(lapin::types::AMQPValue::as_long_long_int);
            counts.push(count.unwrap_or_default());
        }
        counts
    }

    /// The broker ends like a killed process.
    pub(crate) async fn crash(&self) {
        self.emulator().crash().await;
    }

    pub(crate) async fn restart(&self) {
        self.emulator().restart().await.expect("started");
    }

    /// Three queues of one fanout exchange.
    pub(crate) async fn fanout(version: Version) -> Vec<Self> {
        let (mut shops, mut exchange) = (Vec::new(), String::new());
        for _ in 0..3 {
            let mut shop = Self::rabbitmq(version).await;
            if exchange.is_empty() {
                exchange = format!("{}-events", shop.queue);
            }
            shop.events = Some(exchange.clone());
            // Declares the queue.
            shop.publish(Message::new("0")).await;
            let service = shop.repaired().await;
            service.handled(1).await;
            service.stop().await;
            let (channel, _connection) = shop.channel().await;
            let (kind, nothing) = (lapin::ExchangeKind::Fanout, FieldTable::default());
            let (name, queue) = (exchange.as_str().into(), shop.queue.as_str().into());
            let declared = channel.exchange_declare(name, kind, Default::default(), nothing.clone());
            declared.await.expect("declared");
            let bound =
                channel.queue_bind(queue, exchange.as_str().into(), "".into(), Default::default(), nothing);
            bound.await.expect("bound");
            shops.push(shop);
        }
        shops
    }

    /// Two subscriptions of one topic.
    pub(crate) async fn subscriptions() -> Vec<Self> {
        let topic = Topic::new("events", Settings::default());
        let topic = ["stock", "bills"]
            .into_iter()
            .fold(topic, |topic, name| topic.subscription(name, Settings::default()));
        let builder = Emulator::builder().topic(topic);
        let builder =
            builder.queue("stock-retry", Settings::default()).queue("bills-retry", Settings::default());
        let emulator = Arc::new(builder.start().await.expect("started"));
        let shop = |name| Self {
            queue: format!("events/Subscriptions/{name}"),
            events: Some("events".into()),
            on: On::ServiceBus(Arc::clone(&emulator)),
        };
        ["stock", "bills"].map(shop).into()
    }

    pub(crate) async fn servicebus() -> Self {
        let builder = Emulator::builder().queue("orders", Settings::default());
        let emulator = builder.queue("orders-parking", Settings::default()).start().await.expect("started");
        Self { queue: "orders".into(), events: None, on: On::ServiceBus(Arc::new(emulator)) }
    }

    /// Five orders fail for good, for two reasons.
    pub(crate) async fn fail(&self) {
        let service = self.service(false).await;
        for order in 0..5 {
            let message =
                Message::new(format!("\"order {order} \u{1b}[31m\"")).with_id(format!("order-{order}"));
            self.publish(message).await;
        }
        service.handled(5).await;
        service.stop().await;
        self.has_shelved(5).await;
    }

    /// What waits in the queue fails for good.
    pub(crate) async fn fail_all(&self, count: u32) {
        let service = self.service(false).await;
        service.handled(count).await;
        service.stop().await;
    }

    /// One order fails for good, and says this wherever a message can say something.
    pub(crate) async fn fail_one(&self, said: &'static str) {
        let service = self.service_that(move |_| Err(format!("order 0: {said}"))).await;
        let text = format!("{said}\u{1b}[31m\u{202e}");
        let mut message = Message::new(format!("\"0 {text}\"")).with_id(&*text).with_header("said", &*text);
        message.properties_mut().kind = Some(said.into());
        self.publish(message).await;
        service.handled(1).await;
        service.stop().await;
        self.has_shelved(1).await;
    }

    /// The service, after its cause is repaired.
    pub(crate) async fn repaired(&self) -> Service {
        self.service(true).await
    }

    async fn service(&self, repaired: bool) -> Service {
        self.service_that(move |text| {
            let order: String = text.chars().filter(char::is_ascii_digit).collect();
            let order: u32 = order[..1].parse().expect("a number");
            match order {
                _ if repaired => Ok(()),
                0..3 => Err(format!("order {order}: no answer from the stock")),
                _ => Err(format!("order {order}: no such customer")),
            }
        })
        .await
    }

    /// A service that handles every message, and how often it handled each.
    pub(crate) async fn counting(&self) -> (Service, Arc<Mutex<HashMap<String, u32>>>) {
        let handled = Arc::<Mutex<HashMap<String, u32>>>::default();
        let counts = Arc::clone(&handled);
        let count = move |text: &str| {
            *counts.lock().unwrap().entry(text.to_owned()).or_default() += 1;
            Ok(())
        };
        (self.service_that(count).await, handled)
    }

    /// A service that has started: RabbitMQ 3.10 refuses messages for a quorum queue that somebody else is declaring.
    pub(crate) async fn service_that(
        &self,
        handle: impl Fn(&str) -> Result<(), String> + Clone + Send + Sync + 'static,
    ) -> Service {
        let (handled, seen) = watch::channel(0);
        let handler = move |body: Bytes| {
            handled.send_modify(|count| *count += 1);
            std::future::ready(handle(&String::from_utf8_lossy(&body)).permanent())
        };
        let (started, handle) = tokio::sync::oneshot::channel::<ConsumerHandle>();
        let queue = self.queue.clone();
        let running = match &self.on {
            On::RabbitMq { url, .. } => {
                let url = url.clone();
                let transport = async move { RabbitMq::options(&queue).connect(&url).await };
                tokio::spawn(consume(transport, handler, started))
            }
            On::ServiceBus(emulator) => {
                let secret = emulator.connection_string();
                let transport = async move { service_bus(&queue).connect(&secret).await };
                tokio::spawn(consume(transport, handler, started))
            }
            #[cfg(unix)]
            On::Memory(own) => {
                let transport = std::future::ready(Ok(own.broker.transport(queue)));
                tokio::spawn(consume(transport, handler, started))
            }
        };
        let handle = handle.await.expect("connected");
        handle.wait_for_health(|health| health.phase != Phase::Starting).await;
        Service { seen, handle, running }
    }

    /// A channel of RabbitMQ, and its connection.
    async fn channel(&self) -> (Channel, Connection) {
        let On::RabbitMq { url, .. } = &self.on else { panic!("not on RabbitMQ") };
        let connection = Connection::connect(url, ConnectionProperties::default()).await.expect("connected");
        (connection.create_channel().await.expect("a channel"), connection)
    }

    /// Publishes to all that have the same events.
    pub(crate) async fn publish_event(&self, message: Message) {
        let events = self.events.as_deref().expect("it has events");
        let On::ServiceBus(emulator) = &self.on else {
            let body = message.body().to_vec();
            let id = message.id().unwrap_or_default().into();
            let properties = lapin::BasicProperties::default().with_delivery_mode(2).with_message_id(id);
            let (channel, _connection) = self.channel().await;
            channel.confirm_select(Default::default()).await.expect("confirms");
            let sent = channel.basic_publish(events.into(), "".into(), Default::default(), &body, properties);
            sent.await.expect("sent").await.expect("stored");
            return;
        };
        let transport = service_bus(&self.queue).connect(&emulator.connection_string()).await;
        transport.expect("connected").publisher().to(events).publish(message).await.expect("stored");
    }

    /// Deletes the queues: the broker is shared.
    pub(crate) async fn tidy_up(&self) {
        if !matches!(self.on, On::RabbitMq { .. }) {
            return;
        }
        let (channel, _connection) = self.channel().await;
        if let Some(exchange) = &self.events {
            channel.exchange_delete(exchange.as_str().into(), Default::default()).await.expect("deleted");
        }
        for queue in ["", "--dead-letters", "--parking-lot"].map(|end| format!("{}{end}", self.queue)) {
            channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.expect("deleted");
        }
    }

    pub(crate) async fn publish(&self, message: Message) {
        match &self.on {
            On::RabbitMq { url, .. } => {
                let publisher = RabbitMq::connect(url, &self.queue).await.expect("connected").publisher();
                published(&publisher, message).await;
            }
            On::ServiceBus(emulator) => {
                let transport = service_bus(&self.queue).connect(&emulator.connection_string()).await;
                transport.expect("connected").publish(message).await.expect("stored");
            }
            #[cfg(unix)]
            On::Memory(own) => own.broker.publish(&self.queue, message).expect("stored"),
        }
    }

    pub(crate) async fn shelves(&self) -> Box<dyn Shelves> {
        match &self.on {
            On::RabbitMq { url, .. } => {
                Box::new(RabbitMq::connect(url, &self.queue).await.expect("connected").shelves())
            }
            On::ServiceBus(emulator) => {
                let transport = service_bus(&self.queue).connect(&emulator.connection_string()).await;
                Box::new(transport.expect("connected").shelves())
            }
            #[cfg(unix)]
            On::Memory(own) => Box::new(own.broker.shelves(&self.queue)),
        }
    }

    pub(crate) async fn shelved(&self) -> u64 {
        self.shelves().await.count(Shelf::DeadLetter).await.expect("counted")
    }

    /// Waits until so many are on the shelf. RabbitMQ does not count what somebody reads, and gives it back a moment later.
    pub(crate) async fn has_shelved(&self, count: u64) {
        let settled = async {
            while self.shelved().await != count {
                // The broker in this process never waits by itself.
                tokio::task::yield_now().await;
            }
        };
        let limit = std::time::Duration::from_secs(60);
        if tokio::time::timeout(limit, settled).await.is_err() {
            assert_eq!(self.shelved().await, count, "on the shelf");
        }
    }

    /// Publishes many messages.
    pub(crate) async fn publish_all(&self, messages: Vec<Message>) {
        let publisher = match &self.on {
            On::RabbitMq { url, .. } => {
                RabbitMq::connect(url, &self.queue).await.expect("connected").publisher()
            }
            On::ServiceBus(_) => panic!("not on Service Bus"),
            #[cfg(unix)]
            On::Memory(own) => own.broker.transport(&self.queue).publisher(),
        };
        for (message, stored) in messages.iter().zip(publisher.publish_all(messages.clone()).await) {
            if let Err(error) = stored {
                assert_eq!(error.kind(), TransportErrorKind::Full, "{error}");
                Refusals::default().try_again(error).await;
                published(&publisher, message.clone()).await;
            }
        }
    }

    /// Nothing can be stored on the dead-letter shelf.
    #[cfg(unix)]
    pub(crate) fn set_writable(&self, writable: bool) {
        let On::Memory(own) = &self.on else { panic!("not in this process") };
        own.broker.set_shelf_writable(&self.queue, Shelf::DeadLetter, writable);
    }

    /// Takes the first message of the shelf, as a client that reads it: until the channel is closed, nobody else sees it.
    pub(crate) async fn hold_first(&self) -> (Channel, Connection) {
        let (channel, connection) = self.channel().await;
        let queue = format!("{}--dead-letters", self.queue);
        let got = channel.basic_get(queue.as_str().into(), Default::default()).await.expect("read");
        assert!(got.is_some(), "a message");
        (channel, connection)
    }

    /// Consumes the shelf, and holds as many messages until the channel is closed.
    pub(crate) async fn consume_shelf(&self, messages: u16) -> (Channel, impl Sized) {
        let (channel, connection) = self.channel().await;
        let queue = format!("{}--dead-letters", self.queue);
        channel.basic_qos(messages, Default::default()).await.expect("limited");
        let (options, arguments) = (Default::default(), Default::default());
        let consuming = channel.basic_consume(queue.as_str().into(), "theirs".into(), options, arguments);
        let consumer = consuming.await.expect("consumes");
        (channel, (connection, consumer))
    }

    /// Nobody can send to a dead-letter queue of Service Bus.
    pub(crate) fn takes_restored(&self) -> bool {
        !matches!(self.on, On::ServiceBus(_))
    }

    /// The messages on the shelf, in order, with all headers.
    pub(crate) async fn shelf(&self) -> Vec<Message> {
        let page = self.shelves().await.browse(Shelf::DeadLetter, None, 100).await.expect("a page");
        page.entries.into_iter().map(|entry| entry.message).collect()
    }
}

/// Publishes as producers do: what is refused is published again, see [`Refusals`].
async fn published(publisher: &Publisher, message: Message) {
    let mut refusals = Refusals::default();
    while let Err(error) = publisher.publish(message.clone()).await {
        assert_eq!(error.kind(), TransportErrorKind::Full, "{error}");
        refusals.try_again(error).await;
    }
}

/// Tells a process to end, as a machine that shuts down does it.
#[cfg(unix)]
pub(crate) fn tell_to_end(process: &tokio::process::Child) {
    signal(process, rustix::process::Signal::TERM);
}

#[cfg(unix)]
pub(crate) fn signal(process: &tokio::process::Child, signal: rustix::process::Signal) {
    use rustix::process::{Pid, kill_process};

    let id = process.id().and_then(|id| Pid::from_raw(id.try_into().expect("an id")));
    kill_process(id.expect("it runs"), signal).expect("told");
}

/// `TOPIC/Subscriptions/NAME`, or a queue.
fn service_bus(queue: &str) -> redrive::servicebus::Options {
    match queue.split_once("/Subscriptions/") {
        Some((topic, name)) => {
            ServiceBus::options(Entity::subscription(topic, name)).retry_queue(format!("{name}-retry"))
        }
        None => ServiceBus::options(Entity::queue(queue)),
    }
}

async fn consume<T: Transport, R: IntoOutcome + Send + 'static>(
    transport: impl Future<Output = Result<T, TransportError>>,
    handler: impl Fn(Bytes) -> std::future::Ready<R> + Clone + Send + Sync + 'static,
    started: tokio::sync::oneshot::Sender<ConsumerHandle>,
) -> Result<Report, BoxError> {
    let consumer = Consumer::new(transport.await?).with_dead_letter_backoff(DeadLetterBackoff::new(NoRetry));
    let runner = consumer.handler(handler);
    let _ = started.send(runner.handle());
    Ok(runner.run().await?)
}

/// A consumer that runs.
pub(crate) struct Service {
    seen: watch::Receiver<u32>,
    handle: ConsumerHandle,
    running: JoinHandle<Result<Report, BoxError>>,
}

impl Service {
    pub(crate) fn count(&self) -> u32 {
        *self.seen.borrow()
    }

    /// Waits until this many messages were handled.
    pub(crate) async fn handled(&self, count: u32) {
        let mut seen = self.seen.clone();
        let limit = std::time::Duration::from_secs(180);
        let waited = tokio::time::timeout(limit, seen.wait_for(|seen| *seen >= count)).await;
        waited.expect("handled in time").expect("the service runs");
    }

    pub(crate) async fn stop(self) {
        self.handle.stop();
        self.running.await.expect("no panic").expect("it ends in order");
    }
}
