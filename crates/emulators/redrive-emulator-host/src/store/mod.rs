//! The state file: what survives a restart of the emulator.
//!
//! The file is a redb database. A batch of changes is one of its transactions: completely on disk (fsync), or not at all, whatever dies
//! at whatever time. A client gets its answer only once the changes behind it are on disk; the changes of all clients that wait at the
//! same time are written together ([`Journal`]). Everything is also in memory: the file is read once, at the start.

#[cfg(test)]
mod disk;
mod integrity;
mod journal;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use redb::{
    AccessGuard, Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableDefinition,
    WriteTransaction,
};
use thiserror::Error;

pub use journal::{Journal, Ticket};

/// A state file that cannot be used.
#[derive(Debug, Error)]
#[error("the state file '{path}': {cause}")]
pub struct StoreError {
    path: PathBuf,
    cause: Cause,
}

/// Why a state file cannot be used.
#[derive(Debug, Error)]
pub enum Cause {
    /// redb, or the disk below, refuses.
    #[error("it cannot be read or written: {0}")]
    Database(redb::Error),
    /// Its content has another format.
    #[error(
        "it was written by another version of the emulator (format {found}, this one reads {reads}); delete it, or use that version"
    )]
    Format {
        /// The file's format.
        found: u32,
        /// The emulator's format.
        reads: u32,
    },
    /// The file was cut or changed.
    #[error("it is damaged: {what}; restore it from a copy, or delete it")]
    Damaged {
        /// The damage.
        what: String,
    },
    /// A record does not decode.
    #[error("a {what} in it cannot be read; restore it from a copy, or delete it")]
    Record {
        /// The kind of record.
        what: &'static str,
    },
}

impl<E: Into<redb::Error>> From<E> for Cause {
    fn from(error: E) -> Self {
        Self::Database(error.into())
    }
}

/// How the file is opened.
type Open = Box<dyn Fn(&Path) -> Result<Database, Cause> + Send>;

/// A state file: opened when it is first used, and after an error.
pub struct StateFile {
    path: PathBuf,
    open: Open,
    /// `None` after a failed write: redb accepts no more until it is opened again.
    database: Option<Database>,
}

impl std::fmt::Debug for StateFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl StateFile {
    /// Returns the file at this path; it is created if there is none. A damaged file is refused, and another file is not changed.
    pub fn at(path: &Path) -> Self {
        Self::opened_by(path, Box::new(integrity::open))
    }

    fn opened_by(path: &Path, open: Open) -> Self {
        Self { path: path.to_owned(), open, database: None }
    }

    /// Writes all that `write` does, or nothing. When this returns, it is on disk. After an error it may be tried again.
    ///
    /// # Errors
    /// If `write` fails, or the file cannot be opened or written.
    pub fn write<T>(
        &mut self,
        write: impl FnOnce(&WriteTransaction) -> Result<T, Cause>,
    ) -> Result<T, StoreError> {
        let written = self.try_write(write);
        if written.is_err() {
            self.database = None;
        }
        written.map_err(|cause| StoreError { path: self.path.clone(), cause })
    }

    /// Reads.
    ///
    /// # Errors
    /// If `read` fails, or the file cannot be opened or read.
    pub fn read<T>(
        &mut self,
        read: impl FnOnce(&ReadTransaction) -> Result<T, Cause>,
    ) -> Result<T, StoreError> {
        let found = self.database().and_then(|database| read(&database.begin_read()?));
        found.map_err(|cause| StoreError { path: self.path.clone(), cause })
    }

    fn try_write<T>(
        &mut self,
        write: impl FnOnce(&WriteTransaction) -> Result<T, Cause>,
    ) -> Result<T, Cause> {
        let mut transaction = self.database()?.begin_write()?;
        // It keeps no older state: later damage is then found as damage, and not taken for a commit that a crash interrupted.
        transaction.set_two_phase_commit(true);
        let written = write(&transaction)?;
        transaction.commit()?;
        Ok(written)
    }

    fn database(&mut self) -> Result<&Database, Cause> {
        let database = match self.database.take() {
            Some(database) => database,
            None => (self.open)(&self.path)?,
        };
        Ok(self.database.insert(database))
    }
}

/// Checks the format of the content, which stands in this table at this key; a new file gets it. Returns whether the file is new.
///
/// # Errors
/// If the file has another format, or cannot be read or written.
pub fn check_format<'k, K: redb::Key + 'static>(
    transaction: &WriteTransaction,
    table: TableDefinition<'_, K, u32>,
    key: &K::SelfType<'k>,
    reads: u32,
) -> Result<bool, Cause> {
    let mut table = transaction.open_table(table)?;
    let found = table.get(key)?.map(|found| found.value());
    match found {
        None => {
            table.insert(key, reads)?;
            Ok(true)
        }
        Some(found) if found == reads => Ok(false),
        Some(found) => Err(Cause::Format { found, reads }),
    }
}

type Row<K, V> = (AccessGuard<'static, K>, AccessGuard<'static, V>);

/// Returns all rows of a table, in the order of their keys.
///
/// # Errors
/// If the table cannot be read.
pub fn rows<K: redb::Key + 'static, V: redb::Value + 'static>(
    transaction: &ReadTransaction,
    table: TableDefinition<'_, K, V>,
) -> Result<impl Iterator<Item = Result<Row<K, V>, Cause>>, Cause> {
    let table = transaction.open_table(table)?;
    let range = table.range::<K::SelfType<'_>>(..)?;
    Ok(range.map(|entry| entry.map_err(Cause::from)))
}
