//! The state file: what survives a restart of the emulator.
//!
//! The file is a redb database. A batch of changes is one of its transactions: completely on disk (fsync), or not at all, whatever dies
//! at whatever time. A client gets its answer only once the changes behind it are on disk; the changes of all clients that wait at the
//! same time are written together ([`Journal`]).
//!
//! It keeps durable exchanges, queues and bindings, persistent messages of durable queues with their places and counts, virtual hosts,
//! users, permissions and policies. Everything is also in memory: the file is read once, at the start.

#[cfg(test)]
mod disk;
mod integrity;
mod journal;
mod record;
mod tables;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase, WriteTransaction};
use thiserror::Error;

pub(crate) use journal::{Journal, Ticket};

use crate::broker::{Broker, Change};

/// Size of redb's cache. The broker already has everything in memory.
const CACHE: usize = 8 << 20;

/// A state file that cannot be used.
#[derive(Debug, Error)]
#[error("the state file '{path}': {reason}")]
pub struct StoreError {
    path: PathBuf,
    reason: Reason,
}

#[derive(Debug, Error)]
enum Reason {
    #[error("it cannot be read or written: {0}")]
    Database(#[from] redb::Error),
    #[error(
        "it was written by another version of the emulator (format {found}, this one reads {}); delete it, or use that version",
        tables::FORMAT
    )]
    Format { found: u32 },
    #[error("it is damaged: {what}; restore it from a copy, or delete it")]
    Damaged { what: String },
    #[error("a {what} in it cannot be read; restore it from a copy, or delete it")]
    Record { what: &'static str },
}

/// An open state file.
pub(crate) struct Store {
    path: PathBuf,
    open: Open,
    /// `None` after a failed write: redb accepts no more until it is opened again.
    database: Option<Database>,
}

/// How the file is opened.
type Open = Box<dyn Fn(&Path) -> Result<Database, Reason> + Send>;

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens or creates the file, and restores the broker's state. Returns whether the file was new.
    pub(crate) fn open(path: &Path, broker: &mut Broker) -> Result<(Self, bool), StoreError> {
        Self::open_by(Box::new(integrity::open), path, broker)
    }

    fn open_by(open: Open, path: &Path, broker: &mut Broker) -> Result<(Self, bool), StoreError> {
        let mut store = Self { path: path.to_owned(), open, database: None };
        match store.load(broker) {
            Ok(new) => Ok((store, new)),
            Err(reason) => Err(at(path, reason)),
        }
    }

    /// Writes all of the changes, or none. When this returns, they are on disk. After an error it may be tried again.
    pub(crate) fn write(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let written = self.try_write(changes);
        if written.is_err() {
            self.database = None;
        }
        written.map_err(|reason| at(&self.path, reason))
    }

    fn try_write(&mut self, changes: &[Change]) -> Result<(), Reason> {
        let transaction = self.begin()?;
        tables::write(&transaction, changes)?;
        transaction.commit().map_err(redb::Error::from)?;
        Ok(())
    }

    /// Begins a transaction that keeps no older state: later damage is then found as damage, and not taken for a commit that a crash
    /// interrupted.
    fn begin(&mut self) -> Result<WriteTransaction, Reason> {
        let database = match self.database.take() {
            Some(database) => database,
            None => (self.open)(&self.path)?,
        };
        let database = self.database.insert(database);
        let mut transaction = database.begin_write().map_err(redb::Error::from)?;
        transaction.set_two_phase_commit(true);
        Ok(transaction)
    }

    fn load(&mut self, broker: &mut Broker) -> Result<bool, Reason> {
        let transaction = self.begin()?;
        let new = tables::check_format(&transaction)?;
        transaction.commit().map_err(redb::Error::from)?;
        let Some(database) = &self.database else { return Ok(new) };
        let transaction = database.begin_read().map_err(redb::Error::from)?;
        tables::read(&transaction, |change| broker.restore(change))?;
        broker.end_restore();
        Ok(new)
    }
}

fn at(path: &Path, reason: Reason) -> StoreError {
    StoreError { path: path.to_owned(), reason }
}
