//! Moves waiting messages from the delay queues of one topology into those of another.

mod due;
mod sources;
mod stayed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::transport::Needs;
use redrive_core::{Message, TransportError, TransportErrorKind};
use tracing::info;

use crate::convert::{self, Form};
use crate::copy_store::Waiting;
use crate::delay::{Delay, DelayStrategy};
use crate::delivery_channel::DeliveryChannel;
use crate::error;
use crate::frames::TakenDelivery;
use crate::options::Options;
use crate::publish::{Caller, RefusedInTurn};
use crate::receipt::Receipt;
use crate::shared::Shared;
use crate::topology::{self, Route};
use due::{Remaining, remaining};
use sources::{Source, delay_queues};
use stayed::Stayed;

/// Number of messages that are moved together.
const TOGETHER: usize = 32;

/// Moves waiting messages; made by [`RabbitMq::transfer_from`](crate::RabbitMq::transfer_from).
///
/// ```no_run
/// # use std::time::Duration;
/// # use redrive_rabbitmq::{RabbitMq, SingleQueue};
/// # async fn transfer() -> Result<(), Box<dyn std::error::Error>> {
/// let transport = RabbitMq::options("orders").connect("amqp://localhost").await?;
/// let old = RabbitMq::options("orders").delay(SingleQueue::durable());
/// let moved = transport
///     .transfer_from(old)
///     .waits([Duration::from_secs(1), Duration::from_secs(60)])
///     .per_second(500)
///     .run()
///     .await?;
/// println!("{} messages moved", moved.messages);
/// # Ok(()) }
/// ```
///
/// Each message is stored at its new place and confirmed, and only then removed from the old one: a crash leaves it in one of
/// them, or in both, never in none. The next run moves the rest. If both copies are left, they are the same attempt of the same
/// message, and both are handled.
///
/// A message keeps its history, and waits for the rest of its wait, which it carries (`redrive-due-at`). If another program stored
/// it, the rest is not known: it waits its whole wait again, so that it is never early.
#[derive(Debug)]
#[must_use = "a transfer does nothing until it is run"]
pub struct Transfer {
    shared: Arc<Shared>,
    old: Options,
    needs: Needs,
    per_second: Option<u32>,
}

/// Result of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transferred {
    /// Number of messages that were moved.
    pub messages: u64,
    /// Number of those that wait their whole wait again, because the rest is not known.
    pub waiting_again: u64,
    /// Number of messages that were moved out of each queue.
    pub queues: BTreeMap<String, u64>,
}

impl Transfer {
    pub(crate) fn new(shared: Arc<Shared>, old: Options) -> Self {
        Self { shared, old, needs: Needs::none(), per_second: None }
    }

    /// Adds the waits of the retry policy, which name the delay queues: those of the old topology, of the new one, or both. Not
    /// needed if the topology names its queues itself, nor for the new ones on a transport that is open.
    pub fn waits(mut self, waits: impl IntoIterator<Item = Duration>) -> Self {
        self.needs.waits.extend(waits);
        self
    }

    /// Sets the maximum number of messages to move per second. Default: no limit.
    pub fn per_second(mut self, messages: u32) -> Self {
        self.per_second = Some(messages.max(1));
        self
    }

    /// Moves messages until every old delay queue was found empty. Consumers may run meanwhile, old and new ones; while old ones
    /// run, messages may arrive after this.
    ///
    /// Not cancel safe in the sense of a report: moved messages stay moved, and all others stay where they were.
    ///
    /// # Errors
    ///
    /// If the new topology does not exist, a copy cannot be stored, or the connection is lost. No message is lost; run it again.
    /// Messages that are too large to be copied stay where they are: all others are moved, and the error
    /// ([`TooLarge`](TransportErrorKind::TooLarge)) says how many were moved, and which were not.
    pub async fn run(self) -> Result<Transferred, TransportError> {
        self.check()?;
        let facts = &self.shared.facts;
        if !facts.knows_needs() {
            facts.activate(facts.prepared(&self.needs));
        }
        self.shared.queues.prepare().await?;
        let mut transferred = Transferred::default();
        let old = self.old_strategy()?;
        let mut stayed = Stayed::default();
        for source in self.sources(&*old)? {
            let moved = self.empty(&source, &*old, &mut transferred, &mut stayed).await;
            info!(queue = %source.name, messages = transferred.queues.get(&source.name), "transferred");
            moved?;
        }
        stayed.said_of(transferred.messages, "the old delay queues").map(|_| transferred)
    }

    fn check(&self) -> Result<(), TransportError> {
        self.old.check()?;
        if let Delay::Native(_) = self.old.delay {
            let message = "with Delay::Native messages wait in the work queue itself, where nobody can take them; they come \
                           back by themselves: consume that queue until it is empty";
            return Err(TransportError::new(TransportErrorKind::Unsupported, message));
        }
        Ok(())
    }

    fn old_strategy(&self) -> Result<Arc<dyn DelayStrategy>, TransportError> {
        let plan = Arc::new(self.old.plan()?);
        Ok(self.old.delay.strategy(&plan, &self.needs, &self.old.more_waits))
    }

    fn sources(&self, old: &dyn DelayStrategy) -> Result<Vec<Source>, TransportError> {
        let new: BTreeSet<_> =
            delay_queues(&*self.shared.facts.strategy()).into_iter().map(|source| source.name).collect();
        let sources: Vec<_> =
            delay_queues(old).into_iter().filter(|source| !new.contains(&source.name)).collect();
        let names = &self.shared.plan.names;
        let rests = [&names.work, &names.dead_letters, &names.parking];
        match sources.iter().find(|source| rests.contains(&&source.name)) {
            Some(Source { name, .. }) => {
                let message = format!(
                    "messages waited in `{name}`, which is the work queue or a shelf now: what waits there cannot be told from \
                     what rests there; give the shelf another name (`dead_letter_queue`, `parking_queue`)"
                );
                Err(TransportError::new(TransportErrorKind::Unsupported, message))
            }
            None => Ok(sources),
        }
    }

    async fn empty(
        &self,
        source: &Source,
        old: &dyn DelayStrategy,
        transferred: &mut Transferred,
        stayed: &mut Stayed,
    ) -> Result<(), TransportError> {
        match topology::count(&*self.shared.queues.control().await?, &source.name).await {
            Ok(_) => {}
            // A delay queue that was never needed does not exist.
            Err(error) if error.kind() == TransportErrorKind::Topology => return Ok(()),
            Err(error) => return Err(error),
        }
        let channel = DeliveryChannel::immediate(self.shared.connections.consuming().await?).await?;
        let moved = self.empty_on(&channel, source, old, transferred, stayed).await;
        channel.settle_down().await;
        moved
    }

    async fn empty_on(
        &self,
        channel: &Arc<DeliveryChannel>,
        source: &Source,
        old: &dyn DelayStrategy,
        transferred: &mut Transferred,
        stayed: &mut Stayed,
    ) -> Result<(), TransportError> {
        // Held until the end: otherwise they would be redelivered.
        let mut held = Vec::new();
        let refused = RefusedInTurn::default();
        loop {
            let began = tokio::time::Instant::now();
            let batch = self.batch(channel, source).await?;
            if batch.is_empty() {
                return Ok(());
            }
            let size = u32::try_from(batch.len()).unwrap_or(u32::MAX);
            let moving = batch.into_iter().map(|taken| self.take_over(channel, source, old, taken));
            let mut failed = None;
            for moved in join_all(moving).await {
                match moved {
                    Ok(remaining) => {
                        refused.note_stored();
                        transferred.messages += 1;
                        transferred.waiting_again += u64::from(matches!(remaining, Remaining::AllOfIt(_)));
                        *transferred.queues.entry(source.name.clone()).or_default() += 1;
                    }
                    Err(NotMoved { error, message, receipt }) if refused.may_spare_others(&error) => {
                        stayed.note(&message, &error);
                        held.push(receipt);
                    }
                    Err(NotMoved { error, .. }) => failed = Some(error),
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
            if let Some(rate) = self.per_second {
                tokio::time::sleep_until(began + Duration::from_secs(1) * size / rate).await;
            }
        }
    }

    /// Takes the next messages.
    async fn batch(
        &self,
        channel: &Arc<DeliveryChannel>,
        source: &Source,
    ) -> Result<Vec<Taken>, TransportError> {
        let most = self.per_second.map_or(TOGETHER, |rate| TOGETHER.min(rate as usize));
        let mut batch = Vec::new();
        while batch.len() < most {
            let found = channel.get(&source.name).await;
            let found = found.map_err(|error| error::verifying(&source.name, error))?;
            let Some((TakenDelivery { tag, header, body, .. }, _)) = found else { break };
            let (message, left_out) = convert::read(&header, body);
            batch.push(Taken { whole: left_out.is_none(), tag, message });
        }
        Ok(batch)
    }

    /// Stores a copy at the new place, then removes the message from the old one.
    async fn take_over(
        &self,
        channel: &Arc<DeliveryChannel>,
        source: &Source,
        old: &dyn DelayStrategy,
        Taken { message, tag, whole }: Taken,
    ) -> Result<Remaining, NotMoved> {
        fail_point(FailPoint::Taken);
        let receipt = Receipt::new(tag, Arc::clone(channel));
        if !whole {
            return Err(NotMoved { error: error::read_in_part(), message, receipt: Some(receipt) });
        }
        match self.store(source, old, message.clone()).await {
            Ok(remaining) => {
                let done = receipt.ack().await;
                done.map(|()| remaining).map_err(|error| NotMoved { error, message, receipt: None })
            }
            Err(error) => Err(NotMoved { error, message, receipt: Some(receipt) }),
        }
    }

    async fn store(
        &self,
        source: &Source,
        old: &dyn DelayStrategy,
        mut message: Message,
    ) -> Result<Remaining, TransportError> {
        let now = SystemTime::now();
        let remaining = remaining(&message, source.ttl, now);
        // The new mode may not understand the old mode's headers.
        old.arrived(&mut message);
        let (wait, message) = self.shared.copies.planned(&message, remaining.wait())?;
        let (form, caller) = (Form::WaitingCopy, Caller::Other);
        if wait.is_zero() {
            let work = Route::queue(self.shared.queue());
            self.shared.copies.store(&work, message, form, caller).await?;
        } else {
            let waiting = Waiting { wait, message, origin: None, form, caller };
            self.shared.copies.store_waiting(waiting).await?;
        }
        Ok(remaining)
    }
}

/// A message in flight.
struct Taken {
    message: Message,
    tag: u64,
    /// False if it was read without some of its headers.
    whole: bool,
}

/// A message that was not moved. Dropping its receipt gives it back.
struct NotMoved {
    error: TransportError,
    message: Message,
    receipt: Option<Receipt>,
}
