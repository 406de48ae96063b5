//! Snapshots of a shelf.
//!
//! | module | does |
//! |---|---|
//! | [`options`] | how much of a shelf is read |
//! | [`fold`] | folds entries into a snapshot; pure |
//! | [`read`] | reads the shelf |

mod fold;
mod options;
mod read;

use std::collections::BTreeMap;
use std::time::SystemTime;

pub use fold::SnapshotFold;
pub(crate) use fold::time_of;
pub use options::SnapshotOptions;
pub use read::snapshot;
use redrive_core::Shelf;
use redrive_core::shelves::{EntryHandle, Holder};

use crate::group::{GroupId, Template};

/// What is on a shelf, by reason and by group of failures. Made by [`snapshot`], or by a [`SnapshotFold`].
///
/// Its size is bounded by the [options](SnapshotOptions), not by the shelf: it contains no message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ShelfSnapshot {
    /// The shelf.
    pub shelf: Shelf,
    /// Number of entries that were read.
    pub count: u64,
    /// When the entry that has been on the shelf longest was shelved, or when it failed, if only that is known. `None`: no entry has
    /// a time.
    pub oldest: Option<SystemTime>,
    /// Number of entries of each [reason](redrive_core::shelves::Shelved::reason), cut to 128 bytes. The empty reason counts entries without
    /// one.
    pub by_reason: BTreeMap<String, u64>,
    /// The groups, largest first.
    pub groups: Vec<GroupSummary>,
    /// Number of entries that are counted in no group or under no reason, because the snapshot has reached its
    /// [maximum](SnapshotOptions::groups).
    pub left_out: LeftOut,
    /// True if the shelf has more entries than the [limit](SnapshotOptions::limit). The entries that were read are the first ones:
    /// the oldest, if the broker keeps an order.
    pub truncated: bool,
    /// Who may have held entries while the shelf was read, so that they are not counted. `None`: nobody that the broker tells of.
    pub holder: Option<Holder>,
}

/// Number of entries that are only counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// Entries that are in none of the groups.
    pub of_groups: u64,
    /// Entries that are under none of the reasons.
    pub of_reasons: u64,
}

/// The entries of a shelf with similar failures.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GroupSummary {
    /// Id of the group.
    pub id: GroupId,
    /// The common part of its failures.
    pub template: Template,
    /// Number of entries.
    pub count: u64,
    /// Time of the first failure, as in [`ShelfSnapshot::oldest`]. `None`: no entry of the group has a time.
    pub first_seen: Option<SystemTime>,
    /// Time of the last failure.
    pub last_seen: Option<SystemTime>,
    /// The first entry of the group that was read.
    pub sample: Sample,
}

impl GroupSummary {
    /// Returns true if all entries of the group came at or after this time, for example since the last deployment: the failure is
    /// new, as far as the shelf tells. Earlier entries may have been redriven or discarded. False if no entry has a time.
    #[must_use]
    pub fn is_new_since(&self, since: SystemTime) -> bool {
        self.first_seen.is_some_and(|first| first >= since)
    }
}

/// One entry of a group, without its message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// Handle of the entry.
    pub handle: EntryHandle,
    /// Id of its message, cut to 256 bytes.
    pub message_id: Option<String>,
    /// Text of its failure, or the broker's description without secrets, cut to 1024 bytes.
    pub text: Option<String>,
}
