//! The test bench: each test has a queue or subscription on its own emulator.

#[cfg(feature = "rest")]
pub(crate) mod rest;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redrive_brokers::Proxy;
use redrive_contract::{Bench, Harness, eventually};
use redrive_core::{BoxError, Delivery, Message, Shelf, Shelves, header_names};
use redrive_servicebus::{Entity, Options, ServiceBus, Sessions};
use redrive_servicebus_emulator::amqp::Value;
use redrive_servicebus_emulator::{Emulator, EntityStatus, Settings, Topic};

/// The kind of entity that the clauses run on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Queue,
    /// A queue whose parked messages go to a separate queue, on a namespace without transactions.
    Plain,
    Subscription,
    /// A queue that requires sessions. Each message has its own session.
    Sessions,
}

pub(crate) struct OnEmulator(pub(crate) Kind);

pub(crate) struct Place {
    kind: Kind,
    emulator: Arc<Emulator>,
    name: &'static str,
    publisher: ServiceBus,
    /// Cuts the connections of transports, but not that of the publisher.
    proxy: Option<Arc<Proxy>>,
    /// The number of messages that were published with each id.
    published: Mutex<HashMap<String, usize>>,
}

impl Place {
    async fn new(kind: Kind, emulator: Arc<Emulator>, name: &'static str) -> Result<Self, BoxError> {
        let publisher = options(kind, name).connect(&emulator.connection_string()).await?;
        let address = ([127, 0, 0, 1], emulator.address().port()).into();
        let is_proxied = CUT.iter().any(|beginning| name.starts_with(beginning));
        let proxy = if is_proxied { Some(Arc::new(Proxy::start(address).await?)) } else { None };
        Ok(Self { kind, emulator, name, publisher, proxy, published: Mutex::default() })
    }

    fn in_next_session(&self, message: Message) -> Message {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let before = published.entry(message.id().unwrap_or_default().to_owned()).or_insert(0);
        let message = in_session(message, *before);
        *before += 1;
        message
    }

    async fn expire_locks_of_the_dead(&self, before: usize) -> Result<(), BoxError> {
        expire_locks_of_the_dead(&self.emulator, &self.entities(), before).await
    }

    /// Returns the entities that the transport reads.
    fn entities(&self) -> Vec<String> {
        match self.kind {
            Kind::Queue | Kind::Plain | Kind::Sessions => vec![self.name.to_owned()],
            Kind::Subscription => vec![format!("topic/Subscriptions/{}", self.name), retry_queue(self.name)],
        }
    }
}

/// Expires all locks when a connection has ended. `before` is the number of connections before that.
async fn expire_locks_of_the_dead(
    emulator: &Emulator,
    entities: &[String],
    before: usize,
) -> Result<(), BoxError> {
    // Until the broker notices, it may still deliver to the crashed process.
    eventually("the connection has ended", async || emulator.connections() < before).await;
    for entity in entities {
        emulator.entity(entity)?.expire_locks();
    }
    Ok(())
}

/// Returns true if a copy that was made `copies` times is in one of these entities.
fn has_copy(emulator: &Emulator, entities: &[String], copies: i64) -> bool {
    let messages = entities
        .iter()
        .filter_map(|entity| emulator.entity(entity).ok())
        .flat_map(|entity| entity.messages());
    let mut messages = messages.map(|found| found.message.application_properties.clone());
    messages.any(|properties| properties.get(header_names::HOP).and_then(Value::as_i64) == Some(copies))
}

/// The beginnings of the clauses that cut or silence connections.
const CUT: [&str; 5] = [
    "an_interruption",
    "what_is_said_of_a_copy_in_an_interruption",
    "a_copy_whose_confirmation_is_lost",
    "publishing_goes_on_after_an_interruption",
    "close_ends_on_a_dead_connection",
];

/// A lock that lasts longer than any stall of a machine, and less than the timeout of the suite.
const STALL: Duration = Duration::from_secs(60);

fn options(kind: Kind, name: &str) -> Options {
    let options = match kind {
        Kind::Queue => ServiceBus::options(name),
        Kind::Plain => ServiceBus::options(name)
            .parking_queue(parking_queue(name))
            .transactions(redrive_servicebus::Transactions::Off),
        Kind::Subscription => {
            ServiceBus::options(Entity::subscription("topic", name)).retry_queue(retry_queue(name))
        }
        // As many as any clause has in flight, accepted one after the other, so that they start in the order of their messages.
        Kind::Sessions => ServiceBus::options(name)
            .sessions(Sessions::concurrent(220).accepting(1).idle(Duration::from_millis(50))),
    };
    options.max_wait_time(STALL)
}

fn retry_queue(name: &str) -> String {
    format!("{name}-retry")
}

fn parking_queue(name: &str) -> String {
    format!("{name}-parking")
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    // Longer than the timeout of the suite: a message that is redelivered only because its lock expired was not given back.
    settings.lock_duration = Duration::from_secs(300);
    settings.max_message_size = 4 << 20;
    settings
}

impl Harness for OnEmulator {
    type Bench = Place;

    async fn bench(&self, clause: &'static str) -> Result<Place, BoxError> {
        const OTHER: &str = "neighbour";
        let builder = Emulator::builder();
        let builder = match self.0 {
            Kind::Queue => builder.queue(clause, settings()).queue(OTHER, settings()),
            Kind::Sessions => {
                let mut settings = settings();
                settings.requires_session = true;
                builder.queue(clause, settings.clone()).queue(OTHER, settings)
            }
            Kind::Plain => builder
                .queue(clause, settings())
                .queue(parking_queue(clause), settings())
                .queue(OTHER, settings())
                .queue(parking_queue(OTHER), settings()),
            Kind::Subscription => {
                let topic = Topic::new("topic", settings());
                let topic = topic.subscription(clause, settings()).subscription(OTHER, settings());
                builder
                    .topic(topic)
                    .queue(retry_queue(clause), settings())
                    .queue(retry_queue(OTHER), settings())
            }
        };
        Place::new(self.0, Arc::new(builder.start().await?), clause).await
    }

    fn as_published(&self, message: Message) -> Message {
        if self.0 == Kind::Sessions { in_session(message, 0) } else { message }
    }

    fn missing_queue(&self) -> Option<&'static str> {
        Some("no-such-queue")
    }

    fn refused(&self) -> Option<Message> {
        Some(Message::new(vec![0; 5 << 20]).with_id("refused"))
    }

    fn does_not_apply(&self, clause: &str) -> Option<String> {
        match clause {
            "process_death_counts_as_declared" | "a_message_at_the_delivery_limit_is_shelved"
                if self.0 == Kind::Sessions =>
            {
                Some(
                    "a session that ends with the connection of a dead process counts no delivery".to_owned(),
                )
            }
            "publishing_to_another_queue_reaches_only_that" if self.0 == Kind::Subscription => {
                Some("a subscription is published to through its topic".to_owned())
            }
            "replace_removes_exactly_its_entry" => {
                Some("nobody can send to a dead-letter queue of Service Bus".to_owned())
            }
            "a_message_without_an_id_gets_one" => {
                Some("Service Bus itself gives an id to a message that was sent without one".to_owned())
            }
            _ => None,
        }
    }
}

/// Returns a message in its own session. When it is published again it is in another session: one that is still held would
/// deliver it together with messages that are published after it.
fn in_session(mut message: Message, published_before: usize) -> Message {
    let session = format!("{}-{published_before}", message.id().unwrap_or("without an id"));
    message.properties_mut().session_id = Some(session);
    message
}

impl Bench for Place {
    type Transport = ServiceBus;

    async fn transport(&self) -> Result<ServiceBus, BoxError> {
        let mut address = self.emulator.connection_string();
        if let Some(proxy) = &self.proxy {
            let port = |port: u16| format!(":{port}");
            address = address.replace(&port(self.emulator.address().port()), &port(proxy.addr().port()));
        }
        Ok(options(self.kind, self.name).connect(&address).await?)
    }

    async fn publish(&self, message: Message) -> Result<(), BoxError> {
        let message = if self.kind == Kind::Sessions { self.in_next_session(message) } else { message };
        Ok(self.publisher.publish(message).await?)
    }

    async fn kill(&self, transport: &ServiceBus) -> Result<(), BoxError> {
        let before = self.emulator.connections();
        transport.crash().await;
        self.expire_locks_of_the_dead(before).await
    }

    async fn interrupt(&self, _transport: &ServiceBus) -> Result<bool, BoxError> {
        let Some(proxy) = &self.proxy else { return Ok(false) };
        let before = self.emulator.connections();
        // No process reconnects before the locks are released.
        proxy.refuse(true);
        proxy.cut();
        self.expire_locks_of_the_dead(before).await?;
        proxy.refuse(false);
        Ok(true)
    }

    async fn cut_after_copy(&self, _transport: &ServiceBus) -> Result<bool, BoxError> {
        // Elsewhere copy and removal are one transaction, and nothing lies between them.
        let has_transactions = matches!(self.kind, Kind::Queue | Kind::Subscription);
        let Some(proxy) = self.proxy.clone().filter(|_| !has_transactions) else { return Ok(false) };
        let (emulator, entities) = (Arc::clone(&self.emulator), self.entities());
        proxy.freeze_answers();
        tokio::spawn(async move {
            // The clause makes one copy before.
            eventually("the copy is stored", async || has_copy(&emulator, &entities, 2)).await;
            let before = emulator.connections();
            proxy.refuse(true);
            proxy.cut();
            proxy.thaw();
            let expired = expire_locks_of_the_dead(&emulator, &entities, before).await;
            proxy.refuse(false);
            expired.expect("the entities are there");
        });
        Ok(true)
    }

    async fn silence(&self, _transport: &ServiceBus) -> Result<bool, BoxError> {
        let Some(proxy) = &self.proxy else { return Ok(false) };
        proxy.freeze();
        Ok(true)
    }

    async fn lease_for(&self, lease: Duration) -> Result<bool, BoxError> {
        Ok(lease <= settings().lock_duration)
    }

    async fn set_writable(&self, place: redrive_contract::Place, writable: bool) -> Result<bool, BoxError> {
        use redrive_contract::Place as To;
        let status = if writable { EntityStatus::Active } else { EntityStatus::SendDisabled };
        let entity = match (place, self.kind) {
            (To::Queue | To::Waiting, Kind::Subscription) => retry_queue(self.name),
            (To::Waiting, Kind::Sessions) => return Ok(false),
            (To::Queue | To::Waiting, _) => self.name.to_owned(),
            (To::Shelf(Shelf::Parking), Kind::Plain) => parking_queue(self.name),
            // Nobody can be kept from dead-lettering, and a message of a session waits where it is.
            _ => return Ok(false),
        };
        self.emulator.set_status(&entity, status)?;
        Ok(true)
    }

    async fn lose(&self, _transport: &ServiceBus, delivery: &Delivery) -> Result<bool, BoxError> {
        for path in self.entities() {
            let entity = self.emulator.entity(&path)?;
            if let Some(session) = &delivery.message().properties().session_id {
                entity.expire_session_lock(session)?;
                return Ok(true);
            }
            let messages = entity.messages();
            let is_it = |id: &Value| id.as_text() == Some(delivery.id());
            if let Some(found) = messages.iter().find(|found| is_it(&found.message.properties.message_id)) {
                entity.expire_lock(found.sequence_number)?;
                return Ok(true);
            }
        }
        Err("the delivery is not on the emulator".into())
    }

    async fn shelf(&self, shelf: Shelf) -> Result<Vec<Message>, BoxError> {
        let shelved = self.publisher.shelves().browse(shelf, None, 10_000).await?.entries;
        Ok(shelved.into_iter().map(|shelved| shelved.message).collect())
    }

    async fn shelves(&self) -> Result<Option<Box<dyn Shelves>>, BoxError> {
        Ok(Some(Box::new(self.publisher.shelves())))
    }

    async fn depth(&self) -> Result<Option<u64>, BoxError> {
        let mut depth = 0;
        for entity in self.entities() {
            depth += self.emulator.entity(&entity)?.messages().len();
        }
        Ok(Some(depth as u64))
    }

    async fn neighbour(&self) -> Result<Option<Self>, BoxError> {
        Ok(Some(Self::new(self.kind, Arc::clone(&self.emulator), "neighbour").await?))
    }

    async fn tidy_up(&self) {
        self.emulator.crash().await;
    }
}
