//! Journals: what a run intends and what it did, on disk before and after each step.
//!
//! | module | contains |
//! |---|---|
//! | [`record`] | the lines |
//! | [`replay`] | what a journal says of a run that ended anywhere; pure |
//! | [`folder`] | the folder of journals, and the lock of a shelf |
//! | [`stopped`] | runs that ended early |
//! | [`ends`] | the first and the last line of a journal |
//! | [`disk`] | a file that is only appended to |

mod disk;
mod ends;
mod folder;
mod record;
mod replay;
mod stopped;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use redrive_core::{EntryHandle, Shelf};

use self::disk::Disk;
pub use self::folder::{JournalFolder, ShelfLock};
pub use self::record::{JournalHeader, Operator};
use self::record::{Record, VERSION};
pub use self::replay::{Replay, UncertainEntries};
pub use self::stopped::StoppedRun;
use crate::plan::PlanAction;
use crate::run::{EntryState, SeenFate, StopReason};

/// The journal of a run: a file of JSON lines that is only appended to, and that only its owner can read.
///
/// The first line has the plan, who runs it and why. Before a step comes its *intent*, with the entries; it is on the disk when
/// [`intent`](Self::intent) returns. After the step comes a *result* for each entry. A process may die anywhere: entries with an
/// intent and without a result are the only ones that are in doubt, and the shelf tells [what happened](Replay::resolve) to most of
/// them. It contains no body and no header of a message.
///
/// If a line cannot be written, for example because the disk is full, the part of it that was written is removed, and nothing is
/// written any more: a step without its intent must not be done.
pub struct Journal {
    disk: Box<dyn Disk>,
    path: PathBuf,
    /// Length of the whole lines.
    len: u64,
    is_broken: bool,
}

impl Journal {
    /// Begins the journal of a run, in a new file.
    ///
    /// # Errors
    ///
    /// If the file exists or cannot be written.
    pub fn begin(path: impl Into<PathBuf>, header: JournalHeader) -> Result<Self, JournalError> {
        let path = path.into();
        let file =
            disk::create(&path).map_err(|error| JournalError::file("create the journal", &path, error))?;
        let mut journal = Self { disk: Box::new(file), path, len: 0, is_broken: false };
        let mut begun = journal.append(&[Record::Begin { v: VERSION, header: Box::new(header) }]);
        begun = begun.and_then(|()| journal.sync());
        begun = begun.and_then(|()| {
            disk::sync_folder(&journal.path)
                .map_err(|error| JournalError::file("create the journal", &journal.path, error))
        });
        match begun {
            Ok(()) => Ok(journal),
            Err(error) => {
                // A run that never began.
                let _ = std::fs::remove_file(&journal.path);
                Err(error)
            }
        }
    }

    /// Opens the journal of a run that ended anywhere. Removes a part of a line at its end.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a whole line is damaged.
    pub fn open(path: impl Into<PathBuf>) -> Result<(Self, Replay), JournalError> {
        let path = path.into();
        let (file, bytes) =
            disk::open(&path).map_err(|error| JournalError::file("open the journal", &path, error))?;
        let (replay, whole) = Replay::read(&bytes)?;
        let mut journal = Self { disk: Box::new(file), path, len: whole as u64, is_broken: false };
        let cut = journal.disk.cut(journal.len);
        cut.map_err(|error| JournalError::file("repair the journal", &journal.path, error))?;
        Ok((journal, replay))
    }

    /// Reads a journal without changing it; its run may still go on.
    ///
    /// # Errors
    ///
    /// The same as [`open`](Self::open).
    pub fn read(path: &Path) -> Result<Replay, JournalError> {
        let bytes = fs::read(path).map_err(|error| JournalError::file("read the journal", path, error))?;
        Replay::read(&bytes).map(|(replay, _)| replay)
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes who goes on with the run.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn resume(&mut self, by: Operator) -> Result<(), JournalError> {
        self.append(&[Record::Resume { by }])?;
        self.sync()
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
        self.check_place()?;
        self.append(&[Record::Intent { at, action, handles: handles.to_vec() }])?;
        self.sync()
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
        self.append(&results.iter().map(record).collect::<Vec<_>>())
    }

    /// Writes what became of messages.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn fates(&mut self, fates: &[SeenFate]) -> Result<(), JournalError> {
        self.append(&fates.iter().cloned().map(Record::Fate).collect::<Vec<_>>())
    }

    /// Writes that the run has ended. `why`: it ended early.
    ///
    /// # Errors
    ///
    /// The same as [`intent`](Self::intent).
    pub fn end(&mut self, why: Option<StopReason>, at: SystemTime) -> Result<(), JournalError> {
        self.check_place()?;
        self.append(&[Record::End { at, why }])?;
        self.sync()
    }

    /// What is written to a file without a name ends with the process.
    fn check_place(&self) -> Result<(), JournalError> {
        match self.disk.is_at(&self.path) {
            true => Ok(()),
            false => Err(JournalError::Deleted { path: self.path.clone() }),
        }
    }

    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        if records.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::new();
        for record in records {
            serde_json::to_writer(&mut lines, record)
                .map_err(|error| JournalError::file("write the journal", &self.path, error.into()))?;
            lines.push(b'\n');
        }
        self.write(|disk| disk.append(&lines))?;
        self.len += lines.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        self.write(|disk| disk.sync())
    }

    /// Writes, and after an error nothing any more: what the disk has then is not known.
    fn write(&mut self, write: impl FnOnce(&mut dyn Disk) -> io::Result<()>) -> Result<(), JournalError> {
        let written = if self.is_broken {
            Err(io::Error::other("an earlier line could not be written"))
        } else {
            write(&mut *self.disk)
        };
        written.map_err(|error| {
            if !self.is_broken {
                self.is_broken = true;
                // Opening removes a part of a line too, so this may fail.
                let _ = self.disk.cut(self.len);
            }
            JournalError::file("write the journal", &self.path, error)
        })
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { disk: _, path, len, is_broken } = self;
        let mut shown = f.debug_struct("Journal");
        shown.field("path", path).field("len", len).field("is_broken", is_broken).finish_non_exhaustive()
    }
}

/// A journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// A file or folder cannot be used.
    #[error("cannot {what} `{}`: {source}; make room or change its rights, then resume the run", path.display())]
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
    /// The journal or the originals of a run that goes on were deleted or replaced.
    #[error(
        "`{}` was deleted or replaced while its run worked: nothing more is done, and the run can be neither resumed nor undone. Make \
         another plan for what is left", path.display()
    )]
    Deleted {
        /// The file.
        path: PathBuf,
    },
    /// Another version of redrive wrote it.
    #[error(
        "the journal has version {0}, and this program reads version {VERSION}: resume the run with the program that began it"
    )]
    Version(u32),
    /// A line is damaged. A part of a line at the end is no damage.
    #[error(
        "line {line} of the journal is damaged: {error}; what follows it cannot be trusted: make a new plan"
    )]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong.
        error: String,
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

    fn line(line: usize, error: &(impl fmt::Display + ?Sized)) -> Self {
        Self::Line { line, error: error.to_string() }
    }
}
