//! Receives the messages of one place while they are processed, and renews their locks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use redrive_transport::LossSignal;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::connection::ReconnectingConnection;
use crate::error::WireError;
use crate::locks::{Locks, RenewedLock};
use crate::wire::{Arrived, Handle, WireReceiver};

/// The most messages that are on their way or wait to be processed.
const CREDIT: u32 = 50;
/// The longest time for which the lock of a message is renewed while its shelf is processed.
const MAX_LOCK_RENEWAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The locks of the received messages. They are renewed until this is dropped.
#[derive(Debug)]
pub(super) struct RenewedLocks {
    locks: Arc<Locks>,
    place: Arc<str>,
    keeper: JoinHandle<()>,
}

/// A message that is locked while its shelf is processed.
#[derive(Debug)]
pub(super) struct ShelfMessage {
    pub(super) arrived: Arrived,
    lost: Arc<LossSignal>,
}

impl ShelfMessage {
    /// Returns true if its lock is lost: the message is redelivered.
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
        let renewed = Arc::clone(&locks);
        let keeper = tokio::spawn(async move { renewed.keep(&connection).await });
        Self { locks, place: place.into(), keeper }
    }

    /// Renews the lock of a message from now on.
    pub(super) fn enter(&self, arrived: Arrived, handle: Arc<dyn Handle>) -> ShelfMessage {
        let incoming = arrived.message.as_deref();
        let number = incoming.map_or(0, |incoming| incoming.sequence_number);
        let until = incoming.ok().and_then(|incoming| incoming.locked_until);
        let tag = arrived.tag.clone();
        let lost = Arc::<LossSignal>::default();
        let give_back = (tag, handle, Arc::clone(&lost));
        let held = RenewedLock::new(Arc::clone(&self.place), give_back, number, until, MAX_LOCK_RENEWAL);
        if number > 0 {
            // The message was redelivered: an earlier lock of it is lost.
            self.locks.lose_earlier(&self.place, number);
        }
        self.locks.enter(arrived.lock, held);
        ShelfMessage { arrived, lost }
    }

    /// Stops renewing the lock of a message that is settled or given back.
    pub(super) fn leave(&self, taken: &ShelfMessage) {
        self.locks.leave(&taken.arrived.lock);
    }
}

impl Drop for RenewedLocks {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Receives the messages of one place on one link.
pub(super) struct ShelfReceiver {
    receiver: Box<dyn WireReceiver>,
    pub(super) locks: RenewedLocks,
    waiting: VecDeque<ShelfMessage>,
    /// The most messages that may wait. It decreases after locks were lost.
    room: usize,
    /// The number of messages that the broker may still deliver.
    credit: usize,
    failed: Option<WireError>,
}

impl ShelfReceiver {
    pub(super) fn new(receiver: Box<dyn WireReceiver>, locks: RenewedLocks) -> Self {
        Self { receiver, locks, waiting: VecDeque::new(), room: CREDIT as usize, credit: 0, failed: None }
    }

    /// Returns the next message to process, or `None` if none arrives within the wait.
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

    /// Runs a future, and receives messages meanwhile: a lock starts at the delivery, so its renewal must not wait.
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

    /// Halves the number of messages that may wait, after a lock was lost.
    pub(super) fn take_less(&mut self) {
        self.room = (self.room / 2).max(1);
    }

    /// Forgets a settled message, here and on its link.
    pub(super) async fn forget(&self, taken: &ShelfMessage) {
        self.locks.leave(taken);
        self.receiver.handle().forget(&taken.arrived.tag).await;
    }

    /// Releases a message whose lock seems lost. If the lock is still valid, the message is redelivered at once.
    pub(super) async fn release(&self, taken: &ShelfMessage) {
        self.locks.leave(taken);
        self.receiver.handle().release(&taken.arrived.tag).await;
    }

    /// Gives back the messages that were received and not settled, instead of letting their locks expire.
    pub(super) async fn give_back(mut self, others: Vec<ShelfMessage>) {
        // If that fails, its locks expire.
        let _ = self.receiver.drain().await;
        while let Some(Ok(arrived)) = self.receiver.next_now() {
            self.take(arrived);
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

    /// Grants credit for as many messages as may wait. Credit is never reduced: see [`WireReceiver::allow`].
    async fn ask(&mut self) -> Result<(), WireError> {
        let room = self.room.saturating_sub(self.waiting.len());
        if room > self.credit {
            self.credit = room;
            self.receiver.allow(u32::try_from(room).unwrap_or(CREDIT)).await?;
        }
        Ok(())
    }
}
