//! The values of a shelf's metrics: a snapshot with bounded labels. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::group::is_name;
use crate::snapshot::ShelfSnapshot;

/// Label of values without their own series.
const OTHER: &str = "other";
/// Label of entries without a value.
const UNKNOWN: &str = "unknown";

/// Result of one read of a shelf.
#[derive(Debug, PartialEq)]
pub(super) struct Values {
    pub(super) messages: u64,
    /// True if somebody may hold messages that are not counted.
    pub(super) partial: bool,
    /// `None`: no entry was read.
    pub(super) entries: Option<EntryValues>,
}

#[derive(Debug, PartialEq)]
pub(super) struct EntryValues {
    pub(super) oldest: Option<SystemTime>,
    pub(super) by_reason: Vec<(String, u64)>,
    pub(super) by_group: Vec<(GroupLabels, u64)>,
    pub(super) truncated: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct GroupLabels {
    pub(super) group: String,
    pub(super) reason: String,
    pub(super) error_type: String,
}

impl EntryValues {
    /// Converts a snapshot into values with at most `max` reasons and groups, and `other`.
    pub(super) fn of(snapshot: &ShelfSnapshot, max: usize) -> Self {
        Self {
            oldest: snapshot.oldest,
            by_reason: by_reason(snapshot, max),
            by_group: by_group(snapshot, max),
            truncated: snapshot.truncated,
        }
    }
}

fn by_reason(snapshot: &ShelfSnapshot, max: usize) -> Vec<(String, u64)> {
    // Several reasons may have the same label.
    let mut labels = BTreeMap::<&str, u64>::new();
    for (reason, count) in &snapshot.by_reason {
        *labels.entry(label(reason)).or_default() += count;
    }
    let mut other = snapshot.left_out.of_reasons + labels.remove(OTHER).unwrap_or(0);
    let mut labels: Vec<_> = labels.into_iter().collect();
    labels.sort_by_key(|&(label, count)| (Reverse(count), label));
    other += labels.drain(max.min(labels.len())..).map(|(_, count)| count).sum::<u64>();
    let rest = (other > 0).then_some((OTHER, other));
    labels.into_iter().chain(rest).map(|(label, count)| (label.to_owned(), count)).collect()
}

fn by_group(snapshot: &ShelfSnapshot, max: usize) -> Vec<(GroupLabels, u64)> {
    let (shown, rest) = snapshot.groups.split_at(max.min(snapshot.groups.len()));
    let other = snapshot.left_out.of_groups + rest.iter().map(|group| group.count).sum::<u64>();
    let labels = |group: &str, reason: &str, error_type: &str| GroupLabels {
        group: group.to_owned(),
        reason: reason.to_owned(),
        error_type: error_type.to_owned(),
    };
    let of_group = shown.iter().map(|group| {
        let (reason, error_type) = (label(group.template.reason()), label(group.template.error_type()));
        (labels(&group.id.to_string(), reason, error_type), group.count)
    });
    of_group.chain((other > 0).then(|| (labels(OTHER, OTHER, OTHER), other))).collect()
}

/// Returns the label for a reason or an error type. Publishers can write anything there: a value that is no plain word may be a text
/// or contain an id.
fn label(word: &str) -> &str {
    match word {
        "" => UNKNOWN,
        name if is_name(name) => name,
        _ => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::shelves::{EntryHandle, Shelved};
    use redrive_core::{Message, Shelf, header_names as names};

    use super::*;
    use crate::snapshot::{SnapshotFold, SnapshotOptions};

    fn values(options: &SnapshotOptions, max: usize, failures: &[(&str, &str, &str)]) -> EntryValues {
        let mut fold = SnapshotFold::new(Shelf::DeadLetter, options, std::time::UNIX_EPOCH);
        for &(reason, error_type, text) in failures {
            let message = Message::new("body")
                .with_header(names::ERROR, text)
                .with_header(names::ERROR_TYPE, error_type);
            let message =
                if reason.is_empty() { message } else { message.with_header(names::REASON, reason) };
            fold.add(&Shelved::new(EntryHandle::new(Shelf::DeadLetter, "1"), message));
        }
        EntryValues::of(&fold.finish(false), max)
    }

    fn reasons(values: &EntryValues) -> Vec<(&str, u64)> {
        values.by_reason.iter().map(|(reason, count)| (reason.as_str(), *count)).collect()
    }

    #[test]
    fn the_largest_have_series_of_their_own() {
        let of = |reason, error_type, count| std::iter::repeat_n((reason, error_type, "x"), count);
        let failures: Vec<_> = of("A", "", 3).chain(of("B", "", 1)).chain(of("C", "T", 2)).collect();
        let values = values(&SnapshotOptions::new(), 2, &failures);
        assert_eq!(reasons(&values), [("A", 3), ("C", 2), ("other", 1)]);
        let groups: Vec<_> =
            values.by_group.iter().map(|(labels, count)| (labels.reason.as_str(), *count)).collect();
        assert_eq!(groups, [("A", 3), ("C", 2), ("other", 1)]);
        assert_eq!(values.by_group[1].0.error_type, "T");
        assert_eq!(values.by_group[0].0.error_type, "unknown");
    }

    #[test]
    fn no_text_and_no_id_is_a_label() {
        let id = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        let failures = [("secret of Ann", "it's", "x"), (id, id, "x"), ("other", "T\"\n", "x"), ("", "", "")];
        let values = values(&SnapshotOptions::new(), 20, &failures);
        assert_eq!(reasons(&values), [("unknown", 1), ("other", 3)]);
        for (labels, _) in &values.by_group {
            assert!(["other", "unknown"].contains(&labels.reason.as_str()), "{labels:?}");
            assert!(["other", "unknown"].contains(&labels.error_type.as_str()), "{labels:?}");
        }
    }

    #[test]
    fn what_the_snapshot_left_out_is_other() {
        let values =
            values(&SnapshotOptions::new().groups(1), 20, &[("A", "", "x"), ("B", "", "y"), ("C", "", "z")]);
        assert_eq!(reasons(&values), [("A", 1), ("other", 2)]);
        assert_eq!(values.by_group.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(values.by_group[1].0.group, "other");
    }
}
