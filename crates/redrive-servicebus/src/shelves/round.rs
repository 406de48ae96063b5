//! What became of the messages of one shelf while it was worked through. Decides; does nothing.

use std::collections::{HashMap, HashSet};

use redrive_core::TransportError;

use crate::error::Refusal;

/// How often a message is tried again whose lock was lost.
const LOSSES: u32 = 5;

/// Why something was not done for a message.
#[derive(Debug)]
pub(super) struct NotDone {
    pub(super) refusal: Refusal,
    /// Its copy is stored: only the message itself is still there.
    pub(super) copy_stored: bool,
    pub(super) error: TransportError,
}

/// What follows from it.
#[derive(Debug)]
pub(super) enum Next {
    /// It comes again, and is tried again.
    Again,
    /// This one cannot be done; the others can.
    LeaveIt,
    /// None can be done any more.
    Stop(TransportError),
}

/// How far the work came.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) done: u64,
    losses: HashMap<i64, u32>,
    sent: HashSet<i64>,
    left: HashSet<i64>,
    first_error: Option<TransportError>,
}

impl Round {
    /// Whether a copy of the message is stored already, and it is only to be removed.
    pub(super) fn is_sent(&self, number: i64) -> bool {
        self.sent.contains(&number)
    }

    /// Whether it was given up.
    pub(super) fn is_left(&self, number: i64) -> bool {
        self.left.contains(&number)
    }

    pub(super) fn not_done(&mut self, number: i64, not_done: NotDone) -> Next {
        let NotDone { refusal, copy_stored, error } = not_done;
        if copy_stored {
            self.sent.insert(number);
        }
        let next = match refusal {
            Refusal::LockLost | Refusal::SessionLockLost => self.lost(number),
            Refusal::TooLarge | Refusal::NotAllowed | Refusal::Unexplained | Refusal::Other => Next::LeaveIt,
            _ => return Next::Stop(error),
        };
        if let Next::LeaveIt = next {
            self.left.insert(number);
            self.first_error.get_or_insert(error);
        }
        next
    }

    fn lost(&mut self, number: i64) -> Next {
        let losses = self.losses.entry(number).or_default();
        *losses += 1;
        if *losses <= LOSSES { Next::Again } else { Next::LeaveIt }
    }

    /// How many were done, where nothing was left behind.
    pub(super) fn end(self, place: &str) -> Result<u64, TransportError> {
        let Self { done, left, first_error, .. } = self;
        match first_error {
            None => Ok(done),
            Some(error) => {
                let left = left.len();
                let said = format!(
                    "{left} of the messages of `{place}` are left there, {done} are done with: {error}"
                );
                Err(TransportError::new(error.kind(), said))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::TransportErrorKind;

    use super::*;

    fn not_done(refusal: Refusal, copy_stored: bool) -> NotDone {
        let error = TransportError::new(TransportErrorKind::NotStored, "it does not go");
        NotDone { refusal, copy_stored, error }
    }

    #[test]
    fn a_lost_lock_is_tried_again_and_not_for_ever() {
        let mut round = Round::default();
        for _ in 0..LOSSES {
            assert!(matches!(round.not_done(1, not_done(Refusal::LockLost, false)), Next::Again));
        }
        assert!(matches!(round.not_done(1, not_done(Refusal::LockLost, false)), Next::LeaveIt));
        assert!(
            matches!(round.not_done(2, not_done(Refusal::LockLost, false)), Next::Again),
            "others have their own tries"
        );
        assert!(round.end("dead").is_err());
    }

    #[test]
    fn one_that_cannot_be_carried_stops_no_others_and_is_told_in_the_end() {
        let mut round = Round { done: 7, ..Round::default() };
        assert!(matches!(round.not_done(1, not_done(Refusal::TooLarge, false)), Next::LeaveIt));
        let said = round.end("dead").expect_err("one is left").to_string();
        assert!(
            said.contains("1 of") && said.contains("7 are done") && said.contains("it does not go"),
            "{said}"
        );
    }

    #[test]
    fn what_concerns_all_ends_the_work() {
        for refusal in [Refusal::QuotaExceeded, Refusal::Interrupted, Refusal::Unauthorized] {
            assert!(matches!(Round::default().not_done(1, not_done(refusal, false)), Next::Stop(_)));
        }
    }

    #[test]
    fn a_copy_is_not_sent_twice() {
        let mut round = Round::default();
        assert!(matches!(round.not_done(1, not_done(Refusal::LockLost, true)), Next::Again));
        assert!(round.is_sent(1) && !round.is_sent(2));
    }
}
