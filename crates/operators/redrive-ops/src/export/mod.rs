//! Entries of a shelf as lines of JSON, without loss, and back.
//!
//! | module | does |
//! |---|---|
//! | [`value`] | typed header values |
//! | [`properties`] | the standard properties |
//! | [`message`] | a whole message |
//! | [`line`] | one entry as one line |
//! | [`read`] | all lines of a file |

mod line;
mod message;
mod properties;
mod read;
#[cfg(test)]
pub(crate) mod tests;
mod value;

use std::io::Write;
use std::ops::ControlFlow;
use std::time::SystemTime;

use redrive_core::shelves::{EntryHandle, Owner, Selection, Shelved};
use redrive_core::text::plural;
use redrive_core::transport::redriven;
use redrive_core::{Message, Shelf, Shelves, TransportError, header_names};

pub use self::line::ParseLineError;
pub(crate) use self::line::rfc3339;
#[cfg(all(unix, feature = "socket"))]
pub(crate) use self::message::MessageJson;
pub(crate) use self::properties::PropertiesJson;
pub use self::read::{ExportLines, ReadExportError, ReadLineError};
pub use self::value::UnwritableValue;
pub(crate) use self::value::{headers_from_json, headers_to_json};

/// Version of the export format that is written, and the only one that is read.
const FORMAT_VERSION: u64 = 1;

/// An entry of a shelf as it is exported: the message, byte for byte, and where it was.
///
/// One entry is one line of JSON. Headers keep their types: a 64-bit signed integer, a text, a boolean, an array or a table is
/// written as JSON has it, and any other type with a tag, as in `{"$u8":7}`. A body that is UTF-8 is `body`, any other is
/// `body_base64`. Control characters are escaped. `story` repeats what the headers say about the failures, for people; it is not
/// read back.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
///
/// use redrive_core::{Message, Shelf};
/// use redrive_core::shelves::{EntryHandle, Shelved};
/// use redrive_ops::ExportedEntry;
///
/// let message = Message::new("2 books").with_id("order-7").with_header("priority", 3_u8);
/// let entry = Shelved::new(EntryHandle::new(Shelf::DeadLetter, "17"), message);
/// let line = ExportedEntry::new("orders", &entry, UNIX_EPOCH + Duration::from_secs(1_800_000_000)).to_line()?;
/// assert_eq!(
///     line,
///     r#"{"v":1,"queue":"orders","shelf":"dead-letter","handle":"dead-letter/17","exported_at":"2027-01-15T08:00:00Z","#.to_owned()
///         + r#""story":{"attempt":0,"redrives":0},"properties":{"id":"order-7"},"headers":{"priority":{"$u8":3}},"body":"2 books"}"#
/// );
/// assert_eq!(ExportedEntry::from_line(&line)?.message, entry.message);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExportedEntry {
    /// The work queue whose shelf it was on.
    pub queue: String,
    /// Its handle on that shelf.
    pub handle: EntryHandle,
    /// When it was exported.
    pub exported_at: SystemTime,
    /// When it was shelved, if the broker or the history told. Times before 1970 and after 9999 are not written.
    pub shelved_at: Option<SystemTime>,
    /// Why the broker, or a program other than redrive, dead-lettered it.
    pub broker_reason: Option<String>,
    /// Description of that reason.
    pub broker_description: Option<String>,
    /// The queue that it failed in, as far as the broker or the history told.
    pub failed_in: Option<String>,
    /// Whose entry it was.
    pub owner: Owner,
    /// The message as it was on the shelf.
    pub message: Message,
}

impl ExportedEntry {
    /// Describes an entry of a shelf of the work queue `queue`, exported at `now`.
    #[must_use]
    pub fn new(queue: impl Into<String>, entry: &Shelved, now: SystemTime) -> Self {
        Self {
            queue: queue.into(),
            handle: entry.handle.clone(),
            exported_at: now,
            shelved_at: entry.shelved_at,
            broker_reason: entry.broker_reason.clone(),
            broker_description: entry.broker_description.clone(),
            failed_in: entry.failed_in.clone(),
            owner: entry.owner,
            message: entry.message.clone(),
        }
    }

    /// Writes the entry as one line, without a line feed at its end.
    ///
    /// # Errors
    ///
    /// If a header cannot be written without loss. No transport of redrive reads such a header today.
    pub fn to_line(&self) -> Result<String, UnwritableValue> {
        line::write(self)
    }

    /// Reads a line.
    ///
    /// # Errors
    ///
    /// If it has another version, or is no exported entry. Fields that the format does not have are refused: they could be a part
    /// of the message.
    pub fn from_line(line: &str) -> Result<Self, ParseLineError> {
        line::read(line)
    }

    /// Returns the message to publish into the queue of its shelf, to undo a discard: as it was, with its history. A publisher's
    /// expiration becomes the header [`EXPIRATION`](header_names::EXPIRATION), as on every message that redrive shelves: on the shelf it would remove the
    /// message.
    ///
    /// A queue of its own is needed: RabbitMQ's shelves are such queues, and so is a `parking_queue` of Service Bus. Nobody can
    /// send to a dead-letter queue of Service Bus; [`for_work_queue`](Self::for_work_queue) works there.
    #[must_use]
    pub fn for_shelf(&self) -> Message {
        let mut message = self.message.clone();
        if let Some(expiration) = message.properties().expiration {
            let millis = i64::try_from(expiration.as_millis()).unwrap_or(i64::MAX);
            message.properties_mut().expiration = None;
            message.headers_mut().insert(header_names::EXPIRATION, millis);
        }
        message
    }

    /// Returns the message to publish into its work queue: a first attempt again, with its history, counted as a
    /// [redrive](redriven). Publish to a queue, never to an exchange or topic, from which it would reach others than the consumer
    /// that failed.
    #[must_use]
    pub fn for_work_queue(&self) -> Message {
        redriven(&self.message)
    }
}

/// An export ended before its end. Lines that were written before are whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The shelf could not be read.
    #[error("the export ended after {}: the shelf could not be read: {error}", plural(.written, "entry"))]
    Shelf {
        /// How many entries were written.
        written: u64,
        /// Why it could not be read.
        #[source]
        error: TransportError,
    },
    /// An entry cannot be written without loss.
    #[error("the export ended after {}, at `{handle}`: {error}", plural(.written, "entry"))]
    Entry {
        /// How many entries were written.
        written: u64,
        /// The entry.
        handle: EntryHandle,
        /// Why it cannot be written.
        #[source]
        error: UnwritableValue,
    },
    /// A line could not be written.
    #[error(
        "the export ended after {}, at `{handle}`: its line could not be written: {error}",
        plural(.written, "entry")
    )]
    Write {
        /// How many entries were written.
        written: u64,
        /// The entry.
        handle: EntryHandle,
        /// Why it could not be written.
        #[source]
        error: std::io::Error,
    },
}

/// Writes the selected entries of a shelf of `queue` as lines, in one pass over the shelf. Returns how many were written. The entries
/// stay on the shelf. `now` is noted as the time of the export.
///
/// Before the entries are removed, make the lines durable (`File::sync_all`) and compare the count with that of the selection.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redrive_core::BoxError> {
/// use std::time::SystemTime;
///
/// use redrive_core::Shelf;
/// use redrive_core::shelves::Selection;
/// use redrive_memory::MemoryBroker;
/// use redrive_ops::{ExportLines, export};
///
/// let broker = MemoryBroker::new();
/// let shelves = broker.shelves("orders");
/// let mut file = Vec::new();
/// let written = export(&shelves, Shelf::DeadLetter, &Selection::All, "orders", SystemTime::now(), &mut file).await?;
/// assert_eq!(written, 0);
/// for entry in ExportLines::new(file.as_slice()) {
///     broker.publish("orders", entry?.for_work_queue())?;
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// At the first entry that cannot be written, and if the shelf cannot be read.
pub async fn export(
    shelves: &dyn Shelves,
    shelf: Shelf,
    which: &Selection,
    queue: &str,
    now: SystemTime,
    to: &mut (dyn Write + Send),
) -> Result<u64, ExportError> {
    let mut written = 0;
    let mut failed = None;
    let mut write_entry = |entry: Shelved| {
        if !which.includes(&entry) {
            return ControlFlow::Continue(());
        }
        let exported = ExportedEntry::new(queue, &entry, now);
        let handle = entry.handle;
        let error = match exported.to_line() {
            Ok(line) => match writeln_once(to, line) {
                Ok(()) => {
                    written += 1;
                    return ControlFlow::Continue(());
                }
                Err(error) => ExportError::Write { written, handle, error },
            },
            Err(error) => ExportError::Entry { written, handle, error },
        };
        failed = Some(error);
        ControlFlow::Break(())
    };
    let scanned = shelves.scan(shelf, &mut write_entry).await;
    match (failed, scanned) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(ExportError::Shelf { written, error }),
        (None, Ok(_)) => Ok(written),
    }
}

fn writeln_once(to: &mut (dyn Write + Send), mut line: String) -> std::io::Result<()> {
    line.push('\n');
    to.write_all(line.as_bytes())
}
