//! The locks of deliveries in flight. They are renewed until the deliveries are settled.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use redrive_core::{Signal, Signals, TransportError};
use redrive_transport::LossSignal;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};
use uuid::Uuid;

use crate::connection::ReconnectingConnection;
use crate::convert::later::later;
use crate::error::Refusal;
use crate::wire::{Handle, Tag};

/// The most locks that one request renews.
const LOCKS_PER_REQUEST: usize = 100;
/// The assumed duration of a lock if the broker does not report it: the shortest that Azure allows.
pub(crate) const ASSUMED_LOCK_DURATION: Duration = Duration::from_secs(5);
/// The minimum time to wait for the broker's answer when a lock has expired by the local clock: the clocks may differ.
const MIN_EXPIRY_WAIT: Duration = Duration::from_secs(1);
/// The wait before the next attempt to renew a lock.
pub(super) const RENEWAL_RETRY_WAIT: Duration = Duration::from_secs(1);

/// The locks of all deliveries in flight, and whom to tell when deliveries are lost.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    held: Mutex<HashMap<Uuid, RenewedLock>>,
    changed: Notify,
    /// The consumer, once the transport is open.
    signals: OnceLock<Signals>,
}

/// A lock, and how to give its message back.
#[derive(Clone, Debug)]
pub(crate) struct RenewedLock {
    pub(crate) entity: Arc<str>,
    pub(crate) tag: Tag,
    pub(crate) handle: Arc<dyn Handle>,
    pub(crate) lost: Arc<LossSignal>,
    sequence_number: i64,
    renew_at: Instant,
    /// A request to renew it is on its way.
    renewing: bool,
    runs_out: Instant,
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
            runs_out: now + lasts.max(MIN_EXPIRY_WAIT),
            renew_until: later(now, longest_renewal),
        }
    }

    /// Whether it is to be renewed at all.
    fn waits_to_be_renewed(&self) -> bool {
        !self.renewing && self.renew_at < self.renew_until
    }

    /// When something is to be done for it.
    fn due_at(&self) -> Instant {
        if self.waits_to_be_renewed() { self.renew_at } else { self.runs_out }
    }
}

impl Locks {
    /// From now on losses are told to the consumer.
    pub(crate) fn set_signals(&self, signals: Signals) {
        // A transport is opened once.
        let _ = self.signals.set(signals);
    }

    /// Tells whether deliveries can be taken. Of several intakes the last word counts: each tries again until it succeeds.
    pub(crate) fn signal_connection(&self, connection: Result<(), TransportError>) {
        if let Some(signals) = self.signals.get() {
            signals.send_connection(connection);
        }
    }

    /// Tells that deliveries in flight were lost, and come again. They have numbers of the broker: nobody needs to know which of
    /// them were never received.
    pub(crate) fn signal_interruption(&self) {
        if let Some(signals) = self.signals.get() {
            signals.send(Signal::Interrupted { unreceived: Vec::new() });
        }
    }

    pub(crate) fn enter(&self, lock: Uuid, held: RenewedLock) {
        self.held().insert(lock, held);
        self.changed.notify_one();
    }

    /// Removes a delivery that is no longer in flight.
    pub(crate) fn leave(&self, lock: &Uuid) {
        self.held().remove(lock);
    }

    /// Removes all, and tells their deliveries that they are lost.
    pub(crate) fn take_all(&self) -> Vec<(Uuid, RenewedLock)> {
        let all: Vec<_> = self.held().drain().collect();
        for (_, held) in &all {
            held.lost.send();
        }
        all
    }

    /// The message was delivered again: an earlier delivery of it is lost.
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

    /// Renews locks when they are due, and reports those that ran out. Never ends.
    pub(crate) async fn keep(&self, connection: &ReconnectingConnection) {
        let mut renewals = FuturesUnordered::new();
        loop {
            let next = self.held().values().map(RenewedLock::due_at).min();
            tokio::select! {
                () = self.changed.notified() => {}
                Some(()) = renewals.next() => {}
                // An answer that does not come must not keep the others from being renewed, nor from being lost.
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

    /// The locks to renew now, by entity. Those that ran out are lost.
    fn take_due(&self, now: Instant) -> HashMap<Arc<str>, Vec<Uuid>> {
        let mut due: HashMap<Arc<str>, Vec<Uuid>> = HashMap::new();
        let mut ran_out = Vec::new();
        for (lock, held) in self.held().iter_mut() {
            // A little ahead, so that those which came together stay together.
            let soon = now + (held.runs_out - now) / 8;
            if held.runs_out <= now {
                ran_out.push(*lock);
            } else if held.waits_to_be_renewed() && held.renew_at <= soon {
                held.renewing = true;
                due.entry(Arc::clone(&held.entity)).or_default().push(*lock);
            }
        }
        for lock in ran_out {
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
                // One of them is lost; which one, only each by itself can tell.
                _ => {
                    for lock in locks {
                        Box::pin(self.renew(connection, entity, std::slice::from_ref(lock))).await;
                    }
                }
            },
            Err(error) => {
                warn!(%entity, locks = locks.len(), %error, "locks could not be renewed");
                self.try_again(locks);
            }
        }
    }

    fn holds_until(&self, lock: &Uuid, until: SystemTime) {
        if let Some(held) = self.held().get_mut(lock) {
            let (now, lasts) = (Instant::now(), lasts(SystemTime::now(), Some(until)));
            held.renew_at = now + lasts / 2;
            held.renewing = false;
            held.runs_out = now + lasts.max(MIN_EXPIRY_WAIT);
        }
    }

    fn try_again(&self, locks: &[Uuid]) {
        let now = Instant::now();
        for lock in locks {
            let mut all = self.held();
            let Some(held) = all.get_mut(lock) else { continue };
            if held.runs_out <= now {
                drop(all);
                self.lose(lock);
            } else {
                held.renew_at = (now + RENEWAL_RETRY_WAIT).min(held.runs_out);
                held.renewing = false;
            }
        }
    }

    fn lose(&self, lock: &Uuid) {
        let lost = self.held().remove(lock);
        if let Some(held) = lost {
            // Before the loss signal: whoever receives that may ask at once.
            self.signal_interruption();
            held.lost.send();
            if Instant::now() < held.renew_until {
                debug!(%lock, entity = %held.entity, "a lock was lost: its message comes again");
            } else {
                warn!(
                    %lock, entity = %held.entity,
                    "a lock ran out, and its message comes again: it took longer than `max_lock_renewal`"
                );
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Uuid, RenewedLock>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a lock lasts from now on. By the broker's clock and ours: where they differ by much, too early is better.
pub(crate) fn lasts(now: SystemTime, until: Option<SystemTime>) -> Duration {
    match until {
        Some(until) => until.duration_since(now).unwrap_or_default().max(Duration::from_millis(100)),
        None => ASSUMED_LOCK_DURATION,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_lasts_as_long_as_the_broker_says() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        assert_eq!(lasts(now, Some(now + Duration::from_secs(30))), Duration::from_secs(30));
        assert_eq!(lasts(now, None), ASSUMED_LOCK_DURATION);
        // The clocks differ: it is tried at once, and not for ever without a pause.
        assert_eq!(lasts(now, Some(now - Duration::from_secs(30))), Duration::from_millis(100));
    }
}
