//! What of a shelf is shown: the groups, and the entries of one of them.

use std::sync::Arc;
use std::time::SystemTime;

use redrive::ops::{Filter, GroupId, ShelfView, ShownFailure, SnapshotOptions, TrendOptions, ViewEntry};
use redrive::shelves::EntryHandle;

use super::ask::Place;
use crate::look::groups::spark;
use crate::output::{failure, one_line};

/// Maximum number of characters of a cell.
const CELL: usize = 200;

/// The filter in force. A wrong text never gets here.
#[derive(Clone)]
pub(super) struct FilterText {
    pub(super) text: String,
    parsed: Filter,
}

impl FilterText {
    /// Selects everything.
    pub(super) fn all() -> Self {
        Self { text: String::new(), parsed: Filter::all() }
    }

    /// Reads a filter.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in one line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::all());
        }
        let parsed =
            text.parse().map_err(|error: redrive::ops::ParseFilterError| error.message().to_owned())?;
        Ok(Self { text: text.to_owned(), parsed })
    }
}

/// A group, ready to be shown.
pub(super) struct GroupRow {
    pub(super) id: GroupId,
    pub(super) count: u64,
    pub(super) first: Option<SystemTime>,
    pub(super) last: Option<SystemTime>,
    pub(super) trend: String,
    pub(super) failure: String,
}

/// An entry, ready to be shown.
pub(super) struct EntryRow {
    pub(super) handle: EntryHandle,
    pub(super) shelved: Option<SystemTime>,
    pub(super) attempt: String,
    pub(super) redrives: String,
    pub(super) id: String,
    pub(super) failure: String,
}

/// A shelf that was read, seen through a filter. The filter is evaluated once: what is acted on is what is shown.
pub(super) struct Listing {
    pub(super) place: Place,
    pub(super) view: Arc<ShelfView>,
    filter: FilterText,
    /// The time at which the filter was evaluated: ages count until then.
    at: SystemTime,
    pub(super) groups: Vec<GroupRow>,
    pub(super) count: u64,
    /// Number of messages in groups that are not listed.
    pub(super) not_listed: u64,
    /// Number of messages into whose bodies the filter could not look.
    pub(super) not_looked_into: usize,
}

impl Listing {
    pub(super) fn new(place: Place, view: Arc<ShelfView>, filter: &FilterText, at: SystemTime) -> Self {
        let entries = view.matching(&filter.parsed, at);
        let summary = entries.summary(&SnapshotOptions::new());
        let by_group = entries.by_group();
        let groups = summary.groups.iter().map(|group| GroupRow {
            id: group.id,
            count: group.count,
            first: group.first_seen,
            last: group.last_seen,
            trend: by_group
                .get(&group.id)
                .map(|entries| spark(&entries.trend(&TrendOptions::until(at)).counts))
                .unwrap_or_default(),
            failure: one_line(&failure(Some(group.template.reason()), group.template.text()), CELL),
        });
        let groups = groups.collect();
        Self {
            groups,
            count: summary.count,
            not_listed: summary.left_out.of_groups,
            not_looked_into: entries.not_looked_into(),
            filter: filter.clone(),
            place,
            at,
            view,
        }
    }

    /// Returns the entries of a group, ready to be shown.
    pub(super) fn entries(&self, group: GroupId) -> Vec<EntryRow> {
        self.of_group(group).map(row).collect()
    }

    /// Returns the handles of a group.
    pub(super) fn handles(&self, group: GroupId) -> Vec<EntryHandle> {
        self.of_group(group).map(|entry| entry.entry.handle.clone()).collect()
    }

    /// Returns one entry.
    pub(super) fn entry(&self, handle: &EntryHandle) -> Option<&ViewEntry> {
        self.view.entries().iter().find(|entry| entry.entry.handle == *handle)
    }

    /// Returns the group and the filter as text, for people and the audit log.
    pub(super) fn text(&self, group: GroupId) -> String {
        format!("group {group} {}", self.filter.text).trim_end().to_owned()
    }

    fn of_group(&self, group: GroupId) -> impl Iterator<Item = &ViewEntry> {
        let entries = self.view.matching(&self.filter.parsed, self.at);
        entries.matching(&Filter::group(group), self.at).iter().collect::<Vec<_>>().into_iter()
    }
}

fn row(viewed: &ViewEntry) -> EntryRow {
    let (entry, history) = (&viewed.entry, &viewed.entry.history);
    let told = ShownFailure::of(entry);
    EntryRow {
        handle: entry.handle.clone(),
        shelved: viewed.time(),
        attempt: history.attempt.or_highest().to_string(),
        redrives: history.redrives.or_highest().to_string(),
        id: one_line(told.id.as_deref().unwrap_or("-"), CELL),
        failure: one_line(&failure(told.reason.as_deref(), told.text()), CELL),
    }
}
