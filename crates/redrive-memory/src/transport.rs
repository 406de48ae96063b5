//! The transport: what a consumer sees of a queue.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use redrive_core::{
    Capabilities, Delivery, Message, Needs, Origin, Received, SettleError, Settlement, Transport,
    TransportError,
};
use tokio::time::{Instant, sleep_until};

use crate::broker::MemoryBroker;
use crate::error::{self, Refusal};
use crate::options::MemoryOptions;
use crate::queue::{HandOut, Owner, Queue, Tag};
use crate::shelves::MemoryShelves;

/// A consumer's end of a queue on a [`MemoryBroker`]. Dropped without [`close`](Transport::close) it leaves
/// what is in hand with its receipts.
#[derive(Debug)]
pub struct Memory {
    broker: MemoryBroker,
    queue: Arc<str>,
    origin: Origin,
    owner: Owner,
    life: Mutex<Life>,
    /// At most so many in hand, from the next start or resume on; 0: as many as was asked for at the start.
    narrowed: AtomicU32,
    interrupted_at: Mutex<Option<Instant>>,
}

/// Where the transport is in its life.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Life {
    New,
    Taking { prefetch: u32, most: u32 },
    Paused { prefetch: u32 },
    Ended,
}

/// What looking for a delivery came to.
#[derive(Debug)]
enum Looked {
    Found(Received<MemoryReceipt>),
    Nothing { next_due: Option<Instant> },
    NoMore,
}

/// The right to settle one delivery. Dropped, it gives the delivery back, and that counts as a hand-out.
#[derive(Debug)]
pub struct MemoryReceipt {
    broker: MemoryBroker,
    queue: Arc<str>,
    tag: Tag,
    /// Whether the queue knows the tag no more, so that there is nothing to give back.
    spent: bool,
}

impl Memory {
    /// A broker of its own, with one queue and no limits.
    #[must_use]
    pub fn new(queue: impl Into<String>) -> Self {
        MemoryBroker::new().transport(queue)
    }

    /// A broker of its own, with one queue and these limits.
    #[must_use]
    pub fn with(queue: impl Into<String>, options: MemoryOptions) -> Self {
        MemoryBroker::with(options).transport(queue)
    }

    pub(crate) fn attach(broker: MemoryBroker, queue: String, owner: Owner) -> Self {
        Self {
            broker,
            origin: Origin::new(&*queue, "", &*queue),
            queue: queue.into(),
            owner,
            life: Mutex::new(Life::New),
            narrowed: AtomicU32::new(0),
            interrupted_at: Mutex::default(),
        }
    }

    /// The broker, to publish to and to look at.
    #[must_use]
    pub fn broker(&self) -> &MemoryBroker {
        &self.broker
    }

    /// The name of the queue.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Publishes a message to this queue. Works before the start and after the end too.
    ///
    /// # Errors
    ///
    /// When the queue is full.
    pub fn publish(&self, message: Message) -> Result<(), TransportError> {
        self.broker.publish(&self.queue, message)
    }

    /// For operators: the shelves of this queue.
    #[must_use]
    pub fn shelves(&self) -> MemoryShelves {
        self.broker.shelves(self.queue.to_string())
    }

    /// For tests: what the death of the process does. Everything in hand goes back, counted; its receipts are
    /// worth nothing; there is nothing more to receive. Another transport on the same queue is the next process.
    pub fn crash(&self) {
        self.end(|queue, tag| queue.give_back(tag, Instant::now()));
    }

    /// For tests: what a lost connection does. Everything in hand goes back, counted, and its receipts are worth
    /// nothing; receiving goes on.
    pub fn interrupt(&self) {
        *self.interrupted_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.broker.change(&self.queue, |queue| {
            for tag in queue.held_by(self.owner) {
                queue.give_back(tag, Instant::now());
            }
        });
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the life and what is in hand together: `look_for_one` hands nothing out in between.
    fn end(&self, give_back: impl Fn(&mut Queue, Tag)) {
        let mut life = self.life();
        *life = Life::Ended;
        self.broker.change(&self.queue, |queue| {
            for tag in queue.held_by(self.owner) {
                give_back(queue, tag);
            }
        });
    }

    fn look_for_one(&self) -> Result<Looked, TransportError> {
        let life = self.life();
        let most = match *life {
            Life::New => return Err(error::not_started(&self.queue)),
            Life::Paused { .. } | Life::Ended => return Ok(Looked::NoMore),
            Life::Taking { most, .. } => most,
        };
        let handed_out =
            self.broker.look(&self.queue, |queue| queue.hand_out(self.owner, most, Instant::now()));
        Ok(match handed_out {
            HandOut::Message { tag, place, message, handed_out } => {
                Looked::Found(self.deliver(tag, place, message, handed_out))
            }
            HandOut::Nothing { next_due } => Looked::Nothing { next_due },
        })
    }

    /// A prefetch of 0 is any number.
    fn taking(&self, prefetch: u32) -> Life {
        let most = match self.narrowed.load(Ordering::Relaxed) {
            0 => prefetch,
            narrowed if prefetch == 0 => narrowed,
            narrowed => narrowed.min(prefetch),
        };
        Life::Taking { prefetch, most }
    }

    fn deliver(&self, tag: Tag, place: u64, message: Message, handed_out: u32) -> Received<MemoryReceipt> {
        let delivery = Delivery::from_origin(message, &self.origin, self.now())
            .handed_out_times(handed_out)
            .with_broker_number(place)
            .with_assigned_id(|| format!("{:032x}", fastrand::u128(..)));
        let receipt =
            MemoryReceipt { broker: self.broker.clone(), queue: Arc::clone(&self.queue), tag, spent: false };
        Received { delivery, receipt }
    }
}

impl Transport for Memory {
    type Receipt = MemoryReceipt;

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("memory", &*self.queue);
        capabilities.hand_out_limit = self.broker.options().hand_out_limit;
        capabilities.native_dead_letter = true;
        capabilities
    }

    async fn start(&self, needs: &Needs) -> Result<(), TransportError> {
        let mut life = self.life();
        if *life == Life::Ended {
            return Err(error::closed(&self.queue));
        }
        let unmet = needs.unmet(&self.capabilities());
        if !unmet.is_empty() {
            return Err(error::unsupported(&unmet));
        }
        *life = self.taking(needs.prefetch);
        Ok(())
    }

    async fn receive(&self) -> Result<Option<Received<Self::Receipt>>, TransportError> {
        // Nothing here waits for I/O: without this, a consumer of a full queue would never let others run.
        tokio::task::coop::consume_budget().await;
        loop {
            // Listening begins before looking, so that no change falls in between.
            let changed = self.broker.changed().notified();
            tokio::pin!(changed);
            changed.as_mut().enable();

            match self.look_for_one()? {
                Looked::Found(received) => return Ok(Some(received)),
                Looked::NoMore => return Ok(None),
                Looked::Nothing { next_due: None } => changed.await,
                Looked::Nothing { next_due: Some(due) } => {
                    tokio::select! {
                        () = changed => {}
                        () = sleep_until(due) => {}
                    }
                }
            }
        }
    }

    async fn settle(
        &self,
        mut receipt: Self::Receipt,
        settlement: Settlement,
    ) -> Result<(), SettleError<Self::Receipt>> {
        // By the receipt's own queue: a receipt of another transport is as good as this one's.
        let settled = receipt
            .broker
            .change(&receipt.queue, |queue| queue.settle(receipt.tag, settlement, Instant::now()));
        receipt.spent = matches!(settled, Ok(()) | Err(Refusal::Lost));
        settled.map_err(|refusal| match (refusal, refusal.on(&receipt.queue)) {
            (Refusal::Lost, error) => SettleError::lost(error),
            (_, error) => SettleError::held(error, receipt),
        })
    }

    async fn pause(&self) -> Result<(), TransportError> {
        let mut life = self.life();
        if let Life::Taking { prefetch, .. } = *life {
            *life = Life::Paused { prefetch };
            self.broker.changed().notify_waiters();
        }
        Ok(())
    }

    async fn resume(&self) -> Result<(), TransportError> {
        let mut life = self.life();
        match *life {
            Life::New => return Err(error::not_started(&self.queue)),
            Life::Ended => return Err(error::closed(&self.queue)),
            Life::Taking { .. } => {}
            Life::Paused { prefetch } => *life = self.taking(prefetch),
        }
        Ok(())
    }

    fn narrow(&self, most: Option<u32>) {
        // Narrower than one is nothing at all.
        self.narrowed.store(most.map_or(0, |most| most.max(1)), Ordering::Relaxed);
    }

    fn since_interruption(&self) -> Option<Duration> {
        self.interrupted_at.lock().unwrap_or_else(PoisonError::into_inner).map(|at| at.elapsed())
    }

    async fn close(&self) {
        // In order, hence uncounted: nobody died of these.
        self.end(Queue::release);
    }

    fn now(&self) -> SystemTime {
        self.broker.now()
    }
}

impl Drop for MemoryReceipt {
    fn drop(&mut self) {
        if !self.spent {
            self.broker.change(&self.queue, |queue| queue.give_back(self.tag, Instant::now()));
        }
    }
}
