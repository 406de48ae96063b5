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
    LeaveIt(TransportError),
    /// None can be done any more.
    Stop(TransportError),
}

/// How far the work came.
#[derive(Debug, Default)]
pub(super) struct Round {
    losses: HashMap<i64, u32>,
    sent: HashSet<i64>,
    left: HashSet<i64>,
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
        match refusal {
            Refusal::LockLost | Refusal::SessionLockLost if self.may_try_again(number) => return Next::Again,
            Refusal::LockLost
            | Refusal::SessionLockLost
            | Refusal::TooLarge
            | Refusal::QuotaExceeded
            | Refusal::NotAllowed
            | Refusal::Unexplained
            | Refusal::Other => {}
            _ => return Next::Stop(error),
        }
        self.left.insert(number);
        Next::LeaveIt(error)
    }

    fn may_try_again(&mut self, number: i64) -> bool {
        let losses = self.losses.entry(number).or_default();
        *losses += 1;
        *losses <= LOSSES
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
        assert!(matches!(round.not_done(1, not_done(Refusal::LockLost, false)), Next::LeaveIt(_)));
        assert!(
            matches!(round.not_done(2, not_done(Refusal::LockLost, false)), Next::Again),
            "others have their own tries"
        );
        assert!(round.is_left(1) && !round.is_left(2));
    }

    #[test]
    fn one_that_cannot_be_carried_stops_no_others() {
        for refusal in [Refusal::TooLarge, Refusal::QuotaExceeded, Refusal::Other] {
            let next = Round::default().not_done(1, not_done(refusal, false));
            assert!(matches!(next, Next::LeaveIt(error) if error.to_string() == "it does not go"));
        }
    }

    #[test]
    fn what_concerns_all_ends_the_work() {
        for refusal in [Refusal::Busy, Refusal::Interrupted, Refusal::Unauthorized] {
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
