//! The ledger's file: one line when a handler begins, and one when it ends. [`LedgerState`] gives the lines their meaning.
//!
//! Lines are passed to the operating system at once and never flushed to the disk: they survive the process, but not always the
//! machine. A machine that crashes may lose the last lines.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use redrive_core::Delivery;
use redrive_core::own_file::{self, is_at};

use super::ledger_state::{Key, LedgerState};

/// Number of bytes of lines after which the file is rewritten with only what still matters.
const ROOM: usize = 1024 * 1024;

/// Time between two looks whether somebody deleted the ledger or its lock.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Ledger of one consumer.
#[derive(Debug)]
pub(crate) struct InFlightLog {
    path: PathBuf,
    /// True while the ledger counts deaths for any message.
    names_any: AtomicBool,
    /// True while it cannot be written, or another consumer has it.
    failing: AtomicBool,
    /// The value of `failing` that [`change`](Self::change) returned last.
    told: AtomicBool,
    written: Mutex<Written>,
}

/// A change of whether the ledger can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LedgerChange {
    Failing,
    Written,
}

#[derive(Debug)]
struct Written {
    state: LedgerState,
    /// Locked like the file beside it, which may be deleted alone.
    file: File,
    /// Held as long as this ledger or the process lives: two writers of one ledger would count each other as dead.
    lock: File,
    /// Number of bytes that may still be written before the file is rewritten.
    room: usize,
    /// When to look next whether lock and file are still at their paths.
    next_look: Instant,
    /// True if the last write failed.
    failing: bool,
    /// True if the file may end in the middle of a line: appending to it would make a line that no process can read.
    torn: bool,
}

impl InFlightLog {
    /// Opens the ledger at `path`, or creates it. Reads what the last process left, and rewrites it.
    ///
    /// # Errors
    ///
    /// Says in one sentence what failed and what to do. Nothing was changed in that case.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let lock = lock(path)?;
        // Where the file beside the ledger was deleted, its owner still has the ledger itself.
        let _last = match File::open(path) {
            Ok(file) => Some(own(path, file)?),
            Err(_) => None,
        };
        let text = match std::fs::read(path) {
            Ok(bytes) => String::from_utf8(bytes).map_err(|_| broken(path, "it is not UTF-8 text"))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("the ledger {} cannot be read: {error}", path.display())),
        };
        let state = LedgerState::read(&text).map_err(|why| broken(path, &why))?;
        let file = rewrite(path, &state).map_err(|error| unwritable(path, &error))?;
        let names_any = AtomicBool::new(state.counted() > 0);
        let next_look = Instant::now() + LOOK_EVERY;
        let written =
            Mutex::new(Written { state, file, lock, room: ROOM, next_look, failing: false, torn: false });
        let (failing, told) = Default::default();
        Ok(Self { path: path.to_owned(), names_any, failing, told, written })
    }

    /// Returns true if the ledger counts deaths for any message. Cheap.
    pub(crate) fn names_any(&self) -> bool {
        self.names_any.load(Ordering::Relaxed)
    }

    /// Returns true while it cannot be written, or another consumer has it. Cheap.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// Returns whether it can be written, if that has changed since the last call. Cheap.
    pub(crate) fn change(&self) -> Option<LedgerChange> {
        let failing = self.is_failing();
        let is_new = self.told.swap(failing, Ordering::Relaxed) != failing;
        is_new.then_some(if failing { LedgerChange::Failing } else { LedgerChange::Written })
    }

    /// Returns the number of messages that processes died with.
    pub(crate) fn counted(&self) -> usize {
        self.written().state.counted()
    }

    /// Returns how many processes died with this delivery.
    pub(crate) fn deaths(&self, delivery: &Delivery) -> u32 {
        if !self.names_any() {
            return 0;
        }
        self.written().state.deaths(&Key::of(delivery))
    }

    /// Records that a handler is about to begin. Until the guard is dropped, a death of the process counts against the message.
    pub(crate) fn begin(&self, delivery: &Delivery) -> Begun<'_> {
        let key = Key::of(delivery);
        let mut written = self.written();
        let line = written.state.begin(&key);
        self.write(&mut written, &line);
        drop(written);
        Begun { ledger: self, key, given_back: false }
    }

    fn end(&self, key: &Key, given_back: bool) {
        let mut written = self.written();
        let line = if given_back { written.state.give_back(key) } else { written.state.end(key) };
        self.names_any.store(written.state.counted() > 0, Ordering::Relaxed);
        self.write(&mut written, &line);
    }

    /// Writes a line. A failed write loses no message, but a death that the line would have recorded is not counted.
    fn write(&self, written: &mut Written, line: &str) {
        let (wrote, is_lost) = match self.keep(written) {
            Ok(()) => (self.append(written, line), false),
            Err(error) => (Err(error), true),
        };
        let failed_before = std::mem::replace(&mut written.failing, wrote.is_err());
        self.failing.store(wrote.is_err(), Ordering::Relaxed);
        match wrote {
            Err(error) if !failed_before && is_lost => tracing::error!(
                path = %self.path.display(), %error,
                "the ledger was deleted, or its lock: messages are handled all the same, but one that kills the process now is \
                 not counted there; restore its folder, and give each consumer of each process its own ledger"
            ),
            Err(error) if !failed_before => tracing::error!(
                path = %self.path.display(), %error,
                "the ledger cannot be written: messages are handled all the same, but one that kills the process now is \
                 not counted there; make room, or give the consumer another path"
            ),
            Ok(()) if failed_before => {
                tracing::info!(path = %self.path.display(), "the ledger can be written again");
            }
            _ => {}
        }
    }

    /// Sees to it that the ledger and its lock are still those at the path. If the lock was deleted, another consumer may have the
    /// ledger meanwhile, and keeps it then.
    fn keep(&self, written: &mut Written) -> io::Result<()> {
        // Not for each line: it would cost more than the lines do.
        let now = Instant::now();
        if now < written.next_look && !written.failing {
            return Ok(());
        }
        written.next_look = now + LOOK_EVERY;
        if !is_at(&written.lock, &with_suffix(&self.path, ".lock")) {
            let lock = lock(&self.path).map_err(io::Error::other)?;
            // Another consumer may have had it in between. This ledger is still that of before, unless somebody replaced it.
            if let Ok(file) = File::open(&self.path)
                && !is_at(&written.file, &self.path)
            {
                own(&self.path, file).map_err(io::Error::other)?;
            }
            written.lock = lock;
            tracing::warn!(path = %self.path.display(), "the lock file of the ledger was deleted: it is created again");
        }
        if !is_at(&written.file, &self.path) {
            // What is written to it is read by nobody.
            written.torn = true;
        }
        Ok(())
    }

    /// Appends a line, or rewrites the file.
    fn append(&self, written: &mut Written, line: &str) -> io::Result<()> {
        let mut wrote = if written.torn { Ok(()) } else { written.file.write_all(line.as_bytes()) };
        written.torn |= wrote.is_err();
        let full = written.room < line.len();
        written.room = written.room.saturating_sub(line.len());
        // A rewritten file contains the complete state.
        if written.torn || written.failing || full {
            wrote = rewrite(&self.path, &written.state).map(|file| {
                (written.file, written.room, written.torn) = (file, ROOM, false);
            });
        }
        wrote
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock()
    }
}

impl Drop for InFlightLog {
    /// Unlocks explicitly: closing the file is not always enough, because a child process holds it too until its program starts.
    fn drop(&mut self) {
        let written = self.written();
        let _ = written.lock.unlock();
        let _ = written.file.unlock();
    }
}

/// Guard for a running handler. Dropping it records that the handler ended, or at least that the process outlived the handler.
#[derive(Debug)]
pub(crate) struct Begun<'a> {
    ledger: &'a InFlightLog,
    key: Key,
    given_back: bool,
}

impl Begun<'_> {
    /// Records that the delivery is given back before its handler ended: earlier deaths stay counted.
    pub(crate) fn give_back(&mut self) {
        self.given_back = true;
    }

    /// Records that the message is off the queue: earlier deaths count no more.
    pub(crate) fn end(&mut self) {
        self.given_back = false;
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.ledger.end(&self.key, self.given_back);
    }
}

/// Locks a file beside the ledger, since the ledger itself is replaced from time to time. The lock ends with the process, however
/// the process ends.
fn lock(path: &Path) -> Result<File, String> {
    let beside = with_suffix(path, ".lock");
    loop {
        let file = own_file::options().create(true).truncate(false).write(true).open(&beside);
        let file = own(path, file.map_err(|error| unwritable(&beside, &error))?)?;
        // A file that was deleted between these two steps keeps nobody away.
        if is_at(&file, &beside) {
            return Ok(file);
        }
    }
}

/// Locks a file of the ledger at `path`.
fn own(path: &Path, file: File) -> Result<File, String> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(format!(
            "the ledger {} is in use by another consumer: give each consumer of each process its own ledger",
            path.display()
        )),
        Err(TryLockError::Error(error)) => {
            Err(format!("the ledger {} cannot be locked: {error}; put it on a local disk", path.display()))
        }
    }
}

/// Writes a complete new file beside the ledger, then renames it: a process that dies here leaves either the old or the new file. The
/// new file is created here: a link at its place is removed, and never followed.
fn rewrite(path: &Path, state: &LedgerState) -> io::Result<File> {
    let beside = with_suffix(path, ".new");
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = own_file::options().write(true).create_new(true).open(&beside)?;
    #[cfg(unix)]
    file.try_lock()?;
    file.write_all(state.write().as_bytes())?;
    std::fs::rename(&beside, path)?;
    Ok(file)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn broken(path: &Path, why: &str) -> String {
    format!(
        "the ledger {} cannot be used: {why}; move it away to begin a new one (what it counted so far is forgotten then; no \
         message is lost)",
        path.display()
    )
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    format!(
        "the ledger cannot be written: {}: {error}; give the consumer a path in a folder that is there and that this \
         process may write to",
        path.display()
    )
}

#[cfg(test)]
#[path = "in_flight_log_tests.rs"]
mod tests;
