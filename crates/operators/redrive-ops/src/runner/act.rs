//! One step on a shelf.

use std::collections::HashMap;

use redrive_core::shelves::{EntryHandle, EntryOutcome, Selection, ShelfReport};
use redrive_core::{Shelf, Shelves, TransportError};

use crate::plan::PlanAction;
use crate::run::EntryState;

/// Acts on entries. Returns the state of each, and why the work stopped before all of them had their turn.
pub(super) async fn act<S: Shelves + ?Sized>(
    shelves: &S,
    shelf: Shelf,
    action: PlanAction,
    handles: Vec<EntryHandle>,
) -> (Vec<(EntryHandle, EntryState)>, Option<TransportError>) {
    let which = Selection::handles(handles.iter().cloned());
    let report = match action {
        PlanAction::Redrive => shelves.redrive(shelf, &which).await,
        PlanAction::Park => shelves.park(&which).await,
        PlanAction::Discard => shelves.discard(shelf, &which).await,
    };
    match report {
        Ok(report) => states(handles, report),
        // The work did not begin.
        Err(error) => {
            (handles.into_iter().map(|handle| (handle, EntryState::NotTried)).collect(), Some(error))
        }
    }
}

fn states(
    handles: Vec<EntryHandle>,
    report: ShelfReport,
) -> (Vec<(EntryHandle, EntryState)>, Option<TransportError>) {
    let ShelfReport { entries, stopped, .. } = report;
    let mut outcomes: HashMap<_, _> =
        entries.into_iter().map(|entry| (entry.handle, entry.outcome)).collect();
    let state = |handle: EntryHandle| {
        let state = match outcomes.remove(&handle) {
            Some(EntryOutcome::Done) => EntryState::Done,
            Some(EntryOutcome::NotFound) => EntryState::NotFound,
            Some(EntryOutcome::NotTried) => EntryState::NotTried,
            Some(EntryOutcome::Failed(error)) if error.is_certainly_not_stored() => {
                EntryState::Failed(error.to_string())
            }
            Some(EntryOutcome::Failed(error)) => EntryState::Uncertain(error.to_string()),
            // An entry that is not in the report was not tried.
            _ => EntryState::NotTried,
        };
        (handle, state)
    };
    (handles.into_iter().map(state).collect(), stopped)
}

#[cfg(test)]
mod tests {
    use redrive_core::TransportErrorKind;

    use super::*;

    #[test]
    fn an_error_that_leaves_open_whether_a_copy_was_stored_is_uncertain() {
        let handle = |number: usize| EntryHandle::new(Shelf::DeadLetter, number.to_string());
        let failed = |kind| EntryOutcome::Failed(TransportError::new(kind, "why"));
        let mut report = ShelfReport::default();
        let outcomes = [
            EntryOutcome::Done,
            EntryOutcome::NotFound,
            EntryOutcome::NotTried,
            failed(TransportErrorKind::TooLarge),
            failed(TransportErrorKind::Unroutable),
            failed(TransportErrorKind::Unconfirmed),
            failed(TransportErrorKind::Lost),
        ];
        for (number, outcome) in outcomes.into_iter().enumerate() {
            report.note(handle(number), None, outcome);
        }
        let (states, stopped) = states((0..8).map(handle).collect(), report);
        assert!(stopped.is_none());
        let states: Vec<_> = states.into_iter().map(|(_, state)| state).collect();
        let why = || "why".to_owned();
        let expected = [
            EntryState::Done,
            EntryState::NotFound,
            EntryState::NotTried,
            EntryState::Failed(why()),
            EntryState::Failed(why()),
            EntryState::Uncertain(why()),
            EntryState::Uncertain(why()),
            EntryState::NotTried,
        ];
        assert_eq!(states, expected);
    }
}
