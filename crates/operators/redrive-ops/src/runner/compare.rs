//! Compares the plan of a run with the shelf, before anything is sent.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

use redrive_core::shelves::{EntryHandle, Holder, Shelved};
use redrive_core::{TransportError, TransportErrorKind};
use tokio::time::Instant;

use super::turn::Waited;
use super::{Activity, Runner};
use crate::journal::JournalError;
use crate::plan::{ContentDigest, PlannedEntry};
use crate::run::{EntryState, Event};

/// When a resumed run looks again for entries that are not on the shelf: others hold what they read for a moment.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(5);

impl Runner<'_> {
    /// Compares the plan with the shelf, in one scan. If the run is resumed and does not see an entry that it would still decide about,
    /// it looks once more: the connection of the process that died, or somebody who reads the shelf, may hold what they read. Not seen
    /// then, an entry of an open step counts as sent, and any other as vanished.
    pub(super) async fn compare(&mut self) -> Result<Result<(), TransportError>, JournalError> {
        let plan = self.run.plan().clone();
        let mut expected: HashMap<&EntryHandle, (ContentDigest, Option<bool>)> =
            plan.entries().iter().map(|entry| (&entry.handle, (entry.content, None))).collect();
        let mut order = Vec::with_capacity(expected.len());
        let mut took = Duration::ZERO;
        let mut heard = Vec::new();
        for again in [false, true] {
            let unseen =
                |handle: &EntryHandle| expected.get(handle).is_some_and(|(_, is_same)| is_same.is_none());
            if again {
                let Some((replay, uncertain)) = &self.replay else { break };
                if !replay.undecided(*uncertain).any(unseen) {
                    break;
                }
                // Others take about as long to read the shelf.
                let until = Instant::now() + LOOK_AGAIN_AFTER.max(took * 2);
                while let Ok(Some(event)) = tokio::time::timeout_at(until, self.events.recv()).await {
                    if self.is_ended_by(&event) {
                        return Ok(Ok(()));
                    }
                    heard.push(event);
                }
            }
            let asked = Instant::now();
            let holder = loop {
                let shelves = self.leased.as_ref().map_or(self.shelves, |leased| &*leased.shelves);
                let fates = &mut self.fates;
                let mut each = |entry: Shelved| {
                    let planned = expected.get_mut(&entry.handle);
                    if again && !matches!(planned, Some((_, None))) {
                        return ControlFlow::Continue(());
                    }
                    fates.was_there(&entry);
                    if let Some((content, is_same)) = planned {
                        *is_same = Some(ContentDigest::of(&entry.message) == *content);
                        order.push(entry.handle);
                    }
                    ControlFlow::Continue(())
                };
                let began = Instant::now();
                let scanned = shelves.scan(plan.shelf(), &mut each).await;
                took = began.elapsed();
                let error = match scanned {
                    Ok(holder) => break holder,
                    Err(error) => error,
                };
                match self.waits_for_turn(error, asked).await {
                    Waited::Again => {}
                    Waited::Heard(event) if self.is_ended_by(&event) => return Ok(Ok(())),
                    Waited::Heard(event) => heard.push(event),
                    Waited::GivenUp(error) => return Ok(Err(error)),
                }
            };
            self.show(Activity::Checking);
            let unseen =
                |handle: &EntryHandle| expected.get(handle).is_some_and(|(_, is_same)| is_same.is_none());
            if again
                && let (Some(holder), Some((replay, uncertain))) = (holder, &self.replay)
                && replay.undecided(*uncertain).any(unseen)
            {
                return Ok(Err(hidden(holder)));
            }
        }
        let seen = |handle: &EntryHandle| expected.get(handle).and_then(|(_, is_same)| *is_same);
        let originals = self.originals.as_ref();
        let is_kept =
            |handle: &EntryHandle| originals.is_none_or(|originals| originals.entries.contains(handle));
        if let Some((mut replay, uncertain)) = self.replay.take() {
            self.journal.results(&replay.resolve(|handle| seen(handle).is_some()))?;
            self.run = replay.into_run(uncertain);
        }
        let missing = |entry: &PlannedEntry| match seen(&entry.handle).filter(|_| is_kept(&entry.handle)) {
            Some(true) => None,
            Some(false) => Some((entry.handle.clone(), EntryState::Changed)),
            None => Some((entry.handle.clone(), EntryState::NotFound)),
        };
        let skipped = self.run.skip(plan.entries().iter().filter_map(missing).collect());
        self.journal.results(&skipped)?;
        self.run.order(&order);
        for event in heard {
            self.run.on(event, self.now());
        }
        Ok(Ok(()))
    }

    /// Ends the run if a person wants that before the plan was compared with the shelf. What became of the steps of a process that died is
    /// not known then: such a run can be resumed once more.
    fn is_ended_by(&mut self, event: &Event) -> bool {
        let is_abort = matches!(event, Event::Abort);
        if is_abort {
            let ended = match self.replay {
                Some(_) => {
                    Event::Broken("ended by a person before the plan was compared with the shelf".into())
                }
                None => Event::Abort,
            };
            self.run.on(ended, self.now());
        }
        is_abort
    }
}

/// Error for a run that cannot tell what became of entries.
fn hidden(holder: Holder) -> TransportError {
    let text =
        format!("the state of entries that cannot be seen is unknown: {holder}. Nothing more was done");
    TransportError::new(TransportErrorKind::Locked, text)
}
