//! The test bench of the REST API: each test has a queue or subscription on its own emulator.

use std::sync::Arc;
use std::time::Duration;

use redrive_contract::{Bench, Harness, eventually};
use redrive_core::{BoxError, Message, Shelf, Shelves};
use redrive_servicebus::{Backend, Entity, Options, ServiceBus};
use redrive_servicebus_emulator::{Emulator, Settings, Topic};

/// The kind of entity that the clauses run on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Queue,
    /// A queue whose parked messages go to a separate queue.
    Subscription,
}

pub(crate) struct ByRest(pub(crate) Kind);

pub(crate) struct Place {
    kind: Kind,
    emulator: Arc<Emulator>,
    name: &'static str,
    publisher: ServiceBus,
}

impl Place {
    async fn new(kind: Kind, emulator: Arc<Emulator>, name: &'static str) -> Result<Self, BoxError> {
        let publisher = options(kind, name).connect(&address(&emulator)?).await?;
        Ok(Self { kind, emulator, name, publisher })
    }

    /// Returns the entities that the transport reads.
    fn entities(&self) -> Vec<String> {
        match self.kind {
            Kind::Queue => vec![self.name.to_owned()],
            Kind::Subscription => {
                vec![format!("topic/Subscriptions/{}", self.name), beside(self.name, "retry")]
            }
        }
    }

    fn waiting(&self) -> Result<usize, BoxError> {
        let waiting = self.entities().into_iter().map(|entity| Ok(self.emulator.entity(&entity)?.waiting()));
        waiting.sum()
    }
}

fn address(emulator: &Emulator) -> Result<String, BoxError> {
    emulator.http_connection_string().ok_or_else(|| "the emulator does not listen for HTTP".into())
}

fn options(kind: Kind, name: &str) -> Options {
    let options = match kind {
        Kind::Queue => ServiceBus::options(name),
        Kind::Subscription => ServiceBus::options(Entity::subscription("topic", name))
            .retry_queue(beside(name, "retry"))
            .parking_queue(beside(name, "parking")),
    };
    let options = options.backend(Backend::Rest).dead_letter_queue(beside(name, "dead"));
    // One request at a time, because the clauses depend on the order of messages.
    options.poll_wait(Duration::from_secs(1)).concurrent_polls(1)
}

fn beside(name: &str, what: &str) -> String {
    format!("{name}-{what}")
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    // Longer than any stall of a machine. A message that a request of a crashed process locks is redelivered after it, well
    // within the timeout of the suite.
    settings.lock_duration = Duration::from_secs(60);
    settings.max_message_size = 4 << 20;
    settings
}

/// Returns the settings of the shelf queues: browsing locks their messages repeatedly.
fn of_shelves() -> Settings {
    let mut settings = settings();
    settings.max_delivery_count = 2000;
    settings
}

impl Harness for ByRest {
    type Bench = Place;

    async fn bench(&self, clause: &'static str) -> Result<Place, BoxError> {
        const OTHER: &str = "neighbour";
        let mut builder = Emulator::builder().listen_http("127.0.0.1:0");
        let mut topic = Topic::new("topic", settings());
        for name in [clause, OTHER] {
            builder = builder.queue(beside(name, "dead"), of_shelves());
            builder = match self.0 {
                Kind::Queue => builder.queue(name, settings()),
                Kind::Subscription => {
                    topic = topic.subscription(name, settings());
                    let builder = builder.queue(beside(name, "parking"), of_shelves());
                    builder.queue(beside(name, "retry"), settings())
                }
            };
        }
        if self.0 == Kind::Subscription {
            builder = builder.topic(topic);
        }
        Place::new(self.0, Arc::new(builder.start().await?), clause).await
    }

    fn missing_queue(&self) -> Option<&'static str> {
        Some("no-such-queue")
    }

    fn refused(&self) -> Option<Message> {
        Some(Message::new(vec![0; 5 << 20]).with_id("refused"))
    }

    fn does_not_apply(&self, clause: &str) -> Option<String> {
        match clause {
            "publishing_to_another_queue_reaches_only_that" if self.0 == Kind::Subscription => {
                Some("a subscription is published to through its topic".to_owned())
            }
            "a_message_without_an_id_gets_one" => {
                Some("Service Bus itself gives an id to a message that was sent without one".to_owned())
            }
            "process_death_counts_as_declared" => Some(
                "a request that waits when its process dies may lock the message once more: one delivery too many".to_owned(),
            ),
            "a_shorter_wait_is_not_held_up_by_a_longer_one" => Some(
                "the REST API tells times in whole seconds: the waits of this clause end in the same one"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

impl Bench for Place {
    type Transport = ServiceBus;

    async fn transport(&self) -> Result<ServiceBus, BoxError> {
        Ok(options(self.kind, self.name).connect(&address(&self.emulator)?).await?)
    }

    async fn publish(&self, message: Message) -> Result<(), BoxError> {
        Ok(self.publisher.publish(message).await?)
    }

    async fn kill(&self, transport: &ServiceBus) -> Result<(), BoxError> {
        transport.crash().await;
        // Until the broker has handled all its requests, it may still deliver to the crashed process. No clause crashes one of
        // several.
        eventually("its requests have ended", async || self.waiting().is_ok_and(|waiting| waiting == 0))
            .await;
        for entity in self.entities() {
            self.emulator.entity(&entity)?.expire_locks();
        }
        Ok(())
    }

    async fn shelf(&self, shelf: Shelf) -> Result<Vec<Message>, BoxError> {
        let shelved = self.publisher.shelves().browse(shelf, None, 1000).await?.entries;
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
