//! Decides what a copy that was not stored means for the messages beside it. Pure.

use std::sync::atomic::{AtomicU64, Ordering};

use redrive_core::transport::Settlement;
use redrive_core::{Shelf, TransportError, TransportErrorKind};

use super::guarded_count::GuardedCount;

/// How often in turn a copy is refused, while others are stored at the same place, before its message is the reason.
const REFUSED_ALONE: u32 = 10;
/// Number of tries, about a minute, for which the intake pauses if several copies are refused and none is stored. Then each of these
/// messages only keeps its place, because all of them together may still be the exception.
const PAUSED_FOR: u32 = 10;

/// What the consumer does about a copy that was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consequence {
    /// This message can never be copied: the broker itself moves it, if it can; otherwise as [`Hold`](Self::Hold).
    NeverCopied,
    /// The message stays in flight, and takes one place of the concurrency. Others are taken.
    Hold,
    /// The message stays in flight, and no others are taken.
    Pause,
}

/// What is known about the refusals of one copy.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Number of copies that were stored at the same place when this one was last refused.
    stored_before: Option<u64>,
    /// How often others were stored there between two refusals of this one.
    alone: u32,
}

/// What happens to other copies at the same place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Others {
    /// Number of copies that were stored so far.
    pub(super) stored: u64,
    /// Number of messages in flight that are refused for a reason that is not clear.
    pub(super) refused: usize,
}

impl Refusals {
    /// Judges the error of try number `tries` (1 the first time).
    pub(super) fn judge(&mut self, error: &TransportError, tries: u32, others: Others) -> Consequence {
        if matches!(error.kind(), TransportErrorKind::TooLarge | TransportErrorKind::Refused) {
            return Consequence::NeverCopied;
        }
        if !is_unclear(error) {
            return Consequence::Pause;
        }
        if self.stored_before.replace(others.stored).is_some_and(|before| others.stored > before) {
            self.alone += 1;
        }
        match self.alone {
            REFUSED_ALONE.. => Consequence::NeverCopied,
            0 if others.refused > 0 && tries <= PAUSED_FOR => Consequence::Pause,
            _ => Consequence::Hold,
        }
    }

    /// Returns true if other copies are stored at the place where this one is refused.
    pub(super) fn is_alone(&self) -> bool {
        self.alone > 0
    }
}

/// Returns true if the reason may be this message alone, or something that concerns all.
pub(super) fn is_unclear(error: &TransportError) -> bool {
    error.kind() == TransportErrorKind::Unsupported || error.is_unclear()
}

/// The copies of one consumer, by the place where they are stored.
pub(crate) struct Copies([Place; 3]);

/// A place where copies are stored.
pub(super) struct Place {
    stored: AtomicU64,
    /// Messages whose copies are refused here for a reason that is not clear, and no others are stored.
    pub(super) refused: GuardedCount,
}

impl Copies {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| Place { stored: AtomicU64::new(0), refused: GuardedCount::new() }))
    }

    pub(super) fn of(&self, settlement: &Settlement) -> &Place {
        match settlement {
            Settlement::Shelve { shelf: Shelf::DeadLetter, .. } => &self.0[1],
            Settlement::Shelve { .. } => &self.0[2],
            _ => &self.0[0],
        }
    }
}

impl Place {
    pub(super) fn note_stored(&self) {
        self.stored.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns what happens to others than one that is itself counted as refused, if `counted`.
    pub(super) fn others(&self, counted: bool) -> Others {
        let refused = self.refused.now().saturating_sub(usize::from(counted));
        Others { stored: self.stored.load(Ordering::Relaxed), refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unclear() -> TransportError {
        TransportError::new(TransportErrorKind::Unconfirmed, "refused").unclear()
    }

    #[test]
    fn each_kind_of_error() {
        use TransportErrorKind::{
            Closed, Full, Lost, NotSent, Other, Refused, TooLarge, Unconfirmed, Unroutable,
        };
        use TransportErrorKind::{Topology, Unauthorized, Unreachable, Unsupported};
        let judged = |kind, refused| {
            let error = TransportError::new(kind, "");
            Refusals::default().judge(&error, 1, Others { stored: 0, refused })
        };
        for kind in [TooLarge, Refused] {
            assert_eq!(judged(kind, 5), Consequence::NeverCopied, "{kind:?}");
        }
        for kind in
            [Closed, Full, Lost, NotSent, Unconfirmed, Unroutable, Other, Topology, Unauthorized, Unreachable]
        {
            assert_eq!(judged(kind, 0), Consequence::Pause, "{kind:?}");
        }
        assert_eq!(judged(Unsupported, 0), Consequence::Hold);
        assert_eq!(judged(Unsupported, 1), Consequence::Pause);
    }

    #[test]
    fn one_refusal_stops_no_others_and_two_in_turn_do_for_a_while() {
        let mut refusals = Refusals::default();
        let mut judge = |tries, refused| refusals.judge(&unclear(), tries, Others { stored: 0, refused });
        assert_eq!(judge(1, 0), Consequence::Hold);
        assert_eq!(judge(2, 1), Consequence::Pause);
        assert_eq!(judge(PAUSED_FOR + 1, 1), Consequence::Hold);
        assert_eq!(judge(u32::MAX, 0), Consequence::Hold);
    }

    #[test]
    fn a_copy_that_is_refused_again_and_again_while_others_are_stored_is_the_exception() {
        let mut refusals = Refusals::default();
        for stored in 0..u64::from(REFUSED_ALONE) {
            let judged = refusals.judge(&unclear(), 2, Others { stored, refused: 1 });
            assert_eq!(judged == Consequence::Pause, stored == 0);
            assert_eq!(refusals.is_alone(), stored > 0);
        }
        let others = Others { stored: u64::from(REFUSED_ALONE), refused: 1 };
        assert_eq!(refusals.judge(&unclear(), 2, others), Consequence::NeverCopied);
    }
}
