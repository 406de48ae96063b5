//! Errors of the broker, named as in Service Bus.

use thiserror::Error;

use super::settings::EntityStatus;

/// Why the broker refused. [`condition`](Self::condition) is the name on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// There is no such queue, topic, subscription, or the like.
    #[error(
        "The messaging entity '{path}' could not be found. Create it in the configuration, or by --queue."
    )]
    EntityNotFound {
        /// The requested address.
        path: String,
    },
    /// The entity is disabled for this operation.
    #[error("The messaging entity '{path}' is currently disabled ({status:?}).")]
    EntityDisabled {
        /// The entity.
        path: String,
        /// Its status.
        status: EntityStatus,
    },
    /// The lock expired, or the message was already settled.
    #[error(
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from '{path}'."
    )]
    MessageLockLost {
        /// The entity.
        path: String,
    },
    /// The session's lock expired, or another receiver holds the session.
    #[error("The session lock has expired on the session '{session}' of '{path}'. Accept the session again.")]
    SessionLockLost {
        /// The entity.
        path: String,
        /// The session.
        session: String,
    },
    /// Another receiver has the session.
    #[error(
        "The requested session '{session}' of '{path}' cannot be accepted. It is locked by another receiver."
    )]
    SessionCannotBeLocked {
        /// The entity.
        path: String,
        /// The session.
        session: String,
    },
    /// No message with that sequence number is available to this call.
    #[error(
        "The message {sequence_number} was not found in '{path}', or is not in the state that this call needs."
    )]
    MessageNotFound {
        /// The entity.
        path: String,
        /// The requested sequence number.
        sequence_number: i64,
    },
    /// The entity is full.
    #[error(
        "'{path}' has reached its size limit of {limit} bytes. Receive some of its messages, and send again."
    )]
    QuotaExceeded {
        /// The entity.
        path: String,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The message or batch exceeds the entity's limit.
    #[error("The received message of {size} bytes exceeds the limit of {limit} bytes of '{path}'.")]
    MessageSizeExceeded {
        /// The entity.
        path: String,
        /// The size of the message or batch, in bytes.
        size: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// This kind of entity does not support the operation, for example a send to a dead-letter queue.
    #[error("'{path}': {reason}")]
    NotAllowed {
        /// The entity.
        path: String,
        /// What it does not support.
        reason: &'static str,
    },
    /// An invalid value, such as an id of more than 128 characters.
    #[error("'{path}': {reason}")]
    Argument {
        /// The entity.
        path: String,
        /// Which value, and what is allowed.
        reason: String,
    },
    /// A rule of that name exists already.
    #[error("The rule '{rule}' of '{path}' exists already. Remove it first, or choose another name.")]
    RuleExists {
        /// The subscription.
        path: String,
        /// The rule.
        rule: String,
    },
    /// There is no rule of that name.
    #[error("The rule '{rule}' of '{path}' could not be found.")]
    RuleNotFound {
        /// The subscription.
        path: String,
        /// The rule.
        rule: String,
    },
    /// The transaction ended, timed out, or never existed.
    #[error("The transaction is not known. It may have ended, or have lasted longer than 2 minutes.")]
    UnknownTransaction,
    /// One operation of the transaction failed, so none was carried out.
    #[error("The transaction was rolled back: {cause}")]
    TransactionRolledBack {
        /// The error of that operation.
        cause: Box<BrokerError>,
    },
    /// A limit of one client, such as open transactions.
    #[error("{reason}")]
    TooMany {
        /// Which limit, and its value.
        reason: &'static str,
    },
    /// The change cannot be stored, for example because the disk is full.
    #[error("Nothing can be changed now: {reason}. Try again later.")]
    NotKept {
        /// Why it could not be.
        reason: String,
    },
}

impl BrokerError {
    /// Returns the AMQP error condition that clients know.
    #[must_use]
    pub fn condition(&self) -> &'static str {
        match self {
            Self::EntityNotFound { .. } => "amqp:not-found",
            Self::EntityDisabled { .. } => "com.microsoft:entity-disabled",
            Self::MessageLockLost { .. } => "com.microsoft:message-lock-lost",
            Self::SessionLockLost { .. } => "com.microsoft:session-lock-lost",
            Self::SessionCannotBeLocked { .. } => "com.microsoft:session-cannot-be-locked",
            Self::MessageNotFound { .. } => "com.microsoft:message-not-found",
            Self::QuotaExceeded { .. } | Self::TooMany { .. } => "amqp:resource-limit-exceeded",
            Self::MessageSizeExceeded { .. } => "amqp:link:message-size-exceeded",
            Self::NotAllowed { .. } => "amqp:not-allowed",
            Self::Argument { .. } => "com.microsoft:argument-error",
            Self::RuleExists { .. } => "com.microsoft:entity-already-exists",
            Self::RuleNotFound { .. } => "amqp:not-found",
            Self::UnknownTransaction => "amqp:transaction:unknown-id",
            Self::TransactionRolledBack { .. } => "amqp:transaction:rollback",
            // Every SDK tries again after this one.
            Self::NotKept { .. } => "com.microsoft:server-busy",
        }
    }

    /// Returns the status code for the response to a management request.
    #[must_use]
    pub fn status_code(&self) -> i32 {
        match self {
            Self::EntityNotFound { .. } | Self::MessageNotFound { .. } | Self::RuleNotFound { .. } => 404,
            Self::MessageLockLost { .. } | Self::SessionLockLost { .. } => 410,
            Self::SessionCannotBeLocked { .. } | Self::RuleExists { .. } => 409,
            Self::QuotaExceeded { .. } | Self::TooMany { .. } | Self::EntityDisabled { .. } => 403,
            Self::NotKept { .. } => 503,
            Self::MessageSizeExceeded { .. }
            | Self::NotAllowed { .. }
            | Self::Argument { .. }
            | Self::UnknownTransaction
            | Self::TransactionRolledBack { .. } => 400,
        }
    }
}
