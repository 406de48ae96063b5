//! Names of the properties that redrive writes on messages of Service Bus.

/// Why a message was dead-lettered, in one word.
pub(crate) const REASON: &str = "DeadLetterReason";
/// The same in words.
pub(crate) const DESCRIPTION: &str = "DeadLetterErrorDescription";
/// On a message in the dead-letter queue: on which of redrive's shelves it rests there, where it is not the usual one.
pub(crate) const SHELF: &str = "x-servicebus-shelf";
/// With that mark: the sequence number of the message that it was written on. Others know it only when it is too late.
pub(super) const SHELF_OF: &str = "x-servicebus-shelf-of";
/// The mark of parked messages.
pub(crate) const PARKED: &str = "parking";
/// On a message of a session that was given back with its history: its sequence number, and how often it had come back by then.
pub(crate) const COUNTED: &str = "x-servicebus-counted";
/// The annotation that says when a message is to be enqueued.
pub(crate) const SCHEDULED_AT: &str = "x-opt-scheduled-enqueue-time";
/// The value of a header that was taken off: a native dead-lettering can set properties, and remove none.
pub(super) const REMOVED: &str = "redrive:removed";
/// On a copy: the id of its original. Believed where the id of the message itself is that of a copy of it.
pub(super) const COPY_OF: &str = "x-servicebus-copy-of";
pub(super) const APP_ID: &str = "x-servicebus-app-id";
pub(super) const CLUSTER_ID: &str = "x-servicebus-cluster-id";
pub(super) const PRIORITY: &str = "x-servicebus-priority";
pub(super) const REPLY_TO_SESSION: &str = "x-servicebus-reply-to-session-id";
pub(super) const PARTITION_KEY: &str = "x-servicebus-partition-key";
/// What HTTP has no place for: carried as properties, and put back where it came from, whoever reads it.
pub(crate) mod carried {
    pub(crate) const CONTENT_TYPE: &str = "x-servicebus-content-type";
    pub(crate) const CONTENT_ENCODING: &str = "x-servicebus-content-encoding";
    pub(crate) const TIMESTAMP: &str = "x-servicebus-timestamp";
    pub(crate) const USER_ID: &str = "x-servicebus-user-id";
    /// A table of properties whose names no header can have.
    pub(crate) const PACKED: &str = "x-servicebus-properties";
}
/// The time to live, in milliseconds, that Service Bus reports for a message without one.
pub(super) const NO_TTL_MILLIS: u32 = u32::MAX;
