//! For operators: what rests on the shelves, and how it gets back.

use async_trait::async_trait;

use crate::deaths::DeathHistory;
use crate::disposition::Shelf;
use crate::message::Message;
use crate::story::Story;
use crate::transport::TransportError;

/// The shelves of one queue. Object safe, so that a program can pick the broker at run time.
///
/// Every move is crash safe: a message is stored in its new place before it leaves the old one, so that a crash
/// leaves it in both, never in none.
#[async_trait]
pub trait Shelves: Send + Sync {
    /// How many messages rest on the shelf.
    ///
    /// # Errors
    ///
    /// When the broker cannot be asked.
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError>;

    /// The first messages on the shelf, at most `limit`; they stay there.
    ///
    /// # Errors
    ///
    /// When the broker cannot be asked.
    async fn browse(&self, shelf: Shelf, limit: usize) -> Result<Vec<Shelved>, TransportError>;

    /// Sends messages back to the consumer that failed, as a first attempt ([`redriven`](crate::redriven)), and to
    /// nobody else. Answers how many.
    ///
    /// # Errors
    ///
    /// When one cannot be sent back: it is still on the shelf. Where that is for what the message is
    /// ([`TooLarge`](crate::TransportErrorKind::TooLarge)), the others are sent back all the same, and the error says how
    /// many were, and which were not. Else those behind it are still on the shelf too.
    async fn redrive(&self, shelf: Shelf, which: &Selection) -> Result<u64, TransportError>;

    /// Moves messages from the dead-letter shelf to the parking shelf. Answers how many.
    ///
    /// # Errors
    ///
    /// As [`redrive`](Self::redrive).
    async fn park(&self, which: &Selection) -> Result<u64, TransportError>;

    /// Removes messages for good. Answers how many.
    ///
    /// # Errors
    ///
    /// When one cannot be removed; it and those behind it are still on the shelf.
    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<u64, TransportError>;
}

/// A message on a shelf.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shelved {
    /// The message, with the headers that tell its story.
    pub message: Message,
    /// The story, read.
    pub story: Story,
}

impl Shelved {
    /// This message, its story read.
    #[must_use]
    pub fn new(message: Message) -> Self {
        let story = Story::read(&message);
        Self { message, story }
    }

    /// What the broker wrote on it when it was dead-lettered; all there is of a message that the broker itself put here.
    #[must_use]
    pub fn deaths(&self) -> DeathHistory {
        DeathHistory::read(self.message.headers())
    }
}

/// Which messages of a shelf.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Selection {
    /// All that are there when the work begins.
    All,
    /// Those with one of these ids.
    Ids(Vec<String>),
    /// Those that failed for this reason, by its word.
    Reason(String),
}

impl Selection {
    /// True when this message is meant.
    #[must_use]
    pub fn includes(&self, shelved: &Shelved) -> bool {
        match self {
            Self::All => true,
            Self::Ids(ids) => shelved.message.id().is_some_and(|id| ids.iter().any(|wanted| wanted == id)),
            Self::Reason(word) => shelved.story.reason.as_ref().is_some_and(|reason| reason.as_str() == word),
        }
    }
}
