//! The errors of the transport, and their texts.

use redrive_core::{TransportError, TransportErrorKind as Kind};

use crate::convert::SetAside;

/// The reason why a request failed, as far as a caller distinguishes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The lock of a message is lost: expired, or the message was settled already.
    LockLost,
    /// The lock of a session is lost.
    SessionLockLost,
    /// There is no such entity.
    NotFound,
    /// The entity is disabled, or closed for this operation (`ReceiveDisabled`, `SendDisabled`).
    Disabled,
    /// The entity forwards its messages, so that nobody can receive them from it.
    Forwards,
    /// The entity requires sessions, and the options set none.
    NeedsSessions,
    /// The entity does not require sessions, and the options set them.
    HasNoSessions,
    /// A link for sending was refused, and the client library hides the reason. Receiving from the entity is allowed.
    NoSending,
    /// The credentials are invalid, or a right is missing.
    Unauthorized,
    /// The identity did not return a token.
    #[cfg(feature = "entra")]
    NoToken,
    /// The server's certificate is for another host, or no trusted authority signed it.
    NotTrusted,
    /// The other side does not speak TLS.
    NoTls,
    /// The broker asks the client to wait.
    Busy,
    /// The entity is full.
    QuotaExceeded,
    /// The message is too large.
    TooLarge,
    /// The broker ended a link because a message on it was too large: this one, or another one.
    SomeTooLarge,
    /// The namespace has no transactions. Only the transaction coordinator says so.
    NoTransactions,
    /// Service Bus does not know the operation, or not here.
    NotImplemented,
    /// The entity does not allow the operation.
    NotAllowed,
    /// Another receiver has the session.
    SessionTaken,
    /// Service Bus did not do it in time.
    Timeout,
    /// No session was free.
    NoSession,
    /// The connection or link ended, or no answer came in time: the operation may have been carried out or not.
    Interrupted,
    /// The connection ended, or could not be made: the same as [`Refusal::Interrupted`], for all entities.
    Disconnected,
    /// The broker refused a link and named no reason: whatever it was for, no message is to blame.
    LinkRefused,
    /// The broker refused a message and named no reason, or the client library hides it.
    Unexplained,
    /// Any other reason.
    Other,
}

/// The failure of a request: an answer other than success, or no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct WireError {
    pub(crate) refusal: Refusal,
    /// The text of the broker or of the client library.
    text: String,
}

impl WireError {
    pub(crate) fn new(refusal: Refusal, text: impl Into<String>) -> Self {
        Self { refusal, text: text.into() }
    }

    pub(crate) fn interrupted(text: impl Into<String>) -> Self {
        Self::new(Refusal::Interrupted, text)
    }

    pub(crate) fn disconnected(text: impl Into<String>) -> Self {
        Self::new(Refusal::Disconnected, text)
    }

    /// Creates an error from the condition that the broker names, or else from the status of its answer.
    pub(crate) fn from_condition(condition: &str, status: Option<i32>, text: impl Into<String>) -> Self {
        let refusal = match condition {
            "com.microsoft:message-lock-lost" => Refusal::LockLost,
            "com.microsoft:session-lock-lost" => Refusal::SessionLockLost,
            "com.microsoft:session-cannot-be-locked" => Refusal::SessionTaken,
            "com.microsoft:timeout" => Refusal::Timeout,
            "com.microsoft:server-busy" => Refusal::Busy,
            "amqp:not-found" => Refusal::NotFound,
            "com.microsoft:entity-disabled" => Refusal::Disabled,
            "amqp:unauthorized-access" | "com.microsoft:auth-failed" => Refusal::Unauthorized,
            "amqp:resource-limit-exceeded" => Refusal::QuotaExceeded,
            "amqp:link:message-size-exceeded" => Refusal::TooLarge,
            "amqp:not-implemented" => Refusal::NotImplemented,
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
        Self::new(refusal, text)
    }

    /// Returns the error of a link that the broker ended: a size that it names may be that of any message on the link.
    pub(crate) fn of_link(mut self) -> Self {
        if self.refusal == Refusal::TooLarge {
            self.refusal = Refusal::SomeTooLarge;
        }
        self
    }

    /// Returns true if the connection or the link ended, or no answer came in time.
    pub(crate) fn is_interruption(&self) -> bool {
        matches!(self.refusal, Refusal::Interrupted | Refusal::Disconnected | Refusal::SomeTooLarge)
    }

    /// Returns true if the lock of the message or of its session is lost.
    pub(crate) fn is_lock_lost(&self) -> bool {
        matches!(self.refusal, Refusal::LockLost | Refusal::SessionLockLost)
    }

    /// Names the cause of a refused link for receiving, which the broker tells only in its text. `in_session`: the link was to be for
    /// a session.
    pub(crate) fn of_receiving(mut self, in_session: bool) -> Self {
        if self.refusal == Refusal::NotAllowed {
            if says(&self.text, &["auto-forwarding"]) {
                self.refusal = Refusal::Forwards;
            } else if !in_session && says(&self.text, &["non-sessionful"]) {
                self.refusal = Refusal::NeedsSessions;
            } else if in_session && says(&self.text, &["sessionful"]) {
                self.refusal = Refusal::HasNoSessions;
            }
        }
        self
    }

    /// Returns true if the target accepts no messages for now, and the entity may still hand out messages.
    pub(crate) fn is_about_sending(&self) -> bool {
        matches!(self.refusal, Refusal::Disabled | Refusal::NoSending)
    }

    /// Converts this into the error of an operation that used no lock, whatever the broker says.
    pub(crate) fn into_error_without_lock(mut self, tried: &str) -> TransportError {
        if self.is_lock_lost() {
            self.refusal = Refusal::Other;
        }
        self.into_error(tried)
    }

    /// Converts this into an error of the transport. `tried` names the operation and the entity.
    pub(crate) fn into_error(self, tried: &str) -> TransportError {
        let (kind, next) = match self.refusal {
            Refusal::LockLost | Refusal::SessionLockLost => {
                (Kind::Lost, "the lock is lost: the broker delivers the message again")
            }
            Refusal::NotFound => (Kind::Topology, "create the entity, or correct its name"),
            Refusal::Disabled => (Kind::Topology, "set the entity's status to `Active`"),
            Refusal::Forwards => (
                Kind::Topology,
                "it forwards its messages (`ForwardTo`): consume the entity that it forwards to, or remove `ForwardTo`",
            ),
            Refusal::NeedsSessions => (
                Kind::Unsupported,
                "the entity requires sessions: set how many to consume at a time, as in `Options::sessions(Sessions::concurrent(8))`",
            ),
            Refusal::HasNoSessions => (
                Kind::Unsupported,
                "the entity does not require sessions: remove `Options::sessions`, or recreate the entity with `RequiresSession`",
            ),
            Refusal::NoSending => (
                Kind::Topology,
                "check the status of the entity, which may be `SendDisabled`, and the right Send on it",
            ),
            Refusal::Unauthorized => (
                Kind::Unauthorized,
                "check the key and its rights Listen and Send on this entity, or the identity and its roles Azure Service Bus \
                 Data Receiver and Data Sender",
            ),
            #[cfg(feature = "entra")]
            Refusal::NoToken => (Kind::Unauthorized, "check that this process can use the identity"),
            Refusal::NotTrusted => (
                Kind::Unreachable,
                "check the host name; if the system does not have the authority's certificate, pass it to \
                 `Options::ca_certificates`",
            ),
            Refusal::NoTls => (
                Kind::Unreachable,
                "check the port; for an emulator add `UseDevelopmentEmulator=true` to the connection string",
            ),
            Refusal::Busy => (Kind::Unreachable, "the namespace is busy: try again in ten seconds"),
            Refusal::QuotaExceeded => (
                Kind::Full,
                "a quota is exceeded: if it is the size of the entity, make room in it or raise its quota",
            ),
            Refusal::TooLarge => (Kind::TooLarge, "the message is larger than the entity allows"),
            Refusal::SomeTooLarge => (
                Kind::Unreachable,
                "the broker ended a link because of a message that is too large, perhaps another one: try again",
            ),
            Refusal::NoTransactions => {
                (Kind::Unsupported, "the namespace has no transactions: set `Transactions::Off`")
            }
            Refusal::NotImplemented => (Kind::Unsupported, "Service Bus does not offer this operation here"),
            Refusal::NotAllowed => {
                (Kind::Topology, "the entity does not allow this operation: check how it is set up")
            }
            Refusal::NoSession => {
                (Kind::Unreachable, "no session was free, and Service Bus did not wait for one: try again")
            }
            Refusal::SessionTaken => (Kind::Unreachable, "another receiver has the session: try again"),
            Refusal::Timeout => (Kind::Unreachable, "Service Bus did not do it in time: try again"),
            Refusal::Interrupted | Refusal::Disconnected => {
                (Kind::Unreachable, "the connection was interrupted: try again")
            }
            Refusal::LinkRefused => (
                Kind::Topology,
                "check the entity: its status, the rights on it, and the limits of the namespace",
            ),
            Refusal::Unexplained | Refusal::Other => (Kind::Other, "see the text of Service Bus"),
        };
        let error = TransportError::new(kind, format!("{tried} failed ({self}): {next}"));
        match self.refusal {
            Refusal::SomeTooLarge | Refusal::Unexplained | Refusal::Other => error.unclear(),
            _ => error,
        }
    }
}

/// Returns true if one of the words stands in a text of the broker. The text also names entities, which may be called
/// `forwarding-agents` or `disabled-users`: only whole words count. A name has no spaces and stands in quotes or behind a colon.
pub(crate) fn says(text: &str, words: &[&str]) -> bool {
    text.split_whitespace()
        .map(|word| word.trim_end_matches(['.', ',', ';']))
        .any(|word| words.iter().any(|said| word.eq_ignore_ascii_case(said)))
}

/// Returns the error for an entry that was found, but was not delivered within the wait.
pub(crate) fn in_flight_elsewhere(place: &str) -> TransportError {
    let message = format!(
        "another client has the message in flight, or has just taken it from `{place}`: try again later"
    );
    TransportError::new(Kind::Lost, message)
}

/// Returns the error for an entry that the broker does not deliver in its turn.
pub(crate) fn is_set_aside(place: &str, set_aside: SetAside) -> TransportError {
    let message = match set_aside {
        SetAside::Deferred => format!(
            "somebody deferred the message in `{place}`: Service Bus delivers it only by its sequence number, to who deferred it; complete \
             or abandon it there"
        ),
        SetAside::Scheduled => format!(
            "the message in `{place}` was sent for a later time, and Service Bus does not deliver it before: try again then, or cancel it"
        ),
    };
    TransportError::new(Kind::Unsupported, message)
}

/// Returns the error for a queue whose sequence numbers do not ascend.
pub(crate) fn is_partitioned(place: &str) -> TransportError {
    let message = format!(
        "`{place}` is partitioned: its sequence numbers do not ascend in the order of its messages, and a look by them could miss \
         some. Nothing was read; `Backend::Rest` reads it by locking its messages"
    );
    TransportError::new(Kind::Unsupported, message)
}

/// Returns the error for an entry whose copy is stored, but which could not be removed.
pub(crate) fn only_copy_stored(target: &str, why: &str) -> TransportError {
    let message = format!(
        "its copy is stored in `{target}`, and the entry may still be on the shelf ({why}): if it is, discard it; sending it \
         again would store a second copy"
    );
    TransportError::new(Kind::Lost, message)
}

/// Returns the error for a queue that holds more messages than can be locked at the same time.
pub(crate) fn too_many_to_lock(place: &str, most: usize) -> TransportError {
    let message = format!(
        "`{place}` holds more than {most} messages, and REST reaches only the first {most}: redrive, move or discard those, \
         then do this again for the others; `Backend::Amqp` reaches all of them"
    );
    TransportError::new(Kind::Unsupported, message)
}

/// Returns the error of sending to a dead-letter queue: only the broker can.
pub(crate) fn cannot_send_to_dead_letter_queue(place: &str) -> TransportError {
    let message = format!(
        "Service Bus lets nobody send to `{place}`: send the edited message back at once with `Shelves::redrive_as`, or use a \
         separate queue for parked messages (`Options::parking_queue`)"
    );
    TransportError::new(Kind::Unsupported, message)
}

/// Returns the error of settling a delivery that is no longer in flight.
pub(crate) fn lost(entity: &str, why: &str) -> TransportError {
    TransportError::new(
        Kind::Lost,
        format!(
            "the delivery from `{entity}` is no longer in flight: {why}; the broker delivers the message again"
        ),
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
            ("com.microsoft:entity-disabled", Some(403), Refusal::Disabled),
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
    fn a_link_that_is_refused_without_a_reason_is_no_fault_of_a_message() {
        let error = WireError::new(Refusal::LinkRefused, "no reason").into_error("sending to `orders`");
        assert!(error.kind() == Kind::Topology && !error.is_unclear(), "{error:?}");
    }

    #[test]
    fn a_link_that_ends_over_a_size_does_not_name_the_message() {
        let error = WireError::from_condition("amqp:link:message-size-exceeded", None, "too large");
        assert_eq!(error.refusal, Refusal::TooLarge);
        let of_link = error.of_link();
        assert!(of_link.refusal == Refusal::SomeTooLarge && of_link.is_interruption());
        let error = of_link.into_error("sending to `orders`");
        assert!(error.kind() == Kind::Unreachable && error.is_unclear(), "{error:?}");
    }

    #[test]
    fn the_cause_of_a_refused_link_is_read_in_its_text() {
        let refused = |text: &str, in_session| {
            WireError::new(Refusal::NotAllowed, text).of_receiving(in_session).refusal
        };
        let needs = "'the_auto-forwarding': It is not possible for an entity that requires sessions to create a non-sessionful message \
                     receiver. SystemTracker:sbns:Queue:the_auto-forwarding";
        assert_eq!(refused(needs, false), Refusal::NeedsSessions);
        let has_none = "It is not possible for an entity that does not require sessions to create a sessionful receiver.";
        assert_eq!(refused(has_none, true), Refusal::HasNoSessions);
        let forwards =
            "'user-sessions': Can not create a message receiver on an entity with auto-forwarding enabled.";
        assert_eq!(refused(forwards, false), Refusal::Forwards);
        for other in ["something else", "The session is not allowed here.", "Too many sessions are open."] {
            assert_eq!(refused(other, false), Refusal::NotAllowed);
            assert_eq!(refused(other, true), Refusal::NotAllowed);
        }
    }

    #[test]
    fn a_name_in_a_text_is_no_word_of_it() {
        assert!(says("Entity 'orders' is Disabled.", &["disabled"]));
        assert!(!says("Send is required on 'disabled-users'. sbns:Queue:disabled", &["disabled"]));
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
