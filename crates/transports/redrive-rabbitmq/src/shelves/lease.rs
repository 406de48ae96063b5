//! Work in many steps on one shelf: a scan that stays open from one step to the next, and a queue that only one client can have.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use redrive_core::shelves::{EntryHandle, Lease};
use redrive_core::{Shelf, TransportError, TransportErrorKind};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tracing::warn;

use super::lock::{self, LEASE_QUEUE_PREFIX, Lock};
use super::refusal;
use super::scan::ShelfScan;
use crate::shared::Shared;

/// Without a step for so long, everything held is given back. A look at a large shelf between two steps takes half a minute.
const IDLE: Duration = Duration::from_secs(60);
/// For how long the broker may still see the connection of a process that was just killed.
const KILLED_LEASE_ENDS: Duration = Duration::from_secs(2);
/// For how long a broker may take a dead connection of ours for alive.
const OWN_LEASE_ENDS: Duration = Duration::from_secs(40);
/// The longest time for which entries are held. RabbitMQ ends the channel of whoever holds messages for half an hour.
const LONGEST_HOLD: Duration = Duration::from_secs(300);

/// The lease of one shelf.
pub(super) struct ShelfLease {
    shared: Arc<Shared>,
    pub(super) shelf: Shelf,
    open: Mutex<Option<OpenScan>>,
    /// One scan at a time: the next one, and the end of the lease, wait until what the last one held is back, even if its step was dropped.
    scans: Arc<Semaphore>,
    /// `None`: it has ended.
    lock: Mutex<Option<Lock>>,
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
        let lock = match take_lock(&shared, shelf, KILLED_LEASE_ENDS).await {
            Err(error) if error.kind() == TransportErrorKind::Unauthorized => {
                warn!(
                    %shelf, queue = shared.queue(), %error,
                    "no permission to lock this shelf: runs on other machines are not kept out"
                );
                return Ok(None);
            }
            taken => taken?,
        };
        let (lock, open) = (Mutex::new(Some(lock)), Mutex::new(None));
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
        self.keep_lock().await?;
        let Some(OpenScan { scan, .. }) = self.open.lock().await.take() else { return Ok(None) };
        if may_go_on(&scan) && !wanted.iter().any(|entry| scan.has_passed(entry)) {
            return Ok(Some(scan));
        }
        self.give_back(scan).await;
        Ok(None)
    }

    /// Takes the lock again if its connection was lost.
    async fn keep_lock(&self) -> Result<(), TransportError> {
        let mut lock = self.lock.lock().await;
        if lock.as_ref().is_some_and(Lock::is_lost) {
            *lock = Some(take_lock(&self.shared, self.shelf, OWN_LEASE_ENDS).await?);
        }
        Ok(())
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
        let _ = scan.end().await;
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
        let lock = self.lock.lock().await.take();
        if let Some(lock) = lock {
            lock.end().await;
        }
    }
}

/// Returns true while a scan can be gone on with, and has not held its entries for too long.
pub(super) fn may_go_on(scan: &ShelfScan) -> bool {
    scan.began.elapsed() < LONGEST_HOLD && scan.is_live()
}

/// Takes the lock, and tries for `patience` if another connection has it: the broker may not know yet that its owner is dead.
async fn take_lock(shared: &Arc<Shared>, shelf: Shelf, patience: Duration) -> Result<Lock, TransportError> {
    let queue = lock::queue_name(LEASE_QUEUE_PREFIX, shared.plan.names.shelf(shelf)?);
    let connect = || {
        let shared = Arc::clone(shared);
        async move { shared.queues.control().await }
    };
    let taken = Lock::take(connect, &queue, patience).await?;
    taken.ok_or_else(|| refusal::leased(shared.queue(), shelf, &queue))
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
