//! The RabbitMQ transport keeps every clause of the contract, on both versions and both types of queues.

mod common;

use std::net::SocketAddr;
use std::sync::Mutex;

use common::Scene;
use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions};
use lapin::types::{AMQPValue, FieldTable};
use redrive_brokers::{Proxy, Version};
use redrive_core::{
    BoxError, Capabilities, Message, Needs, Received, SettleError, Settlement, Shelf, Shelves, Transport,
    TransportError, Value,
};
use redrive_rabbitmq::{QueueType, RabbitMq, Receipt};
use redrive_testkit::{Bench, Harness, conformance};

struct Rabbit {
    version: Version,
    queue_type: QueueType,
}

/// One work queue behind a fanout exchange, so that a neighbour can get the same messages.
struct Queue {
    scene: Scene,
    exchange: String,
    neighbours: Mutex<Vec<String>>,
    producer: RabbitMq,
}

/// A transport behind a proxy, so that its connections can be torn.
struct Proxied {
    transport: RabbitMq,
    proxy: Proxy,
}

impl Harness for Rabbit {
    type Bench = Queue;

    async fn bench(&self, clause: &'static str) -> Result<Queue, BoxError> {
        let broker = redrive_brokers::broker(self.version);
        let scene = Scene::new(&broker.url, clause, self.queue_type).await;
        Queue::new(scene, None).await
    }

    fn carries(&self, value: &Value) -> bool {
        // AMQP 0-9-1 as RabbitMQ speaks it has none of these.
        !matches!(value, Value::U64(_) | Value::Char(_) | Value::Uuid(_))
    }
}

impl Queue {
    async fn new(scene: Scene, exchange: Option<String>) -> Result<Self, BoxError> {
        let exchange = exchange.unwrap_or_else(|| format!("{}--topic", scene.queue));
        let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        scene
            .raw
            .exchange_declare(exchange.as_str().into(), ExchangeKind::Fanout, options, FieldTable::default())
            .await?;
        let producer = scene.options().connect(&scene.url).await?;
        Ok(Self { scene, exchange, neighbours: Mutex::default(), producer })
    }
}

impl Bench for Queue {
    type Transport = Proxied;

    async fn transport(&self) -> Result<Proxied, BoxError> {
        let proxy = Proxy::start(address(&self.scene.url)).await?;
        let url = self.scene.url.replace(&address(&self.scene.url).to_string(), &proxy.addr().to_string());
        let options = self.scene.options().delivery_limit(5).wait(std::time::Duration::from_millis(250));
        Ok(Proxied { transport: options.connect(&url).await?, proxy })
    }

    async fn publish(&self, message: Message) -> Result<(), BoxError> {
        let neighbours = self.neighbours.lock().unwrap().clone();
        for queue in neighbours.iter().chain([&self.scene.queue]) {
            let (queue, exchange) = (queue.as_str().into(), self.exchange.as_str().into());
            self.scene
                .raw
                .queue_bind(queue, exchange, "".into(), QueueBindOptions::default(), FieldTable::default())
                .await?;
        }
        Ok(self.producer.publish_to(&self.exchange, "from the publisher", message).await?)
    }

    async fn kill(&self, killed: &Proxied) -> Result<(), BoxError> {
        // What a dead process had written its machine still sends; the proxy must have forwarded it before the cut.
        let _ = killed.transport.shelves().count(Shelf::DeadLetter).await;
        killed.proxy.refuse(true);
        killed.proxy.cut();
        // Until the client has noticed, an acknowledgement still counts as given.
        while killed.transport.shelves().count(Shelf::DeadLetter).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn shelf(&self, shelf: Shelf) -> Result<Vec<Message>, BoxError> {
        let shelved = self.producer.shelves().browse(shelf, usize::MAX).await?;
        Ok(shelved.into_iter().map(|shelved| shelved.message).collect())
    }

    async fn shelves(&self) -> Result<Option<Box<dyn Shelves>>, BoxError> {
        Ok(Some(Box::new(self.producer.shelves())))
    }

    async fn set_shelf_writable(&self, shelf: Shelf, writable: bool) -> Result<bool, BoxError> {
        let queue = if shelf == Shelf::Parking { self.scene.parking() } else { self.scene.dead_letters() };
        self.scene.delete(&queue).await;
        let text = |text: &str| AMQPValue::LongString(text.into());
        let arguments = match (writable, self.scene.queue_type) {
            // A queue that is full from the beginning.
            (false, _) => {
                vec![("x-max-length", AMQPValue::LongInt(0)), ("x-overflow", text("reject-publish"))]
            }
            (true, QueueType::Classic) => vec![("x-queue-type", text("classic"))],
            (true, QueueType::Quorum) => vec![
                ("x-queue-type", text("quorum")),
                ("x-delivery-limit", AMQPValue::LongLongInt(i32::MAX.into())),
            ],
        };
        self.scene.declare_raw(&queue, &arguments).await;
        Ok(true)
    }

    async fn neighbour(&self) -> Result<Option<Self>, BoxError> {
        let scene = Scene::new(&self.scene.url, "neighbour", self.scene.queue_type).await;
        self.neighbours.lock().unwrap().push(scene.queue.clone());
        Ok(Some(Self::new(scene, Some(self.exchange.clone())).await?))
    }

    async fn tidy_up(&self) {
        self.producer.close().await;
        let _ = self
            .scene
            .raw
            .exchange_delete(self.exchange.as_str().into(), ExchangeDeleteOptions::default())
            .await;
        for wait in [100, 250, 400] {
            self.scene.delete(&self.scene.rung(wait)).await;
        }
        self.scene.tidy_up(&common::needs(&[60_000], 1)).await;
    }
}

impl Transport for Proxied {
    type Receipt = Receipt;

    fn capabilities(&self) -> Capabilities {
        self.transport.capabilities()
    }

    async fn start(&self, needs: &Needs) -> Result<(), TransportError> {
        self.transport.start(needs).await
    }

    async fn receive(&self) -> Result<Option<Received<Receipt>>, TransportError> {
        self.transport.receive().await
    }

    async fn settle(&self, receipt: Receipt, settlement: Settlement) -> Result<(), SettleError<Receipt>> {
        self.transport.settle(receipt, settlement).await
    }

    async fn pause(&self) -> Result<(), TransportError> {
        self.transport.pause().await
    }

    async fn resume(&self) -> Result<(), TransportError> {
        self.transport.resume().await
    }

    fn narrow(&self, most: Option<u32>) {
        self.transport.narrow(most);
    }

    fn interrupted_at(&self) -> Option<std::time::SystemTime> {
        self.transport.interrupted_at()
    }

    async fn close(&self) {
        self.transport.close().await;
    }
}

fn address(url: &str) -> SocketAddr {
    let host = url.rsplit('@').next().unwrap().split('/').next().unwrap();
    host.parse().expect("the broker's address is an IP address and a port")
}

mod v3_10 {
    use super::*;
    conformance!(classic, Rabbit { version: Version::V3_10, queue_type: QueueType::Classic });
    conformance!(quorum, Rabbit { version: Version::V3_10, queue_type: QueueType::Quorum });
}

mod v4_3 {
    use super::*;
    conformance!(classic, Rabbit { version: Version::V4_3, queue_type: QueueType::Classic });
    conformance!(quorum, Rabbit { version: Version::V4_3, queue_type: QueueType::Quorum });
}
