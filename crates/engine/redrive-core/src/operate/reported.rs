//! Reports of consumers: which redriven messages were handled. The shelves tell only which ones failed.

use std::fmt;

use async_trait::async_trait;

use super::{EntryHandle, Shelves};
use crate::header_names;
use crate::message::Message;
use crate::publisher::Publisher;
use crate::transport_error::TransportError;

/// How the names of queues for reports begin. Anybody can write the header that names one: a consumer reports to no other queue.
pub const REPORT_QUEUE_PREFIX: &str = "redrive-reports.";

/// The maximum length of the header, in bytes.
const MAX_BYTES: usize = 255;

/// Shelves whose redriven messages ask their consumer for a report, and the reports. See [`Shelves::reported`].
#[non_exhaustive]
pub struct Reported {
    /// The same shelves.
    pub shelves: Box<dyn Shelves>,
    /// The reports. Dropping them ends the reporting.
    pub reports: Box<dyn Reports>,
}

impl Reported {
    /// Creates them. For transports.
    #[must_use]
    pub fn new(shelves: impl Shelves + 'static, reports: impl Reports + 'static) -> Self {
        Self { shelves: Box::new(shelves), reports: Box::new(reports) }
    }
}

impl fmt::Debug for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reported").finish_non_exhaustive()
    }
}

/// Reads the reports of consumers. A report may be missing: nothing waits for it, and nobody repeats it.
#[async_trait]
pub trait Reports: Send {
    /// Returns the entries whose messages were handled, as reported since the last call. Does not wait for reports.
    ///
    /// # Errors
    ///
    /// If the broker cannot be reached: no more reports come.
    ///
    /// # Cancel safety
    ///
    /// Reports may be missed if the future is dropped.
    async fn take(&mut self) -> Result<Vec<EntryHandle>, TransportError>;
}

/// What a redriven message asks of its consumer: a report to this queue, once the message is handled.
///
/// ```
/// use redrive_core::{Message, Shelf};
/// use redrive_core::shelves::{EntryHandle, ReportRequest};
///
/// let entry = EntryHandle::new(Shelf::DeadLetter, "17");
/// let message = ReportRequest::new("redrive-reports.5", entry.clone()).on(Message::new("2 books"));
/// let request = ReportRequest::of(&message).expect("it asks for a report");
/// assert_eq!((request.queue(), request.entry()), ("redrive-reports.5", &entry));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportRequest {
    queue: String,
    entry: EntryHandle,
}

impl ReportRequest {
    /// Creates a request. The name of the queue begins with [`REPORT_QUEUE_PREFIX`] and contains no space.
    #[must_use]
    pub fn new(queue: impl Into<String>, entry: EntryHandle) -> Self {
        Self { queue: queue.into(), entry }
    }

    /// Reads the request of a message. `None` if there is none, or one that redrive did not write.
    #[must_use]
    pub fn of(message: &Message) -> Option<Self> {
        let text = message.headers().get(header_names::REPORT_TO)?.as_str()?;
        let (queue, entry) = text.split_once(' ').filter(|_| text.len() <= MAX_BYTES)?;
        let entry = entry.parse().ok().filter(|_| queue.starts_with(REPORT_QUEUE_PREFIX))?;
        Some(Self::new(queue, entry))
    }

    /// Returns the message with this request. A request that is too long is left out.
    #[must_use]
    pub fn on(&self, mut message: Message) -> Message {
        let text = format!("{} {}", self.queue, self.entry);
        if text.len() <= MAX_BYTES {
            message.headers_mut().insert_own(header_names::REPORT_TO, &*text);
        }
        message
    }

    /// Returns the queue for the report.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Returns the entry that was redriven.
    #[must_use]
    pub fn entry(&self) -> &EntryHandle {
        &self.entry
    }

    /// Reports that the message was handled.
    ///
    /// # Errors
    ///
    /// If the report was not stored, for example because nobody waits for it any more.
    pub async fn report(self, publisher: &Publisher) -> Result<(), TransportError> {
        publisher.to(&self.queue).publish(Message::new(self.entry.to_string())).await
    }

    /// Reads a report: the entry whose message was handled. For transports.
    #[must_use]
    pub fn reported(report: &[u8]) -> Option<EntryHandle> {
        std::str::from_utf8(report).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disposition::Shelf;
    use crate::settlement::redriven;

    fn asks(text: &str) -> Option<ReportRequest> {
        ReportRequest::of(&Message::new("").with_header(header_names::REPORT_TO, text))
    }

    #[test]
    fn no_other_queue_is_reported_to() {
        assert!(asks("redrive-reports.1 dead-letter/17").is_some());
        for forged in
            ["orders dead-letter/17", "redrive-reports.1", "redrive-reports.1 17", " dead-letter/1", ""]
        {
            assert_eq!(asks(forged), None, "{forged}");
        }
        assert_eq!(asks(&format!("redrive-reports.1 dead-letter/{}", "1".repeat(300))), None);
        let number = Message::new("").with_header(header_names::REPORT_TO, 5_i64);
        assert_eq!(ReportRequest::of(&number), None);
    }

    #[test]
    fn a_request_is_for_one_redrive() {
        let entry = EntryHandle::new(Shelf::Parking, "17");
        let asking = ReportRequest::new("redrive-reports.1", entry).on(Message::new(""));
        assert_eq!(ReportRequest::of(&redriven(&asking)), None);
        let too_long = EntryHandle::new(Shelf::Parking, "1".repeat(300));
        let message = ReportRequest::new("redrive-reports.1", too_long).on(Message::new(""));
        assert!(message.headers().is_empty());
    }

    #[test]
    fn a_report_names_an_entry() {
        let entry = EntryHandle::new(Shelf::DeadLetter, "17");
        assert_eq!(ReportRequest::reported(b"dead-letter/17"), Some(entry));
        assert_eq!(ReportRequest::reported(b"\xff"), None);
        assert_eq!(ReportRequest::reported(b"orders/17"), None);
    }
}
