//! Receiving the messages of one place while it is worked through. Their locks are renewed for as long as that takes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use redrive_transport::LossSignal;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::connection::ReconnectingConnection;
use crate::error::WireError;
use crate::receive::locks::{Locks, RenewedLock};
use crate::wire::{Arrived, Handle, Wire, WireReceiver};

/// The most messages that are on their way or wait to be processed.
const CREDIT: u32 = 50;
/// The longest time for which the lock of a message is renewed while its shelf is processed.
const MAX_LOCK_RENEWAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The locks of what is held. They are renewed until this is dropped.
#[derive(Debug)]
pub(super) struct RenewedLocks {
    locks: Arc<Locks>,
    place: Arc<str>,
    keeper: JoinHandle<()>,
}

/// A message that is held.
#[derive(Debug)]
pub(super) struct ShelfMessage {
    pub(super) arrived: Arrived,
    lost: Arc<LossSignal>,
}

impl ShelfMessage {
    /// Whether its lock is lost: it comes again.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_sent()
    }

    pub(super) fn sequence_number(&self) -> i64 {
        self.arrived.message.as_ref().map_or(0, |incoming| incoming.sequence_number)
    }
}

impl RenewedLocks {
    pub(super) fn start(connection: &Arc<ReconnectingConnection>, place: &str) -> Self {
        let (locks, connection) = (Arc::<Locks>::default(), Arc::clone(connection));
        let kept = Arc::clone(&locks);
        let keeper = tokio::spawn(async move { kept.keep(&connection).await });
        Self { locks, place: place.into(), keeper }
    }

    pub(super) fn enter(&self, arrived: Arrived, handle: Arc<dyn Handle>) -> ShelfMessage {
        let incoming = arrived.message.as_deref();
        let number = incoming.map_or(0, |incoming| incoming.sequence_number);
        let until = incoming.ok().and_then(|incoming| incoming.locked_until);
        let tag = arrived.tag.clone();
        let lost = Arc::<LossSignal>::default();
        let way_back = (tag, handle, Arc::clone(&lost));
        let held = RenewedLock::new(Arc::clone(&self.place), way_back, number, until, MAX_LOCK_RENEWAL);
        if number > 0 {
            // It comes again: what is held of it is worth nothing.
            self.locks.lose_earlier(&self.place, number);
        }
        self.locks.enter(arrived.lock, held);
        ShelfMessage { arrived, lost }
    }

    /// Settled, or given back.
    pub(super) fn leave(&self, taken: &ShelfMessage) {
        self.locks.leave(&taken.arrived.lock);
    }
}

impl Drop for RenewedLocks {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Receives on one link.
pub(super) struct ShelfReceiver {
    receiver: Box<dyn WireReceiver>,
    pub(super) locks: RenewedLocks,
    waiting: VecDeque<ShelfMessage>,
    /// How many may wait; less after locks were lost.
    room: usize,
    /// How many the broker may still hand out.
    credit: usize,
    failed: Option<WireError>,
}

impl ShelfReceiver {
    pub(super) fn new(receiver: Box<dyn WireReceiver>, locks: RenewedLocks) -> Self {
        Self { receiver, locks, waiting: VecDeque::new(), room: CREDIT as usize, credit: 0, failed: None }
    }

    /// The next message to work on; `None` if none comes for this long.
    pub(super) async fn next(&mut self, wait: Duration) -> Result<Option<ShelfMessage>, WireError> {
        loop {
            if let Some(taken) = self.waiting.pop_front() {
                return Ok(Some(taken));
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            self.ask().await?;
            match timeout(wait, self.receiver.next()).await {
                Ok(arrived) => self.take(arrived?),
                Err(_) => return Ok(None),
            }
        }
    }

    /// Runs a future, and takes what arrives meanwhile: a lock runs from the moment of the delivery.
    pub(super) async fn meanwhile<T>(&mut self, something: impl Future<Output = T>) -> T {
        tokio::pin!(something);
        loop {
            tokio::select! {
                biased;
                done = &mut something => return done,
                arrived = self.receiver.next(), if self.failed.is_none() => match arrived {
                    Ok(arrived) => self.take(arrived),
                    Err(error) => self.failed = Some(error),
                },
            }
        }
    }

    /// Lets fewer messages wait at a time, after a lock was lost.
    pub(super) fn take_less(&mut self) {
        self.room = (self.room / 2).max(1);
    }

    /// Forgets a settled message.
    pub(super) async fn forget(&self, taken: &ShelfMessage) {
        self.locks.leave(taken);
        self.receiver.handle().forget(&taken.arrived.tag).await;
    }

    /// Releases a message whose lock seems lost. If the lock holds after all, the message comes again at once.
    pub(super) async fn release(&self, taken: &ShelfMessage) {
        self.locks.leave(taken);
        self.receiver.handle().release(&taken.arrived.tag).await;
    }

    /// Gives back at once what was taken and not settled, not only when its lock runs out.
    pub(super) async fn give_back(mut self, wire: &dyn Wire, place: &str, others: Vec<ShelfMessage>) {
        if self.receiver.drain().await.is_ok() {
            let _ = wire.peek(place, i64::MAX, 1).await;
            while let Some(Ok(arrived)) = self.receiver.next_now() {
                self.take(arrived);
            }
        }
        let handle = self.receiver.handle();
        for taken in others.into_iter().chain(self.waiting) {
            self.locks.leave(&taken);
            handle.release(&taken.arrived.tag).await;
        }
        self.receiver.close().await;
    }

    fn take(&mut self, arrived: Arrived) {
        self.credit = self.credit.saturating_sub(1);
        let taken = self.locks.enter(arrived, self.receiver.handle());
        self.waiting.push_back(taken);
    }

    /// Asks for as many as there is room for. Credit is never taken back: see [`WireReceiver::allow`].
    async fn ask(&mut self) -> Result<(), WireError> {
        let room = self.room.saturating_sub(self.waiting.len());
        if room > self.credit {
            self.credit = room;
            self.receiver.allow(u32::try_from(room).unwrap_or(CREDIT)).await?;
        }
        Ok(())
    }
}
