//! What a run asks for, and what it is told.

use std::fmt;
use std::time::Duration;

use redrive_core::shelves::{EntryHandle, WorkQueue};
use serde::{Deserialize, Serialize};

use super::queue::Hold;
use crate::as_text;
use crate::plan::PlanAction;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Act on these entries, and then tell the result of each: [`Event::Results`].
    Send {
        /// What to do with them.
        action: PlanAction,
        /// The entries.
        handles: Vec<EntryHandle>,
    },
    /// Look for the fate of the entries that are [awaited](super::Run::awaited), and at the work queue. Tell what was found with
    /// [`Event::Fate`] and [`Event::WorkQueue`], and at last [`Event::Looked`]; or only [`Event::NotLooked`].
    Look,
    /// Do nothing until this time, or until an event.
    Wait {
        /// Until when, on the clock of the caller.
        until: Duration,
        /// Why.
        why: Waiting,
    },
    /// Do nothing until [`Event::Resume`] or [`Event::Abort`].
    Paused(PauseReason),
    /// Every entry was worked on.
    Done,
    /// The run has ended early.
    Stopped(StopReason),
}

/// Why a run waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Waiting {
    /// For the rate.
    Rate,
    /// For the fate of the canary.
    Canary,
    /// For the work queue.
    Hold(Hold),
    /// For the [results](Event::Results) of the last step.
    Results,
}

/// Why a run needs a person to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PauseReason {
    /// A person paused it.
    Asked,
    /// A message of the canary failed in another way than before: the failure that was looked into may be fixed, and hides another.
    CanaryFailedOtherwise,
}

impl fmt::Display for PauseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "paused by an operator",
            Self::CanaryFailedOtherwise => {
                "paused: a message of the canary failed in another way. Look at it, then resume or abort"
            }
        })
    }
}

/// Why a run has ended early.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum StopReason {
    /// The same failure came back.
    SameFailure,
    /// Messages kept failing at the slowest rate.
    TooManyFailures,
    /// A person aborted it.
    Aborted,
    /// The broker could not be used, or others had the shelf for too long.
    Broker(String),
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameFailure => f.write_str("the same failure came back"),
            Self::TooManyFailures => f.write_str("messages kept failing at the slowest rate"),
            Self::Aborted => f.write_str("aborted by an operator"),
            Self::Broker(error) => write!(f, "it cannot go on: {error}"),
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The results of the last [`Step::Send`]. An entry without a result is [uncertain](EntryState::Uncertain).
    Results(Vec<(EntryHandle, EntryState)>),
    /// The fate of a message that was redriven.
    Fate(EntryHandle, Fate),
    /// The work queue.
    WorkQueue(WorkQueue),
    /// The look is over.
    Looked,
    /// The [look](Step::Look) that was asked for ended before it saw anything: it is asked for again.
    NotLooked,
    /// A person pauses the run.
    Pause,
    /// A person lets it go on.
    Resume,
    /// A person ends it. Entries that were not sent stay on the shelf.
    Abort,
    /// A person sets the maximum number of messages in any second.
    Rate(u32),
    /// The broker cannot be used.
    Broken(String),
}

/// The state of an entry in a run, or the result of working on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome", content = "error")]
#[non_exhaustive]
pub enum EntryState {
    /// Not tried. It is still on the shelf, and its turn comes.
    NotTried,
    /// Stored in its new place, confirmed, and removed from the shelf.
    Done,
    /// It left the shelf while the process died: an entry is removed only after it is stored in its new place.
    Gone,
    /// It had vanished from the shelf before its turn.
    NotFound,
    /// An entry with this handle has another content than the plan says. It was not touched.
    Changed,
    /// It failed and is still on the shelf, nowhere else.
    Failed(String),
    /// It is still on the shelf, and possibly in its new place as well. It is not sent again unless a person asks for that.
    Uncertain(String),
}

impl EntryState {
    /// Returns true if the message may have reached its new place.
    #[must_use]
    pub fn may_be_sent(&self) -> bool {
        matches!(self, Self::Done | Self::Gone | Self::Uncertain(_))
    }
}

impl fmt::Display for EntryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTried => f.write_str("had no turn"),
            Self::Done => f.write_str("done"),
            Self::Gone => f.write_str("left the shelf while the process died"),
            Self::NotFound => f.write_str("was not found: it left the shelf, or another client holds it"),
            Self::Changed => f.write_str("was changed since the plan, and not touched"),
            Self::Failed(why) => write!(f, "failed: {why}"),
            Self::Uncertain(why) => write!(f, "is on the shelf, and perhaps in its new place as well: {why}"),
        }
    }
}

/// What became of a message that was redriven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fate {
    /// It was handled.
    Done,
    /// It is on a shelf again, with the failure that it had before.
    FailedSame,
    /// It is on a shelf again, with another failure.
    FailedOther,
    /// It was not seen again in time: it may be handled, or waiting for a retry.
    NotKnown,
}

/// Who told the fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FateSource {
    /// It was read from the shelves: it says for certain what failed, and nothing of what was handled.
    Shelf,
    /// The consumer reported it.
    Consumer,
}

/// The fate of a message, and who told it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SeenFate {
    /// Handle of the entry that was redriven.
    #[serde(with = "as_text")]
    pub handle: EntryHandle,
    /// Its fate.
    pub fate: Fate,
    /// Who told it.
    pub source: FateSource,
}

impl SeenFate {
    /// Creates the fate of a message.
    #[must_use]
    pub fn new(handle: EntryHandle, fate: Fate, source: FateSource) -> Self {
        Self { handle, fate, source }
    }
}
