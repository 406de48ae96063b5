//! Runs a consumer on virtual time.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use futures::future::BoxFuture;
use redrive_consumer::{ConsumerError, Report, Runner};
use redrive_core::shelves::{Selection, ShelfReport};
use redrive_core::{Message, Publisher, Shelf, Transport};
use redrive_memory::{Memory, MemoryBroker};
use tokio::task::JoinHandle;

use crate::in_process::InProcess;
use crate::record::TestRun;
use crate::recorder::Recorder;
use crate::snapshot;
use crate::test_broker::TestBroker;

/// Runs a consumer on the in-process broker and on virtual time until every message has ended, and returns what happened.
///
/// It takes a function that creates the consumer. If a service's function is generic over the transport, it can be tested unchanged:
///
/// ```
/// use redrive_consumer::{Consumer, Runner};
/// use redrive_core::{BoxError, Exponential, Message, Transport, secs};
/// use redrive_testkit::TestConsumer;
///
/// // In the service: called with `RabbitMq`, for example.
/// fn consumer<T: Transport>(orders: T) -> Runner<T> {
///     Consumer::new(orders).with_dead_letter_backoff(Exponential::from(secs(1)).attempts(6)).handler(ship)
/// }
///
/// async fn ship(order: String) -> Result<(), BoxError> {
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let run = TestConsumer::new(consumer).send(Message::new("a lamp").with_id("order-1")).run().await;
/// run.assert("order-1").attempts(1).acknowledged();
/// # }
/// ```
///
/// # Time
///
/// The first run pauses tokio's clock, which then jumps to the next moment at which something is due. This needs a runtime with one
/// thread, the default of `#[tokio::test]`. A handler must not wait for anything outside, such as a socket: the clock goes on
/// meanwhile.
#[must_use = "nothing is handled until it is run"]
pub struct TestConsumer<B = InProcess> {
    pub(crate) broker: B,
    publisher: Publisher,
    limit: Duration,
    max_deliveries: usize,
    /// Present until the first run.
    consumer: Option<Start>,
    /// Present from the first run on.
    running: Option<Running>,
    /// Messages that are not published yet, each with its wait.
    pending: Vec<(Duration, Message)>,
    /// All messages that were sent.
    sent: Vec<Message>,
}

/// Starts the consumer, which is observed from then on.
type Start = Box<dyn FnOnce(Recorder) -> BoxFuture<'static, Result<Report, ConsumerError>> + Send>;

struct Running {
    recorder: Recorder,
    consumer: JoinHandle<Result<Report, ConsumerError>>,
}

impl TestConsumer {
    /// Creates a test of the consumer that `make` returns, on a queue named `test` of its own broker.
    pub fn new(make: impl FnOnce(Memory) -> Runner<Memory>) -> Self {
        Self::with(Memory::new("test"), make)
    }

    /// Creates a test of the consumer that `make` returns for this transport: for another queue name, a broker with
    /// [limits](redrive_memory::MemoryOptions), or a shared broker.
    ///
    /// # Panics
    ///
    /// If the consumer consumes another queue.
    pub fn with(transport: Memory, make: impl FnOnce(Memory) -> Runner<Memory>) -> Self {
        let (broker, publisher) = (transport.broker().clone(), transport.publisher());
        let broker = InProcess::new(broker, publisher.destination());
        Self::on(broker, publisher, make(transport))
    }

    /// Returns the broker, to inspect it or to make it fail.
    #[must_use]
    pub fn broker(&self) -> &MemoryBroker {
        self.broker.broker()
    }
}

impl<B: TestBroker> TestConsumer<B> {
    /// Default of [`limit`](Self::limit): 30 days.
    pub const DEFAULT_LIMIT: Duration = Duration::from_secs(30 * 86_400);
    /// Default of [`max_deliveries`](Self::max_deliveries).
    pub const DEFAULT_MAX_DELIVERIES: usize = 10_000;

    pub(crate) fn on<T: Transport>(broker: B, publisher: Publisher, runner: Runner<T>) -> Self {
        assert_eq!(
            runner.queue(),
            publisher.destination(),
            "the consumer does not consume the transport that it was given"
        );
        Self {
            broker,
            publisher,
            limit: Self::DEFAULT_LIMIT,
            max_deliveries: Self::DEFAULT_MAX_DELIVERIES,
            consumer: Some(Box::new(|recorder| Box::pin(runner.observer(recorder).run()))),
            running: None,
            pending: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Sets how long a [run](Self::run) may take, in virtual time. Default: [`DEFAULT_LIMIT`](Self::DEFAULT_LIMIT).
    pub fn limit(mut self, time: Duration) -> Self {
        self.limit = time;
        self
    }

    /// Sets the maximum number of deliveries in all runs. It stops a handler whose message is redelivered at once forever, so that no time
    /// passes. Default: [`DEFAULT_MAX_DELIVERIES`](Self::DEFAULT_MAX_DELIVERIES).
    pub fn max_deliveries(mut self, deliveries: usize) -> Self {
        self.max_deliveries = deliveries;
        self
    }

    /// Sends a message when the next run begins. A message without an id gets `message-1`, `message-2`, and so on.
    pub fn send(&mut self, message: Message) -> &mut Self {
        self.send_after(Duration::ZERO, message)
    }

    /// Sends messages when the next run begins, in this order.
    pub fn send_all(&mut self, messages: impl IntoIterator<Item = Message>) -> &mut Self {
        for message in messages {
            self.send(message);
        }
        self
    }

    /// Sends a message that is delivered after this wait.
    pub fn send_after(&mut self, wait: Duration, mut message: Message) -> &mut Self {
        if message.id().is_none() {
            message = message.with_id(format!("message-{}", self.sent.len() + 1));
        }
        self.sent.push(message.clone());
        self.pending.push((wait, message));
        self
    }

    /// Runs until no message waits and none is in flight. The consumer stays for another run of messages that are sent or
    /// [redriven](Self::redrive) in between; it ends when this value is dropped.
    ///
    /// # Panics
    ///
    /// If the consumer does not start, or ends; if the run exceeds its [limit](Self::limit) or has more deliveries than
    /// [allowed](Self::max_deliveries); on a runtime with several threads.
    pub async fn run(&mut self) -> TestRun {
        let has_ended = self.proceed(self.limit).await;
        let run = self.record().await;
        let limit = humantime::format_duration(self.limit);
        assert!(
            has_ended,
            "the run has not ended within {limit} of virtual time: stop it earlier with `run_for`, or raise \
             `TestConsumer::limit`\n\n{run}"
        );
        run
    }

    /// Runs as [`run`](Self::run), but at most for this virtual time. Messages may still wait then.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run), without the limit.
    pub async fn run_for(&mut self, time: Duration) -> TestRun {
        self.proceed(time).await;
        self.record().await
    }

    /// Sends the message with this id from its shelf back to the consumer, as an operator does; the next run handles it.
    ///
    /// # Panics
    ///
    /// If it is on no shelf.
    pub async fn redrive(&mut self, id: &str) -> &mut Self {
        for shelf in [Shelf::DeadLetter, Shelf::Parking] {
            let shelves = self.broker.shelves();
            let page = shelves.browse(shelf, None, usize::MAX).await;
            let page = page.unwrap_or_else(|error| panic!("{id}: the {shelf} shelf cannot be read: {error}"));
            let of_id = page.entries.into_iter().filter(|entry| entry.message.id() == Some(id));
            let handles: Vec<_> = of_id.map(|entry| entry.handle).collect();
            if !handles.is_empty() {
                let redriven = shelves.redrive(shelf, &Selection::handles(handles)).await;
                let redriven = redriven.and_then(ShelfReport::into_result);
                redriven.unwrap_or_else(|error| panic!("{id}: not redriven: {error}"));
                return self;
            }
        }
        panic!("{id}: on no shelf, so it cannot be redriven\n\n{}", self.record().await);
    }

    /// Returns true when all messages have ended, or false if the time is over first.
    async fn proceed(&mut self, time: Duration) -> bool {
        match self.go_on(time).await {
            Ok(has_ended) => has_ended,
            Err(why) => panic!("{why}\n\n{}", self.record().await),
        }
    }

    async fn go_on(&mut self, time: Duration) -> Result<bool, String> {
        self.start();
        for (wait, message) in self.pending.drain(..) {
            let id = message.id().unwrap_or_default().to_owned();
            let published = self.publisher.publish_after(message, wait).await;
            published.map_err(|error| format!("{id}: not sent: {error}"))?;
        }
        let running = self.running.as_mut().expect("it was started just now");
        let over = self.broker.elapsed().saturating_add(time);
        loop {
            // Subscribes before checking, so that no change is missed.
            let mut changed = pin!(running.recorder.changed().notified());
            changed.as_mut().enable();
            if running.recorder.has_started() && self.broker.is_empty(&self.sent, &running.recorder) {
                return Ok(true);
            }
            let deliveries = running.recorder.deliveries();
            if deliveries > self.max_deliveries {
                return Err(format!(
                    "the run has not ended after {} deliveries: does a handler have its message redelivered for ever? \
                     More are allowed with `TestConsumer::max_deliveries`",
                    self.max_deliveries
                ));
            }
            let rest = over.saturating_sub(self.broker.elapsed());
            if rest.is_zero() {
                return Ok(false);
            }
            tokio::select! {
                biased;
                () = changed => {}
                ended = &mut running.consumer => return Err(match ended {
                    Ok(Ok(_)) => "the consumer was stopped, with messages left".to_owned(),
                    Ok(Err(error)) => error.to_string(),
                    Err(error) => error.to_string(),
                }),
                () = self.broker.pass(rest) => {}
            }
        }
    }

    fn start(&mut self) {
        if let Some(start) = self.consumer.take() {
            self.broker.begin();
            let recorder = Recorder::new(self.broker.clock());
            let consumer = tokio::spawn(start(recorder.clone()));
            self.running = Some(Running { recorder, consumer });
        }
    }

    async fn record(&mut self) -> TestRun {
        let Some(Running { recorder, .. }) = &self.running else { return TestRun::default() };
        let attempts = recorder.records();
        let places = self.broker.places(&self.sent, &attempts).await;
        snapshot::record(&self.sent, attempts, &places, self.broker.published())
    }
}

impl<B> fmt::Debug for TestConsumer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestConsumer").field("queue", &self.publisher.destination()).finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.consumer.abort();
    }
}
