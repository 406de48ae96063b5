//! A file of records that is only appended to, whatever the records say.

use std::borrow::Cow;
use std::fmt::{Debug, Display};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use redrive_core::own_file;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::JournalError;

/// A record of a [`JournalFile`].
pub trait JournalRecord: Serialize + DeserializeOwned {
    /// The kind of the journal, on the first line of its file.
    const KIND: &'static str;
    /// Version of the records, on the same line.
    const VERSION: u32;
    /// What a person does about a file that is damaged or lost, for the message of the error.
    const IF_LOST: &'static str;
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Title {
    journal: Cow<'static, str>,
    v: u32,
}

/// A file of JSON lines that is only appended to, and that only its owner can read. The first line has the kind of the journal and
/// the version of its records; each other line is a record.
///
/// One process at a time may write to it, the one that has the [lock of the shelf](super::ShelfLock). It may die anywhere: a part of a
/// line at the end is no record, and is removed when the file is opened. Any other damage is an error.
///
/// After a line that could not be written, for example because the disk is full, nothing is written any more.
#[derive(Debug)]
pub struct JournalFile<R> {
    disk: Box<dyn Disk>,
    path: PathBuf,
    /// Length of the whole lines.
    len: u64,
    is_broken: bool,
    records: PhantomData<fn(R)>,
}

impl<R: JournalRecord> JournalFile<R> {
    /// Creates a file that begins with these records. They are on the disk when this returns. A file that cannot be written is removed.
    pub fn create(path: &Path, first: &[R]) -> Result<Self, JournalError> {
        let failed = |error| JournalError::file("create the journal", path, error);
        let file = own_file::options().write(true).create_new(true).open(path).map_err(failed)?;
        let mut journal = Self::on(Box::new(file), path, 0);
        let begun = journal.begin(first).and_then(|()| own_file::sync_name(path).map_err(failed));
        if begun.is_err() {
            let _ = fs::remove_file(path);
        }
        begun.map(|()| journal)
    }

    /// Opens a file to write on. `each` is given its records; one that it refuses is damage.
    pub fn open<E: Display>(path: &Path, each: impl FnMut(R) -> Result<(), E>) -> Result<Self, JournalError> {
        let read = || {
            let mut file = fs::OpenOptions::new().read(true).write(true).open(path)?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok((file, bytes))
        };
        let (file, bytes) = read().map_err(|error| JournalError::file("open the journal", path, error))?;
        let mut journal = Self::on(Box::new(file), path, parse(path, &bytes, each)?);
        let cut = journal.disk.cut(journal.len);
        cut.map_err(|error| JournalError::file("repair the journal", path, error))?;
        if journal.len == 0 {
            journal.begin(&[])?;
        }
        Ok(journal)
    }

    /// [Opens](Self::open) a file, or creates it if it does not exist.
    pub fn open_or_create<E: Display>(
        path: &Path,
        each: impl FnMut(R) -> Result<(), E>,
    ) -> Result<Self, JournalError> {
        if path.exists() { Self::open(path, each) } else { Self::create(path, &[]) }
    }

    /// Reads a file without changing it; somebody may still write to it. One that does not exist has no records. Returns the length
    /// of its whole lines.
    pub fn read<E: Display>(path: &Path, each: impl FnMut(R) -> Result<(), E>) -> Result<u64, JournalError> {
        match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(JournalError::file("read the journal", path, error)),
            Ok(bytes) => parse(path, &bytes, each),
        }
    }

    pub(super) fn on(disk: Box<dyn Disk>, path: &Path, len: u64) -> Self {
        Self { disk, path: path.to_owned(), len, is_broken: false, records: PhantomData }
    }

    /// Appends records. They survive the process; they survive a loss of power after the next [`commit`](Self::commit).
    pub fn append(&mut self, records: &[R]) -> Result<(), JournalError> {
        let lines = self.lines(records)?;
        self.write_lines(&lines)
    }

    /// Appends records, and returns when they are on the disk. After an error nothing may be done that needs them.
    pub fn commit(&mut self, records: &[R]) -> Result<(), JournalError> {
        // What is written to a file without a name ends with the process.
        if !self.disk.is_at(&self.path) {
            return Err(JournalError::Deleted { path: self.path.clone(), if_lost: R::IF_LOST });
        }
        self.append(records)?;
        self.write(|disk| disk.sync())
    }

    pub(super) fn begin(&mut self, first: &[R]) -> Result<(), JournalError> {
        let mut lines = self.lines(&[Title { journal: R::KIND.into(), v: R::VERSION }])?;
        lines.extend(self.lines(first)?);
        self.write_lines(&lines)?;
        self.write(|disk| disk.sync())
    }

    fn lines(&self, records: &[impl Serialize]) -> Result<Vec<u8>, JournalError> {
        let mut lines = Vec::new();
        for record in records {
            serde_json::to_writer(&mut lines, record)
                .map_err(|error| JournalError::file("write the journal", &self.path, error.into()))?;
            lines.push(b'\n');
        }
        Ok(lines)
    }

    fn write_lines(&mut self, lines: &[u8]) -> Result<(), JournalError> {
        self.write(|disk| disk.append(lines))?;
        self.len += lines.len() as u64;
        Ok(())
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

/// Returns the length of the whole lines: nothing was done by a part of a line behind them.
fn parse<R: JournalRecord, E: Display>(
    path: &Path,
    bytes: &[u8],
    mut each: impl FnMut(R) -> Result<(), E>,
) -> Result<u64, JournalError> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut lines = (1..).zip(bytes[..whole].split_inclusive(|byte| *byte == b'\n'));
    let damaged = |line, error: &dyn Display| JournalError::Line {
        path: path.to_owned(),
        line,
        error: error.to_string(),
        if_lost: R::IF_LOST,
    };
    if let Some((number, line)) = lines.next() {
        let title: Title = serde_json::from_slice(line).map_err(|error| damaged(number, &error))?;
        if title.journal != R::KIND {
            return Err(damaged(
                number,
                &format!("it is a journal of {}, and not of {}", title.journal, R::KIND),
            ));
        }
        if title.v != R::VERSION {
            return Err(JournalError::Version { path: path.to_owned(), found: title.v, known: R::VERSION });
        }
    }
    for (number, line) in lines {
        let record = serde_json::from_slice(line).map_err(|error| damaged(number, &error))?;
        each(record).map_err(|error| damaged(number, &error))?;
    }
    Ok(whole as u64)
}

/// What a journal needs of a disk. A trait, so that a test can fill the disk.
pub(super) trait Disk: Debug + Send + Sync {
    /// Writes at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Returns once everything that was written survives a loss of power.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts the file.
    fn cut(&mut self, len: u64) -> io::Result<()>;
    /// Returns true if the file is still at its path.
    fn is_at(&self, path: &Path) -> bool;
}

impl Disk for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)?;
        self.seek(io::SeekFrom::End(0)).map(|_| ())
    }

    fn is_at(&self, path: &Path) -> bool {
        own_file::is_at(self, path)
    }
}
