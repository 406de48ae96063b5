//! All entries of a view, or some of them. Pure.

use std::collections::BTreeMap;
use std::time::SystemTime;

use redrive_core::shelves::{Owner, Selection};

use super::{ShelfView, Trend, TrendOptions, ViewEntry};
use crate::filter::{Filter, Verdict};
use crate::group::GroupId;
use crate::snapshot::{ShelfSnapshot, SnapshotFold, SnapshotOptions};

/// Entries of a [`ShelfView`], in the order of the shelf: all of them, those of a filter, or those of a group. Copies no message.
#[derive(Clone, Debug)]
#[must_use]
pub struct Entries<'a> {
    view: &'a ShelfView,
    entries: Vec<&'a ViewEntry>,
    not_looked_into: usize,
}

/// A page of [`Entries`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EntriesPage<'a> {
    /// The entries of the page.
    pub entries: Vec<&'a ViewEntry>,
    /// Number of entries before the page.
    pub offset: usize,
    /// Number of entries of all pages.
    pub total: usize,
}

impl<'a> Entries<'a> {
    pub(super) fn new(view: &'a ShelfView, entries: Vec<&'a ViewEntry>) -> Self {
        Self { view, entries, not_looked_into: 0 }
    }

    /// Keeps the entries for which `keep` answers true.
    pub fn only(mut self, keep: impl Fn(&ViewEntry) -> bool) -> Self {
        self.entries.retain(|entry| keep(entry));
        self
    }

    /// Returns the entries of these that match the filter; ages are counted until `now`.
    pub fn matching(mut self, filter: &Filter, now: SystemTime) -> Self {
        let mut unknown = 0;
        self.entries.retain(|entry| {
            let verdict = filter.judge(&entry.entry, entry.group, now);
            unknown += usize::from(verdict == Verdict::Unknown);
            verdict == Verdict::Matches
        });
        self.not_looked_into += unknown;
        self
    }

    /// Returns how many entries a filter left out because it could not [look into](Verdict::Unknown) their bodies.
    #[must_use]
    pub fn not_looked_into(&self) -> usize {
        self.not_looked_into
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the entries one by one.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a ViewEntry> + DoubleEndedIterator {
        self.entries.iter().copied()
    }

    /// Returns at most `limit` entries after the first `offset` ones.
    #[must_use]
    pub fn page(&self, offset: usize, limit: usize) -> EntriesPage<'a> {
        let offset = offset.min(self.len());
        EntriesPage { entries: self.iter().skip(offset).take(limit).collect(), offset, total: self.len() }
    }

    /// Returns a summary, with the groups: one pass over the entries. Of the options, only the number of
    /// [groups](SnapshotOptions::groups) counts.
    #[must_use]
    pub fn summary(&self, options: &SnapshotOptions) -> ShelfSnapshot {
        let mut fold = SnapshotFold::new(self.view.shelf, options, self.view.taken_at);
        self.entries.iter().for_each(|entry| fold.add(&entry.entry));
        ShelfSnapshot { holder: self.view.holder, ..fold.finish(self.view.truncated) }
    }

    /// Returns the entries of each group. For a page, a trend or the handles of many groups in one pass.
    #[must_use]
    pub fn by_group(&self) -> BTreeMap<GroupId, Self> {
        let mut groups = BTreeMap::new();
        for &entry in &self.entries {
            let group = groups.entry(entry.group).or_insert_with(|| Self::new(self.view, Vec::new()));
            group.entries.push(entry);
        }
        groups
    }

    /// Returns the number of entries of [other queues](Owner::Other), by queue. No plan takes them.
    #[must_use]
    pub fn of_others(&self) -> BTreeMap<&'a str, usize> {
        let mut queues = BTreeMap::new();
        for entry in self.iter().filter(|entry| entry.entry.owner == Owner::Other) {
            *queues.entry(entry.entry.failed_in.as_deref().unwrap_or_default()).or_default() += 1;
        }
        queues
    }

    /// Returns the number of entries over time.
    #[must_use]
    pub fn trend(&self, options: &TrendOptions) -> Trend {
        Trend::of(self.entries.iter().map(|entry| entry.time), options)
    }

    /// Selects exactly these entries, for an action on the shelf.
    #[must_use]
    pub fn selection(&self) -> Selection {
        Selection::handles(self.entries.iter().map(|entry| entry.entry.handle.clone()))
    }
}
