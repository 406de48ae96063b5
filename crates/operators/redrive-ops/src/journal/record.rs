//! Lines of a journal.

use std::time::SystemTime;

use redrive_core::shelves::EntryHandle;
use redrive_core::{parse_rfc3339, rfc3339};
use serde::{Deserialize, Serialize};

use super::JournalRecord;
use crate::as_text;
use crate::plan::{Plan, PlanAction};
use crate::run::{EntryState, RunOptions, SeenFate, StopReason};

/// A record of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum Record {
    /// The first one.
    Begin { header: Box<JournalHeader> },
    /// Another process goes on.
    Resume { by: Operator },
    /// These entries are worked on next.
    Intent {
        #[serde(with = "as_text::time")]
        at: SystemTime,
        action: PlanAction,
        #[serde(with = "as_text::list")]
        handles: Vec<EntryHandle>,
    },
    /// What happened to an entry.
    Result {
        #[serde(with = "as_text")]
        handle: EntryHandle,
        #[serde(flatten)]
        state: EntryState,
    },
    /// What became of a message.
    Fate(SeenFate),
    /// The run has ended. `why`: it ended early.
    End {
        #[serde(with = "as_text::time")]
        at: SystemTime,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<StopReason>,
    },
}

impl JournalRecord for Record {
    const KIND: &'static str = "run";
    const VERSION: u32 = 1;
    const IF_LOST: &'static str =
        "the run can be neither resumed nor undone: make another plan for what is left";
}

/// What a run is, who began it, and why: the first record of its journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JournalHeader {
    /// Id of the run.
    pub run: String,
    /// The broker, without a password.
    pub broker: String,
    /// Who began it, when and why.
    pub by: Operator,
    /// How fast it goes.
    pub options: RunOptions,
    /// The filter that selected the entries, for people and the audit log; empty: not known.
    pub filter: String,
    /// What it does.
    pub plan: Plan,
}

impl JournalHeader {
    /// Creates the header of a run. `broker` names the broker, for people and for the lock of its shelves; it contains no password.
    #[must_use]
    pub fn new(broker: impl Into<String>, by: Operator, options: RunOptions, plan: Plan) -> Self {
        let at = by.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        // The same plan may be run again later, and by several processes at one time.
        let run = format!("r{at:x}-{}-{:x}", plan.id(), std::process::id());
        Self { run, broker: broker.into(), by, options, filter: String::new(), plan }
    }

    /// Sets the filter that selected the entries: whoever resumes the run notes it in the audit log again.
    #[must_use]
    pub fn filter(mut self, filter: impl Into<String>) -> Self {
        self.filter = filter.into();
        self
    }
}

/// Who does something, when and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Operator {
    /// Name of the person or program.
    pub who: String,
    /// Name of the machine.
    pub host: String,
    /// When.
    #[serde(with = "as_text::time")]
    pub at: SystemTime,
    /// Why, in the words of the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Operator {
    /// Creates the operator of an action.
    #[must_use]
    pub fn new(who: impl Into<String>, host: impl Into<String>, at: SystemTime) -> Self {
        // Kept to the millisecond, as it is stored.
        let at = rfc3339(at).and_then(|text| parse_rfc3339(&text)).unwrap_or(at);
        Self { who: who.into(), host: host.into(), at, reason: None }
    }

    /// Sets why.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}
