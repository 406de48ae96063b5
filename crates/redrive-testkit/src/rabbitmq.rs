//! The emulator of RabbitMQ, on its own clock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redrive_consumer::Runner;
use redrive_core::{Disposition, Message, Shelf, Shelves, Value};
use redrive_rabbitmq::{RabbitMq, RabbitMqShelves};
use redrive_rabbitmq_emulator::{Emulator, MessageView};

use crate::TestConsumer;
use crate::record::{AttemptRecord, End, PublishedMessage};
use crate::recorder::{Clock, Recorder};
use crate::test_broker::TestBroker;

/// How long the consumer gets for what it is doing before the clock is looked at again.
const WORK: Duration = Duration::from_millis(1);

/// The emulator of RabbitMQ under a [`TestConsumer`].
pub struct OnRabbitMqEmulator {
    emulator: Arc<Emulator>,
    shelves: RabbitMqShelves,
    queue: String,
    clock: Clock,
}

impl TestConsumer<OnRabbitMqEmulator> {
    /// Creates a test of the consumer that `make` returns, on the RabbitMQ emulator: with the queues, exchanges and waits that the
    /// service has on RabbitMQ. `transport` is connected to `emulator`, which has a
    /// [virtual clock](redrive_rabbitmq_emulator::Builder::virtual_clock).
    ///
    /// Waits in delay queues pass at once, on the emulator's clock; waits in the process take their time, and tokio's clock must
    /// not be paused. The end of a message is known from its last attempt: a message that a handler publishes to its own queue
    /// with a wait is not waited for.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    ///
    /// use redrive_consumer::Consumer;
    /// use redrive_core::{BoxError, Message, Reason, secs};
    /// use redrive_rabbitmq::RabbitMq;
    /// use redrive_rabbitmq_emulator::Emulator;
    /// use redrive_testkit::TestConsumer;
    ///
    /// async fn ship(order: String) -> Result<(), BoxError> {
    ///     Err(format!("no carrier takes {order}").into())
    /// }
    ///
    /// let emulator = Arc::new(Emulator::builder().virtual_clock().start().await?);
    /// // New queues of the emulator need no time.
    /// let orders = RabbitMq::options("orders").new_queue_wait(secs(0));
    /// let orders = orders.connect(&emulator.url()).await?;
    /// let run = TestConsumer::on_rabbitmq(Arc::clone(&emulator), orders, |orders| {
    ///     Consumer::new(orders).with_dead_letter_backoff([secs(10), secs(3600)]).handler(ship)
    /// })
    /// .send(Message::new("a piano").with_id("order-1"))
    /// .run()
    /// .await;
    /// run.assert("order-1")
    ///     .attempts_at([secs(0), secs(10), secs(3610)])
    ///     .dead_lettered(Reason::MaxDeliveryCountExceeded);
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// If the consumer consumes another queue.
    pub fn on_rabbitmq(
        emulator: Arc<Emulator>,
        transport: RabbitMq,
        make: impl FnOnce(RabbitMq) -> Runner<RabbitMq>,
    ) -> Self {
        let publisher = transport.publisher();
        let (of, began) = (Arc::clone(&emulator), emulator.now());
        let broker = OnRabbitMqEmulator {
            emulator,
            shelves: transport.shelves(),
            queue: publisher.destination().to_owned(),
            clock: Arc::new(move || of.now().since(began)),
        };
        Self::on(broker, publisher, make(transport))
    }

    /// Returns the emulator, to inspect it or to make it fail.
    #[must_use]
    pub fn emulator(&self) -> &Emulator {
        &self.broker.emulator
    }
}

impl fmt::Debug for OnRabbitMqEmulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnRabbitMqEmulator").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl OnRabbitMqEmulator {
    /// Returns true if the consumer has nothing to do before some time has passed.
    fn is_idle(&self) -> bool {
        let vhost = self.emulator.default_vhost().expect("the emulator has it");
        vhost.queue(&self.queue).is_ok_and(|queue| queue.counts.ready == 0 && queue.counts.unacked == 0)
    }
}

impl TestBroker for OnRabbitMqEmulator {
    fn begin(&mut self) {
        let (of, began) = (Arc::clone(&self.emulator), self.emulator.now());
        self.clock = Arc::new(move || of.now().since(began));
    }

    fn clock(&self) -> Clock {
        Arc::clone(&self.clock)
    }

    fn is_empty(&self, sent: &[Message], recorder: &Recorder) -> bool {
        self.is_idle() && unended(sent, &recorder.records()).is_empty()
    }

    async fn pass(&self, rest: Duration) {
        match self.emulator.next_deadline() {
            Some(next) if self.is_idle() => self.emulator.advance(next.since(self.emulator.now()).min(rest)),
            _ => tokio::time::sleep(WORK).await,
        }
    }

    fn shelves(&self) -> &dyn Shelves {
        &self.shelves
    }

    async fn places(&self, sent: &[Message], attempts: &[AttemptRecord]) -> Vec<(End, Message)> {
        let mut places = unended(sent, attempts);
        for (shelf, end) in [(Shelf::DeadLetter, End::DeadLettered), (Shelf::Parking, End::Parked)] {
            let page = self.shelves.browse(shelf, None, usize::MAX).await;
            let page = page.unwrap_or_else(|error| panic!("the {shelf} shelf cannot be read: {error}"));
            places.extend(page.entries.into_iter().map(|entry| (end, entry.message)));
        }
        places
    }

    fn published(&self) -> BTreeMap<String, Vec<PublishedMessage>> {
        let vhost = self.emulator.default_vhost().expect("the emulator has it");
        let own = format!("{}--", self.queue);
        let others = vhost.queues().into_iter().map(|queue| queue.name);
        let others = others.filter(|name| *name != self.queue && !name.starts_with(&own));
        let published = others.map(|name| {
            let messages = vhost.messages(&name).unwrap_or_default();
            let shown = |view: &MessageView| PublishedMessage { message: message(view), due: None };
            (name, messages.iter().map(shown).collect::<Vec<_>>())
        });
        published.filter(|(_, messages)| !messages.is_empty()).collect()
    }
}

/// Returns the messages that have not ended, by their last attempts, and where they are.
fn unended(sent: &[Message], attempts: &[AttemptRecord]) -> Vec<(End, Message)> {
    let mut last: BTreeMap<&str, (Option<&AttemptRecord>, &Message)> = BTreeMap::new();
    for message in sent {
        last.insert(message.id().unwrap_or_default(), (None, message));
    }
    for attempt in attempts {
        last.insert(attempt.id(), (Some(attempt), &attempt.message));
    }
    let place = |(attempt, message): (Option<&AttemptRecord>, &Message)| {
        let end = match attempt {
            None => End::Ready,
            Some(AttemptRecord { not_settled: Some(_), .. } | AttemptRecord { disposition: None, .. }) => {
                End::InFlight
            }
            Some(attempt) => match (attempt.next_at(), &attempt.disposition) {
                (Some(next), _) => End::Waiting(next),
                (None, Some(Disposition::Release)) => End::Ready,
                (None, _) => return None,
            },
        };
        Some((end, message.clone()))
    };
    last.into_values().filter_map(place).collect()
}

/// Returns a message as a consumer would receive it, but for headers that are no text, number, or boolean.
fn message(view: &MessageView) -> Message {
    let (mut message, theirs) = (Message::new(view.body.clone()), &view.properties);
    let mine = message.properties_mut();
    mine.id = theirs.message_id.as_ref().map(ToString::to_string);
    mine.content_type = theirs.content_type.as_ref().map(ToString::to_string);
    mine.correlation_id = theirs.correlation_id.as_ref().map(ToString::to_string);
    mine.kind = theirs.kind.as_ref().map(ToString::to_string);
    for (name, field) in view.headers().iter() {
        let text = || field.as_str().map(|text| Value::String(text.to_owned()));
        let value = field.as_i64().map(Value::I64).or_else(|| field.as_bool().map(Value::Bool)).or_else(text);
        if let Some(value) = value {
            message = message.with_header(name.to_string(), value);
        }
    }
    message
}
