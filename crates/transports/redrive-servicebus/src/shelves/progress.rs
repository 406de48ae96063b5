//! Tracks the work on one place, and decides what follows from a failure. Pure.

use std::collections::{HashMap, HashSet};

use redrive_core::TransportError;
use redrive_core::shelves::{EntryHandle, EntryOutcome, ShelfReport};

use crate::convert::SetAside;
use crate::error::{self, Refusal};

/// The most lost locks of one message after which it is tried again.
const MAX_LOCK_LOSSES: u32 = 5;

/// The error of processing one message.
#[derive(Debug)]
pub(super) struct EntryError {
    pub(super) refusal: Refusal,
    /// The queue of its copy, if the copy is stored and only the original may still exist.
    pub(super) copy_in: Option<String>,
    pub(super) error: TransportError,
}

/// A selected entry.
#[derive(Debug)]
pub(super) struct ChosenEntry {
    pub(super) handle: EntryHandle,
    pub(super) id: Option<String>,
    pub(super) set_aside: Option<SetAside>,
}

/// The step after a failure.
#[derive(Debug)]
pub(super) enum NextStep {
    /// The message is redelivered and tried again.
    Again,
    /// The message stays, and the work continues with the others.
    LeaveIt(TransportError),
    /// The work stops: no other message can be processed.
    Stop(TransportError),
}

/// The progress of the work on one place.
#[derive(Debug, Default)]
pub(super) struct Progress {
    losses: HashMap<i64, u32>,
    /// The queues of the stored copies, by the sequence numbers of their originals.
    sent: HashMap<i64, String>,
    left: HashSet<i64>,
}

impl Progress {
    /// Returns true if a copy of the message is already stored, so that only the original must be completed.
    pub(super) fn is_sent(&self, number: i64) -> bool {
        self.sent.contains_key(&number)
    }

    /// Returns true if the work gave up on the message.
    pub(super) fn is_left(&self, number: i64) -> bool {
        self.left.contains(&number)
    }

    /// Records a failure, and returns what follows from it.
    pub(super) fn not_done(&mut self, number: i64, not_done: EntryError) -> NextStep {
        let EntryError { refusal, copy_in, error } = not_done;
        self.sent.extend(copy_in.map(|target| (number, target)));
        match refusal {
            Refusal::LockLost | Refusal::SessionLockLost if self.may_try_again(number) => {
                return NextStep::Again;
            }
            Refusal::LockLost
            | Refusal::SessionLockLost
            | Refusal::TooLarge
            | Refusal::QuotaExceeded
            | Refusal::NotAllowed
            | Refusal::Unexplained
            | Refusal::Other => {}
            _ => return NextStep::Stop(error),
        }
        self.left.insert(number);
        NextStep::LeaveIt(error)
    }

    /// Returns the outcome to report for a failed message.
    pub(super) fn failed(&self, number: i64, error: TransportError) -> EntryOutcome {
        EntryOutcome::Failed(match self.sent.get(&number) {
            Some(target) => error::only_copy_stored(target, &error.to_string()),
            None => error,
        })
    }

    /// Reports the messages that were not processed when the work on this place ended. `stopped` is true if an error ended it
    /// early.
    pub(super) fn note_left(
        &self,
        left: impl IntoIterator<Item = (i64, ChosenEntry)>,
        place: &str,
        stopped: bool,
        report: &mut ShelfReport,
    ) {
        for (number, ChosenEntry { handle, id, .. }) in left {
            let outcome = match stopped && !self.is_sent(number) {
                true => EntryOutcome::NotTried,
                false => self.failed(number, error::in_flight_elsewhere(place)),
            };
            report.note(handle, id.as_deref(), outcome);
        }
    }

    fn may_try_again(&mut self, number: i64) -> bool {
        let losses = self.losses.entry(number).or_default();
        *losses += 1;
        *losses <= MAX_LOCK_LOSSES
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::{Shelf, TransportErrorKind};

    use super::*;

    fn not_done(refusal: Refusal, copy_stored: bool) -> EntryError {
        let error = TransportError::new(TransportErrorKind::Unconfirmed, "it does not go");
        EntryError { refusal, copy_in: copy_stored.then(|| "orders".to_owned()), error }
    }

    #[test]
    fn a_lost_lock_is_tried_again_and_not_for_ever() {
        let mut progress = Progress::default();
        for _ in 0..MAX_LOCK_LOSSES {
            assert!(matches!(progress.not_done(1, not_done(Refusal::LockLost, false)), NextStep::Again));
        }
        assert!(matches!(progress.not_done(1, not_done(Refusal::LockLost, false)), NextStep::LeaveIt(_)));
        assert!(
            matches!(progress.not_done(2, not_done(Refusal::LockLost, false)), NextStep::Again),
            "others have their own tries"
        );
        assert!(progress.is_left(1) && !progress.is_left(2));
    }

    #[test]
    fn one_that_cannot_be_carried_stops_no_others() {
        for refusal in [Refusal::TooLarge, Refusal::QuotaExceeded, Refusal::Other] {
            let next = Progress::default().not_done(1, not_done(refusal, false));
            assert!(matches!(next, NextStep::LeaveIt(error) if error.to_string() == "it does not go"));
        }
    }

    #[test]
    fn what_concerns_all_ends_the_work() {
        for refusal in [Refusal::Busy, Refusal::Interrupted, Refusal::LinkRefused, Refusal::Unauthorized] {
            assert!(matches!(Progress::default().not_done(1, not_done(refusal, false)), NextStep::Stop(_)));
        }
    }

    #[test]
    fn a_copy_is_not_sent_twice() {
        let mut progress = Progress::default();
        assert!(matches!(progress.not_done(1, not_done(Refusal::LockLost, true)), NextStep::Again));
        assert!(progress.is_sent(1) && !progress.is_sent(2));
    }

    #[test]
    fn of_a_message_whose_copy_is_stored_it_is_said_where() {
        let mut progress = Progress::default();
        drop(progress.not_done(1, not_done(Refusal::LockLost, true)));
        for stopped in [false, true] {
            let named = |number: i64| {
                (
                    number,
                    ChosenEntry {
                        handle: EntryHandle::new(Shelf::DeadLetter, number.to_string()),
                        id: None,
                        set_aside: None,
                    },
                )
            };
            let mut report = ShelfReport::default();
            progress.note_left([named(1), named(2)], "dead", stopped, &mut report);
            let EntryOutcome::Failed(error) = &report.entries[0].outcome else { panic!("{report:?}") };
            assert!(error.to_string().contains("stored in `orders`"), "{error}");
            let is_not_tried = matches!(report.entries[1].outcome, EntryOutcome::NotTried);
            assert_eq!(is_not_tried, stopped, "{report:?}");
        }
    }
}
