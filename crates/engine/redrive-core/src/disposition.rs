//! Decision about a delivery.

use std::time::Duration;

use crate::failure::{Failure, Reason};

/// Any error of a handler or layer.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Result of handling a delivery: `Ok` is decided, `Err` is not decided yet. Layers turn an `Err` into an `Ok` on the way out.
pub type Outcome = Result<Disposition, BoxError>;

/// Decision about a delivery. The consumer turns it into a [`Settlement`](crate::transport::Settlement), which the transport carries out.
///
/// A handler may return one itself:
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
#[non_exhaustive]
#[must_use = "a disposition does nothing until it is returned to the consumer"]
pub enum Disposition {
    /// Done: remove the message.
    Ack,
    /// Failed: deliver again after at least this wait. Costs an attempt.
    Retry(Duration, Failure),
    /// Not possible now, without a failure: deliver again after at least this wait. Costs no attempt.
    Snooze(Duration),
    /// Failed for good: move to the dead-letter shelf, where operators inspect it and redrive it.
    DeadLetter(Failure),
    /// Keeps failing: move to the parking shelf, from which only people take messages.
    Park(Failure),
    /// Not handled: give it back to the broker unchanged. Costs no attempt. The broker delivers it again at once, so a handler
    /// that always returns this loops; return [`Snooze`](Self::Snooze) to be called later.
    Release,
    /// Failed, and not worth keeping: remove the message. The consumer logs a warning with the failure.
    Discard(Failure),
}

impl Disposition {
    /// Creates a [`Snooze`](Self::Snooze): deliver again after at least `wait`, without charging an attempt.
    pub fn snooze(wait: Duration) -> Self {
        Self::Snooze(wait)
    }

    /// Decides about an error that no layer decided about: nothing suggests that another attempt would succeed.
    pub fn undecided(error: &BoxError) -> Self {
        Self::DeadLetter(Failure::from_error(Reason::Undecided, &**error))
    }

    /// Returns the failure behind the decision, if there is one.
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

    /// Returns the wait until the message is delivered again, if the decision asks for one.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        match *self {
            Self::Retry(wait, _) | Self::Snooze(wait) => Some(wait),
            Self::Ack | Self::DeadLetter(_) | Self::Park(_) | Self::Release | Self::Discard(_) => None,
        }
    }

    /// Returns true if the message is not redelivered to this consumer.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Ack | Self::DeadLetter(_) | Self::Park(_) | Self::Discard(_) => true,
            Self::Retry(..) | Self::Snooze(_) | Self::Release => false,
        }
    }

    /// Passes the text of the failure, if there is one, through one more redactor.
    pub fn redacted_by(self, redactor: &dyn Fn(&str) -> String) -> Self {
        let redact = |failure: Failure| failure.redacted_by(redactor);
        // No catch-all: a new variant must not carry a failure past the redactor.
        match self {
            Self::Retry(wait, failure) => Self::Retry(wait, redact(failure)),
            Self::DeadLetter(failure) => Self::DeadLetter(redact(failure)),
            Self::Park(failure) => Self::Park(redact(failure)),
            Self::Discard(failure) => Self::Discard(redact(failure)),
            Self::Ack | Self::Snooze(_) | Self::Release => self,
        }
    }

    /// Returns what happens to the decision if it needs a copy and the message cannot be copied.
    pub fn without_copy(self) -> Self {
        match self {
            Self::Retry(_, failure) | Self::Park(failure) => Self::DeadLetter(failure),
            Self::Snooze(_) => {
                Self::DeadLetter(Failure::custom("Uncopyable", "it was to wait, and cannot be copied"))
            }
            Self::Ack | Self::DeadLetter(_) | Self::Release | Self::Discard(_) => self,
        }
    }

    /// Returns the name of this disposition in logs and metrics.
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

/// A place for failed messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Shelf {
    /// For messages to inspect and redrive.
    DeadLetter,
    /// For messages that keep failing: only people take them from here.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_failure_passes_the_redactor() {
        let failure = || Failure::custom("Broken", "secret");
        for disposition in [
            Disposition::Retry(Duration::ZERO, failure()),
            Disposition::DeadLetter(failure()),
            Disposition::Park(failure()),
            Disposition::Discard(failure()),
        ] {
            let name = disposition.name();
            let redacted = disposition.redacted_by(&|text| text.replace("secret", "***"));
            assert_eq!((redacted.name(), redacted.failure().map(Failure::text)), (name, Some("***")));
        }
    }
}
