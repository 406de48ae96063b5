//! The audit log: who acted on which shelf, and why. No content of messages.
//!
//! | module | does |
//! |---|---|
//! | [`log`] | appends records to a file |

mod log;
#[cfg(test)]
mod tests;

use std::time::SystemTime;

use redrive_core::shelves::{EntryOutcome, ShelfReport};
use redrive_core::{Shelf, redact};
use serde::Serialize;

pub use self::log::AuditLog;
use crate::export::rfc3339;
use crate::printable::printable_json;
use crate::run::RunReport;

/// Version of the format of a record.
const FORMAT_VERSION: u64 = 1;

/// Actions on more messages than this need a reason.
pub const MESSAGES_WITHOUT_REASON: u64 = 100;

/// What an operator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AuditAction {
    /// Sent messages back to their consumer.
    Redrive,
    /// Moved messages to the parking shelf.
    Park,
    /// Removed messages.
    Discard,
    /// Edited a message.
    Edit,
    /// Exported messages.
    Export,
    /// Brought exported messages back.
    Import,
    /// Brought back what a run discarded.
    Undo,
}

/// How many messages an action concerned, by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AuditCounts {
    /// Done.
    pub done: u64,
    /// Failed: still where they were.
    pub failed: u64,
    /// Gone before the action reached them.
    pub not_found: u64,
    /// Not reached, because the work stopped.
    pub not_tried: u64,
}

impl AuditCounts {
    /// Counts this many messages that were done.
    #[must_use]
    pub fn done(done: u64) -> Self {
        Self { done, ..Self::default() }
    }
}

/// An entry that left the shelf while a process died was stored in its new place before: it is done.
impl From<&RunReport> for AuditCounts {
    fn from(report: &RunReport) -> Self {
        Self {
            done: report.done + report.gone,
            failed: report.failed + report.uncertain + report.changed,
            not_found: report.not_found,
            not_tried: report.left,
        }
    }
}

impl From<&ShelfReport> for AuditCounts {
    fn from(report: &ShelfReport) -> Self {
        let mut counts = Self::default();
        for entry in &report.entries {
            let count = match &entry.outcome {
                EntryOutcome::Done => &mut counts.done,
                EntryOutcome::NotFound => &mut counts.not_found,
                EntryOutcome::NotTried => &mut counts.not_tried,
                // What is not known to be done is not counted as done.
                _ => &mut counts.failed,
            };
            *count += 1;
        }
        counts
    }
}

/// One action, as it is noted in the [`AuditLog`]. It has no content of messages: their ids and texts are in the export or the journal
/// of the run.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
///
/// use redrive_core::Shelf;
/// use redrive_ops::{AuditAction, AuditCounts, AuditRecord};
///
/// let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
/// let record = AuditRecord::new("alice", "ops-1", now, AuditAction::Discard, "orders", Shelf::DeadLetter)
///     .reason("orders of the load test")
///     .filter("header.tenant:loadtest")
///     .counts(AuditCounts::done(7));
/// assert_eq!(
///     record.to_line(),
///     r#"{"v":1,"at":"2027-01-15T08:00:00Z","who":"alice","host":"ops-1","action":"discard","queue":"orders","shelf":"dead-letter","#
///         .to_owned()
///         + r#""reason":"orders of the load test","filter":"header.tenant:loadtest","#
///         + r#""counts":{"done":7,"failed":0,"not_found":0,"not_tried":0}}"#
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[must_use = "a record is not in the log until it is appended"]
pub struct AuditRecord {
    v: u64,
    at: String,
    who: String,
    host: String,
    action: AuditAction,
    queue: String,
    shelf: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    counts: AuditCounts,
}

impl AuditRecord {
    /// Creates a record: `who` acted from `host` at `now` on a shelf of `queue`.
    pub fn new(
        who: impl Into<String>,
        host: impl Into<String>,
        now: SystemTime,
        action: AuditAction,
        queue: impl Into<String>,
        shelf: Shelf,
    ) -> Self {
        Self {
            v: FORMAT_VERSION,
            at: rfc3339(now).unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned()),
            who: who.into(),
            host: host.into(),
            action,
            queue: queue.into(),
            shelf: shelf.to_string(),
            reason: None,
            filter: None,
            plan_digest: None,
            run_id: None,
            counts: AuditCounts::default(),
        }
    }

    /// Notes why, in the operator's words; secrets that [`redact`] recognizes are masked.
    pub fn reason(mut self, reason: &str) -> Self {
        self.reason = Some(redact(reason));
        self
    }

    /// Notes the filter by which the messages were selected; secrets that [`redact`] recognizes are masked.
    pub fn filter(mut self, filter: &str) -> Self {
        self.filter = Some(redact(filter));
        self
    }

    /// Notes the digest of the plan that was applied.
    pub fn plan_digest(mut self, digest: impl Into<String>) -> Self {
        self.plan_digest = Some(digest.into());
        self
    }

    /// Notes the id of the run.
    pub fn run_id(mut self, id: impl Into<String>) -> Self {
        self.run_id = Some(id.into());
        self
    }

    /// Sets how many messages were concerned.
    pub fn counts(mut self, counts: AuditCounts) -> Self {
        self.counts = counts;
        self
    }

    /// Returns the record as one line of JSON, without a line feed at its end. Control characters are escaped.
    #[must_use]
    pub fn to_line(&self) -> String {
        printable_json(serde_json::to_string(self).expect("texts and numbers"))
    }
}

/// An action on many messages has no reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an action on {messages} messages needs a reason, as every one on more than {MESSAGES_WITHOUT_REASON}: say why, for the audit log"
)]
#[non_exhaustive]
pub struct ReasonRequired {
    /// How many messages the action concerns.
    pub messages: u64,
}

/// Checks that an action on this many messages has a reason, if it needs one.
///
/// ```
/// use redrive_ops::require_reason;
///
/// assert!(require_reason(100, None).is_ok());
/// assert!(require_reason(101, Some(" ")).is_err());
/// assert!(require_reason(101, Some("database is back")).is_ok());
/// ```
///
/// # Errors
///
/// If it concerns more than [`MESSAGES_WITHOUT_REASON`] messages and the reason is missing or blank.
pub fn require_reason(messages: u64, reason: Option<&str>) -> Result<(), ReasonRequired> {
    let is_given = reason.is_some_and(|reason| !reason.trim().is_empty());
    if messages > MESSAGES_WITHOUT_REASON && !is_given { Err(ReasonRequired { messages }) } else { Ok(()) }
}
