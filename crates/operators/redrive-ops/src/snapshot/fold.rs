//! Folds the entries of a shelf into a snapshot. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use redrive_core::shelves::Shelved;
use redrive_core::{Shelf, plausible, redact};

use super::{GroupSummary, LeftOut, Sample, ShelfSnapshot, SnapshotOptions};
use crate::group::{Template, cut, error_text};

/// Maximum number of bytes of a reason.
const MAX_REASON_BYTES: usize = 128;
/// Maximum number of bytes of a message id.
const MAX_ID_BYTES: usize = 256;

/// Folds entries, one by one, into a [`ShelfSnapshot`]. For entries that the caller has read already; [`snapshot`](super::snapshot())
/// reads a shelf.
///
/// ```
/// use std::time::SystemTime;
///
/// use redrive_core::{Message, Shelf, header_names};
/// use redrive_core::shelves::{EntryHandle, Shelved};
/// use redrive_ops::{SnapshotFold, SnapshotOptions};
///
/// let mut fold = SnapshotFold::new(Shelf::DeadLetter, &SnapshotOptions::new(), SystemTime::now());
/// for order in ["order 17", "order 4711"] {
///     let message = Message::new("…").with_header(header_names::REASON, "OutOfStock").with_header(header_names::ERROR, order);
///     fold.add(&Shelved::new(EntryHandle::new(Shelf::DeadLetter, order), message));
/// }
/// let snapshot = fold.finish(false);
/// assert_eq!(snapshot.by_reason["OutOfStock"], 2);
/// assert_eq!(snapshot.groups[0].template.text(), "order <number>");
/// ```
#[derive(Debug)]
#[must_use = "a fold does nothing until it is finished"]
pub struct SnapshotFold {
    max_groups: usize,
    now: SystemTime,
    snapshot: ShelfSnapshot,
    groups: HashMap<Template, GroupSummary>,
}

impl SnapshotFold {
    /// Creates a fold without entries. Times that are not [plausible](redrive_core::plausible) at `now` are not known.
    pub fn new(shelf: Shelf, options: &SnapshotOptions, now: SystemTime) -> Self {
        let snapshot = ShelfSnapshot {
            shelf,
            count: 0,
            oldest: None,
            by_reason: BTreeMap::new(),
            groups: Vec::new(),
            left_out: LeftOut::default(),
            truncated: false,
            holder: None,
        };
        Self { max_groups: options.groups, now, snapshot, groups: HashMap::new() }
    }

    /// Returns the number of added entries.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.snapshot.count
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: &Shelved) {
        let time = time_of(entry, self.now);
        self.snapshot.count += 1;
        self.snapshot.oldest = earlier(self.snapshot.oldest, time);
        self.add_reason(entry);
        self.add_to_group(entry, time);
    }

    fn add_reason(&mut self, entry: &Shelved) {
        let reason = cut(entry.reason().unwrap_or_default().to_owned(), MAX_REASON_BYTES);
        let reasons = &mut self.snapshot.by_reason;
        if reasons.len() < self.max_groups || reasons.contains_key(&reason) {
            *reasons.entry(reason).or_default() += 1;
        } else {
            self.snapshot.left_out.of_reasons += 1;
        }
    }

    fn add_to_group(&mut self, entry: &Shelved, time: Option<SystemTime>) {
        let template = Template::of(entry);
        if let Some(group) = self.groups.get_mut(&template) {
            group.count += 1;
            group.first_seen = earlier(group.first_seen, time);
            group.last_seen = group.last_seen.max(time);
        } else if self.groups.len() < self.max_groups {
            let group = GroupSummary {
                id: template.id(),
                template: template.clone(),
                count: 1,
                first_seen: time,
                last_seen: time,
                sample: sample(entry),
            };
            self.groups.insert(template, group);
        } else {
            self.snapshot.left_out.of_groups += 1;
        }
    }

    /// Returns the snapshot of the added entries. `truncated`: the shelf has more.
    #[must_use]
    pub fn finish(self, truncated: bool) -> ShelfSnapshot {
        let mut groups: Vec<_> = self.groups.into_values().collect();
        groups.sort_by_key(|group| (Reverse(group.count), group.id));
        ShelfSnapshot { groups, truncated, ..self.snapshot }
    }
}

/// Returns when the entry was shelved, or when it failed last if only that is known: a time that is plausible at `now`.
pub(crate) fn time_of(entry: &Shelved, now: SystemTime) -> Option<SystemTime> {
    let known = |time: Option<SystemTime>| time.and_then(|time| plausible(time, now));
    known(entry.shelved_at).or_else(|| known(entry.history.last_failed_at))
}

/// Returns the earlier of the known times.
fn earlier(one: Option<SystemTime>, other: Option<SystemTime>) -> Option<SystemTime> {
    one.into_iter().chain(other).min()
}

fn sample(entry: &Shelved) -> Sample {
    Sample {
        handle: entry.handle.clone(),
        message_id: entry.message.id().map(|id| cut(redact(id), MAX_ID_BYTES)),
        text: error_text(entry).map(|text| cut(text, redrive_core::MAX_ERROR_BYTES)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redrive_core::shelves::EntryHandle;
    use redrive_core::{Message, header_names as names};

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
    }

    fn entry(number: u64, reason: &str, text: &str) -> Shelved {
        let message = Message::new("body")
            .with_id(number.to_string())
            .with_header(names::REASON, reason)
            .with_header(names::ERROR, text);
        let mut entry = Shelved::new(EntryHandle::new(Shelf::DeadLetter, number.to_string()), message);
        entry.shelved_at = Some(at(number));
        entry
    }

    fn fold(options: &SnapshotOptions, entries: &[Shelved]) -> ShelfSnapshot {
        let mut fold = SnapshotFold::new(Shelf::DeadLetter, options, at(1_000));
        entries.iter().for_each(|entry| fold.add(entry));
        fold.finish(false)
    }

    #[test]
    fn entries_are_counted_by_reason_and_by_group() {
        let entries = [
            entry(7, "Broken", "order 1"),
            entry(3, "Broken", "order 22"),
            entry(5, "Broken", "no order"),
            entry(4, "Late", "order 3"),
        ];
        let snapshot = fold(&SnapshotOptions::new(), &entries);
        assert_eq!((snapshot.count, snapshot.oldest), (4, Some(at(3))));
        assert_eq!(snapshot.by_reason, BTreeMap::from([("Broken".to_owned(), 3), ("Late".to_owned(), 1)]));
        assert_eq!(snapshot.groups.len(), 3);
        let largest = &snapshot.groups[0];
        assert_eq!((largest.count, largest.template.text()), (2, "order <number>"));
        assert_eq!((largest.first_seen, largest.last_seen), (Some(at(3)), Some(at(7))));
        assert_eq!(largest.sample.handle, entries[0].handle);
        assert_eq!(largest.sample.message_id.as_deref(), Some("7"));
        assert_eq!(largest.sample.text.as_deref(), Some("order 1"));
        assert_eq!(largest.id, largest.template.id());
    }

    #[test]
    fn where_no_time_of_shelving_is_known_the_last_failure_counts() {
        let mut failed = entry(9, "Broken", "x");
        failed.shelved_at = None;
        failed.history.last_failed_at = Some(at(2));
        let mut untimed = entry(8, "Broken", "x");
        untimed.shelved_at = None;
        let snapshot = fold(&SnapshotOptions::new(), &[untimed.clone(), failed]);
        assert_eq!((snapshot.oldest, snapshot.groups[0].first_seen), (Some(at(2)), Some(at(2))));
        assert_eq!(fold(&SnapshotOptions::new(), &[untimed]).oldest, None);
    }

    #[test]
    fn a_time_beyond_reason_is_not_known() {
        let ahead = |entry: &mut Shelved, time: SystemTime| entry.shelved_at = Some(time);
        let mut entries = [1, 2, 3, 4].map(|number| entry(number, "Broken", "x"));
        ahead(&mut entries[0], SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000));
        ahead(&mut entries[1], at(11 * 365 * 86_400));
        ahead(&mut entries[2], SystemTime::UNIX_EPOCH + Duration::from_millis(1_800_000_000_000_000_000));
        entries[2].history.last_failed_at = Some(at(9));
        let snapshot = fold(&SnapshotOptions::new(), &entries);
        assert_eq!(snapshot.oldest, Some(at(4)));
        assert_eq!((snapshot.groups[0].first_seen, snapshot.groups[0].last_seen), (Some(at(4)), Some(at(9))));
    }

    #[test]
    fn no_shelf_makes_a_snapshot_larger_than_its_limits() {
        let long = "x".repeat(100_000);
        let entries: Vec<_> = (0..50)
            .map(|number| {
                let letter = char::from(b'a' + number as u8 % 26).to_string();
                let mut entry = entry(number, &(letter.clone() + &long), &(letter + &long));
                entry.message.properties_mut().id = Some(long.clone());
                entry
            })
            .collect();
        let snapshot = fold(&SnapshotOptions::new().groups(3), &entries);
        assert_eq!((snapshot.count, snapshot.groups.len(), snapshot.by_reason.len()), (50, 3, 3));
        assert_eq!(snapshot.left_out, LeftOut { of_groups: 44, of_reasons: 44 });
        assert!(format!("{snapshot:?}").len() < 12_000, "{}", format!("{snapshot:?}").len());
    }
}
