//! Runs that ended early, and what they work on: from the first and the last record of a journal.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, SystemTime};

use redrive_core::Shelf;

use super::ends::{self, Head, PlanHead};
use super::record::Record;
use super::{JournalError, JournalFolder};
use crate::run::StopReason;

/// The newest run of a shelf, which ended early and which nobody has resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoppedRun {
    /// Id of the run.
    pub run: String,
    /// The queue.
    pub queue: String,
    /// The shelf.
    pub shelf: Shelf,
    /// `same-failure`, `too-many-failures`, `aborted`, `broker`, or `killed` if its process died.
    pub why: &'static str,
    /// When its journal was written last.
    pub at: SystemTime,
}

impl JournalFolder {
    /// Returns the newest run of each shelf of a broker, if it ended early less than `within` ago.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read. Journals that cannot be read are left out.
    pub fn stopped(
        &self,
        broker: &str,
        within: Duration,
        now: SystemTime,
    ) -> Result<Vec<StoppedRun>, JournalError> {
        let (mut seen, mut stopped) = (HashSet::new(), Vec::new());
        for run in self.runs()?.into_iter().rev() {
            let path = self.journal(&run);
            // It may be removed meanwhile.
            let Ok(at) = fs::metadata(&path).and_then(|found| found.modified()) else { continue };
            if now.duration_since(at).unwrap_or_default() > within {
                continue;
            }
            let Ok(head) = Head::read(&path) else { continue };
            if head.broker != broker || !seen.insert((head.plan.queue.clone(), head.plan.shelf)) {
                continue;
            }
            // Asked first: a run that ends in between has its last line then.
            let Ok(is_running) = self.works_on(&head, &run) else { continue };
            let Ok(last) = ends::last_line(&path) else { continue };
            let why = match serde_json::from_slice(&last) {
                Ok(Record::End { why: None, .. }) => continue,
                Ok(Record::End { why: Some(why), .. }) => word(&why),
                _ if is_running => continue,
                _ => "killed",
            };
            let PlanHead { queue, shelf } = head.plan;
            stopped.push(StoppedRun { run, queue, shelf, why, at });
        }
        Ok(stopped)
    }
}

fn word(why: &StopReason) -> &'static str {
    match why {
        StopReason::SameFailure => "same-failure",
        StopReason::TooManyFailures => "too-many-failures",
        StopReason::Aborted => "aborted",
        StopReason::Broker(_) => "broker",
    }
}
