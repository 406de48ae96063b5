//! Receiving.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redrive_core::{
    Delivery, Message, Origin, Received, Receiver, SettleError, Settlement, Signals, TransportError,
};
use tokio::time::{Instant, sleep_until};

use crate::broker::MemoryBroker;
use crate::queue::{HandOut, Owner, Queue, Tag};
use crate::receipt::MemoryReceipt;

/// Receives from a queue; what [`open`](redrive_core::Transport::open) gives.
#[derive(Debug)]
pub struct MemoryReceiver {
    intake: Arc<Intake>,
}

/// What a transport and its receiver share.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) broker: MemoryBroker,
    pub(crate) queue: Arc<str>,
    origin: Origin,
    owner: Owner,
    life: Mutex<Life>,
    /// For its publishers, which outlive it.
    pub(crate) closed: Arc<AtomicBool>,
}

/// Where a transport is in its life.
#[derive(Debug)]
enum Life {
    New,
    Open {
        /// As asked when it was opened; 0: any number.
        prefetch: u32,
        limit: u32,
        signals: Signals,
    },
    Ended,
}

/// What looking for deliveries came to.
#[derive(Debug)]
enum Looked {
    Found(usize),
    Nothing { next_due: Option<Instant> },
    NoMore,
}

impl MemoryReceiver {
    pub(crate) fn new(intake: Arc<Intake>) -> Self {
        Self { intake }
    }
}

impl Receiver for MemoryReceiver {
    type Receipt = MemoryReceipt;

    async fn receive(
        &self,
        batch: &mut VecDeque<Received<MemoryReceipt>>,
        most: usize,
    ) -> Result<usize, TransportError> {
        // Nothing here waits for I/O: without this, a consumer of a full queue would never let others run.
        tokio::task::coop::consume_budget().await;
        loop {
            // Listening begins before looking, so that no change falls in between.
            let changed = self.intake.broker.changed().notified();
            tokio::pin!(changed);
            changed.as_mut().enable();

            match self.intake.look_for(batch, most) {
                Looked::Found(found) => return Ok(found),
                Looked::NoMore => return Ok(0),
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
        receipt: MemoryReceipt,
        settlement: Settlement,
    ) -> Result<(), SettleError<MemoryReceipt>> {
        // By the receipt's own queue: a receipt of another transport is as good as this one's.
        receipt.settle(settlement)
    }

    async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        self.intake.set_limit(limit)
    }
}

impl Intake {
    pub(crate) fn new(broker: MemoryBroker, queue: String, owner: Owner) -> Self {
        let origin = Origin::new(&*queue, "", &*queue);
        Self {
            broker,
            origin,
            queue: queue.into(),
            owner,
            life: Mutex::new(Life::New),
            closed: Arc::default(),
        }
    }

    pub(crate) fn open(&self, prefetch: u32, signals: Signals) -> Result<(), TransportError> {
        let mut life = self.life();
        match *life {
            Life::New => *life = Life::Open { prefetch, limit: 0, signals },
            Life::Open { .. } => return Err(TransportError::opened_before(&self.queue)),
            Life::Ended => return Err(TransportError::closed(&self.queue)),
        }
        Ok(())
    }

    pub(crate) fn signals(&self) -> Option<Signals> {
        match &*self.life() {
            Life::Open { signals, .. } => Some(signals.clone()),
            Life::New | Life::Ended => None,
        }
    }

    pub(crate) fn give_back_all(&self) {
        self.broker.change(&self.queue, |queue| {
            for tag in queue.held_by(self.owner) {
                queue.give_back(tag, Instant::now());
            }
        });
    }

    /// Ends the life and what is in flight together: `look_for` hands nothing out in between.
    pub(crate) fn end(&self, give_back: impl Fn(&mut Queue, Tag)) {
        let mut life = self.life();
        *life = Life::Ended;
        self.closed.store(true, Ordering::Release);
        self.broker.change(&self.queue, |queue| {
            for tag in queue.held_by(self.owner) {
                give_back(queue, tag);
            }
        });
    }

    fn set_limit(&self, asked: u32) -> Result<(), TransportError> {
        match &mut *self.life() {
            Life::Open { prefetch, limit, .. } => {
                *limit = if *prefetch == 0 { asked } else { asked.min(*prefetch) };
            }
            Life::New | Life::Ended if asked > 0 => return Err(TransportError::closed(&self.queue)),
            Life::New | Life::Ended => {}
        }
        self.broker.changed().notify_waiters();
        Ok(())
    }

    fn look_for(&self, batch: &mut VecDeque<Received<MemoryReceipt>>, most: usize) -> Looked {
        let life = self.life();
        let Life::Open { limit: limit @ 1.., .. } = *life else { return Looked::NoMore };
        let now = Instant::now();
        self.broker.look(&self.queue, |queue| {
            for found in 0..most {
                match queue.hand_out(self.owner, limit, now) {
                    HandOut::Message { tag, place, message, handed_out } => {
                        batch.push_back(self.deliver(tag, place, message, handed_out));
                    }
                    HandOut::Nothing { next_due } if found == 0 => return Looked::Nothing { next_due },
                    HandOut::Nothing { .. } => return Looked::Found(found),
                }
            }
            Looked::Found(most)
        })
    }

    fn deliver(&self, tag: Tag, place: u64, message: Message, handed_out: u32) -> Received<MemoryReceipt> {
        let delivery = Delivery::from_origin(message, &self.origin, self.broker.now())
            .with_broker_delivery_count(handed_out)
            .with_broker_number(place);
        let receipt = MemoryReceipt::new(self.broker.clone(), Arc::clone(&self.queue), tag);
        Received { delivery, receipt }
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
