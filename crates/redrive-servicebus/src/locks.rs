//! The locks of all deliveries in hand, renewed until they are settled.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};
use uuid::Uuid;

use crate::connection::Link;
use crate::error::Refusal;
use crate::wire::{Handle, Tag};

/// How many locks are renewed by one request.
const AT_ONCE: usize = 100;
/// How long a lock holds where the broker does not say: the shortest that Azure gives.
const UNKNOWN: Duration = Duration::from_secs(5);
/// When to try again where the broker could not be asked.
const AGAIN: Duration = Duration::from_secs(1);

/// All locks in hand.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    held: Mutex<HashMap<Uuid, Held>>,
    changed: Notify,
}

/// A lock, and how to give its message back.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) entity: Arc<str>,
    pub(crate) tag: Tag,
    pub(crate) handle: Arc<dyn Handle>,
    pub(crate) lost: Arc<AtomicBool>,
    /// None: not any more, it may run out.
    renew_at: Option<Instant>,
    runs_out: Instant,
    renew_until: Instant,
}

impl Held {
    pub(crate) fn new(
        entity: Arc<str>,
        tag: Tag,
        handle: Arc<dyn Handle>,
        locked_until: Option<SystemTime>,
        longest_renewal: Duration,
    ) -> Self {
        let now = Instant::now();
        let lasts = lasts(SystemTime::now(), locked_until);
        Self {
            entity,
            tag,
            handle,
            lost: Arc::default(),
            renew_at: Some(now + lasts / 2),
            runs_out: now + lasts,
            renew_until: now + longest_renewal,
        }
    }
}

impl Locks {
    pub(crate) fn enter(&self, lock: Uuid, held: Held) {
        self.held().insert(lock, held);
        self.changed.notify_one();
    }

    /// No longer in hand.
    pub(crate) fn leave(&self, lock: &Uuid) {
        self.held().remove(lock);
    }

    /// All of them, out of hand.
    pub(crate) fn take_all(&self) -> Vec<(Uuid, Held)> {
        let all: Vec<_> = self.held().drain().collect();
        for (_, held) in &all {
            held.lost.store(true, Ordering::Release);
        }
        all
    }

    /// Renews what is due, for ever.
    pub(crate) async fn keep(&self, link: &Link) {
        loop {
            let next = self.held().values().filter_map(|held| held.renew_at).min();
            match next {
                None => self.changed.notified().await,
                Some(next) if next > Instant::now() => tokio::select! {
                    () = self.changed.notified() => {}
                    () = sleep_until(next) => {}
                },
                Some(_) => {
                    for (entity, locks) in self.take_due(Instant::now()) {
                        for some in locks.chunks(AT_ONCE) {
                            self.renew(link, &entity, some).await;
                        }
                    }
                }
            }
        }
    }

    /// What is due, by entity; not due again until it is known how that went.
    fn take_due(&self, now: Instant) -> HashMap<Arc<str>, Vec<Uuid>> {
        let mut due: HashMap<Arc<str>, Vec<Uuid>> = HashMap::new();
        for (lock, held) in self.held().iter_mut() {
            // A little ahead, so that those which came together stay together.
            if held.renew_at.is_none_or(|at| at > now + (held.runs_out - now) / 8) {
                continue;
            }
            held.renew_at = None;
            if now < held.renew_until {
                due.entry(Arc::clone(&held.entity)).or_default().push(*lock);
            } else {
                debug!(%lock, "a lock is not renewed any more: its delivery takes longer than `max_lock_renewal`");
            }
        }
        due
    }

    async fn renew(&self, link: &Link, entity: &str, locks: &[Uuid]) {
        let renewed = match link.live().await {
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
                        Box::pin(self.renew(link, entity, std::slice::from_ref(lock))).await;
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
            held.renew_at = Some(now + lasts / 2);
            held.runs_out = now + lasts;
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
                held.renew_at = Some((now + AGAIN).min(held.runs_out));
            }
        }
    }

    fn lose(&self, lock: &Uuid) {
        if let Some(held) = self.held().remove(lock) {
            held.lost.store(true, Ordering::Release);
            debug!(%lock, entity = %held.entity, "a lock was lost: its message comes again");
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Uuid, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a lock lasts from now on. By the broker's clock and ours: where they differ by much, too early is better.
pub(crate) fn lasts(now: SystemTime, until: Option<SystemTime>) -> Duration {
    match until {
        Some(until) => until.duration_since(now).unwrap_or_default().max(Duration::from_millis(100)),
        None => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_lasts_as_long_as_the_broker_says() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        assert_eq!(lasts(now, Some(now + Duration::from_secs(30))), Duration::from_secs(30));
        assert_eq!(lasts(now, None), UNKNOWN);
        // The clocks differ: it is tried at once, and not for ever without a pause.
        assert_eq!(lasts(now, Some(now - Duration::from_secs(30))), Duration::from_millis(100));
    }
}
