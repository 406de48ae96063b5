//! Control of a run from elsewhere.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;

use crate::run::{Event, Hold, PauseReason, RunReport, StopReason, Waiting};

/// Controls a run while it goes on. Cheap to clone. After the end of the run it does nothing.
#[derive(Clone, Debug)]
pub struct RunControl {
    pub(super) events: UnboundedSender<Event>,
    pub(super) progress: Arc<Mutex<RunProgress>>,
}

impl RunControl {
    /// Pauses the run after its current step.
    pub fn pause(&self) {
        self.send(Event::Pause);
    }

    /// Lets a paused run go on.
    pub fn resume(&self) {
        self.send(Event::Resume);
    }

    /// Ends the run after its current step. What was not sent stays on the shelf.
    pub fn abort(&self) {
        self.send(Event::Abort);
    }

    /// Sets the maximum number of messages in any second; 0 counts as 1.
    pub fn rate(&self, per_second: u32) {
        self.send(Event::Rate(per_second));
    }

    /// Returns how far the run is.
    #[must_use]
    pub fn progress(&self) -> RunProgress {
        self.progress.lock().clone()
    }

    pub(super) fn set_progress(&self, progress: RunProgress) {
        *self.progress.lock() = progress;
    }

    fn send(&self, event: Event) {
        // Nobody receives it after the end.
        let _ = self.events.send(event);
    }
}

/// How far a run is, and what it does now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunProgress {
    /// Counts of entries.
    pub report: RunReport,
    /// How many messages a second it sends now, at most.
    pub rate: u32,
    /// What it does.
    pub activity: Activity,
}

/// What a run does now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// It compares the plan with the shelf.
    Checking,
    /// It works on entries.
    Sending,
    /// It looks for fates and at the work queue.
    Looking,
    /// It waits until others give the shelf back.
    WaitingForTurn,
    /// It waits for the rate.
    WaitingForRate,
    /// It waits for the fate of the canary.
    WaitingForCanary,
    /// It waits for the work queue.
    Held(Hold),
    /// It waits for a person.
    Paused(PauseReason),
    /// All of it is done.
    Done,
    /// It has ended early.
    Stopped(StopReason),
}

impl From<Waiting> for Activity {
    fn from(waiting: Waiting) -> Self {
        match waiting {
            Waiting::Rate => Self::WaitingForRate,
            Waiting::Canary => Self::WaitingForCanary,
            Waiting::Hold(hold) => Self::Held(hold),
            Waiting::Results => Self::Sending,
        }
    }
}
