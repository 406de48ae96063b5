//! Health of a consumer: the value, what changes it, and the answers to probes.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Health of a consumer at one moment; see [`ConsumerHandle::health`](crate::ConsumerHandle::health). Several things may be wrong
/// at the same time. `Display` lists all of them in one line, for the body of a health page.
///
/// | | [`is_live`](Self::is_live): a restart would not help | [`is_ready`](Self::is_ready): takes messages now |
/// |---|---|---|
/// | starting | yes | no |
/// | running | yes | yes |
/// | paused, by an operator or because copies cannot be stored | yes | no |
/// | a layer is not ready, and nothing is handled whose end could make it ready | yes | no |
/// | a rate limit allows no message yet, or messages are handled one at a time because one may have killed a process | yes | yes |
/// | partly interrupted: one of several queues cannot be received from | yes | yes |
/// | interrupted: the broker cannot be reached, or refuses to hand out messages | yes | no |
/// | stopping, or stopped as asked | yes | no |
/// | ended with an error | no | no |
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Where the consumer is between its start and its end.
    pub phase: Phase,
    /// How long [`ConsumerHandle::pause`](crate::ConsumerHandle::pause) has paused it.
    pub paused_for: Option<Duration>,
    /// How long it has taken no messages because copies of failed messages cannot be stored.
    pub blocked_for: Option<Duration>,
    /// How long it has been unable to receive, because the broker cannot be reached or refuses. It keeps trying.
    pub interrupted_for: Option<Duration>,
    /// How long it has been unable to receive from one of several queues, which [`error`](Self::error) names. It receives from the
    /// others, and keeps trying.
    pub partly_interrupted_for: Option<Duration>,
    /// How long a layer has not been ready, if that is for a minute in which nothing was handled whose end could make it ready.
    pub not_ready_for: Option<Duration>,
    /// The layer that is not ready, and the call of [`Consumer::layer`](crate::Consumer::layer) that added it.
    pub layer: Option<String>,
    /// How long a [`RateLimit`](crate::RateLimit) has allowed no message, if for a minute or more.
    pub rate_limited_for: Option<Duration>,
    /// How long it has handled messages [one at a time](crate::Suspects), because one of them may have killed a process.
    pub isolated_for: Option<Duration>,
    /// How long its [ledger](crate::Consumer::ledger) has not been written: the file or its folder is gone, the disk is full, or another
    /// consumer has it. Messages are handled all the same, so this changes neither [`is_live`](Self::is_live) nor
    /// [`is_ready`](Self::is_ready); a death of the process is not counted.
    pub ledger_failing_for: Option<Duration>,
    /// Why it is interrupted or partly interrupted, or why it ended.
    pub error: Option<String>,
}

/// Where a consumer is between its start and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// It has not run yet, or it is connecting and preparing its queues.
    Starting,
    /// It has started.
    Running,
    /// It takes no more messages, and lets handlers finish.
    Stopping,
    /// It ended on request.
    Stopped,
    /// It ended with an error, which `run_until` returns.
    Failed,
}

impl Health {
    /// Returns false once the consumer has ended with an error, and true otherwise: the answer to a liveness probe. A broker that
    /// cannot be reached is no reason to restart the process: the transport reconnects by itself.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.phase != Phase::Failed
    }

    /// Returns true if the consumer takes messages now: the answer to a readiness probe, and the value to alert on.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let wrong = [self.paused_for, self.blocked_for, self.interrupted_for, self.not_ready_for];
        self.phase == Phase::Running && wrong.iter().all(Option::is_none)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.phase {
            Phase::Starting => "starting",
            Phase::Running if self.is_ready() => "running",
            Phase::Running => "not taking messages",
            Phase::Stopping => "stopping",
            Phase::Stopped => "stopped",
            Phase::Failed => "failed",
        })?;
        let whole_seconds = |time: Duration| humantime::format_duration(Duration::from_secs(time.as_secs()));
        let not_ready = format!("{} not ready", self.layer.as_deref().unwrap_or("a layer"));
        // Nothing is received in a pause: whether the cause is over shows at its end.
        let interrupted = match self.paused_for {
            Some(_) => "interrupted when it was last tried (again when the pause ends)",
            None => "interrupted (it tries again)",
        };
        let reasons = [
            ("paused", self.paused_for),
            ("copies cannot be stored", self.blocked_for),
            (interrupted, self.interrupted_for),
            ("cannot receive from one of its queues (it tries again)", self.partly_interrupted_for),
            ("rate limited", self.rate_limited_for),
            ("one message at a time", self.isolated_for),
            (&not_ready, self.not_ready_for),
            ("the ledger is not written", self.ledger_failing_for),
        ];
        for (reason, time) in reasons {
            if let Some(time) = time {
                write!(f, ", {reason} for {}", whole_seconds(time))?;
            }
        }
        match &self.error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}

/// A change of a consumer's health.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Started,
    Paused,
    Resumed,
    Blocked,
    Unblocked,
    Interrupted(String),
    PartlyInterrupted(String),
    Recovered,
    NotReady { layer: String, since: Instant },
    Ready,
    RateLimited(Instant),
    RateLimitEnded,
    Isolated,
    IsolationEnded,
    LedgerFailing,
    LedgerWritten,
    Stopping,
    Ended(Option<String>),
}

/// The health, with the times at which its states began.
#[derive(Clone, Debug)]
pub(crate) struct HealthState {
    phase: Phase,
    paused: Option<Instant>,
    blocked: Option<Instant>,
    interrupted: Option<Instant>,
    partly_interrupted: Option<Instant>,
    not_ready: Option<(Instant, String)>,
    rate_limited: Option<Instant>,
    isolated: Option<Instant>,
    ledger_failing: Option<Instant>,
    error: Option<String>,
}

impl HealthState {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Starting,
            paused: None,
            blocked: None,
            interrupted: None,
            partly_interrupted: None,
            not_ready: None,
            rate_limited: None,
            isolated: None,
            ledger_failing: None,
            error: None,
        }
    }

    /// Applies a change. Returns true if the health changed.
    pub(crate) fn apply(&mut self, change: &Change, now: Instant) -> bool {
        let begin = |since: &mut Option<Instant>| since.is_none() && since.replace(now).is_none();
        let end = |since: &mut Option<Instant>| since.take().is_some();
        if matches!(self.phase, Phase::Stopped | Phase::Failed) {
            // The transport may still tell how it parts from the broker.
            return false;
        }
        match change {
            Change::Started => std::mem::replace(&mut self.phase, Phase::Running) != Phase::Running,
            Change::Paused => begin(&mut self.paused),
            Change::Resumed => end(&mut self.paused),
            Change::Blocked => begin(&mut self.blocked),
            Change::Unblocked => end(&mut self.blocked),
            Change::Interrupted(error) => {
                self.error = Some(error.clone());
                self.partly_interrupted = None;
                begin(&mut self.interrupted)
            }
            Change::PartlyInterrupted(error) => {
                self.error = Some(error.clone());
                self.interrupted = None;
                begin(&mut self.partly_interrupted)
            }
            Change::Recovered => {
                let was_interrupted = end(&mut self.interrupted) | end(&mut self.partly_interrupted);
                if was_interrupted {
                    self.error = None;
                }
                was_interrupted
            }
            Change::NotReady { layer, since } => self.not_ready.replace((*since, layer.clone())).is_none(),
            Change::Ready => self.not_ready.take().is_some(),
            Change::RateLimited(since) => self.rate_limited.replace(*since).is_none(),
            Change::RateLimitEnded => end(&mut self.rate_limited),
            Change::Isolated => begin(&mut self.isolated),
            Change::IsolationEnded => end(&mut self.isolated),
            Change::LedgerFailing => begin(&mut self.ledger_failing),
            Change::LedgerWritten => end(&mut self.ledger_failing),
            Change::Stopping => std::mem::replace(&mut self.phase, Phase::Stopping) != Phase::Stopping,
            Change::Ended(error) => {
                let phase = if error.is_some() { Phase::Failed } else { Phase::Stopped };
                *self = Self { phase, error: error.clone(), ..Self::new() };
                true
            }
        }
    }

    pub(crate) fn at(&self, now: Instant) -> Health {
        let elapsed = |since: Option<Instant>| since.map(|since| now.saturating_duration_since(since));
        Health {
            phase: self.phase,
            paused_for: elapsed(self.paused),
            blocked_for: elapsed(self.blocked),
            interrupted_for: elapsed(self.interrupted),
            partly_interrupted_for: elapsed(self.partly_interrupted),
            not_ready_for: elapsed(self.not_ready.as_ref().map(|(since, _)| *since)),
            layer: self.not_ready.as_ref().map(|(_, layer)| layer.clone()),
            rate_limited_for: elapsed(self.rate_limited),
            isolated_for: elapsed(self.isolated),
            ledger_failing_for: elapsed(self.ledger_failing),
            error: self.error.clone(),
        }
    }
}

/// Applies a change and notifies the handles, also of a new error. Returns true if a state began or ended.
pub(crate) fn note(health: &watch::Sender<HealthState>, change: &Change) -> bool {
    let mut changed = false;
    health.send_if_modified(|state| {
        let before = state.error.clone();
        changed = state.apply(change, Instant::now());
        changed || state.error != before
    });
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the health after these changes, one second apart, one second after the last.
    fn after(changes: &[Change]) -> Health {
        let (mut state, mut now) = (HealthState::new(), Instant::now());
        for change in changes {
            state.apply(change, now);
            now += Duration::from_secs(1);
        }
        state.at(now)
    }

    fn cut() -> Change {
        Change::Interrupted("connection reset".to_owned())
    }

    #[test]
    fn a_ledger_that_is_not_written_shows_and_stops_nothing() {
        let failing = after(&[Change::Started, Change::LedgerFailing]);
        assert!(failing.is_live() && failing.is_ready());
        assert_eq!(failing.to_string(), "running, the ledger is not written for 1s");
        let written = after(&[Change::Started, Change::LedgerFailing, Change::LedgerWritten]);
        assert_eq!(written.to_string(), "running");
    }

    #[test]
    fn live_and_ready_are_two_things() {
        let of = |changes: &[Change]| (after(changes).is_live(), after(changes).is_ready());
        assert_eq!(of(&[]), (true, false));
        assert_eq!(of(&[Change::Started]), (true, true));
        let not_ready = Change::NotReady { layer: "Limit".to_owned(), since: Instant::now() };
        for wrong in [Change::Paused, Change::Blocked, cut(), not_ready] {
            assert_eq!(of(&[Change::Started, wrong]), (true, false));
        }
        let mended = [Change::Started, Change::Paused, Change::Blocked, cut(), Change::Recovered];
        assert_eq!(of(&mended), (true, false), "still paused and blocked");
        assert_eq!(of(&[&mended[..], &[Change::Unblocked, Change::Resumed]].concat()), (true, true));
        assert_eq!(of(&[Change::Started, Change::Stopping]), (true, false));
        assert_eq!(of(&[Change::Started, Change::Ended(None)]), (true, false));
        assert_eq!(of(&[Change::Started, Change::Ended(Some("gone".to_owned()))]), (false, false));
    }

    #[test]
    fn one_queue_of_several_that_is_refused_is_told_and_stops_nothing() {
        let partly = || Change::PartlyInterrupted("`back` is disabled".to_owned());
        let health = after(&[Change::Started, cut(), partly()]);
        assert!(health.is_ready() && health.interrupted_for.is_none());
        let said =
            "running, cannot receive from one of its queues (it tries again) for 1s: `back` is disabled";
        assert_eq!(health.to_string(), said);
        let cut = after(&[Change::Started, partly(), cut()]);
        assert!(!cut.is_ready() && cut.partly_interrupted_for.is_none());
        assert_eq!(after(&[Change::Started, partly(), Change::Recovered]).to_string(), "running");
    }

    #[test]
    fn a_second_interruption_does_not_restart_the_time() {
        let twice = after(&[Change::Started, cut(), cut()]);
        assert_eq!(twice.interrupted_for, Some(Duration::from_secs(2)));
        let mut state = HealthState::new();
        assert!(state.apply(&cut(), Instant::now()) && !state.apply(&cut(), Instant::now()), "told once");
    }

    #[test]
    fn the_line_says_all_that_is_wrong() {
        assert_eq!(after(&[Change::Started]).to_string(), "running");
        let wrong = after(&[Change::Started, Change::Paused, cut()]).to_string();
        assert_eq!(
            wrong,
            "not taking messages, paused for 2s, interrupted when it was last tried (again when the pause ends) for 1s: connection \
             reset"
        );
        let wrong = after(&[Change::Started, cut()]).to_string();
        assert_eq!(wrong, "not taking messages, interrupted (it tries again) for 1s: connection reset");
        assert_eq!(
            after(&[cut(), Change::Ended(Some("no queue".to_owned()))]).to_string(),
            "failed: no queue"
        );
    }

    #[test]
    fn a_layer_that_is_not_ready_is_named_and_what_comes_by_itself_is_no_fault() {
        let not_ready =
            Change::NotReady { layer: "Limit (added at main.rs:7)".to_owned(), since: Instant::now() };
        let named = after(&[Change::Started, not_ready.clone()]).to_string();
        assert!(
            named.starts_with("not taking messages, Limit (added at main.rs:7) not ready for "),
            "{named}"
        );
        assert_eq!(after(&[Change::Started, not_ready, Change::Ready]).to_string(), "running");
        let slow = after(&[Change::Started, Change::RateLimited(Instant::now()), Change::Isolated]);
        assert!(slow.is_ready());
        assert_eq!(slow.to_string(), "running, rate limited for 3s, one message at a time for 1s");
        let ended = [Change::Started, Change::Isolated, Change::IsolationEnded, Change::RateLimitEnded];
        assert_eq!(after(&ended).to_string(), "running");
    }

    #[test]
    fn nothing_changes_after_the_end() {
        let failed = after(&[Change::Started, Change::Ended(Some("no queue".to_owned())), cut()]);
        assert_eq!(failed.to_string(), "failed: no queue");
    }
}
