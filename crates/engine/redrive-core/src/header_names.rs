//! The headers that redrive writes: a stable format, [documented](https://github.com/redrive-rs/redrive/blob/main/docs/headers.md).
//!
//! Types on the wire: counts are 64-bit integers, times are RFC 3339 strings in UTC with milliseconds (readable in every
//! broker's own user interface), the rest are strings, and the history is an array of tables.

/// Prefix of all redrive headers.
pub const PREFIX: &str = "redrive-";

/// How often handling this message failed since it was published or redriven.
pub const ATTEMPT: &str = "redrive-attempt";
/// Number of copies between the message as it was published and this one.
pub const HOP: &str = "redrive-hop";
/// How often an operator sent the message back from a shelf.
pub const REDRIVES: &str = "redrive-redrives";
/// Where the consumer reports that it handled the message, and of which entry: `QUEUE HANDLE`. On a redrive whose run collects reports.
pub const REPORT_TO: &str = "redrive-report-to";
/// How often a handler asked for the message to be delivered again later, without a failure.
pub const SNOOZES: &str = "redrive-snoozes";
/// How often earlier copies of the message were handed out without a failure being recorded.
pub const HANDED_OUT: &str = "redrive-handed-out";
/// When the message failed for the first time.
pub const FIRST_FAILED_AT: &str = "redrive-first-failed-at";
/// When the message failed last.
pub const LAST_FAILED_AT: &str = "redrive-last-failed-at";
/// That this copy was stored on a shelf, and when, preceded by its copy number: `HOP:TIME`. A redrive removes it and a retry never has
/// it, so that a message in the work queue with it was put back by another program.
pub const SHELVED: &str = "redrive-shelved";
/// Why the message failed last, in one word.
pub const REASON: &str = "redrive-reason";
/// Text of the error: redacted and bounded.
pub const ERROR: &str = "redrive-error";
/// The type of the error.
pub const ERROR_TYPE: &str = "redrive-error-type";
/// Hash that failures of the same kind share.
pub const FINGERPRINT: &str = "redrive-fingerprint";
/// The queue whose consumer failed: a redrive sends the message there.
pub const SOURCE_QUEUE: &str = "redrive-source-queue";
/// The exchange that the message was first published to.
pub const SOURCE_EXCHANGE: &str = "redrive-source-exchange";
/// The routing key that the message was first published with.
pub const SOURCE_ROUTING_KEY: &str = "redrive-source-routing-key";
/// The id that the message was published with, for copies that had to get another one.
pub const MESSAGE_ID: &str = "redrive-message-id";
/// The `user-id` that the message was published with: a copy cannot keep it.
pub const USER_ID: &str = "redrive-user-id";
/// The `expiration` that the message was published with, in milliseconds: a copy cannot keep it.
pub const EXPIRATION: &str = "redrive-expiration";
/// When that expiration ends, as far as redrive can tell: no retry comes after it.
pub const DEADLINE: &str = "redrive-deadline";
/// The message must not be handled before this time: a wait made of several hops is still under way.
pub const NOT_BEFORE: &str = "redrive-not-before";
/// Milliseconds of such a wait that remain after the hop that this copy was stored for, preceded by the number of that hop:
/// `HOP:MILLISECONDS`. Clocks may differ or be set: the remaining wait is never longer than this.
pub const WAIT_LEFT: &str = "redrive-wait-left";
/// When the wait that this copy was stored for ends. It decides nothing; it informs a program or person that moves the copy
/// elsewhere.
pub const DUE_AT: &str = "redrive-due-at";
/// The W3C trace context of the attempt that stored this copy; the publisher's is in `traceparent`.
pub const TRACE_PARENT: &str = "redrive-traceparent";
/// The first failures and the last ones: an array of tables with the keys of [`mod@history`].
pub const HISTORY: &str = "redrive-history";

/// The packed form of all headers of redrive but [`ATTEMPT`], [`DUE_AT`] and [`NOT_BEFORE`], as JSON: few headers cost a broker less than
/// many. A transport may pack a copy that waits, and unpacks what it receives: only programs that read the queue without redrive see it.
pub const STORY: &str = "redrive-story";

/// All of them.
pub const ALL: &[&str] = &[
    ATTEMPT,
    HOP,
    REDRIVES,
    REPORT_TO,
    SNOOZES,
    HANDED_OUT,
    FIRST_FAILED_AT,
    LAST_FAILED_AT,
    SHELVED,
    REASON,
    ERROR,
    ERROR_TYPE,
    FINGERPRINT,
    SOURCE_QUEUE,
    SOURCE_EXCHANGE,
    SOURCE_ROUTING_KEY,
    MESSAGE_ID,
    USER_ID,
    EXPIRATION,
    DEADLINE,
    NOT_BEFORE,
    WAIT_LEFT,
    DUE_AT,
    TRACE_PARENT,
    HISTORY,
    STORY,
];

/// The keys of one entry of [`HISTORY`].
pub mod history {
    /// Number of the attempt that failed.
    pub const ATTEMPT: &str = "attempt";
    /// When it failed.
    pub const AT: &str = "at";
    /// Why it failed, in one word.
    pub const REASON: &str = "reason";
    /// Text of the error: redacted, and shorter than in the header itself.
    pub const ERROR: &str = "error";
    /// Wait that followed, in milliseconds; absent if none did.
    pub const WAIT: &str = "wait-ms";
}

#[cfg(test)]
mod tests {
    use super::{ALL, PREFIX};

    /// Counts the constants of this file: a new header belongs in the list too.
    #[test]
    fn all_lists_every_header() {
        let written = include_str!("header_names.rs").lines().filter(|line| {
            line.starts_with("pub const ")
                && line.contains(&format!("= \"{PREFIX}"))
                && !line.contains(" PREFIX:")
        });
        assert_eq!(ALL.len(), written.count());
    }
}
