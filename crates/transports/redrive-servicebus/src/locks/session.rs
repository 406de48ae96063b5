//! A held session: the state that its intake and the receipts of its messages share.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use redrive_core::FailureHistory;
use redrive_transport::LossSignal;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};
use uuid::Uuid;

use super::{RENEWAL_RETRY_WAIT, lasts};
use crate::convert::Incoming;
use crate::convert::later::later;
use crate::wire::{SessionRef, Wire};

/// The time by which a lock may last longer by the broker's clock than by the local one. When a lock expires, the broker ends the
/// link and counts the message in flight. Releasing the session earlier is not counted: a message that always takes too long
/// would be redelivered forever.
const EXPIRY_GRACE: Duration = Duration::from_secs(5);

/// A held session. Its lock covers all of its messages: if it is lost, they are lost too.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) reference: SessionRef,
    pub(crate) lost: Arc<LossSignal>,
    gone: Notify,
    current: Mutex<CurrentDelivery>,
    freed: Notify,
}

/// The only message that may be in flight, and the follow-up of the last one.
#[derive(Debug, Default)]
struct CurrentDelivery {
    since: Option<Instant>,
    follow_up: FollowUp,
}

/// The steps after a delivery, before the next message is requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FollowUp {
    /// The lock of a message whose receipt was dropped: it is abandoned first, so that no later message comes before it.
    pub(crate) give_back: Option<Uuid>,
    /// The time until which the message waits at the head of the session for its next attempt.
    pub(crate) rest_until: Option<Instant>,
}

impl Session {
    pub(crate) fn new(reference: SessionRef) -> Self {
        Self {
            reference,
            lost: Arc::default(),
            gone: Notify::new(),
            current: Mutex::default(),
            freed: Notify::new(),
        }
    }

    /// Records that a message of the session is in flight.
    pub(crate) fn take(&self) {
        *self.current() = CurrentDelivery { since: Some(Instant::now()), follow_up: FollowUp::default() };
    }

    /// Pauses the session until the wait of a message is over that was given back with its next attempt written on it.
    pub(crate) fn rest(&self, wait: Duration) {
        self.current().follow_up.rest_until = Some(later(Instant::now(), wait));
    }

    /// Records that the message is no longer in flight, and the lock to give back, if any. May be called in any thread.
    pub(crate) fn free(&self, give_back: Option<Uuid>) {
        let mut current = self.current();
        current.since = None;
        current.follow_up.give_back = give_back;
        drop(current);
        self.freed.notify_one();
    }

    /// Waits until the message is no longer in flight.
    pub(crate) async fn freed(&self) -> FollowUp {
        self.freed.notified().await;
        std::mem::take(&mut self.current().follow_up)
    }

    /// Signals that the lock of the session is lost, and with it the message in flight.
    pub(crate) fn lose(&self) {
        self.lost.send();
        self.gone.notify_one();
    }

    /// Waits until the session is lost. Only one caller may wait.
    pub(crate) async fn gone(&self) {
        self.gone.notified().await;
    }

    /// Renews the lock until it is lost. The lock is not renewed, and expires, while one message is in flight for longer than
    /// `longest`.
    pub(crate) async fn keep(
        self: Arc<Self>,
        wire: Arc<dyn Wire>,
        entity: Arc<str>,
        locked_until: Option<SystemTime>,
        longest: Duration,
    ) {
        let mut lock = Lock::until(locked_until);
        loop {
            sleep_until(lock.renew_at).await;
            let now = Instant::now();
            if self.in_flight_since().is_some_and(|since| now.duration_since(since) >= longest) {
                debug!(
                    %entity, session = %self.reference.id,
                    "a delivery takes longer than `max_lock_renewal`: its session is not renewed"
                );
                lock.renew_at = (now + RENEWAL_RETRY_WAIT).min(lock.expires_at);
            } else {
                match wire.renew_session(&entity, &self.reference).await {
                    Ok(until) => {
                        lock = Lock::until(Some(until));
                        continue;
                    }
                    Err(error) if error.is_lock_lost() => return self.lose(),
                    Err(error) => {
                        warn!(%entity, session = %self.reference.id, %error, "the lock of a session could not be renewed");
                        lock.renew_at = (Instant::now() + RENEWAL_RETRY_WAIT).min(lock.expires_at);
                    }
                }
            }
            if lock.expires_at <= Instant::now() {
                return self.lose();
            }
        }
    }

    fn in_flight_since(&self) -> Option<Instant> {
        self.current().since
    }

    fn current(&self) -> MutexGuard<'_, CurrentDelivery> {
        self.current.lock()
    }
}

/// A session and the task that renews its lock. Dropping it ends both.
pub(crate) struct HeldSession {
    pub(crate) session: Arc<Session>,
    keeper: JoinHandle<()>,
}

impl HeldSession {
    pub(crate) fn begin(
        reference: SessionRef,
        wire: &Arc<dyn Wire>,
        path: &Arc<str>,
        locked_until: Option<SystemTime>,
        longest: Duration,
    ) -> Self {
        let session = Arc::new(Session::new(reference));
        let (kept, wire, path) = (Arc::clone(&session), Arc::clone(wire), Arc::clone(path));
        Self { session, keeper: tokio::spawn(kept.keep(wire, path, locked_until, longest)) }
    }
}

impl Drop for HeldSession {
    fn drop(&mut self) {
        self.keeper.abort();
        self.session.lose();
    }
}

/// Returns the remaining wait of a message that was given back to wait, and came early because its session was released
/// meanwhile. Only a wait that this transport wrote on this message counts: otherwise a publisher could block the session.
/// If more remains than both the whole wait and `longest`, the clocks differ, and the wait is over.
pub(crate) fn remaining_wait(incoming: &Incoming, longest: Duration, now: SystemTime) -> Option<Duration> {
    let (_, wait) = incoming.given_back()?;
    let remaining = FailureHistory::read(&incoming.message).believed(now).due_at?.duration_since(now).ok()?;
    (remaining <= wait.max(longest)).then_some(remaining)
}

/// The lock of a session.
struct Lock {
    renew_at: Instant,
    expires_at: Instant,
}

impl Lock {
    fn until(until: Option<SystemTime>) -> Self {
        let (now, lasts) = (Instant::now(), lasts(SystemTime::now(), until));
        Self { renew_at: now + lasts / 2, expires_at: now + lasts + EXPIRY_GRACE }
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::{Message, header_names as names};

    use super::*;

    fn incoming(counted: &str, due_at: &str) -> Incoming {
        Incoming {
            message: Message::new("").with_header(names::HOP, 1_i64).with_header(names::DUE_AT, due_at),
            sequence_number: 7,
            delivery_count: 2,
            counted: Some(counted.to_owned()),
            ..Incoming::default()
        }
    }

    #[test]
    fn only_what_was_given_back_to_wait_is_early() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800);
        let remaining = |counted, due_at| {
            let remaining = remaining_wait(&incoming(counted, due_at), Duration::from_secs(300), now);
            remaining.map(|remaining| remaining.as_secs())
        };
        let soon = "2020-01-01T00:00:05Z";
        assert_eq!(remaining("7:1:60000", soon), Some(5));
        assert_eq!(remaining("7:1", soon), None, "no wait is written on it");
        assert_eq!(remaining("8:1:60000", soon), None, "it was written on another message");
        assert_eq!(remaining("7:3:60000", soon), None, "it was not given back so often");
        assert_eq!(remaining("7:1:60000", "2019-12-31T23:59:59Z"), None, "its wait is over");
        assert_eq!(remaining("7:1:60000", "soon"), None);
        let in_an_hour = "2020-01-01T01:00:00Z";
        assert_eq!(remaining("7:1:3600000", in_an_hour), Some(3600), "an error asked for it");
        assert_eq!(remaining("7:1:60000", in_an_hour), None, "the clock was set back");
    }
}
