//! Notices a stack that is not ready, if nothing will ever make it so. Waits for nothing: [`Stacks`](super::stacks::Stacks) does.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::readiness::WaitsFor;

/// How long a stack may be not ready before that is reported, while no call runs whose end could make it ready.
const NOT_READY_AFTER: Duration = Duration::from_secs(60);
/// Time between two looks at a stack that is not ready.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What the consumer knows of the readiness of its stacks.
#[derive(Default)]
pub(crate) struct Readiness {
    /// Number of calls that run now: each may hold what another stack waits for.
    calls: AtomicUsize,
    /// True while `wait` is some: a stack that is ready at once costs one comparison.
    waits: AtomicBool,
    wait: Mutex<Option<Wait>>,
}

/// A running call, until it is dropped.
pub(crate) struct Call<'a>(&'a AtomicUsize);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Readiness {
    /// Counts a call, until the guard is dropped.
    pub(crate) fn call(&self) -> Call<'_> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Call(&self.calls)
    }

    fn wait(&self) -> MutexGuard<'_, Option<Wait>> {
        self.wait.lock()
    }

    /// Returns when to look next at a stack that is not ready.
    pub(super) fn next_look(&self) -> Instant {
        let mut wait = self.wait();
        self.waits.store(true, Ordering::Relaxed);
        wait.get_or_insert_with(|| Wait::begin(Instant::now())).next_look
    }

    pub(super) fn look(&self, waits_for: WaitsFor) -> Option<Look> {
        let idle = self.calls.load(Ordering::Relaxed) == 0;
        self.wait().as_mut()?.look(Instant::now(), idle, waits_for)
    }

    /// Ends the wait. Returns what was reported in it.
    pub(super) fn end(&self) -> Option<Cause> {
        if !self.waits.load(Ordering::Relaxed) {
            return None;
        }
        let mut wait = self.wait();
        self.waits.store(false, Ordering::Relaxed);
        wait.take()?.reported
    }
}

/// A time in which a stack was wanted and none was ready.
#[derive(Debug)]
struct Wait {
    next_look: Instant,
    /// Since when no call has run, and the stack has waited for the same.
    since: Option<Cause>,
    reported: Option<Cause>,
}

/// What keeps a stack from being ready, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) waits_for: WaitsFor,
    pub(super) since: Instant,
}

/// Result of a look at a stack that has not been ready for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// To be reported, after the end of what was reported before.
    Found {
        cause: Cause,
        instead_of: Option<Cause>,
    },
    Reported,
}

impl Wait {
    fn begin(now: Instant) -> Self {
        Self { next_look: now + LOOK_EVERY, since: None, reported: None }
    }

    /// Looks at the stack, which is not ready. `idle`: no call runs whose end could make it ready.
    fn look(&mut self, now: Instant, idle: bool, waits_for: WaitsFor) -> Option<Look> {
        let previous_look = self.next_look - LOOK_EVERY;
        self.next_look = now + LOOK_EVERY;
        if !idle {
            self.since = None;
            return None;
        }
        let same = self.since.filter(|cause| cause.waits_for == waits_for);
        let cause = same.unwrap_or(Cause { waits_for, since: previous_look });
        self.since = Some(cause);
        if now.saturating_duration_since(cause.since) < NOT_READY_AFTER {
            return None;
        }
        if self.reported.is_some_and(|reported| reported.waits_for == waits_for) {
            return Some(Look::Reported);
        }
        Some(Look::Found { cause, instead_of: self.reported.replace(cause) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every ten seconds, and returns after how many seconds something was reported.
    fn reports(looks: &[(bool, WaitsFor)]) -> Vec<(u64, WaitsFor)> {
        let begin = Instant::now();
        let mut wait = Wait::begin(begin);
        let mut reports = Vec::new();
        for &(idle, waits_for) in looks {
            let now = wait.next_look;
            if let Some(Look::Found { cause, .. }) = wait.look(now, idle, waits_for) {
                reports.push(((now - begin).as_secs(), cause.waits_for));
            }
        }
        reports
    }

    #[test]
    fn a_minute_in_which_nothing_runs_is_reported_once() {
        let waits = [(true, WaitsFor::Service); 20];
        assert_eq!(reports(&waits), [(60, WaitsFor::Service)]);
    }

    #[test]
    fn a_call_that_runs_may_be_what_is_waited_for() {
        let mut waits = [(true, WaitsFor::Service); 12];
        waits[4].0 = false;
        assert_eq!(reports(&waits), [(110, WaitsFor::Service)]);
        assert_eq!(reports(&[(false, WaitsFor::Service); 100]), []);
    }

    #[test]
    fn what_is_waited_for_may_change() {
        let (limit, service) = (WaitsFor::RateLimit, WaitsFor::Service);
        let waits = [[(true, limit); 8].as_slice(), &[(true, service); 8]].concat();
        assert_eq!(reports(&waits), [(60, limit), (140, service)]);
    }
}
