//! Work in many steps on one shelf: a scan that stays open from one step to the next, and a queue that only one client can have.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use lapin::Consumer;
use lapin::options::{BasicConsumeOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{FieldTable, ShortString};
use redrive_core::{EntryHandle, Lease, Shelf, TransportError, TransportErrorKind};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tracing::warn;

use super::scan::ShelfScan;
use crate::connection::{Channel, Connection, uninterrupted, with_timeout};
use crate::convert::short;
use crate::error;
use crate::shared::Shared;

/// How the names of the queues begin that are leases.
pub(crate) const LEASE_QUEUE_PREFIX: &str = "redrive-lease.";

/// Without a step for so long, everything held is given back. A look at a large shelf between two steps takes half a minute.
const IDLE: Duration = Duration::from_secs(60);
/// For how long the broker may still see the connection of a process that was just killed.
const KILLED_LEASE_ENDS: Duration = Duration::from_secs(2);
/// For how long a broker may take a dead connection of ours for alive.
const OWN_LEASE_ENDS: Duration = Duration::from_secs(40);
/// The pause before a lease that another connection has is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The longest time for which entries are held. RabbitMQ ends the channel of whoever holds messages for half an hour.
const LONGEST_HOLD: Duration = Duration::from_secs(300);

/// The lease of one shelf.
pub(super) struct ShelfLease {
    shared: Arc<Shared>,
    pub(super) shelf: Shelf,
    open: Mutex<Option<OpenScan>>,
    /// One scan at a time: the next one, and the end of the lease, wait until what the last one held is back, even if its step was dropped.
    scans: Arc<Semaphore>,
    lock: Mutex<Lock>,
    held: AtomicU64,
}

/// A scan between two steps.
struct OpenScan {
    scan: ShelfScan,
    used: Instant,
}

impl ShelfLease {
    /// Takes the lease. `None`: the user may not. Without keeping others out nothing may be held from them: a run would take it for gone.
    pub(super) async fn take(shared: Arc<Shared>, shelf: Shelf) -> Result<Option<Arc<Self>>, TransportError> {
        let lock = match Lock::take(&shared, shelf, KILLED_LEASE_ENDS).await {
            Err(error) if error.kind() == TransportErrorKind::Unauthorized => {
                warn!(
                    %shelf, queue = shared.queue(), %error,
                    "runs on this shelf from other machines cannot be kept out"
                );
                return Ok(None);
            }
            taken => taken?,
        };
        let (lock, open) = (Mutex::new(lock), Mutex::new(None));
        let scans = Arc::new(Semaphore::new(1));
        let lease = Arc::new(Self { shared, shelf, open, scans, lock, held: AtomicU64::new(0) });
        tokio::spawn(give_back_in_time(Arc::downgrade(&lease)));
        Ok(Some(lease))
    }

    /// Returns the scan to go on with, if it is still of use: it passed none of these entries.
    pub(super) async fn resume(
        &self,
        wanted: &HashSet<EntryHandle>,
    ) -> Result<Option<ShelfScan>, TransportError> {
        self.lock.lock().await.keep(&self.shared, self.shelf).await?;
        let Some(OpenScan { scan, .. }) = self.open.lock().await.take() else { return Ok(None) };
        if scan.began.elapsed() < LONGEST_HOLD
            && scan.is_live()
            && !wanted.iter().any(|entry| scan.has_passed(entry))
        {
            return Ok(Some(scan));
        }
        self.give_back(scan).await;
        Ok(None)
    }

    /// Waits until nothing is held, and returns the right to hold.
    pub(super) async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.scans).acquire_owned().await.ok()
    }

    /// Keeps a scan for the next step.
    pub(super) async fn keep(&self, scan: ShelfScan) {
        self.held.store(scan.held(), Ordering::Relaxed);
        *self.open.lock().await = Some(OpenScan { scan, used: Instant::now() });
    }

    pub(super) async fn give_back(&self, scan: ShelfScan) {
        scan.end().await;
        self.held.store(0, Ordering::Relaxed);
    }

    async fn give_back_if(&self, is_due: impl Fn(&OpenScan) -> bool) {
        let mut open = self.open.lock().await;
        if let Some(OpenScan { scan, .. }) = open.take_if(|open| is_due(open)) {
            self.give_back(scan).await;
        }
    }

    async fn end(&self) {
        self.give_back_if(|_| true).await;
        let _permit = self.permit().await;
        self.lock.lock().await.end().await;
    }
}

impl fmt::Debug for ShelfLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShelfLease").field("shelf", &self.shelf).finish_non_exhaustive()
    }
}

/// What the caller of [`Shelves::lease`](redrive_core::Shelves::lease) has.
pub(super) struct LeaseGuard(pub(super) Arc<ShelfLease>);

#[async_trait]
impl Lease for LeaseGuard {
    fn held(&self) -> u64 {
        self.0.held.load(Ordering::Relaxed)
    }

    async fn pause(&self) {
        self.0.give_back_if(|_| true).await;
    }

    async fn end(&self) {
        self.0.end().await;
    }
}

/// A lease that nobody ended.
impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let lease = Arc::clone(&self.0);
            runtime.spawn(async move { lease.end().await });
        }
    }
}

async fn give_back_in_time(lease: Weak<ShelfLease>) {
    loop {
        tokio::time::sleep(IDLE / 2).await;
        let Some(lease) = lease.upgrade() else { return };
        let is_unused =
            |open: &OpenScan| open.used.elapsed() >= IDLE || open.scan.began.elapsed() >= LONGEST_HOLD;
        lease.give_back_if(is_unused).await;
    }
}

/// An exclusive queue with an exclusive consumer: no other connection, and no other channel of this one, can have the same.
enum Lock {
    Held {
        queue: ShortString,
        channel: Channel,
        /// Its drop would cancel it.
        _consumer: Consumer,
        connection: Arc<Connection>,
    },
    Ended,
}

impl Lock {
    /// Takes the lock, and tries for `patience` if another connection has it: the broker may not know yet that its owner is dead.
    async fn take(shared: &Arc<Shared>, shelf: Shelf, patience: Duration) -> Result<Self, TransportError> {
        let begun = Instant::now();
        loop {
            let declaring = Arc::clone(shared);
            match uninterrupted(async move { Self::declare(&declaring, shelf).await }).await {
                Err(error) if error.kind() == TransportErrorKind::Locked && begun.elapsed() < patience => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                taken => return taken,
            }
        }
    }

    async fn declare(shared: &Shared, shelf: Shelf) -> Result<Self, TransportError> {
        let connection = shared.queues.control().await?;
        let queue = queue_name(shared.plan.names.shelf(shelf)?);
        let (channel, name) = (connection.channel_to_ask().await?, short(&queue, "the name of a queue")?);
        // Deleted with its consumer, so with this channel.
        let options =
            QueueDeclareOptions { exclusive: true, auto_delete: true, ..QueueDeclareOptions::default() };
        let declaring = channel.queue_declare(name.clone(), options, FieldTable::default());
        if let Err(failed) = with_timeout(&channel, declaring).await {
            return Err(match error::refusal(&failed) {
                Some((405, _)) => error::leased(shared.queue(), shelf, &queue),
                _ => error::declaring(&queue, failed),
            });
        }
        let options = BasicConsumeOptions { exclusive: true, ..BasicConsumeOptions::default() };
        let consuming = channel.basic_consume(name.clone(), "".into(), options, FieldTable::default());
        let consumer =
            with_timeout(&channel, consuming).await.map_err(|failed| match error::refusal(&failed) {
                _ if is_taken(&failed) => error::leased(shared.queue(), shelf, &queue),
                _ => error::verifying(&queue, failed),
            })?;
        Ok(Self::Held { queue: name, channel, _consumer: consumer, connection })
    }

    /// Takes the lock again if its connection was lost.
    async fn keep(&mut self, shared: &Arc<Shared>, shelf: Shelf) -> Result<(), TransportError> {
        let is_lost =
            |channel: &Channel, connection: &Connection| !channel.status().connected() || !connection.is_up();
        if !matches!(self, Self::Held { channel, connection, .. } if is_lost(channel, connection)) {
            return Ok(());
        }
        *self = Self::take(shared, shelf, OWN_LEASE_ENDS).await?;
        Ok(())
    }

    async fn end(&mut self) {
        if let Self::Held { queue, channel, .. } = std::mem::replace(self, Self::Ended) {
            let ending = async move {
                // Its channel would delete it too, but a moment later.
                let deleting = channel.queue_delete(queue, QueueDeleteOptions::default());
                let _ = with_timeout(&channel, deleting).await;
                let _ = with_timeout(&channel, channel.close(200, "OK".into())).await;
                Ok(())
            };
            let _ = uninterrupted(ending).await;
        }
    }
}

/// Returns true if another channel of this connection has the lease.
fn is_taken(failed: &lapin::Error) -> bool {
    error::refusal(failed).is_some_and(|(code, text)| code == 403 && text.contains("in exclusive use"))
}

/// Returns the name of the queue that is the lease of a shelf.
fn queue_name(shelf: &str) -> String {
    const MOST: usize = 255;
    let name = format!("{LEASE_QUEUE_PREFIX}{shelf}");
    if name.len() <= MOST {
        return name;
    }
    Sha256::digest(shelf).iter().fold(LEASE_QUEUE_PREFIX.to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_lease_is_short_enough_and_each_shelf_has_its_own() {
        assert_eq!(queue_name("orders--dead-letters"), "redrive-lease.orders--dead-letters");
        let [one, other] = ["a", "b"].map(|end| queue_name(&("x".repeat(250) + end)));
        assert_ne!(one, other);
        assert_eq!(one.len(), LEASE_QUEUE_PREFIX.len() + 64);
    }
}
