//! What is decided about a delivery.

use std::time::Duration;

use crate::failure::Failure;

/// Any error of a handler or layer.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What handling a delivery came to: `Ok` is decided, `Err` is not decided yet. Layers turn the one
/// into the other on the way out.
pub type Outcome = Result<Disposition, BoxError>;

/// What is decided about a delivery. The consumer turns it into a
/// [`Settlement`](crate::Settlement), and the transport carries that out.
///
/// A handler may answer with one itself:
///
/// ```
/// use redrive_core::{Disposition, Failure};
/// # use std::time::Duration;
///
/// async fn ship(stock: u32) -> Disposition {
///     match stock {
///         0 => Disposition::snooze(Duration::from_secs(60)), // again later, no attempt charged
///         13 => Disposition::DeadLetter(Failure::custom("UnluckyStock", "13 on stock")),
///         _ => Disposition::Ack,
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a disposition does nothing until it is returned to the consumer"]
#[non_exhaustive]
pub enum Disposition {
    /// Done: remove the message.
    Ack,
    /// Failed: again after at least this wait. Costs an attempt.
    Retry(Duration, Failure),
    /// Not now, and nobody's fault: again after at least this wait. Costs no attempt.
    Snooze(Duration),
    /// Failed for good: onto the dead-letter shelf, where operators look at it and redrive it.
    DeadLetter(Failure),
    /// Keeps failing: onto the parking shelf, which only people take from.
    Park(Failure),
    /// Not handled: give it back to the broker as it came. Costs no attempt. It comes again at once: a handler that always
    /// answers this goes round in circles; answer [`Snooze`](Self::Snooze) to be asked later.
    Release,
    /// Failed, and not worth keeping: remove the message. Logged, as a warning, with the failure.
    Discard(Failure),
}

impl Disposition {
    /// Again after at least `wait`, without costing an attempt.
    pub fn snooze(wait: Duration) -> Self {
        Self::Snooze(wait)
    }

    /// The failure that led here, if one did.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Retry(_, failure)
            | Self::DeadLetter(failure)
            | Self::Park(failure)
            | Self::Discard(failure) => Some(failure),
            Self::Ack | Self::Snooze(_) | Self::Release => None,
        }
    }

    /// What becomes of it where it needs a copy, and the message cannot be copied.
    pub(crate) fn without_copy(self) -> Self {
        match self {
            Self::Retry(_, failure) | Self::Park(failure) => Self::DeadLetter(failure),
            Self::Snooze(_) => {
                Self::DeadLetter(Failure::custom("Uncopyable", "it was to wait, and cannot be copied"))
            }
            other => other,
        }
    }

    /// The word for this disposition in logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Retry(..) => "retry",
            Self::Snooze(_) => "snooze",
            Self::DeadLetter(_) => "dead-letter",
            Self::Park(_) => "park",
            Self::Release => "release",
            Self::Discard(_) => "discard",
        }
    }
}

/// Where failed messages rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Shelf {
    /// To look at and redrive.
    DeadLetter,
    /// Keeps coming back: for people only.
    Parking,
}

impl std::fmt::Display for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::DeadLetter => "dead-letter",
            Self::Parking => "parking",
        })
    }
}
