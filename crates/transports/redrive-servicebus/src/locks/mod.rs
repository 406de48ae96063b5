//! Renews the locks of deliveries in flight until they are settled.
//!
//! `reachable` knows which entities can be received from, and `session` holds one session.

mod reachable;
pub(crate) mod session;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::{Mutex, MutexGuard};
use redrive_core::transport::{Signal, Signals};
use redrive_core::{TransportError, plausible};
use redrive_transport::LossSignal;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};
use uuid::Uuid;

use self::reachable::Reachable;
use crate::connection::ReconnectingConnection;
use crate::convert::later::later;
use crate::entity::ASSUMED_LOCK_DURATION;
use crate::error::Refusal;
use crate::wire::{Handle, Tag};

/// The most locks that one request renews.
const LOCKS_PER_REQUEST: usize = 100;
/// The minimum time to wait for the broker's answer when a lock has expired by the local clock: the clocks may differ.
const MIN_EXPIRY_WAIT: Duration = Duration::from_secs(1);
/// The wait before the next attempt to renew a lock.
const RENEWAL_RETRY_WAIT: Duration = Duration::from_secs(1);

/// The locks of all deliveries in flight, and the signals to the consumer about lost deliveries.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    held: Mutex<HashMap<Uuid, RenewedLock>>,
    changed: Notify,
    /// True if a delivery was lost since a link was attached: its message may come only with the next link.
    has_lost: AtomicBool,
    reachable: Mutex<Reachable>,
    /// The consumer, once the transport is open.
    signals: OnceLock<Signals>,
}

/// A link that receives. Dropping it records that it ended.
#[derive(Debug)]
pub(crate) struct ReceivingLink {
    locks: Arc<Locks>,
    entity: Arc<str>,
}

impl Drop for ReceivingLink {
    fn drop(&mut self) {
        self.locks.reachable().ended(&self.entity);
    }
}

/// A lock, and the handle to give its message back.
#[derive(Clone, Debug)]
pub(crate) struct RenewedLock {
    pub(crate) entity: Arc<str>,
    pub(crate) tag: Tag,
    pub(crate) handle: Arc<dyn Handle>,
    pub(crate) lost: Arc<LossSignal>,
    sequence_number: i64,
    renew_at: Instant,
    /// True while a request to renew it is running.
    renewing: bool,
    expires_at: Instant,
    renew_until: Instant,
}

impl RenewedLock {
    pub(crate) fn new(
        entity: Arc<str>,
        (tag, handle, lost): (Tag, Arc<dyn Handle>, Arc<LossSignal>),
        sequence_number: i64,
        locked_until: Option<SystemTime>,
        longest_renewal: Duration,
    ) -> Self {
        let now = Instant::now();
        let lasts = lasts(SystemTime::now(), locked_until);
        Self {
            entity,
            tag,
            handle,
            lost,
            sequence_number,
            renew_at: now + lasts / 2,
            renewing: false,
            expires_at: now + lasts.max(MIN_EXPIRY_WAIT),
            renew_until: later(now, longest_renewal),
        }
    }

    /// Returns true if the lock must be renewed and no request for it is running.
    fn needs_renewal(&self) -> bool {
        !self.renewing && self.renew_at < self.renew_until
    }

    /// Returns the time of the next action for this lock.
    fn due_at(&self) -> Instant {
        if self.needs_renewal() { self.renew_at } else { self.expires_at }
    }
}

impl Locks {
    /// Sets the signals to the consumer when the transport is opened.
    pub(crate) fn set_signals(&self, signals: Signals) {
        // A transport is opened once.
        let _ = self.signals.set(signals);
    }

    /// Signals that a link to an entity receives, until the returned value is dropped.
    pub(crate) fn receiving(self: &Arc<Self>, entity: &Arc<str>) -> ReceivingLink {
        self.signal_connection(|reachable| reachable.began(entity));
        ReceivingLink { locks: Arc::clone(self), entity: Arc::clone(entity) }
    }

    /// Signals that a link to an entity was refused, or ended with an error.
    pub(crate) fn signal_refusal(&self, entity: &Arc<str>, error: TransportError) {
        self.signal_connection(|reachable| reachable.refused(entity, error));
    }

    /// Signals that the connection ended, or could not be made: nothing can be received, unless `is_over` tells of the next one. Asked
    /// under the lock: an intake that begins on the next connection in between would be hidden by an outage of before.
    pub(crate) fn signal_outage(&self, error: TransportError, is_over: impl FnOnce() -> bool) {
        self.signal_connection(|reachable| {
            if !is_over() {
                reachable.disconnected(error);
            }
        });
    }

    fn signal_connection(&self, change: impl FnOnce(&mut Reachable)) {
        let mut reachable = self.reachable();
        change(&mut reachable);
        // Sent under the lock: otherwise the signals of two intakes could overtake each other.
        if let Some(signals) = self.signals.get() {
            signals.send(reachable.signal());
        }
    }

    fn reachable(&self) -> MutexGuard<'_, Reachable> {
        self.reachable.lock()
    }

    /// Signals that deliveries in flight were lost and are redelivered. They have numbers of the broker, so the signal need not
    /// list those that were never received.
    pub(crate) fn signal_interruption(&self) {
        if let Some(signals) = self.signals.get() {
            signals.send(Signal::Interrupted { unreceived: Vec::new() });
        }
    }

    /// Records that a delivery was lost, which the broker counts.
    pub(crate) fn record_loss(&self) {
        self.has_lost.store(true, Ordering::Release);
    }

    /// Returns true if a delivery was lost since the last call.
    pub(crate) fn take_loss(&self) -> bool {
        self.has_lost.swap(false, Ordering::AcqRel)
    }

    /// Adds the lock of a delivery, and renews it from now on.
    pub(crate) fn enter(&self, lock: Uuid, held: RenewedLock) {
        self.held().insert(lock, held);
        self.changed.notify_one();
    }

    /// Renews a lock until a wait is over, and for one lock longer to give the message back, however long it is held already.
    pub(crate) fn renew_beyond(&self, lock: &Uuid, wait: Duration) {
        if let Some(held) = self.held().get_mut(lock) {
            let until = later(Instant::now(), wait.saturating_add(ASSUMED_LOCK_DURATION));
            held.renew_until = held.renew_until.max(until);
            self.changed.notify_one();
        }
    }

    /// Removes a delivery that is no longer in flight.
    pub(crate) fn leave(&self, lock: &Uuid) {
        self.held().remove(lock);
    }

    /// Removes all locks, and signals to their deliveries that they are lost.
    pub(crate) fn take_all(&self) -> Vec<(Uuid, RenewedLock)> {
        let all: Vec<_> = self.held().drain().collect();
        for (_, held) in &all {
            held.lost.send();
        }
        all
    }

    /// Marks earlier deliveries of a message as lost, after it was delivered again.
    pub(crate) fn lose_earlier(&self, entity: &str, sequence_number: i64) {
        let is_it = |held: &RenewedLock| held.sequence_number == sequence_number && &*held.entity == entity;
        let earlier: Vec<_> = {
            let all = self.held();
            all.iter().filter(|(_, held)| is_it(held)).map(|(lock, _)| *lock).collect()
        };
        for lock in earlier {
            self.lose(&lock);
        }
    }

    /// Renews locks when they are due, and reports expired ones. Never returns.
    pub(crate) async fn keep(&self, connection: &ReconnectingConnection) {
        let mut renewals = FuturesUnordered::new();
        loop {
            let next = self.held().values().map(RenewedLock::due_at).min();
            tokio::select! {
                () = self.changed.notified() => {}
                Some(()) = renewals.next() => {}
                // A request without an answer must not delay the renewal or the expiry of other locks.
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    for (entity, locks) in self.take_due(Instant::now()) {
                        let some = locks.chunks(LOCKS_PER_REQUEST).map(|some| (Arc::clone(&entity), some.to_vec()));
                        renewals.extend(some.map(|(entity, some)| async move {
                            self.renew(connection, &entity, &some).await;
                        }));
                    }
                }
            }
        }
    }

    /// Returns the locks to renew now, by entity. Expired ones are marked as lost.
    fn take_due(&self, now: Instant) -> HashMap<Arc<str>, Vec<Uuid>> {
        let mut due: HashMap<Arc<str>, Vec<Uuid>> = HashMap::new();
        let mut expired = Vec::new();
        for (lock, held) in self.held().iter_mut() {
            // A little early, so that locks of messages that arrived together are renewed together.
            let soon = now + (held.expires_at - now) / 8;
            if held.expires_at <= now {
                expired.push(*lock);
            } else if held.needs_renewal() && held.renew_at <= soon {
                held.renewing = true;
                due.entry(Arc::clone(&held.entity)).or_default().push(*lock);
            }
        }
        for lock in expired {
            self.lose(&lock);
        }
        due
    }

    async fn renew(&self, connection: &ReconnectingConnection, entity: &str, locks: &[Uuid]) {
        let renewed = match connection.connection().await {
            Ok(wire) => wire.renew(entity, locks).await,
            Err(error) => Err(error),
        };
        match renewed {
            Ok(until) => {
                for (lock, until) in locks.iter().zip(until) {
                    self.holds_until(lock, until);
                }
            }
            Err(error) if error.refusal == Refusal::LockLost => match locks {
                [lock] => self.lose(lock),
                // One of them is lost, and the answer does not say which: each is renewed alone.
                _ => {
                    for lock in locks {
                        Box::pin(self.renew(connection, entity, std::slice::from_ref(lock))).await;
                    }
                }
            },
            Err(error) => {
                warn!(%entity, locks = locks.len(), %error, "locks of messages could not be renewed; trying again");
                self.try_again(locks);
            }
        }
    }

    fn holds_until(&self, lock: &Uuid, until: SystemTime) {
        if let Some(held) = self.held().get_mut(lock) {
            let (now, lasts) = (Instant::now(), lasts(SystemTime::now(), Some(until)));
            held.renew_at = now + lasts / 2;
            held.renewing = false;
            held.expires_at = now + lasts.max(MIN_EXPIRY_WAIT);
        }
    }

    fn try_again(&self, locks: &[Uuid]) {
        let now = Instant::now();
        for lock in locks {
            let mut all = self.held();
            let Some(held) = all.get_mut(lock) else { continue };
            if held.expires_at <= now {
                drop(all);
                self.lose(lock);
            } else {
                held.renew_at = (now + RENEWAL_RETRY_WAIT).min(held.expires_at);
                held.renewing = false;
            }
        }
    }

    fn lose(&self, lock: &Uuid) {
        let lost = self.held().remove(lock);
        if let Some(held) = lost {
            self.record_loss();
            // Before the loss signal: its receiver may look for the interruption at once.
            self.signal_interruption();
            held.lost.send();
            if Instant::now() < held.renew_until {
                debug!(%lock, entity = %held.entity, "a lock was lost: its message is redelivered");
            } else {
                warn!(
                    %lock, entity = %held.entity,
                    "a lock expired, and its message is redelivered: its delivery took longer than `max_lock_renewal`"
                );
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Uuid, RenewedLock>> {
        self.held.lock()
    }
}

/// Returns how long a lock lasts from now on. It compares the clocks of the broker and this process: if they differ by much,
/// renewing too early is better.
pub(crate) fn lasts(now: SystemTime, until: Option<SystemTime>) -> Duration {
    // A time beyond reason says nothing: the lock is renewed as one of which nothing is known.
    match until.and_then(|until| plausible(until, now)) {
        Some(until) => until.duration_since(now).unwrap_or_default().max(Duration::from_millis(100)),
        None => ASSUMED_LOCK_DURATION,
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::TransportErrorKind;

    use super::*;

    #[test]
    fn an_outage_that_is_over_when_it_is_told_hides_no_link_of_the_next_connection() {
        let (locks, entity) = (Arc::<Locks>::default(), Arc::from("orders"));
        let lost = || TransportError::new(TransportErrorKind::Unreachable, "lost");
        let is_told = || matches!(locks.reachable().signal(), Signal::Disconnected(_));
        locks.signal_outage(lost(), || false);
        assert!(is_told());
        let receiving = locks.receiving(&entity);
        locks.signal_outage(lost(), || {
            assert!(
                locks.reachable.try_lock().is_none(),
                "no link begins between the question and the record"
            );
            true
        });
        assert!(!is_told());
        drop(receiving);
    }

    #[test]
    fn a_lock_lasts_as_long_as_the_broker_says() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        assert_eq!(lasts(now, Some(now + Duration::from_secs(30))), Duration::from_secs(30));
        assert_eq!(lasts(now, None), ASSUMED_LOCK_DURATION);
        for absurd in [SystemTime::UNIX_EPOCH, now + Duration::from_secs(u64::from(u32::MAX))] {
            assert_eq!(lasts(now, Some(absurd)), ASSUMED_LOCK_DURATION);
        }
        // The clocks differ: the lock is renewed at once, but with pauses.
        assert_eq!(lasts(now, Some(now - Duration::from_secs(30))), Duration::from_millis(100));
    }
}
