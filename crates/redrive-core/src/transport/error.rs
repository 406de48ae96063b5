//! Why a transport could not do what was asked.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Why a transport was not opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The broker cannot honour the [needs](crate::Needs): one sentence each, with what to do. Nothing was declared for
    /// them, as far as the broker told before that.
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
    /// It failed for another reason.
    #[error(transparent)]
    Failed(#[from] TransportError),
}

impl OpenError {
    /// What kind of error this is; a refusal is [`Unsupported`](TransportErrorKind::Unsupported).
    #[must_use]
    pub fn kind(&self) -> TransportErrorKind {
        match self {
            Self::Refused(_) => TransportErrorKind::Unsupported,
            Self::Failed(error) => error.kind(),
        }
    }
}

/// Why a transport could not do what was asked: what was tried, on what, and what to do next. Never
/// contains a password. A clone shares the source.
#[derive(Clone, Debug)]
pub struct TransportError {
    kind: TransportErrorKind,
    message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl TransportError {
    /// An error of this kind; `message` says what was tried, on what, and what to do next.
    #[must_use]
    pub fn new(kind: TransportErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The transport of this queue was opened before: it has one receiver.
    #[must_use]
    pub fn opened_before(queue: &str) -> Self {
        let message =
            format!("the transport of `{queue}` was opened before: make another one for another consumer");
        Self::new(TransportErrorKind::Other, message)
    }

    /// The same error with the one that caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<crate::BoxError>) -> Self {
        self.source = Some(source.into().into());
        self
    }

    /// What kind of error this is.
    #[must_use]
    pub fn kind(&self) -> TransportErrorKind {
        self.kind
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for TransportError {
    // Not derived: the derive would answer the `Arc`, which nobody can downcast to the error inside.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The kinds of [`TransportError`], as far as callers act on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// The broker does not answer. Trying again later may help.
    Unreachable,
    /// The broker refuses the credentials, or the right to do this.
    Unauthorized,
    /// Something else stands under a name that is needed, or it is missing.
    Topology,
    /// The configuration asks for what this broker cannot do.
    Unsupported,
    /// The copy was not stored: target missing, or no confirmation in time. The consumer pauses its intake and tries
    /// again.
    NotStored,
    /// The copy was not stored: its target has no room. Where it was to come back, the consumer keeps the delivery in flight,
    /// goes on with others, which makes room, and handles it again when its wait is over.
    Full,
    /// The copy will never be stored as it is: too large for the broker.
    TooLarge,
    /// The delivery is no longer ours to settle; it comes again.
    Lost,
    /// What was named is not there any more: an entry of a shelf, by its handle.
    NotFound,
    /// The transport was closed.
    Closed,
    /// Anything else.
    Other,
}

/// Why a delivery was not settled. A transport makes one with [`lost`](Self::lost), [`lost_after_copy`](Self::lost_after_copy)
/// or [`held`](Self::held).
#[derive(Debug)]
#[non_exhaustive]
pub struct SettleError<R> {
    /// What happened.
    pub error: TransportError,
    /// The right to settle the delivery, when it is still in flight. Dropping it gives the delivery back.
    pub receipt: Option<R>,
    /// True when the copy is known to be stored, and only the removal of the original is in doubt. When the original
    /// comes again it must not be copied again.
    pub copy_stored: bool,
}

impl<R> SettleError<R> {
    /// The delivery is no longer in flight.
    #[must_use]
    pub fn lost(error: TransportError) -> Self {
        Self { error, receipt: None, copy_stored: false }
    }

    /// The delivery is no longer in flight, but its copy is stored: only the removal of the original is in doubt.
    #[must_use]
    pub fn lost_after_copy(error: TransportError) -> Self {
        Self { error, receipt: None, copy_stored: true }
    }

    /// The delivery is still in flight: its settlement can be tried again.
    #[must_use]
    pub fn held(error: TransportError, receipt: R) -> Self {
        Self { error, receipt: Some(receipt), copy_stored: false }
    }

    /// The same error with another receipt, where there is one: for a transport that wraps another one's receipts.
    #[must_use]
    pub fn map_receipt<Other>(self, wrap: impl FnOnce(R) -> Other) -> SettleError<Other> {
        SettleError { error: self.error, receipt: self.receipt.map(wrap), copy_stored: self.copy_stored }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_a_clone_is_the_error_itself() {
        let source = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let error =
            TransportError::new(TransportErrorKind::Unreachable, "no broker").with_source(source).clone();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (TransportErrorKind::Unreachable, "no broker")
        );
        let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        assert_eq!(source.map(std::io::Error::kind), Some(std::io::ErrorKind::ConnectionReset));
    }
}
