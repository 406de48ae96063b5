//! Results of an operator's action, entry by entry.

use std::collections::HashSet;

use super::{EntryHandle, Selection};
use crate::disposition::Shelf;
use crate::text::plural;
use crate::transport_error::{TransportError, TransportErrorKind};

/// Results of an action on a [`Selection`], entry by entry.
#[derive(Clone, Debug, Default)]
#[must_use = "some entries may have failed"]
#[non_exhaustive]
pub struct ShelfReport {
    /// The entries that were acted on, in that order; then those that were named and not found, or not tried.
    pub entries: Vec<EntryResult>,
    /// Why the work ended early, for example because the broker is gone. Entries that are not in this report were not tried, and
    /// are where they were.
    pub stopped: Option<TransportError>,
    /// Number of entries that the selection would have taken, and that were left where they are: they failed in a queue that is not
    /// [listed](super::Owner::Other) as sharing the shelf.
    pub left_out: u64,
}

/// Result of one entry.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EntryResult {
    /// Handle of the entry.
    pub handle: EntryHandle,
    /// Id of its message, if the entry was found and has one.
    pub id: Option<String>,
    /// What happened to it.
    pub outcome: EntryOutcome,
}

/// What happened to one entry.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EntryOutcome {
    /// The action succeeded, and the entry is off the shelf.
    Done,
    /// No entry of the shelf has this handle any more.
    NotFound,
    /// The work [stopped](ShelfReport::stopped) before this entry.
    NotTried,
    /// The action failed. The entry is still on the shelf. If the error leaves open whether a copy was stored, the copy may be in
    /// its new place as well.
    Failed(TransportError),
}

impl ShelfReport {
    /// Returns how many entries were done.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.entries.iter().filter(|entry| matches!(entry.outcome, EntryOutcome::Done)).count() as u64
    }

    /// Returns how many entries were done, or an error unless all were.
    ///
    /// # Errors
    ///
    /// If any entry was not done: the text says how many were, and names those that were not.
    pub fn into_result(self) -> Result<u64, TransportError> {
        const NAMED: usize = 20;
        let done = self.done();
        let not_done: Vec<_> =
            self.entries.iter().filter(|entry| !matches!(entry.outcome, EntryOutcome::Done)).collect();
        let why = self.stopped.as_ref().or_else(|| {
            not_done.iter().find_map(|entry| match &entry.outcome {
                EntryOutcome::Failed(error) => Some(error),
                _ => None,
            })
        });
        if why.is_none() && not_done.is_empty() {
            return Ok(done);
        }
        let (kind, why) = why.map_or_else(
            || (TransportErrorKind::NotFound, "no entry has such a handle any more".to_owned()),
            |error| (error.kind(), error.to_string()),
        );
        let name = |entry: &&EntryResult| match &entry.id {
            Some(id) => format!("`{id}` ({})", entry.handle),
            None => entry.handle.to_string(),
        };
        let mut named = not_done.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ");
        if not_done.len() > NAMED {
            named.push_str(", …");
        }
        let message = match not_done.len() {
            0 => format!("done for {}, then stopped: {why}", plural(done, "message")),
            count => format!("done for {}, not for {count}: {named}: {why}", plural(done, "message")),
        };
        Err(TransportError::new(kind, message))
    }

    /// Records what happened to an entry. For transports.
    pub fn note(&mut self, handle: EntryHandle, id: Option<&str>, outcome: EntryOutcome) {
        self.entries.push(EntryResult { handle, id: id.map(str::to_owned), outcome });
    }

    /// Turns what was done into a failure, but for the first `certain` entries: it is not known whether the others left the shelf.
    /// For transports.
    pub fn in_doubt(&mut self, certain: usize, why: &TransportError) {
        for entry in self.entries.iter_mut().skip(certain) {
            if matches!(entry.outcome, EntryOutcome::Done) {
                entry.outcome = EntryOutcome::Failed(why.clone());
            }
        }
    }

    /// Records, at the end, what happened to named handles that matched no entry of this shelf. A handle of the other shelf
    /// fails: its entry may exist, and was not looked for. For transports.
    pub fn complete(&mut self, shelf: Shelf, which: &Selection) {
        let Selection::Handles(wanted) = which else { return };
        let noted: HashSet<_> = self.entries.iter().map(|entry| entry.handle.clone()).collect();
        let mut missing: Vec<_> = wanted.difference(&noted).cloned().collect();
        missing.sort();
        let stopped = self.stopped.is_some();
        self.entries.extend(missing.into_iter().map(|handle| {
            let outcome = match handle.shelf() {
                other if other != shelf => EntryOutcome::Failed(of_other_shelf(&handle, shelf)),
                _ if stopped => EntryOutcome::NotTried,
                _ => EntryOutcome::NotFound,
            };
            EntryResult { handle, id: None, outcome }
        }));
    }
}

fn of_other_shelf(handle: &EntryHandle, shelf: Shelf) -> TransportError {
    let other = handle.shelf();
    let message = format!(
        "`{handle}` names an entry of the {other} shelf, and the work was on the {shelf} shelf: act on it there"
    );
    TransportError::new(TransportErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(entry: usize) -> EntryHandle {
        EntryHandle::new(Shelf::DeadLetter, entry.to_string())
    }

    fn too_large() -> TransportError {
        TransportError::new(TransportErrorKind::TooLarge, "too large")
    }

    #[test]
    fn what_failed_is_named_and_what_was_done_is_counted() {
        let mut report = ShelfReport::default();
        report.note(handle(0), Some("good"), EntryOutcome::Done);
        for entry in 1..=30 {
            let id = format!("m{entry}");
            report.note(handle(entry), Some(&id), EntryOutcome::Failed(too_large()));
        }
        let error = report.into_result().unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::TooLarge);
        let said = error.to_string();
        assert!(said.contains("1 message, not for 30") && !said.contains("good"), "{said}");
        assert!(said.contains("`m20` (dead-letter/20)") && !said.contains("`m21`"), "{said}");
    }

    #[test]
    fn a_handle_that_met_nothing_is_not_found_or_not_tried() {
        let which = Selection::handles([handle(1), handle(2)]);
        for stopped in [None, Some(too_large())] {
            let mut report = ShelfReport { stopped, ..ShelfReport::default() };
            report.note(handle(1), None, EntryOutcome::Done);
            report.complete(Shelf::DeadLetter, &which);
            let last = &report.entries[1].outcome;
            match report.stopped {
                None => assert!(matches!(last, EntryOutcome::NotFound), "{last:?}"),
                Some(_) => assert!(matches!(last, EntryOutcome::NotTried), "{last:?}"),
            }
            assert_eq!(report.entries.len(), 2);
            report.into_result().expect_err("one is missing");
        }
    }

    #[test]
    fn a_handle_of_the_other_shelf_fails() {
        let elsewhere = EntryHandle::new(Shelf::Parking, "1");
        for stopped in [None, Some(too_large())] {
            let mut report = ShelfReport { stopped, ..ShelfReport::default() };
            report.complete(Shelf::DeadLetter, &elsewhere.clone().into());
            let EntryOutcome::Failed(error) = &report.entries[0].outcome else { panic!("{report:?}") };
            assert_eq!(error.kind(), TransportErrorKind::Unsupported);
            assert!(error.to_string().contains("`parking/1`"), "{error}");
        }
    }

    #[test]
    fn a_stop_is_an_error_also_where_no_entry_was_named() {
        let report = ShelfReport { stopped: Some(too_large()), ..ShelfReport::default() };
        assert_eq!(report.into_result().unwrap_err().kind(), TransportErrorKind::TooLarge);
        assert_eq!(ShelfReport::default().into_result().unwrap(), 0);
    }
}
