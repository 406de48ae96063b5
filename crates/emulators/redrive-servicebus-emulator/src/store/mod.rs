//! What the state file keeps: messages with their numbers, times, delivery counts and places, the next numbers to assign, the states of
//! sessions, the ids for duplicate detection, and the rules that clients changed. It does not keep locks, uncommitted transactions, or
//! tallies.

mod record;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::path::Path;

use redrive_emulator_host::{Journal, StateFile, StoreError};

use crate::broker::{Broker, Change, EntityId};

/// An open state file.
#[derive(Debug)]
pub(crate) struct Store {
    file: StateFile,
    /// Number of each of the broker's entities in the file.
    numbers: HashMap<EntityId, u32>,
}

/// Opens or creates the file, and restores the broker's state. Returns the paths of entities that the file has and the broker
/// does not, with the number of their messages: they stay in the file.
pub(crate) fn open(path: &Path, broker: &mut Broker) -> Result<(Store, Vec<(String, u64)>), StoreError> {
    let paths: Vec<(EntityId, String)> =
        broker.entities().map(|id| (id, broker.path(id).to_lowercase())).collect();
    let mut file = StateFile::at(path);
    let numbers = file.write(|transaction| tables::create(transaction, &paths))?;
    let entities = numbers.iter().map(|(id, number)| (*number, *id)).collect();
    let unknown =
        file.read(|transaction| tables::read(transaction, &entities, |change| broker.restore(change)))?;
    Ok((Store { file, numbers }, unknown))
}

impl Store {
    /// Starts the thread that writes to the file.
    pub(crate) fn journal(mut self) -> io::Result<Journal<Change>> {
        Journal::start(move |changes: &[Change]| self.write(changes))
    }

    fn write(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.file.write(|transaction| tables::write(transaction, changes, &self.numbers))
    }
}
