//! What one contestant is to do.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// Longer than any run: what goes onto the rung stays there, and can be counted afterwards.
pub(crate) const RETRY_WAIT: Duration = Duration::from_secs(3600);

/// What to do with the messages that lie in a queue. Programs in other languages take the same arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct Task {
    /// Which contestant this is.
    #[arg(long)]
    pub(crate) variant: String,
    #[arg(long)]
    pub(crate) work: Work,
    #[arg(long)]
    pub(crate) url: String,
    #[arg(long)]
    pub(crate) queue: String,
    #[arg(long, value_enum)]
    pub(crate) queue_type: QueueType,
    /// How many messages lie in the queue.
    #[arg(long)]
    pub(crate) count: u64,
    #[arg(long)]
    pub(crate) prefetch: u16,
}

/// What happens to the messages.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Work {
    /// Every message is handled and acknowledged.
    Consume,
    /// Every message fails, and is put onto a rung: a confirmed copy, then the acknowledgement.
    Retry,
    /// One message of a hundred fails and is put onto a rung; the others are acknowledged.
    #[value(name = "mixed-1")]
    #[serde(rename = "mixed-1")]
    Mixed1,
    /// One message of ten fails and is put onto a rung; the others are acknowledged.
    #[value(name = "mixed-10")]
    #[serde(rename = "mixed-10")]
    Mixed10,
    /// Every message fails for good, and is put onto the dead-letter shelf.
    DeadLetter,
    /// Every message is put onto the parking shelf.
    Park,
    /// As `consume`, with bodies of 64 KiB.
    Large,
}

impl Work {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Work::Consume => "consume",
            Work::Retry => "retry",
            Work::Mixed1 => "mixed-1",
            Work::Mixed10 => "mixed-10",
            Work::DeadLetter => "dead-letter",
            Work::Park => "park",
            Work::Large => "large",
        }
    }

    pub(crate) fn body_bytes(self) -> usize {
        if self == Work::Large { 64 * 1024 } else { 256 }
    }

    /// What is to become of the message with this number.
    pub(crate) fn fate(self, number: u64) -> Fate {
        match self {
            Work::Consume | Work::Large => Fate::Acknowledged,
            Work::Retry => Fate::Retried,
            Work::Mixed1 if number.is_multiple_of(100) => Fate::Retried,
            Work::Mixed10 if number.is_multiple_of(10) => Fate::Retried,
            Work::Mixed1 | Work::Mixed10 => Fate::Acknowledged,
            Work::DeadLetter => Fate::DeadLettered,
            Work::Park => Fate::Parked,
        }
    }

    /// How many of `count` messages end so.
    pub(crate) fn how_many(self, fate: Fate, count: u64) -> u64 {
        (0..count).filter(|&number| self.fate(number) == fate).count() as u64
    }
}

/// Where a message ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    Acknowledged,
    Retried,
    DeadLettered,
    Parked,
}

impl Fate {
    /// The queue of the copy, named as redrive names it.
    pub(crate) fn queue(self, work_queue: &str) -> Option<String> {
        match self {
            Fate::Acknowledged => None,
            Fate::Retried => Some(format!("{work_queue}--retry-{}ms", RETRY_WAIT.as_millis())),
            Fate::DeadLettered => Some(format!("{work_queue}--dead-letters")),
            Fate::Parked => Some(format!("{work_queue}--parking-lot")),
        }
    }
}

/// The type of the work queue.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum QueueType {
    Classic,
    Quorum,
}

impl QueueType {
    pub(crate) const ALL: [QueueType; 2] = [QueueType::Classic, QueueType::Quorum];

    pub(crate) fn name(self) -> &'static str {
        match self {
            QueueType::Classic => "classic",
            QueueType::Quorum => "quorum",
        }
    }
}

/// A body of `bytes` bytes that is a string in JSON, because some contestants read nothing else, and begins with the
/// message's number.
pub(crate) fn body(number: u64, bytes: usize) -> Vec<u8> {
    let mut body = format!("\"{number:0DIGITS$}").into_bytes();
    body.resize(bytes.saturating_sub(1).max(body.len()), b'x');
    body.push(b'"');
    body
}

/// The number that [`body`] wrote.
pub(crate) fn number(body: &[u8]) -> Option<u64> {
    std::str::from_utf8(body.get(1..=DIGITS)?).ok()?.parse().ok()
}

const DIGITS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_knows_its_number() {
        assert_eq!(number(&body(77, 256)), Some(77));
        assert_eq!(body(77, 256).len(), 256);
        assert!(serde_json::from_slice::<String>(&body(77, 256)).is_ok());
        assert_eq!(number(b"short"), None);
    }

    #[test]
    fn the_share_of_failures_is_as_its_name_says() {
        assert_eq!(Work::Mixed1.how_many(Fate::Retried, 20_000), 200);
        assert_eq!(Work::Mixed10.how_many(Fate::Retried, 20_000), 2_000);
        assert_eq!(Work::Consume.how_many(Fate::Acknowledged, 5), 5);
    }
}
