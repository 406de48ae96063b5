//! What goes wrong, and in which words.

use redrive_core::{TransportError, TransportErrorKind as Kind};

/// Why the broker did not do what was asked, as far as anybody acts on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The lock of a message is lost: expired, or the message was settled already.
    LockLost,
    /// The lock of a session is lost.
    SessionLockLost,
    /// No such entity.
    NotFound,
    /// The credentials, or the right to do this.
    Unauthorized,
    /// The identity gives no token.
    #[cfg(feature = "entra")]
    NoToken,
    /// The other end's certificate is none of theirs, or nobody vouches for it.
    NotTrusted,
    /// The broker asks to be left alone for a while.
    Busy,
    /// The entity is full.
    QuotaExceeded,
    /// The message is too large.
    TooLarge,
    /// Transactions are not to be had here.
    NoTransactions,
    /// The entity does not do this.
    NotAllowed,
    /// No session was free within the time.
    NoSession,
    /// The connection or link ended, or no answer came in time: it may have been done or not.
    Interrupted,
    /// Refused, and the client library does not show why.
    Unexplained,
    /// Anything else.
    Other,
}

/// An answer that is no success, or none at all.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{said}")]
pub(crate) struct WireError {
    pub(crate) refusal: Refusal,
    /// What the broker or the client library said.
    said: String,
}

impl WireError {
    pub(crate) fn new(refusal: Refusal, said: impl Into<String>) -> Self {
        Self { refusal, said: said.into() }
    }

    pub(crate) fn interrupted(said: impl Into<String>) -> Self {
        Self::new(Refusal::Interrupted, said)
    }

    /// By the condition that the broker names, and the status of its answer where it has one.
    pub(crate) fn from_condition(condition: &str, status: Option<i32>, said: impl Into<String>) -> Self {
        let refusal = match condition {
            "com.microsoft:message-lock-lost" => Refusal::LockLost,
            "com.microsoft:session-lock-lost" => Refusal::SessionLockLost,
            "com.microsoft:session-cannot-be-locked" | "com.microsoft:timeout" => Refusal::NoSession,
            "com.microsoft:server-busy" => Refusal::Busy,
            "amqp:not-found" | "com.microsoft:entity-disabled" => Refusal::NotFound,
            "amqp:unauthorized-access" | "com.microsoft:auth-failed" => Refusal::Unauthorized,
            "amqp:resource-limit-exceeded" => Refusal::QuotaExceeded,
            "amqp:link:message-size-exceeded" => Refusal::TooLarge,
            "amqp:not-implemented" => Refusal::NoTransactions,
            "amqp:not-allowed" => Refusal::NotAllowed,
            "amqp:link:detach-forced" | "amqp:connection:forced" | "amqp:internal-error" => {
                Refusal::Interrupted
            }
            _ => match status {
                Some(410) => Refusal::LockLost,
                Some(404) => Refusal::NotFound,
                Some(401 | 403) => Refusal::Unauthorized,
                Some(503) => Refusal::Busy,
                _ => Refusal::Other,
            },
        };
        Self::new(refusal, said)
    }

    /// Whether the lock of the message or of its session is lost.
    pub(crate) fn is_lock_lost(&self) -> bool {
        matches!(self.refusal, Refusal::LockLost | Refusal::SessionLockLost)
    }

    /// Whether it was refused because sessions are required, or are not there.
    pub(crate) fn speaks_of_sessions(&self) -> bool {
        self.refusal == Refusal::NotAllowed && self.said.to_lowercase().contains("session")
    }

    /// As an error of the transport; `tried` says what was tried, on what.
    pub(crate) fn into_error(self, tried: &str) -> TransportError {
        let (kind, next) = match self.refusal {
            Refusal::LockLost | Refusal::SessionLockLost => {
                (Kind::Lost, "the lock is lost: the message comes again by itself")
            }
            Refusal::NotFound => (Kind::Topology, "create the entity, or correct its name"),
            Refusal::Unauthorized => (
                Kind::Unauthorized,
                "check the key and its rights Listen and Send on this entity, or the identity and its roles Azure Service Bus \
                 Data Receiver and Data Sender",
            ),
            #[cfg(feature = "entra")]
            Refusal::NoToken => (Kind::Unauthorized, "see that the identity can be used from here"),
            Refusal::NotTrusted => (
                Kind::Unreachable,
                "check the host name, and give the authority's certificate to `Options::ca_certificates` where the system \
                 does not have it",
            ),
            Refusal::Busy => (Kind::Unreachable, "the namespace is busy: try again in ten seconds"),
            Refusal::QuotaExceeded => {
                (Kind::Full, "the quota of the entity is exceeded: make room in it, or raise its quota")
            }
            Refusal::TooLarge => (Kind::TooLarge, "the entity takes no message of this size"),
            Refusal::NoTransactions => (Kind::Unsupported, "the tier of the namespace has no transactions"),
            Refusal::NotAllowed => (Kind::Topology, "the entity is set up for something else"),
            Refusal::NoSession => (Kind::Unreachable, "no session was free"),
            Refusal::Interrupted => (Kind::Unreachable, "the connection was interrupted: try again"),
            Refusal::Unexplained | Refusal::Other => (Kind::Other, "see what Service Bus says"),
        };
        TransportError::new(kind, format!("{tried} failed ({self}): {next}"))
    }
}

/// Opening an entity that requires sessions, without `Options::sessions`.
pub(crate) fn needs_sessions(entity: &str) -> TransportError {
    TransportError::new(
        Kind::Unsupported,
        format!(
            "`{entity}` requires sessions: say how many to consume at a time, with `Options::sessions(Sessions::concurrent(8))`"
        ),
    )
}

/// Opening an entity that does not require sessions, with `Options::sessions`.
pub(crate) fn has_no_sessions(entity: &str) -> TransportError {
    TransportError::new(
        Kind::Unsupported,
        format!(
            "`{entity}` does not require sessions: leave `Options::sessions` away, or recreate it with `RequiresSession`"
        ),
    )
}

/// An entry that was seen, and did not come.
pub(crate) fn in_other_hands(place: &str) -> TransportError {
    let message = format!(
        "the message is in the hand of somebody else, or was just taken from `{place}`: look again later"
    );
    TransportError::new(Kind::Lost, message)
}

/// An entry whose copy is stored, and that could not be removed.
pub(crate) fn only_its_copy(target: &str, why: &str) -> TransportError {
    let message = format!(
        "its copy is stored in `{target}`, and the entry may still be on the shelf ({why}): if it is, discard it; sent on again it \
         would be there twice"
    );
    TransportError::new(Kind::Lost, message)
}

/// More rests there than can be held at a time.
pub(crate) fn more_than_held(place: &str, most: usize) -> TransportError {
    let message = format!(
        "more than {most} messages rest in `{place}`, and by REST only the first {most} can be reached: redrive, move or discard \
         those, then do this again for the rest; by `Backend::Amqp` all can be reached"
    );
    TransportError::new(Kind::Unsupported, message)
}

/// Nobody but the broker writes there.
pub(crate) fn dead_letter_queue_takes_none(place: &str) -> TransportError {
    let message = format!(
        "Service Bus lets nobody send to `{place}`: send the edited message back at once with `Shelves::redrive_as`, or let \
         messages rest in a queue of their own (`Options::parking_queue`)"
    );
    TransportError::new(Kind::Unsupported, message)
}

/// Settling what is in nobody's hand any more.
pub(crate) fn lost(entity: &str, why: &str) -> TransportError {
    TransportError::new(
        Kind::Lost,
        format!("the delivery from `{entity}` is no longer in flight: {why}; it comes again"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_and_statuses_are_told_apart() {
        for (condition, status, refusal) in [
            ("com.microsoft:message-lock-lost", Some(410), Refusal::LockLost),
            ("", Some(410), Refusal::LockLost),
            ("com.microsoft:server-busy", None, Refusal::Busy),
            ("amqp:not-found", Some(404), Refusal::NotFound),
            ("", Some(401), Refusal::Unauthorized),
            ("amqp:link:detach-forced", None, Refusal::Interrupted),
            ("something-new", Some(500), Refusal::Other),
        ] {
            assert_eq!(
                WireError::from_condition(condition, status, "").refusal,
                refusal,
                "{condition} {status:?}"
            );
        }
    }

    #[test]
    fn an_error_says_what_was_tried_and_what_to_do() {
        let error = WireError::new(Refusal::NotFound, "no such entity").into_error("attaching to `orders`");
        assert_eq!(error.kind(), Kind::Topology);
        let said = error.to_string();
        assert!(
            said.contains("`orders`") && said.contains("no such entity") && said.contains("create"),
            "{said}"
        );
    }
}
