//! What the state file keeps: durable exchanges, queues and bindings, persistent messages of durable queues with their places and
//! counts, virtual hosts, users, permissions and policies.

mod record;
mod tables;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

use redrive_emulator_host::{Journal, StateFile, StoreError};

use crate::broker::{Broker, Change};

/// Opens or creates the file, and restores the broker's state. Returns whether the file was new.
pub(crate) fn open(path: &Path, broker: &mut Broker) -> Result<(StateFile, bool), StoreError> {
    let mut file = StateFile::at(path);
    let new = file.write(tables::create)?;
    file.read(|transaction| tables::read(transaction, |change| broker.restore(change)))?;
    broker.end_restore();
    Ok((file, new))
}

/// Starts the thread that writes to the file.
pub(crate) fn journal(mut file: StateFile) -> io::Result<Journal<Change>> {
    Journal::start(move |changes: &[Change]| write(&mut file, changes))
}

fn write(file: &mut StateFile, changes: &[Change]) -> Result<(), StoreError> {
    file.write(|transaction| tables::write(transaction, changes))
}
