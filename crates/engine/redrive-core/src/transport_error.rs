//! Errors of a transport.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::text::{joined, with_causes};
use crate::unmet_need::UnmetNeed;

/// Why a transport was not opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The broker cannot honour these [needs](crate::transport::Needs). Nothing was declared, as far as this was known before.
    #[error("{}", joined(.0, "; "))]
    Refused(Vec<UnmetNeed>),
    /// Any other error.
    #[error(transparent)]
    Failed(#[from] TransportError),
}

impl OpenError {
    /// Returns the kind of this error; a refusal is [`Unsupported`](TransportErrorKind::Unsupported).
    #[must_use]
    pub fn kind(&self) -> TransportErrorKind {
        match self {
            Self::Refused(_) => TransportErrorKind::Unsupported,
            Self::Failed(error) => error.kind(),
        }
    }
}

/// An error of a transport: what was tried, on what, and what to do next. Never contains a password. Clones share the source.
#[derive(Clone)]
pub struct TransportError {
    kind: TransportErrorKind,
    /// True if the reason may lie in this one message. Not a kind: the copy of such an error may be stored, or certainly is not.
    unclear: bool,
    message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl TransportError {
    /// Creates an error of this kind; `message` says what was tried, on what, and what to do next.
    #[must_use]
    pub fn new(kind: TransportErrorKind, message: impl Into<String>) -> Self {
        Self { kind, unclear: false, message: message.into(), source: None }
    }

    /// Creates the error for a transport that is opened a second time: it has one receiver.
    #[must_use]
    pub fn opened_before(queue: &str) -> Self {
        let message =
            format!("the transport of `{queue}` was opened before: make another one for another consumer");
        Self::new(TransportErrorKind::Other, message)
    }

    /// Creates the error for a transport that was closed.
    #[must_use]
    pub fn closed(queue: &str) -> Self {
        let message = format!("the transport of `{queue}` was closed: connect another one");
        Self::new(TransportErrorKind::Closed, message)
    }

    /// Creates the error for a cursor that another transport, or another shelf, made.
    #[must_use]
    pub fn foreign_cursor() -> Self {
        Self::new(TransportErrorKind::Unsupported, "this is no cursor of this shelf")
    }

    /// Adds the error that caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<crate::BoxError>) -> Self {
        self.source = Some(source.into().into());
        self
    }

    /// Changes the kind, for a caller that knows more than the place where the error was made.
    #[must_use]
    pub fn with_kind(mut self, kind: TransportErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// Notes that the broker refused this copy, and that its answer does not tell whether it would refuse others: the reason may lie
    /// in this message alone. The consumer then takes other messages before it judges, and an operator's run goes on.
    #[must_use]
    pub fn unclear(mut self) -> Self {
        self.unclear = true;
        self
    }

    /// Returns true if the broker refused this copy, and may store others; see [`unclear`](Self::unclear).
    #[must_use]
    pub fn is_unclear(&self) -> bool {
        self.unclear
    }

    /// Returns the kind of this error.
    #[must_use]
    pub fn kind(&self) -> TransportErrorKind {
        self.kind
    }

    /// Returns true if there is no such shelf: nobody declared its queue, or this broker does not have it.
    #[must_use]
    pub fn is_missing_shelf(&self) -> bool {
        use TransportErrorKind::{NotFound, Topology, Unsupported};
        matches!(self.kind, NotFound | Topology | Unsupported)
    }

    /// Returns true if it is certain that no copy was stored: the kind tells
    /// ([`TransportErrorKind::is_certainly_not_stored`]).
    #[must_use]
    pub fn is_certainly_not_stored(&self) -> bool {
        self.kind.is_certainly_not_stored()
    }
}

/// As `main` shows it: the message, the kind, and the causes.
impl fmt::Debug for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = with_causes(self);
        let causes = said.strip_prefix(&*self.message).unwrap_or_default();
        write!(f, "{} ({:?}){causes}", self.message, self.kind)
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for TransportError {
    // Not derived: the derive would return the `Arc`, which cannot be downcast to the error inside.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The kinds of [`TransportError`] that callers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// The broker does not answer. Trying again later may help.
    Unreachable,
    /// The broker refuses the credentials or the permission.
    Unauthorized,
    /// A name that is needed is missing, or belongs to something else.
    Topology,
    /// The broker cannot do what the configuration asks for.
    Unsupported,
    /// The copy was sent, and the confirmation never came: it may be stored, or may be stored later. The consumer pauses its intake
    /// and tries again, which may store it twice.
    Unconfirmed,
    /// The broker answered that it did not store the copy: no queue took it. The queue or the exchange is missing, or may not be
    /// written. The consumer pauses its intake and tries again.
    Unroutable,
    /// The copy was not sent: the broker accepts none for now. The consumer pauses its intake and tries again.
    NotSent,
    /// The copy was not stored: its target is full. If the copy was to come back to this consumer, the consumer keeps the delivery
    /// in flight, handles others, which makes room, and handles this one again when its wait is over.
    Full,
    /// The copy can never be stored: it is too large for the broker.
    TooLarge,
    /// The copy can never be stored: the broker refuses something in it, such as a property. Others are stored.
    Refused,
    /// The delivery is no longer in flight; it is redelivered.
    Lost,
    /// The entry of a shelf that the handle names no longer exists.
    NotFound,
    /// Another client has the exclusive right.
    Locked,
    /// Others have what is needed, for a while: nothing was done. Trying again later helps.
    Busy,
    /// The transport was closed, or a task of it panicked: it never receives again.
    Closed,
    /// Any other kind.
    Other,
}

impl TransportErrorKind {
    /// Returns true if it is certain that no copy was stored. Otherwise that is open, or the error is about the removal.
    #[must_use]
    pub const fn is_certainly_not_stored(self) -> bool {
        matches!(
            self,
            Self::Busy
                | Self::Full
                | Self::NotSent
                | Self::Refused
                | Self::TooLarge
                | Self::Unroutable
                | Self::Unsupported
        )
    }
}

/// The delivery was not settled. A transport creates this error with [`lost`](Self::lost), [`lost_after_copy`](Self::lost_after_copy)
/// or [`held`](Self::held).
#[derive(Debug)]
#[non_exhaustive]
pub struct SettleError<R> {
    /// What happened.
    pub error: TransportError,
    /// The right to settle the delivery, if it is still in flight. Dropping it gives the delivery back.
    pub receipt: Option<R>,
    /// True if the copy is known to be stored, and only the removal of the original is in doubt. If the original is redelivered,
    /// it must not be copied again.
    pub copy_stored: bool,
}

impl<R> SettleError<R> {
    /// Creates the error for a delivery that is no longer in flight.
    #[must_use]
    pub fn lost(error: TransportError) -> Self {
        Self { error, receipt: None, copy_stored: false }
    }

    /// Creates the error for a delivery that is no longer in flight although its copy is stored: only the removal of the original is
    /// in doubt.
    #[must_use]
    pub fn lost_after_copy(error: TransportError) -> Self {
        Self { error, receipt: None, copy_stored: true }
    }

    /// Creates the error for a delivery that is still in flight: its settlement can be tried again.
    #[must_use]
    pub fn held(error: TransportError, receipt: R) -> Self {
        Self { error, receipt: Some(receipt), copy_stored: false }
    }

    /// Converts the receipt, for a transport that wraps another one's receipts.
    #[must_use]
    pub fn map_receipt<Other>(self, wrap: impl FnOnce(R) -> Other) -> SettleError<Other> {
        SettleError { error: self.error, receipt: self.receipt.map(wrap), copy_stored: self.copy_stored }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_whose_confirmation_did_not_come_may_be_stored() {
        use TransportErrorKind::Unsupported;
        use TransportErrorKind::{Busy, Closed, Full, Locked, Lost, NotFound, NotSent, Other, Refused};
        use TransportErrorKind::{TooLarge, Topology, Unauthorized, Unconfirmed, Unreachable, Unroutable};
        let certain = [Busy, Full, NotSent, Refused, TooLarge, Unroutable, Unsupported];
        assert!(certain.into_iter().all(TransportErrorKind::is_certainly_not_stored));
        let open = [Closed, Locked, Lost, NotFound, Other, Topology, Unauthorized, Unconfirmed, Unreachable];
        assert!(!open.into_iter().any(TransportErrorKind::is_certainly_not_stored));
        // The kind tells, also on a clone and with a mark.
        let error = TransportError::new(Unroutable, "text").unclear();
        assert!(error.is_certainly_not_stored() && !error.with_kind(Unconfirmed).is_certainly_not_stored());
    }

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
