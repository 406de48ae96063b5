//! Journals: what a run intends and what it did, on disk before and after each step.
//!
//! | module | contains |
//! |---|---|
//! | [`file`](mod@file) | a file of records that is only appended to, whatever they say |
//! | [`record`] | the records of a run |
//! | [`replay`] | what a journal says of a run that ended anywhere; pure |
//! | [`folder`] | the folder of journals, and the lock of a shelf |
//! | [`stopped`] | runs that ended early |
//! | [`ends`] | the first and the last line of a journal |

mod ends;
mod file;
mod folder;
mod record;
mod replay;
mod stopped;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use redrive_core::Shelf;
use redrive_core::shelves::EntryHandle;

pub use self::file::{JournalFile, JournalRecord};
pub use self::folder::{JournalFolder, ShelfLock};
use self::record::Record;
pub use self::record::{JournalHeader, Operator};
use self::replay::Replaying;
pub use self::replay::{Replay, UncertainEntries};
pub use self::stopped::StoppedRun;
use crate::plan::PlanAction;
use crate::run::{EntryState, SeenFate, StopReason};

/// The journal of a run: a [`JournalFile`].
///
/// The first record has the plan, who runs it and why. Before a step comes its *intent*, with the entries; it is on the disk when
/// [`intent`](Self::intent) returns. After the step comes a *result* for each entry. A process may die anywhere: entries with an
/// intent and without a result are the only ones that are in doubt, and the shelf tells [what happened](Replay::resolve) to most of
/// them. It contains no body and no header of a message.
///
/// After a line that could not be written, no other is: a step without its intent must not be done.
#[derive(Debug)]
pub struct Journal(JournalFile<Record>);

impl Journal {
    fn begin(path: &Path, header: JournalHeader) -> Result<Self, JournalError> {
        JournalFile::create(path, &[Record::Begin { header: Box::new(header) }]).map(Self)
    }

    fn open(path: &Path) -> Result<(Self, Replay), JournalError> {
        let mut replaying = Replaying::default();
        let file = JournalFile::open(path, |record| replaying.add(record))?;
        Ok((Self(file), replaying.replay()?))
    }

    /// Reads a journal; its run may still go on.
    fn read(path: &Path) -> Result<Replay, JournalError> {
        let mut replaying = Replaying::default();
        JournalFile::read(path, |record| replaying.add(record))?;
        replaying.replay()
    }

    /// Writes who goes on with the run.
    fn resume(&mut self, by: Operator) -> Result<(), JournalError> {
        self.0.commit(&[Record::Resume { by }])
    }

    /// Writes which entries are worked on next. It is on the disk when this returns.
    ///
    /// # Errors
    ///
    /// [`JournalError::Deleted`] if the file was deleted or replaced, or if it cannot be written: the step must not be done.
    pub fn intent(
        &mut self,
        action: PlanAction,
        handles: &[EntryHandle],
        at: SystemTime,
    ) -> Result<(), JournalError> {
        self.0.commit(&[Record::Intent { at, action, handles: handles.to_vec() }])
    }

    /// Writes what happened to entries. It is on the disk with the next intent; lost before, the shelf tells most of it.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn results(&mut self, results: &[(EntryHandle, EntryState)]) -> Result<(), JournalError> {
        let record = |(handle, state): &(EntryHandle, EntryState)| Record::Result {
            handle: handle.clone(),
            state: state.clone(),
        };
        self.0.append(&results.iter().map(record).collect::<Vec<_>>())
    }

    /// Writes what became of messages.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn fates(&mut self, fates: &[SeenFate]) -> Result<(), JournalError> {
        self.0.append(&fates.iter().cloned().map(Record::Fate).collect::<Vec<_>>())
    }

    /// Writes that the run has ended. `why`: it ended early.
    ///
    /// # Errors
    ///
    /// The same as [`intent`](Self::intent).
    pub fn end(&mut self, why: Option<StopReason>, at: SystemTime) -> Result<(), JournalError> {
        self.0.commit(&[Record::End { at, why }])
    }
}

/// A journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// A file or folder cannot be used.
    #[error(
        "cannot {what} `{}`: {source}; make room or change its rights, then resume the run or repeat the command",
        path.display()
    )]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The run is about to begin, or its process died before it began.
    #[error(
        "the journal has no header: the run is about to begin, or was killed before it began, and its plan can be run again"
    )]
    Empty,
    /// The journal, or the originals of a run that goes on, were deleted or replaced.
    #[error("`{}` was deleted or replaced while it was in use: nothing more is done; {if_lost}", path.display())]
    Deleted {
        /// The file.
        path: PathBuf,
        /// What a person does about it.
        if_lost: &'static str,
    },
    /// Another version of redrive wrote it.
    #[error(
        "`{}` has version {found}, and this program reads version {known}: use the version of redrive that began it",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version that can be read.
        known: u32,
    },
    /// A line is damaged. A part of a line at the end is no damage.
    #[error(
        "line {line} of `{}` is damaged: {error}; the lines after it cannot be trusted: {if_lost}", path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong.
        error: String,
        /// What a person does about it.
        if_lost: &'static str,
    },
    /// Another run works on the shelf.
    #[error("run `{run}` works on the {shelf} shelf of `{queue}`: wait for it, or abort it")]
    Locked {
        /// The queue.
        queue: String,
        /// The shelf.
        shelf: Shelf,
        /// Id of the other run.
        run: String,
    },
    /// There is no such run.
    #[error("there is no run `{0}` in this folder")]
    NoRun(String),
    /// The run is done, or was aborted.
    #[error("run `{0}` has ended: make a new plan for what is left")]
    Ended(String),
}

impl JournalError {
    pub(crate) fn file(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { what, path: path.to_owned(), source }
    }

    /// A file that a run needs was deleted.
    #[cfg(feature = "runner")]
    pub(crate) fn deleted(path: &Path) -> Self {
        Self::Deleted { path: path.to_owned(), if_lost: Record::IF_LOST }
    }
}
