//! A consumer inside the test, with the fate of its messages decided as in the chaos.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use redrive::rabbitmq::RabbitMq;
use redrive::{
    BoxError, Consumer, ConsumerHandle, Delivery, Event, MarkError as _, Message, Report, Shelf,
    Shelves as _, State,
};
use redrive_contract::{eventually, found};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;

use crate::fate::{self, Fate};
use crate::rabbit::publish_all;

/// A running consumer.
#[derive(Debug)]
pub struct Service {
    handled: Handled,
    resting: watch::Receiver<bool>,
    handle: ConsumerHandle,
    leash: oneshot::Sender<()>,
    running: JoinHandle<Result<Report, redrive::ConsumerError>>,
}

/// How often each message was handled with success.
#[derive(Clone, Debug, Default)]
struct Handled {
    times: Arc<Mutex<HashMap<String, u32>>>,
    changed: watch::Sender<()>,
    /// How many handlers run.
    running: watch::Sender<usize>,
    turns: Turns,
}

/// Each attempt takes one before it is done.
#[derive(Clone, Debug)]
struct Turns(Arc<Semaphore>);

impl Turns {
    /// More attempts than there are in any test.
    const ENOUGH: usize = 1 << 24;

    fn hold(&self) {
        self.0.forget_permits(Self::ENOUGH);
    }

    /// Waits until there is none left.
    async fn taken(&self) {
        eventually("every turn is taken", async || self.0.available_permits() == 0).await;
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(Self::ENOUGH)))
    }
}

impl Service {
    /// Consumes.
    #[must_use]
    pub fn run(transport: RabbitMq) -> Self {
        Self::with(transport, Handled::default())
    }

    /// The same, [held](Self::hold) from the beginning.
    #[must_use]
    pub fn run_held(transport: RabbitMq) -> Self {
        let handled = Handled::default();
        handled.turns.hold();
        Self::with(transport, handled)
    }

    fn with(transport: RabbitMq, handled: Handled) -> Self {
        let (rest, resting) = watch::channel(false);
        let runner = Consumer::new(transport)
            .observer(move |event: &Event<'_>| match event {
                Event::IntakePaused { .. } => drop(rest.send_replace(true)),
                Event::IntakeResumed { .. } => drop(rest.send_replace(false)),
                _ => {}
            })
            .with_dead_letter_backoff(fate::policy())
            .handler_with(handled.clone(), handle);
        let handle = runner.handle();
        let (leash, end) = oneshot::channel();
        let running = tokio::spawn(runner.run_until(async { end.await.unwrap_or_default() }));
        Self { handled, resting, handle, leash, running }
    }

    /// Waits until this many different messages were handled with success; answers when.
    ///
    /// # Panics
    /// When the consumer ends.
    pub async fn handled(&mut self, messages: usize) -> Instant {
        self.handled_until(|times| times.len() >= messages).await;
        Instant::now()
    }

    /// Waits until what was handled with success is enough.
    async fn handled_until(&mut self, enough: impl Fn(&HashMap<String, u32>) -> bool) {
        let mut changed = self.handled.changed.subscribe();
        while !enough(&self.handled.times.lock().unwrap()) {
            tokio::select! {
                changed = changed.changed() => changed.expect("the sender is our own"),
                ended = &mut self.running => panic!("the consumer ended: {ended:?}"),
            }
        }
    }

    /// From now on handlers do not come to their end, and what is in flight stays there.
    pub fn hold(&self) {
        self.handled.turns.hold();
    }

    /// This many handlers more come to their end.
    pub fn let_end(&self, handlers: usize) {
        self.handled.turns.0.add_permits(handlers);
    }

    /// Lets handlers come to their end, one after the other, until this many different messages were handled with success:
    /// however many fail on the way, and whichever come first.
    ///
    /// # Panics
    /// When the consumer ends.
    pub async fn let_handle(&mut self, messages: usize) {
        while self.handled_now() < messages {
            self.let_end(1);
            tokio::select! {
                () = self.handled.turns.taken() => {}
                ended = &mut self.running => panic!("the consumer ended: {ended:?}"),
            }
        }
    }

    /// Waits until as many handlers came to their end as may: what is in flight now stays there.
    pub async fn held(&self) {
        self.handled.turns.taken().await;
    }

    /// All of them do, as before [`hold`](Self::hold).
    pub fn let_all_end(&self) {
        self.let_end(Turns::ENOUGH);
    }

    /// Waits until the consumer takes no more messages because copies cannot be stored, or until it takes them again;
    /// answers when.
    ///
    /// # Panics
    /// When the consumer ends.
    pub async fn rests(&mut self, rests: bool) -> Instant {
        self.resting.wait_for(|resting| *resting == rests).await.expect("the consumer runs");
        Instant::now()
    }

    /// Waits until the consumer has noticed that its connection is lost.
    pub async fn interrupted(&self) {
        self.handle.wait_for_health(|health| health.interrupted_for.is_some()).await;
    }

    /// Waits until no handler runs.
    ///
    /// # Panics
    /// When the consumer ends.
    pub async fn idle(&self) {
        self.handled.running.subscribe().wait_for(|running| *running == 0).await.expect("the consumer runs");
    }

    /// How many messages were handled with success.
    #[must_use]
    pub fn handled_now(&self) -> usize {
        self.handled.times.lock().unwrap().len()
    }

    /// Waits until each of these messages ended as it must; ends the consumer in order. Answers how many came to their
    /// end more than once, and what the consumer says.
    ///
    /// # Panics
    /// When one ended otherwise, or the consumer ends with an error.
    pub async fn to_the_end(mut self, ids: &[String], operator: &RabbitMq) -> (usize, Report) {
        let (acked, dead): (Vec<&String>, Vec<&String>) = ids.iter().partition(|id| fate::end(id).is_none());
        // Fewer than these: it may have handled others before.
        self.handled_until(|times| acked.iter().all(|id| times.contains_key(*id))).await;
        let shelf = found("the dead letters are on the shelf", async || {
            let browsed = operator.shelves().browse(Shelf::DeadLetter, None, usize::MAX).await;
            let shelf = browsed.expect("the shelf is there").entries;
            let rests = |id: &&String| shelf.iter().any(|found| found.message.id() == Some(id.as_str()));
            dead.iter().all(rests).then_some(shelf)
        })
        .await;
        self.leash.send(()).expect("the consumer runs");
        let report = self.running.await.expect("no panic").expect("an interruption is no error");
        let times = self.handled.times.lock().unwrap();
        for id in ids {
            assert_eq!(times.contains_key(id), fate::end(id).is_none(), "{id}");
        }
        let again = times.values().filter(|times| **times > 1).count() + (shelf.len() - dead.len());
        (again, report)
    }
}

/// Publishes messages with the ids `{first}`, `{first} + 1`, …; gives back the ids.
pub async fn publish(through: &RabbitMq, first: usize, count: usize) -> Vec<String> {
    let ids: Vec<String> = (first..first + count).map(|number| format!("m-{number}")).collect();
    publish_all(through, ids.iter().map(|id| Message::new("an order").with_id(id))).await;
    ids
}

/// How many of these messages can be handled with success.
#[must_use]
pub fn good(ids: &[String]) -> usize {
    ids.iter().filter(|id| fate::end(id).is_none()).count()
}

async fn handle(State(handled): State<Handled>, delivery: Delivery) -> Result<(), BoxError> {
    let (id, attempt) = (delivery.id(), delivery.attempt());
    handled.running.send_modify(|running| *running += 1);
    let _running = Running(&handled);
    tokio::time::sleep(fate::duration(id, attempt)).await;
    handled.turns.0.acquire().await?.forget();
    match Fate::of(id, attempt) {
        Fate::Done => {
            *handled.times.lock().unwrap().entry(id.to_owned()).or_default() += 1;
            handled.changed.send_replace(());
            Ok(())
        }
        Fate::Permanent => Err("no such address").permanent().map_err(Into::into),
        Fate::Transient | Fate::Panic => Err("the carrier does not answer".into()),
    }
}

/// A handler that runs.
struct Running<'a>(&'a Handled);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}
