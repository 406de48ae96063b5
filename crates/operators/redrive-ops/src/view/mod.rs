//! A whole look at a shelf, kept in memory.
//!
//! | module | contains |
//! |---|---|
//! | [`options`] | how much of a shelf is kept |
//! | [`read`] | reads the shelf |
//! | [`entries`] | all entries of a view, or some of them: pages, groups, summary; pure |
//! | [`trend`] | number of entries over time; pure |

mod entries;
mod options;
mod read;
mod trend;

use std::time::{Duration, SystemTime};

use redrive_core::Shelf;
use redrive_core::shelves::{Holder, Shelved};

pub use self::entries::{Entries, EntriesPage};
pub use self::options::ViewOptions;
pub use self::trend::{Trend, TrendOptions};
use crate::filter::Filter;
use crate::group::{GroupId, Template};
use crate::snapshot::time_of;

/// A whole look at a shelf at one time, with its messages. [`read`](Self::read) takes it in one pass; everything else works on it
/// without the broker: [entries], pages, groups, trends and [filters](Filter).
///
/// It does not follow the shelf: show its [age](Self::age). Entries that are gone by the time of an action are reported by that
/// action as not found.
///
/// # Memory
///
/// A view keeps each message and what was read of it: 100 000 entries, each with a body of 1 KiB, four headers of the application and
/// the eight of a failure, took 420 MiB (Linux, x86-64), of which the bodies are 98. [`ViewOptions`] limit the number of entries and
/// their memory.
///
/// [entries]: Self::entries
#[derive(Clone, Debug)]
pub struct ShelfView {
    shelf: Shelf,
    taken_at: SystemTime,
    entries: Vec<ViewEntry>,
    truncated: bool,
    holder: Option<Holder>,
}

/// An entry of a [`ShelfView`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ViewEntry {
    /// The entry.
    pub entry: Shelved,
    /// Group of its failure.
    pub group: GroupId,
    time: Option<SystemTime>,
}

impl ViewEntry {
    /// Returns when the entry was shelved, or when it failed last if only that is known: a time that was
    /// [plausible](redrive_core::plausible) when the view was taken.
    #[must_use]
    pub fn time(&self) -> Option<SystemTime> {
        self.time
    }
}

impl ShelfView {
    /// Creates a view of entries that were read in another way, for example from a file. `truncated`: the shelf has more.
    #[must_use]
    pub fn new(
        shelf: Shelf,
        taken_at: SystemTime,
        entries: impl IntoIterator<Item = Shelved>,
        truncated: bool,
    ) -> Self {
        let with_group =
            |entry| ViewEntry { group: Template::of(&entry).id(), time: time_of(&entry, taken_at), entry };
        let entries = entries.into_iter().map(with_group).collect();
        Self { shelf, taken_at, entries, truncated, holder: None }
    }

    /// Returns the shelf.
    #[must_use]
    pub fn shelf(&self) -> Shelf {
        self.shelf
    }

    /// Returns when the view was taken.
    #[must_use]
    pub fn taken_at(&self) -> SystemTime {
        self.taken_at
    }

    /// Returns the time since the view was taken; zero if the clock was set back.
    #[must_use]
    pub fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(self.taken_at).unwrap_or_default()
    }

    /// Returns true if the shelf has more entries than the [limits](ViewOptions). Those of the view are the first ones: the oldest,
    /// if the broker keeps an order.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Returns who may have held entries while the view was taken, so that they are not in it. `None`: nobody that the broker tells of.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        self.holder
    }

    /// Returns all entries, in the order of the shelf.
    pub fn entries(&self) -> Entries<'_> {
        Entries::new(self, self.entries.iter().collect())
    }

    /// Returns the entries that match the filter; ages are counted until `now`.
    pub fn matching(&self, filter: &Filter, now: SystemTime) -> Entries<'_> {
        self.entries().matching(filter, now)
    }
}
