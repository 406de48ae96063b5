//! The names of the properties that redrive writes on messages of Service Bus.

/// The dead-letter reason, one word.
pub(crate) const REASON: &str = "DeadLetterReason";
/// The description of the dead-lettering.
pub(crate) const DESCRIPTION: &str = "DeadLetterErrorDescription";
/// On a copy that stays on a shelf outside of the dead-letter queue: the dead-letter reason of its original. [`REASON`] may be there
/// of a former life, which says nothing of why the message is on the shelf. It is a header there, so that whoever exports the message
/// and puts it back later puts it back whole.
pub(super) const KEPT_REASON: &str = "x-servicebus-dead-letter-reason";
/// The description of the dead-lettering, as [`KEPT_REASON`].
pub(super) const KEPT_DESCRIPTION: &str = "x-servicebus-dead-letter-description";
/// On a message in the dead-letter queue: its shelf, if that is not the dead-letter shelf.
pub(crate) const SHELF: &str = "x-servicebus-shelf";
/// The sequence number of the message that the shelf mark was written on. A publisher cannot know it in advance.
pub(super) const SHELF_OF: &str = "x-servicebus-shelf-of";
/// The mark of parked messages.
pub(crate) const PARKED: &str = "parking";
/// On a message of a session that was given back with its history: its sequence number, its count of deliveries until then, and its wait.
pub(crate) const COUNTED: &str = "x-servicebus-counted";
/// The annotation that holds the time when a scheduled message is enqueued.
pub(crate) const SCHEDULED_AT: &str = "x-opt-scheduled-enqueue-time";
/// The value of a removed header: dead-lettering can set properties, but cannot remove them.
pub(super) const REMOVED: &str = "redrive:removed";
/// On a copy: the id of its original. It is trusted if the id of the message is the id of a copy of that original.
pub(super) const COPY_OF: &str = "x-servicebus-copy-of";
pub(super) const APP_ID: &str = "x-servicebus-app-id";
pub(super) const CLUSTER_ID: &str = "x-servicebus-cluster-id";
pub(super) const PRIORITY: &str = "x-servicebus-priority";
pub(super) const REPLY_TO_SESSION: &str = "x-servicebus-reply-to-session-id";
pub(super) const PARTITION_KEY: &str = "x-servicebus-partition-key";
/// Properties that hold the message fields which HTTP lacks. Readers of both protocols restore the fields.
pub(crate) mod carried {
    pub(crate) const CONTENT_TYPE: &str = "x-servicebus-content-type";
    pub(crate) const CONTENT_ENCODING: &str = "x-servicebus-content-encoding";
    pub(crate) const TIMESTAMP: &str = "x-servicebus-timestamp";
    pub(crate) const USER_ID: &str = "x-servicebus-user-id";
    /// A table of the properties whose names cannot be HTTP header names.
    pub(crate) const PACKED: &str = "x-servicebus-properties";
}
/// The time to live, in milliseconds, that Service Bus reports for a message without one.
pub(super) const NO_TTL_MILLIS: u32 = u32::MAX;
