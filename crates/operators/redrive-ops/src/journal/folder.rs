//! The folder of journals, and the lock of a shelf.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use redrive_core::{Shelf, own_file};
use sha2::{Digest as _, Sha256};

use super::ends::Head;
use super::{Journal, JournalError, JournalHeader, Operator, Replay};
use crate::run::StopReason;

const ENDING: &str = "jsonl";

/// A folder with the journals of runs, and with locks: of the runs that use one folder, only one at a time works on a shelf.
///
/// ```
/// use redrive_ops::JournalFolder;
///
/// # let temporary = tempfile::tempdir()?;
/// # let path = temporary.path().join("runs");
/// let folder = JournalFolder::open(path)?;
/// assert!(folder.runs()?.is_empty());
/// # Ok::<(), redrive_core::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct JournalFolder {
    path: PathBuf,
}

impl JournalFolder {
    /// Opens the folder. Creates it, for its owner only, if it does not exist.
    ///
    /// # Errors
    ///
    /// If it cannot be created.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let path = path.into();
        own_file::create_folder(&path)
            .map_err(|error| JournalError::file("create the folder", &path, error))?;
        Ok(Self { path })
    }

    /// Begins the journal of a run, and locks its shelf.
    ///
    /// # Errors
    ///
    /// [`JournalError::Locked`] if another run works on the shelf; or if the journal cannot be written.
    pub fn begin(&self, header: JournalHeader) -> Result<(Journal, ShelfLock), JournalError> {
        let lock = self.lock(&header.broker, header.plan.queue(), header.plan.shelf(), &header.run)?;
        Ok((Journal::begin(&self.journal(&header.run), header)?, lock))
    }

    /// Opens the journal of a run to go on with it, and locks its shelf.
    ///
    /// # Errors
    ///
    /// [`JournalError::NoRun`] if there is no such run, [`JournalError::Ended`] if it is done or was aborted,
    /// [`JournalError::Locked`] if it is still going on, or another run works on the shelf; or if the journal cannot be read.
    pub fn resume(&self, run: &str, by: Operator) -> Result<(Journal, Replay, ShelfLock), JournalError> {
        let path = self.existing(run)?;
        // Locked before the rest is read: a run that still goes on writes more.
        let header = Journal::read(&path)?.header;
        let lock = self.lock(&header.broker, header.plan.queue(), header.plan.shelf(), &header.run)?;
        let (mut journal, replay) = Journal::open(&path)?;
        if let Some(None | Some(StopReason::Aborted)) = &replay.ended {
            return Err(JournalError::Ended(run.to_owned()));
        }
        journal.resume(by)?;
        Ok((journal, replay, lock))
    }

    /// Reads the journal of a run, which may still go on.
    ///
    /// # Errors
    ///
    /// [`JournalError::NoRun`] if there is no such run; or if the journal cannot be read.
    pub fn read(&self, run: &str) -> Result<Replay, JournalError> {
        Journal::read(&self.existing(run)?)
    }

    /// Returns the ids of all runs, oldest first.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read.
    pub fn runs(&self) -> Result<Vec<String>, JournalError> {
        let read = || {
            let mut runs = Vec::new();
            for entry in fs::read_dir(&self.path)? {
                let path = entry?.path();
                if path.extension().is_some_and(|ending| ending == ENDING) {
                    runs.extend(path.file_stem().and_then(|name| name.to_str()).map(str::to_owned));
                }
            }
            // The time is at the beginning of an id.
            runs.sort();
            Ok(runs)
        };
        read().map_err(|error| JournalError::file("read the folder", &self.path, error))
    }

    /// Returns true if a process of this machine works on the run now.
    ///
    /// # Errors
    ///
    /// If there is no such run, or its files cannot be read.
    pub fn is_running(&self, run: &str) -> Result<bool, JournalError> {
        let path = self.existing(run)?;
        let head = Head::read(&path).map_err(|error| JournalError::file("read the journal", &path, error))?;
        self.works_on(&head, run)
    }

    pub(super) fn works_on(&self, head: &Head, run: &str) -> Result<bool, JournalError> {
        Ok(self.holder(&head.broker, &head.plan.queue, head.plan.shelf)?.is_some_and(|holder| holder == run))
    }

    /// Returns who of this machine works on a shelf now: a run, or the `holder` of its [lock](Self::lock).
    ///
    /// # Errors
    ///
    /// If the file of the lock cannot be read.
    pub fn holder(&self, broker: &str, queue: &str, shelf: Shelf) -> Result<Option<String>, JournalError> {
        let (path, mut file) = self.lock_file(broker, queue, shelf)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(holder_of(&mut file))),
            Err(TryLockError::Error(error)) => Err(JournalError::file("look at the lock", &path, error)),
        }
    }

    fn existing(&self, run: &str) -> Result<PathBuf, JournalError> {
        let is_name = !run.is_empty() && run.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let path = self.journal(run);
        if is_name && path.is_file() { Ok(path) } else { Err(JournalError::NoRun(run.to_owned())) }
    }

    pub(super) fn journal(&self, run: &str) -> PathBuf {
        self.path.join(format!("{run}.{ENDING}"))
    }

    /// Returns the path of a file of a shelf in this folder. Whoever has the [lock](Self::lock) of the shelf may write it.
    #[must_use]
    pub fn of_shelf(&self, broker: &str, queue: &str, shelf: Shelf, ending: &str) -> PathBuf {
        // Queues have names that files cannot have.
        let mut hash = Sha256::new();
        for part in [broker, queue] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize()[..8]);
        self.path.join(format!("{:016x}-{shelf}.{ending}", u64::from_be_bytes(first)))
    }

    /// Locks a shelf against runs of this folder, until the lock is dropped. `holder` names the work, for those who are refused.
    ///
    /// # Errors
    ///
    /// [`JournalError::Locked`] if a run works on the shelf; or if the file of the lock cannot be written.
    pub fn lock(
        &self,
        broker: &str,
        queue: &str,
        shelf: Shelf,
        holder: &str,
    ) -> Result<ShelfLock, JournalError> {
        let (path, mut file) = self.lock_file(broker, queue, shelf)?;
        let failed = |error| JournalError::file("lock the shelf by", &path, error);
        let mut locked = file.try_lock();
        for _ in 0..5 {
            // Somebody may just look whether a run goes on.
            if !matches!(locked, Err(TryLockError::WouldBlock)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
            locked = file.try_lock();
        }
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::Locked {
                    queue: queue.to_owned(),
                    shelf,
                    run: holder_of(&mut file),
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        name_holder(&mut file, holder).map_err(failed)?;
        Ok(ShelfLock { _file: file })
    }

    fn lock_file(&self, broker: &str, queue: &str, shelf: Shelf) -> Result<(PathBuf, File), JournalError> {
        let path = self.of_shelf(broker, queue, shelf, "lock");
        match own_file::options().read(true).write(true).create(true).truncate(false).open(&path) {
            Ok(file) => Ok((path, file)),
            Err(error) => Err(JournalError::file("open the lock", &path, error)),
        }
    }
}

/// Returns the run that the file of a lock names. The lock counts, whatever the file says.
fn holder_of(file: &mut File) -> String {
    let mut run = String::new();
    let _ = file.take(200).read_to_string(&mut run);
    run
}

fn name_holder(file: &mut File, holder: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(holder.as_bytes())
}

/// The right to work on a shelf, until it is dropped or the process dies.
#[derive(Debug)]
#[must_use = "dropping it unlocks the shelf"]
pub struct ShelfLock {
    _file: File,
}
