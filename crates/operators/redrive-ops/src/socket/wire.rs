//! What the two ends say to each other, as values.

use std::error::Error as _;

use redrive_core::shelves::{EntryHandle, EntryOutcome, EntryResult, Holder, Selection, Shelved};
use redrive_core::{Shelf, TransportError, TransportErrorKind};
use serde::{Deserialize, Serialize};

use crate::as_text;
use crate::export::{ExportedEntry, MessageJson};

/// Names the protocol in a [`Greeting`].
pub(super) const PROTOCOL: &str = "redrive-operators";
/// The only version that is spoken.
pub(super) const VERSION: u32 = 1;
/// How many entries the service puts into a page, at most.
pub(super) const MAX_PAGE: usize = 500;

/// The first frame, by the service. Every version has `protocol`, `v` and `refused`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Greeting {
    pub(super) protocol: String,
    pub(super) v: u32,
    /// Why nobody is let in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<ErrorJson>,
    /// The queues whose shelves are served.
    #[serde(default)]
    pub(super) queues: Vec<String>,
}

/// The second frame, by the operator. The answer is [`Answer::Opened`]. Every version has `v`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Opening {
    pub(super) v: u32,
    pub(super) queue: String,
    /// Messages that are redriven on this connection ask their consumer for a report, where that is possible.
    pub(super) reports: bool,
    /// The connection is for work in many steps on this shelf, and keeps others out, where that is possible.
    pub(super) lease: Option<LeaseOf>,
}

/// The shelf of a lease.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct LeaseOf {
    #[serde(with = "as_text::shelf")]
    pub(super) shelf: Shelf,
}

/// What an [`Opening`] of every version has.
#[derive(Debug, Deserialize)]
pub(super) struct Version {
    pub(super) v: u32,
}

/// What an operator asks for: a call of `Shelves`, of `Reports`, or of `Lease`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub(super) enum Request<'a> {
    Count {
        #[serde(with = "as_text::shelf")]
        shelf: Shelf,
    },
    /// The answer is [`Answer::Holder`].
    Holder {
        #[serde(with = "as_text::shelf")]
        shelf: Shelf,
    },
    /// Both at once; the answer is [`Answer::Counted`].
    CountWithHolder {
        #[serde(with = "as_text::shelf")]
        shelf: Shelf,
    },
    Oldest {
        #[serde(with = "as_text::shelf")]
        shelf: Shelf,
    },
    /// The page may have fewer entries, and yet a next one.
    Browse {
        #[serde(with = "as_text::shelf")]
        shelf: Shelf,
        after: Option<String>,
        limit: usize,
    },
    Redrive {
        #[serde(with = "as_text::shelf")]
        shelf: Shelf,
        which: Which,
    },
    Park {
        which: Which,
    },
    Discard {
        #[serde(with = "as_text::shelf")]
        shelf: Shelf,
        which: Which,
    },
    Replace {
        #[serde(with = "as_text")]
        entry: EntryHandle,
        message: MessageJson<'a>,
    },
    RedriveAs {
        #[serde(with = "as_text")]
        entry: EntryHandle,
        message: MessageJson<'a>,
    },
    Restore {
        #[serde(with = "as_text::shelf")]
        shelf: Shelf,
        message: MessageJson<'a>,
    },
    WorkQueue,
    TakeReports,
    /// From now on, messages that are redriven on this connection ask their consumer for a report. The answer is [`Answer::Opened`].
    CollectReports,
    PauseLease,
    /// The connection is not used any more.
    EndLease,
}

/// A selection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Which {
    All,
    Handles(#[serde(with = "as_text::list")] Vec<EntryHandle>),
    Reason(String),
}

/// The first frame of an answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    Opened {
        /// True if reports are collected.
        reports: bool,
        /// True if the connection has the lease.
        leased: bool,
    },
    Count(u64),
    Holder(Option<HolderJson>),
    Counted {
        count: u64,
        holder: Option<HolderJson>,
    },
    /// In RFC 3339.
    Oldest(Option<String>),
    /// This many frames follow, each with one entry as a line of an export. A [refusal](Self::Refused) instead of one is the last of them.
    Page {
        entries: usize,
        next: Option<String>,
    },
    /// This many frames follow, each with one [`ResultJson`].
    Report {
        results: usize,
        stopped: Option<ErrorJson>,
        /// How many entries of other queues were left where they are.
        left_out: u64,
        /// How many entries of the shelf the lease holds.
        held: u64,
    },
    Replaced(Option<String>),
    Done,
    WorkQueue {
        depth: Option<u64>,
        consumers: Option<u64>,
    },
    Reports(#[serde(with = "as_text::list")] Vec<EntryHandle>),
    Refused(ErrorJson),
}

/// Who may hold entries.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum HolderJson {
    Consumers(u32),
    Lease,
    Look,
    /// Also for whatever this version does not know.
    #[serde(other)]
    Unknown,
}

impl From<Holder> for HolderJson {
    fn from(holder: Holder) -> Self {
        match holder {
            Holder::Consumers(count) => Self::Consumers(count),
            Holder::Lease => Self::Lease,
            Holder::Look => Self::Look,
            _ => Self::Unknown,
        }
    }
}

impl From<HolderJson> for Holder {
    fn from(holder: HolderJson) -> Self {
        match holder {
            HolderJson::Consumers(count) => Self::Consumers(count),
            HolderJson::Lease => Self::Lease,
            HolderJson::Look => Self::Look,
            HolderJson::Unknown => Self::Unknown,
        }
    }
}

/// The result of one entry.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ResultJson {
    #[serde(with = "as_text")]
    handle: EntryHandle,
    id: Option<String>,
    outcome: OutcomeJson,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OutcomeJson {
    Done,
    NotFound,
    NotTried,
    Failed(ErrorJson),
}

/// An error: its kind, and all that it and its sources say.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ErrorJson {
    kind: String,
    text: String,
}

impl TryFrom<&Selection> for Which {
    type Error = TransportError;

    fn try_from(selection: &Selection) -> Result<Self, TransportError> {
        Ok(match selection {
            Selection::All => Self::All,
            Selection::Handles(handles) => {
                let mut handles: Vec<_> = handles.iter().cloned().collect();
                handles.sort();
                Self::Handles(handles)
            }
            Selection::Reason(word) => Self::Reason(word.clone()),
            other => {
                let text = format!("{other:?} cannot be sent to a service: name the entries");
                return Err(TransportError::new(TransportErrorKind::Unsupported, text));
            }
        })
    }
}

impl From<Which> for Selection {
    fn from(which: Which) -> Self {
        match which {
            Which::All => Self::All,
            Which::Handles(handles) => Self::handles(handles),
            Which::Reason(word) => Self::Reason(word),
        }
    }
}

impl From<&EntryResult> for ResultJson {
    fn from(result: &EntryResult) -> Self {
        let outcome = match &result.outcome {
            EntryOutcome::Done => OutcomeJson::Done,
            EntryOutcome::NotFound => OutcomeJson::NotFound,
            EntryOutcome::NotTried => OutcomeJson::NotTried,
            EntryOutcome::Failed(error) => OutcomeJson::Failed(error.into()),
            other => OutcomeJson::Failed(ErrorJson {
                kind: name(TransportErrorKind::Other).to_owned(),
                text: format!("{other:?}: this version of redrive-ops cannot tell more"),
            }),
        };
        Self { handle: result.handle.clone(), id: result.id.clone(), outcome }
    }
}

impl ResultJson {
    /// Returns the handle, the id and the outcome.
    pub(super) fn into_parts(self) -> (EntryHandle, Option<String>, EntryOutcome) {
        let outcome = match self.outcome {
            OutcomeJson::Done => EntryOutcome::Done,
            OutcomeJson::NotFound => EntryOutcome::NotFound,
            OutcomeJson::NotTried => EntryOutcome::NotTried,
            OutcomeJson::Failed(error) => EntryOutcome::Failed(error.into()),
        };
        (self.handle, self.id, outcome)
    }
}

impl From<&TransportError> for ErrorJson {
    fn from(error: &TransportError) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        Self { kind: name(error.kind()).to_owned(), text }
    }
}

impl From<ErrorJson> for TransportError {
    fn from(error: ErrorJson) -> Self {
        let kind = KINDS.iter().find(|(_, name)| *name == error.kind);
        Self::new(kind.map_or(TransportErrorKind::Other, |(kind, _)| *kind), error.text)
    }
}

/// The kinds of errors by their names. One that has no name is `other`.
const KINDS: [(TransportErrorKind, &str); 15] = [
    (TransportErrorKind::Unreachable, "unreachable"),
    (TransportErrorKind::Unauthorized, "unauthorized"),
    (TransportErrorKind::Topology, "topology"),
    (TransportErrorKind::Unsupported, "unsupported"),
    (TransportErrorKind::Unconfirmed, "unconfirmed"),
    (TransportErrorKind::Unroutable, "unroutable"),
    (TransportErrorKind::NotSent, "not-sent"),
    (TransportErrorKind::Full, "full"),
    (TransportErrorKind::TooLarge, "too-large"),
    (TransportErrorKind::Refused, "refused"),
    (TransportErrorKind::Lost, "lost"),
    (TransportErrorKind::NotFound, "not-found"),
    (TransportErrorKind::Locked, "locked"),
    (TransportErrorKind::Busy, "busy"),
    (TransportErrorKind::Closed, "closed"),
];

fn name(kind: TransportErrorKind) -> &'static str {
    KINDS.iter().find(|(known, _)| *known == kind).map_or("other", |(_, name)| name)
}

/// Returns the entry of an exported line.
pub(super) fn shelved(line: ExportedEntry) -> Shelved {
    let mut entry = Shelved::new(line.handle, line.message);
    entry.shelved_at = line.shelved_at;
    entry.broker_reason = line.broker_reason;
    entry.broker_description = line.broker_description;
    (entry.failed_in, entry.owner) = (line.failed_in, line.owner);
    entry
}
