//! Stores messages that wait in a delay queue.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use redrive_core::transport::{Origin, Planning, Settlement};
use redrive_core::{FailureHistory, Message, TransportError, TransportErrorKind, rfc3339};
use tracing::{Level, event_enabled, info, warn};

use super::CopyStore;
use crate::convert::Form;
use crate::delay::DelayStrategy;
use crate::error;
use crate::publish::Caller;
use crate::topology::Route;

/// A message that is held for longer than it asked for by more than a tenth, and by more than this, is late.
const LATE_FROM: Duration = Duration::from_millis(100);

/// A message that waits.
pub(crate) struct Waiting<'a> {
    /// How long it waits at least in its next delay queue; what remains of its wait after that is written on it.
    pub(crate) wait: Duration,
    pub(crate) message: Message,
    /// Where its original came from, if known.
    pub(crate) origin: Option<&'a Origin>,
    pub(crate) form: Form,
    pub(crate) caller: Caller,
}

impl CopyStore {
    /// Stores a message in the delay queue of its wait. If the broker lets nobody declare a spare one, the wait is put together from
    /// those that are there.
    pub(crate) async fn store_waiting(&self, mut waiting: Waiting<'_>) -> Result<(), TransportError> {
        loop {
            let strategy = self.facts.strategy();
            if is_late(&*strategy, waiting.wait) {
                // The plan may be older than the strategy.
                self.plan_again(&mut waiting)?;
            }
            let Waiting { wait, message, origin, form, caller } = &mut waiting;
            let route = match origin {
                Some(origin) => strategy.route_from(origin, *wait, message),
                None => strategy.route(*wait, message),
            };
            let route = route.ok_or_else(|| self.no_delay_queue(*wait))?;
            let held_for = strategy.held_for(*wait);
            let is_told = *form != Form::Published && event_enabled!(Level::INFO);
            let held = held_for.filter(|_| is_told).map(|held| HeldBack::of(message, held));
            // Only the queue of a spare one may not come about.
            let kept = strategy.spare(&route).map(|_| message.clone());
            let message = std::mem::take(message);
            let stored = match form {
                // A publisher waits for a new queue only if it declared that itself.
                Form::Published => self.publish_declaring(&route, message, *form, *caller).await,
                _ => self.store(&route, message, *form, *caller).await,
            };
            waiting.message = kept.unwrap_or_default();
            match stored {
                Ok(()) => {
                    self.tell_late(&route, waiting.wait, held_for);
                    if let Some(held) = held {
                        held.log(&route);
                    }
                    return Ok(());
                }
                Err(error) if error::is_not_declared(&error) && self.facts.leave_out(&route) => {
                    warn!(
                        queue = %self.plan.names.work, delay_queue = route.target(), %error,
                        "no further delay queue can be declared: longer waits are composed of the existing ones"
                    );
                    self.plan_again(&mut waiting)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Plans the whole rest of a wait for the delay queues that are there now.
    fn plan_again(&self, waiting: &mut Waiting<'_>) -> Result<(), TransportError> {
        let left = FailureHistory::read(&waiting.message).wait_left.unwrap_or_default();
        let planned = self.planned(&waiting.message, waiting.wait.saturating_add(left))?;
        (waiting.wait, waiting.message) = planned;
        Ok(())
    }

    /// Returns the first hop of a wait, and the message with the headers for it.
    pub(crate) fn planned(
        &self,
        message: &Message,
        wait: Duration,
    ) -> Result<(Duration, Message), TransportError> {
        let mut facts = self.facts.facts();
        // Before the transport is open, they are not part of the facts.
        facts.delays.hop_durations = Some(self.facts.strategy().hops());
        match Settlement::moved(message, wait, &Planning::new(SystemTime::now(), &facts)) {
            Some(Settlement::Reschedule { wait, copy }) => Ok((wait, copy)),
            _ => {
                let message = "the headers leave no room for the time when the message is due";
                Err(TransportError::new(TransportErrorKind::TooLarge, message))
            }
        }
    }

    /// Tells once how late waits are that no delay queue fits.
    fn tell_late(&self, route: &Route, wait: Duration, held_for: Option<Duration>) {
        let Some(held_for) = held_for.filter(|&held_for| late(wait, held_for)) else { return };
        if self.told_late.swap(true, Ordering::Relaxed) {
            return;
        }
        let queue = &self.plan.names.work;
        let (wait, held_for) = (humantime::format_duration(wait), humantime::format_duration(held_for));
        warn!(
            %queue, delay_queue = route.target(), %wait, %held_for,
            "late: no delay queue fits this wait, and none is declared for it; name the wait with `Options::wait`, and have its queue \
             declared. Later waits that are late are not told"
        );
    }
}

fn is_late(strategy: &dyn DelayStrategy, wait: Duration) -> bool {
    strategy.held_for(wait).is_none_or(|held_for| late(wait, held_for))
}

fn late(wait: Duration, held_for: Duration) -> bool {
    held_for.saturating_sub(wait) > LATE_FROM.max(wait / 10)
}

/// A waiting copy, for the log: its queue may hold it longer than requested, and may be new.
struct HeldBack {
    id: Option<String>,
    held_for: Duration,
    /// After further hops.
    not_before: Option<SystemTime>,
}

impl HeldBack {
    fn of(copy: &Message, held_for: Duration) -> Self {
        let not_before = FailureHistory::read(copy).believed(SystemTime::now()).not_before;
        Self { id: copy.id().map(str::to_owned), held_for, not_before }
    }

    fn log(self, route: &Route) {
        let due = SystemTime::now().checked_add(self.held_for).max(self.not_before);
        let due_at = due.and_then(rfc3339).unwrap_or_else(|| "after the year 9999".to_owned());
        let held_for = humantime::format_duration(self.held_for);
        info!(
            target: "redrive_rabbitmq::settle",
            message_id = self.id, rests_in = route.target(), %held_for, %due_at, "the message waits"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_late_by_more_than_a_tenth() {
        let late = |wait, held| super::late(Duration::from_millis(wait), Duration::from_millis(held));
        assert!(!late(10_000, 11_000) && late(10_000, 11_001));
        assert!(!late(10, 50) && late(10, 111), "a tenth of a second is no lateness");
    }
}
