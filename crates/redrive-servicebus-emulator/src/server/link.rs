//! The links of a session, by what they are for.

use tokio::time::Instant;

use super::accepting::Accepting;
use super::consumer::Consumer;
use super::inlet::Inlet;
use super::replies::Replies;

/// One link, by what it is for.
#[derive(Debug)]
pub(super) enum Link {
    /// The client sends.
    Inlet(Inlet),
    /// The client receives messages.
    Consumer(Consumer),
    /// The client receives answers to requests.
    Replies(Replies),
    /// The client waits for a session.
    Accepting(Box<Accepting>),
}

impl Link {
    /// The entity that it sends to or receives from.
    pub(super) fn entity(&self) -> Option<&str> {
        match self {
            Self::Inlet(inlet) => inlet.entity(),
            Self::Consumer(consumer) => Some(&consumer.path),
            Self::Accepting(accepting) => Some(&accepting.path),
            Self::Replies(_) => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Accepting(accepting) => Some(accepting.deadline),
            Self::Replies(replies) => replies.next_due(),
            Self::Inlet(_) | Self::Consumer(_) => None,
        }
    }
}
