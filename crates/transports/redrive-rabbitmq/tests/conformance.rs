//! The RabbitMQ transport keeps every clause of the contract, with each delay mode, on both versions and both types of queues, wherever the
//! mode is allowed: on the emulator, and on RabbitMQ itself where it does the waiting.

mod common;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use common::{Scene, TRIES};
use lapin::options::{ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, ErrorKind, ExchangeKind};
use redrive_brokers::{Emulated, Proxy, Version, emulated_on_rabbitmq};
use redrive_contract::{Bench, Harness, Place, conformance, eventually};
use redrive_core::shelves::Selection;
use redrive_core::transport::{Facts, Needs, OpenError, Signals};
use redrive_core::{
    BoxError, Message, Publisher, Shelf, Shelves, Transport, TransportError, TransportErrorKind, Value,
};
use redrive_rabbitmq::{Connections, Native, Options, QueueType, RabbitMq, RabbitMqReceiver, Staged};
use redrive_rabbitmq_emulator::Emulator;

struct Rabbit {
    on: On,
    version: Version,
    queue_type: QueueType,
    delay: Kind,
    way: Way,
}

/// How its transports are connected.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Plain,
    /// On connections that others could share.
    Shared,
}

#[derive(Clone, Copy, PartialEq)]
enum On {
    RabbitMq,
    /// One of its own for each clause; with `REDRIVE_TEST_ON_RABBITMQ=1` RabbitMQ.
    Emulator,
}

/// The delay modes.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Ladder,
    Native,
    SingleQueue,
    Staged,
}

/// Longer than any stall of a machine, and well within the patience of the suite.
const STALL: Duration = Duration::from_secs(60);
/// No broker is killed here: a new queue need only be ready to take messages.
const NEW_QUEUE_WAIT: Duration = Duration::from_millis(300);

/// One work queue behind a fanout exchange, so that a neighbour can get the same messages.
struct Queue {
    scene: Scene,
    delay: Kind,
    way: Way,
    exchange: String,
    neighbours: Mutex<Vec<String>>,
    producer: RabbitMq,
    emulator: Option<Arc<Emulator>>,
}

/// A transport behind a proxy, so that its connections can be torn.
struct Proxied {
    transport: RabbitMq,
    proxy: Arc<Proxy>,
}

impl Proxied {
    /// Asks the broker something on the connection that the deliveries come on. Each connection notices its end by itself, and
    /// where it is shared the shelves are counted on another.
    async fn asks_where_it_consumes(&self) -> Result<(), TransportError> {
        // Of no entry: it opens a channel, and takes nothing in flight. An empty page asks the broker nothing.
        let none = Selection::handles([]);
        self.transport.shelves().discard(Shelf::DeadLetter, &none).await.map(drop)
    }
}

impl Harness for Rabbit {
    type Bench = Queue;

    async fn bench(&self, clause: &'static str) -> Result<Queue, BoxError> {
        let Emulated { url, emulator } = match self.on {
            On::RabbitMq => common::rabbitmq(self.version).await,
            On::Emulator => common::emulator(self.version).await,
        };
        let scene = Scene::new(&url, clause, self.queue_type).await;
        Queue::new(scene, self.delay, self.way, None, emulator.map(Arc::new)).await
    }

    fn refuses_in_new_queues(&self) -> bool {
        let is_rabbitmq = matches!(self.on, On::RabbitMq) || emulated_on_rabbitmq();
        is_rabbitmq && self.version == Version::V3_10 && self.queue_type == QueueType::Quorum
    }

    fn missing_queue(&self) -> Option<&'static str> {
        Some("no-such-queue")
    }

    fn refused(&self) -> Option<Message> {
        // Its headers fit no frame.
        Some(Message::new("").with_id("refused").with_header("large", "l".repeat(200_000)))
    }

    fn does_not_apply(&self, clause: &str) -> Option<String> {
        let in_line =
            self.delay == Kind::SingleQueue && clause == "a_shorter_wait_is_not_held_up_by_a_longer_one";
        in_line
            .then(|| "all waits share one queue, and RabbitMQ expires messages at its head only".to_owned())
    }

    fn control_headers(&self) -> Vec<(&'static str, Value)> {
        let queue = |name: &str| Value::List(vec![name.into()]);
        vec![
            ("CC", queue("no-such-queue")),
            ("BCC", queue("no-such-queue")),
            ("x-delay", Value::I64(60_000)),
            ("x-delivery-count", Value::I64(4)),
            ("x-acquired-count", Value::I64(4)),
            ("x-death", Value::I64(4)),
            ("x-first-death-queue", "another".into()),
            ("x-stream-offset", Value::I64(1)),
        ]
    }

    fn carries(&self, value: &Value) -> bool {
        // AMQP 0-9-1 as RabbitMQ speaks it has none of these.
        !matches!(value, Value::U64(_) | Value::Char(_) | Value::Uuid(_))
    }
}

impl Queue {
    async fn new(
        scene: Scene,
        delay: Kind,
        way: Way,
        exchange: Option<String>,
        emulator: Option<Arc<Emulator>>,
    ) -> Result<Self, BoxError> {
        let exchange = exchange.unwrap_or_else(|| format!("{}--topic", scene.queue));
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        scene
            .raw
            .exchange_declare(exchange.as_str().into(), ExchangeKind::Fanout, durable, FieldTable::default())
            .await?;
        let producer = connected(options(&scene, delay, &exchange), &scene.url).await?;
        Ok(Self { scene, delay, way, exchange, neighbours: Mutex::default(), producer, emulator })
    }

    /// Leads what is published into the queue and its neighbours.
    async fn bind_all(&self) -> Result<(), BoxError> {
        let neighbours = self.neighbours.lock().unwrap().clone();
        for queue in neighbours.iter().chain([&self.scene.queue]) {
            let (queue, exchange) = (queue.as_str().into(), self.exchange.as_str().into());
            self.scene
                .raw
                .queue_bind(queue, exchange, "".into(), QueueBindOptions::default(), FieldTable::default())
                .await?;
        }
        Ok(())
    }

    /// Declares what is missing, as a consumer does when it starts.
    async fn declare_all(&self) -> Result<(), BoxError> {
        let transport = connected(options(&self.scene, self.delay, &self.exchange), &self.scene.url).await?;
        let mut needs = Needs::none();
        needs.waits = stages().map(Duration::from_millis).into();
        transport.open(&needs, Signals::ignored()).await?;
        transport.close().await;
        Ok(())
    }

    /// Returns the queue of copies that wait for 100 ms.
    fn short_wait(&self) -> String {
        match self.delay {
            Kind::Ladder | Kind::Native => self.scene.rung(100),
            Kind::SingleQueue => self.scene.dead_letters(),
            Kind::Staged => stage(&self.scene.queue, 100),
        }
    }

    fn dead_letters(&self) -> String {
        match self.delay {
            Kind::SingleQueue => format!("{}--failed", self.scene.queue),
            _ => self.scene.dead_letters(),
        }
    }
}

fn options(scene: &Scene, delay: Kind, exchange: &str) -> Options {
    let options = scene.options().new_queue_wait(NEW_QUEUE_WAIT).delivery_limit(5);
    let millis = Duration::from_millis;
    match delay {
        Kind::Ladder => options.wait(millis(250)),
        Kind::Native => options.delay(Native::between(millis(100), millis(400))),
        Kind::SingleQueue => {
            // What those who run it have, and what the type of the work queue promises.
            options.with_durable_dead_letter_backoff().retry_queue_type(scene.queue_type)
        }
        Kind::Staged => options.retry_queue_type(scene.queue_type).delay(stages().iter().fold(
            Staged::back_to(exchange).declared(true),
            |staged, &wait| {
                staged.stage(stage(&scene.queue, wait), millis(wait)).through(through(&scene.queue, wait))
            },
        )),
    }
}

/// Connected with connections of its own.
async fn connected(options: Options, url: &str) -> Result<RabbitMq, TransportError> {
    options.connect_timeout(STALL).confirm_timeout(2 * STALL).heartbeat(STALL).connect(url).await
}

/// Connected over connections that others could share.
async fn connected_over_shared(options: Options, url: &str) -> Result<RabbitMq, TransportError> {
    let shared = Connections::options().connect_timeout(STALL).confirm_timeout(2 * STALL).heartbeat(STALL);
    options.connect_over(&shared.connect(url).await?).await
}

fn stages() -> [u64; 4] {
    [100, 250, 400, 60_000]
}

fn stage(queue: &str, wait: u64) -> String {
    format!("{queue}.waits.{wait}")
}

fn through(queue: &str, wait: u64) -> String {
    format!("{queue}.in.{wait}")
}

impl Bench for Queue {
    type Transport = Proxied;

    async fn transport(&self) -> Result<Proxied, BoxError> {
        let proxy = Proxy::start(address(&self.scene.url)).await?;
        let url = self.scene.url.replace(&address(&self.scene.url).to_string(), &proxy.addr().to_string());
        let options = options(&self.scene, self.delay, &self.exchange);
        let transport = match self.way {
            Way::Plain => connected(options, &url).await?,
            Way::Shared => connected_over_shared(options, &url).await?,
        };
        Ok(Proxied { transport, proxy: Arc::new(proxy) })
    }

    async fn publish(&self, message: Message) -> Result<(), BoxError> {
        self.bind_all().await?;
        let key = "from the publisher";
        if message.id().is_none() {
            // A publisher of redrive gives it one.
            let (body, none) = (message.body(), BasicProperties::default());
            common::publish_as_any(&self.scene.raw, &self.exchange, key, body, none).await;
            return Ok(());
        }
        let publisher = self.producer.publisher_to_exchange(&self.exchange, key);
        Ok(common::try_published(&publisher, message).await?)
    }

    async fn kill(&self, killed: &Proxied) -> Result<(), BoxError> {
        // What is lost with the process is for other tests; here what was settled is settled.
        killed.transport.flush();
        // What a dead process had written its machine still sends; the proxy must have forwarded it before the cut.
        let _ = killed.asks_where_it_consumes().await;
        killed.proxy.refuse(true);
        killed.proxy.cut();
        // Until the client has noticed, an acknowledgement still counts as given.
        eventually("the client notices the cut", async || killed.asks_where_it_consumes().await.is_err())
            .await;
        // The client library refuses what was asked of the connection a moment before it shows the end of that. What is asked
        // next it answers after that.
        let _ = killed.asks_where_it_consumes().await;
        Ok(())
    }

    async fn interrupt(&self, transport: &Proxied) -> Result<bool, BoxError> {
        transport.proxy.cut();
        Ok(true)
    }

    async fn shelf(&self, shelf: Shelf) -> Result<Vec<Message>, BoxError> {
        let shelved = self.producer.shelves().browse(shelf, None, usize::MAX).await?.entries;
        Ok(shelved.into_iter().map(|shelved| shelved.message).collect())
    }

    async fn shelves(&self) -> Result<Option<Box<dyn Shelves>>, BoxError> {
        Ok(Some(Box::new(self.producer.shelves())))
    }

    async fn set_writable(&self, place: Place, writable: bool) -> Result<bool, BoxError> {
        let queue = match place {
            Place::Shelf(Shelf::Parking) => self.scene.parking(),
            Place::Shelf(_) => self.dead_letters(),
            Place::Waiting => self.short_wait(),
            _ => self.scene.queue.clone(),
        };
        self.scene.delete(&queue).await;
        if writable {
            self.declare_all().await?;
        } else {
            // A queue that is full from the beginning.
            let full =
                [("x-max-length", AMQPValue::LongInt(0)), ("x-overflow", common::text("reject-publish"))];
            common::declare(&self.scene.url, &queue, &full).await?;
        }
        Ok(true)
    }

    async fn cut_after_copy(&self, transport: &Proxied) -> Result<bool, BoxError> {
        // Longer than a copy is on its way, if the queue is never seen with it.
        const STORED: Duration = Duration::from_secs(3);
        let (proxy, raw) = (Arc::clone(&transport.proxy), self.scene.channel().await);
        let queue = self.short_wait();
        proxy.freeze_answers();
        tokio::spawn(async move {
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            let is_stored = async || {
                let queue = raw.queue_declare(queue.as_str().into(), passive, FieldTable::default()).await;
                queue.is_ok_and(|queue| queue.message_count() > 0)
            };
            let stored = eventually("the copy is stored", is_stored);
            let _ = tokio::time::timeout(STORED, stored).await;
            proxy.cut();
            proxy.thaw();
        });
        Ok(true)
    }

    async fn silence(&self, transport: &Proxied) -> Result<bool, BoxError> {
        transport.proxy.freeze();
        Ok(true)
    }

    async fn recreate_shelf(&self, shelf: Shelf) -> Result<bool, BoxError> {
        self.set_writable(Place::Shelf(shelf), true).await
    }

    async fn declared(&self) -> Result<Option<BTreeSet<String>>, BoxError> {
        let mut declared = BTreeSet::new();
        for queue in [self.scene.queue.clone(), self.dead_letters(), self.scene.parking(), self.short_wait()]
        {
            match self.scene.find(&queue).await {
                Ok(_) => drop(declared.insert(queue)),
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(declared))
    }

    async fn publish_foreign(&self) -> Result<usize, BoxError> {
        let headers = |name: &str, value: AMQPValue| {
            BasicProperties::default().with_headers(common::table(&[(name, value)]))
        };
        let foreign = [
            BasicProperties::default(),
            BasicProperties::default().with_message_id("".into()),
            headers("not-utf-8", AMQPValue::LongString(b"caf\xe9".to_vec().into())),
            headers("x-death", AMQPValue::LongInt(-1)),
            headers("x-delivery-count", common::text("many")),
            headers("x-acquired-count", AMQPValue::Void),
        ];
        self.bind_all().await?;
        let count = foreign.len();
        for properties in foreign {
            common::publish_as_any(&self.scene.raw, &self.exchange, "foreign", b"\xff\x00", properties).await;
        }
        Ok(count)
    }

    async fn neighbour(&self) -> Result<Option<Self>, BoxError> {
        let scene = Scene::new(&self.scene.url, "neighbour", self.scene.queue_type).await;
        self.neighbours.lock().unwrap().push(scene.queue.clone());
        Ok(Some(
            Self::new(scene, self.delay, self.way, Some(self.exchange.clone()), self.emulator.clone())
                .await?,
        ))
    }

    async fn tidy_up(&self) {
        self.producer.close().await;
        if self.emulator.is_some() {
            return;
        }
        let queue = &self.scene.queue;
        let (mut queues, mut exchanges) =
            (vec![queue.clone(), self.dead_letters(), self.scene.parking()], vec![]);
        match self.delay {
            Kind::Ladder | Kind::Native => {
                let rungs = [50, 100, 200, 250, 400, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];
                queues.extend(rungs.map(|wait| self.scene.rung(wait)));
            }
            Kind::SingleQueue => {
                queues.push(self.scene.dead_letters());
                exchanges.extend(["backoff", "retry"].map(|name| format!("{queue}--{name}")));
            }
            Kind::Staged => {
                queues.extend(stages().map(|wait| stage(queue, wait)));
                exchanges.extend(stages().map(|wait| through(queue, wait)));
            }
        }
        for queue in queues {
            self.scene.delete(&queue).await;
        }
        exchanges.push(self.exchange.clone());
        for exchange in exchanges {
            let _ = self.scene.raw.exchange_delete(exchange.into(), ExchangeDeleteOptions::default()).await;
        }
    }
}

impl Transport for Proxied {
    type Receiver = RabbitMqReceiver;

    fn queue(&self) -> &str {
        self.transport.queue()
    }

    fn publisher(&self) -> Publisher {
        self.transport.publisher()
    }

    async fn open(&self, needs: &Needs, signals: Signals) -> Result<(RabbitMqReceiver, Facts), OpenError> {
        let mut tries = 1;
        loop {
            match self.transport.open(needs, signals.clone()).await {
                // Ended by a broker that stalled: whoever runs a service opens it again.
                Err(error) if error.kind() == TransportErrorKind::Unreachable && tries < TRIES => tries += 1,
                opened => return opened,
            }
        }
    }

    async fn close(&self) {
        self.transport.close().await;
    }

    fn now(&self) -> SystemTime {
        self.transport.now()
    }
}

fn is_not_found(error: &lapin::Error) -> bool {
    const NOT_FOUND: u16 = 404;
    matches!(error.kind(), ErrorKind::ProtocolError(refused) if refused.get_id() == NOT_FOUND)
}

fn address(url: &str) -> SocketAddr {
    let host = url.rsplit('@').next().unwrap().split('/').next().unwrap();
    host.parse().expect("the broker's address is an IP address and a port")
}

/// A mode runs the groups of clauses that it can break.
macro_rules! mode {
    // The ladder and native delay, each with both types of queues.
    ($name:ident, $harness:expr, everything) => {
        conformance!($name, $harness);
    };
    // Other queues for what waits, and other arguments of the work queue: what leaves the work queue, what starts it, and what
    // operators send there. How deliveries come and how the intake pauses are those of the ladder.
    ($name:ident, $harness:expr, waits) => {
        conformance!($name, $harness, of [
            rescheduling, shelving, returning, dying, counting, refusing, closing, sharing, carrying, publishing, starting,
            operating, entries
        ]);
    };
    // Others' channels on the same connection: what opens, closes and loses channels and connections, and what is in flight then.
    // What a settlement stores is that of the ladder.
    ($name:ident, $harness:expr, connections) => {
        conformance!($name, $harness, of [
            removing, returning, dying, interrupting, losing, receiving, pausing, closing, sharing, publishing, starting, operating
        ]);
    };
    // Another reader of deliveries: what is delivered, acknowledged and copied. Publishers and operators do not take this way.
    ($name:ident, $harness:expr, deliveries) => {
        conformance!($name, $harness, of [
            removing, rescheduling, shelving, returning, dying, interrupting, losing, counting, receiving, pausing, closing, sharing,
            carrying, starting
        ]);
    };
}

macro_rules! modes {
    ($on:ident $version:ident: $($name:ident $queue_type:ident $delay:ident $way:ident $groups:ident,)*) => {
        $(mode!($name, Rabbit {
            on: On::$on,
            version: Version::$version,
            queue_type: QueueType::$queue_type,
            delay: Kind::$delay,
            way: Way::$way,
        }, $groups);)*
    };
}

// `contract` in the path has `cargo xtask test` run these in a step of their own, many at once.
mod v3_10 {
    mod contract {
        use super::super::*;
        modes!(RabbitMq V3_10:
            classic Classic Ladder Plain everything,
            quorum Quorum Ladder Plain everything,
        );
    }
}

mod v4_3 {
    mod contract {
        use super::super::*;
        modes!(RabbitMq V4_3:
            classic Classic Ladder Plain everything,
            quorum Quorum Ladder Plain everything,
            quorum_native Quorum Native Plain everything,
        );
    }
}

/// As both versions of RabbitMQ. The files are about what the contract does not ask and RabbitMQ's semantics decide.
mod emulator {
    mod closing;
    mod hour;
    mod interruptions;
    mod late_confirms;
    mod modes;
    mod preflight;
    mod publishing;
    mod refused;
    mod sharing;
    mod shelves;
    mod starting;
    mod story;
    mod subscribing;

    mod as_3_10 {
        use super::super::*;
        modes!(Emulator V3_10:
            classic Classic Ladder Plain everything,
            classic_single_queue Classic SingleQueue Plain waits,
            classic_staged Classic Staged Plain waits,
            classic_on_shared_connections Classic Ladder Shared connections,
            quorum Quorum Ladder Plain everything,
            quorum_single_queue Quorum SingleQueue Plain waits,
            quorum_staged Quorum Staged Plain waits,
        );
    }

    mod as_4_3 {
        use super::super::*;
        modes!(Emulator V4_3:
            classic Classic Ladder Plain everything,
            classic_single_queue Classic SingleQueue Plain waits,
            classic_staged Classic Staged Plain waits,
            quorum Quorum Ladder Plain everything,
            quorum_native Quorum Native Plain everything,
            quorum_single_queue Quorum SingleQueue Plain waits,
            quorum_staged Quorum Staged Plain waits,
            quorum_on_shared_connections Quorum Ladder Shared connections,
        );
    }
}
