//! The file of the audit log.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use redrive_core::own_file;

use super::AuditRecord;

/// An audit log: a file to which records are appended, one line of JSON each. Several processes may append to one file.
///
/// A new file can be read and written by its owner only. The mode of a file that exists stays.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use std::time::SystemTime;
///
/// use redrive_core::Shelf;
/// use redrive_ops::{AuditAction, AuditCounts, AuditLog, AuditRecord};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("audit.jsonl");
/// let mut log = AuditLog::open(&path)?;
/// let now = SystemTime::now();
/// let record = AuditRecord::new("alice", "ops-1", now, AuditAction::Park, "orders", Shelf::DeadLetter);
/// log.append(&record.counts(AuditCounts::done(1)))?;
/// # assert_eq!(std::fs::read_to_string(&path)?.lines().count(), 1);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    file: File,
}

impl AuditLog {
    /// Opens the file, and creates it if it does not exist. Its folder must exist.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened for reading and appending.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        Ok(Self { file: open(&path)?, path })
    }

    /// Appends a record in one write, and waits until it is on the disk. Append the intent before an action whose record must not be
    /// missing, and its counts after it.
    ///
    /// # Errors
    ///
    /// If the record is not on the disk: an action that needs one must not be done. A part of its line may be there; the next record
    /// begins on a line of its own.
    pub fn append(&mut self, record: &AuditRecord) -> io::Result<()> {
        // Somebody deleted the file, or moved it away to begin another one.
        if !own_file::is_at(&self.file, &self.path) {
            self.file = open(&self.path)?;
        }
        let mut line = String::new();
        if self.is_torn()? {
            line.push('\n');
        }
        line.push_str(&record.to_line());
        line.push('\n');
        // One write: lines of several processes do not mix. A second one for the rest could land behind another's line.
        let written = self.file.write(line.as_bytes())?;
        if written < line.len() {
            let message = format!("only {written} of {} bytes of an audit record were written", line.len());
            return Err(io::Error::new(io::ErrorKind::WriteZero, message));
        }
        self.file.sync_data()
    }

    /// Returns true if the file ends in the middle of a line: a process died, or the disk was full.
    fn is_torn(&mut self) -> io::Result<bool> {
        if self.file.seek(SeekFrom::End(0))? == 0 {
            return Ok(false);
        }
        self.file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        self.file.read_exact(&mut last)?;
        Ok(last != *b"\n")
    }
}

fn open(path: &Path) -> io::Result<File> {
    own_file::options().read(true).append(true).create(true).open(path)
}
