//! The tables of the state file.

use std::collections::HashMap;
use std::sync::Arc;

use redb::{ReadTransaction, ReadableTable as _, Table, TableDefinition, WriteTransaction};
use redrive_emulator_host::{Cause, check_format, rows};

use super::record;
use crate::amqp::Message;
use crate::broker::{Change, EntityId, SequenceNumber, Timestamp};

const FORMAT: u32 = 1;

/// The entity's number in the file, and the message's number in the entity.
type Key = (u32, SequenceNumber);

const VERSION: TableDefinition<'_, (), u32> = TableDefinition::new("format");
const ENTITIES: TableDefinition<'_, &str, u32> = TableDefinition::new("entities");
const SEQUENCES: TableDefinition<'_, u32, SequenceNumber> = TableDefinition::new("sequences");
/// Separate from what changes often: an abandoned message is not written again.
const CONTENTS: TableDefinition<'_, Key, &[u8]> = TableDefinition::new("contents");
const METAS: TableDefinition<'_, Key, &[u8]> = TableDefinition::new("metas");
const STATES: TableDefinition<'_, (u32, &str), &[u8]> = TableDefinition::new("session-states");
const SEEN: TableDefinition<'_, (u32, &str), i64> = TableDefinition::new("seen");
const RULES: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("rules");

/// Creates all tables, so that they can be read. Returns the file's number of every entity; new ones get the next.
pub(super) fn create(
    transaction: &WriteTransaction,
    paths: &[(EntityId, String)],
) -> Result<HashMap<EntityId, u32>, Cause> {
    check_format(transaction, VERSION, &(), FORMAT)?;
    Tables::open(transaction)?;
    let mut entities = transaction.open_table(ENTITIES)?;
    let mut next = entities.iter()?.count() as u32;
    let mut numbers = HashMap::new();
    for (id, path) in paths {
        let known = entities.get(path.as_str())?.map(|number| number.value());
        let number = known.unwrap_or(next);
        if known.is_none() {
            entities.insert(path.as_str(), number)?;
            next += 1;
        }
        numbers.insert(*id, number);
    }
    Ok(numbers)
}

pub(super) fn write(
    transaction: &WriteTransaction,
    changes: &[Change],
    numbers: &HashMap<EntityId, u32>,
) -> Result<(), Cause> {
    let mut tables = Tables::open(transaction)?;
    for change in changes {
        if let Some(&number) = numbers.get(&change.entity()) {
            tables.write(number, change)?;
        }
    }
    Ok(())
}

struct Tables<'t> {
    sequences: Table<'t, u32, SequenceNumber>,
    contents: Table<'t, Key, &'static [u8]>,
    metas: Table<'t, Key, &'static [u8]>,
    states: Table<'t, (u32, &'static str), &'static [u8]>,
    seen: Table<'t, (u32, &'static str), i64>,
    rules: Table<'t, u32, &'static [u8]>,
}

impl<'t> Tables<'t> {
    fn open(transaction: &'t WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            sequences: transaction.open_table(SEQUENCES)?,
            contents: transaction.open_table(CONTENTS)?,
            metas: transaction.open_table(METAS)?,
            states: transaction.open_table(STATES)?,
            seen: transaction.open_table(SEEN)?,
            rules: transaction.open_table(RULES)?,
        })
    }

    fn write(&mut self, entity: u32, change: &Change) -> Result<(), redb::Error> {
        match change {
            Change::Put { sequence, content, size, meta, .. } => {
                self.contents.insert((entity, *sequence), &content.to_bytes()[..])?;
                self.metas.insert((entity, *sequence), &record::meta(meta, *size)[..])?;
            }
            Change::Update { sequence, size, meta, .. } => {
                self.metas.insert((entity, *sequence), &record::meta(meta, *size)[..])?;
            }
            Change::Remove { sequence, .. } => {
                self.contents.remove((entity, *sequence))?;
                self.metas.remove((entity, *sequence))?;
            }
            Change::NextSequence { next, .. } => {
                self.sequences.insert(entity, next)?;
            }
            Change::SessionState { session, state: Some((state, updated)), .. } => {
                self.states.insert((entity, session.as_ref()), &record::state(state, *updated)[..])?;
            }
            Change::SessionState { session, state: None, .. } => {
                self.states.remove((entity, session.as_ref()))?;
            }
            Change::Seen { message_id, at, .. } => {
                self.seen.insert((entity, message_id.as_ref()), at.millis())?;
            }
            Change::Forget { message_id, .. } => {
                self.seen.remove((entity, message_id.as_ref()))?;
            }
            Change::Rules { rules, .. } => {
                self.rules.insert(entity, &record::rules(rules)[..])?;
            }
        }
        Ok(())
    }
}

/// Reads everything as the changes that restore it. Returns what belongs to no entity of the broker: the paths, with the number
/// of messages.
pub(super) fn read(
    transaction: &ReadTransaction,
    entities: &HashMap<u32, EntityId>,
    mut restore: impl FnMut(Change),
) -> Result<Vec<(String, u64)>, Cause> {
    for entry in rows(transaction, RULES)? {
        let (number, rules) = entry?;
        let Some(&entity) = entities.get(&number.value()) else { continue };
        let rules = record::read_rules(rules.value()).ok_or(Cause::Record { what: "rule" })?;
        restore(Change::Rules { entity, rules });
    }
    for entry in rows(transaction, SEQUENCES)? {
        let (number, next) = entry?;
        let Some(&entity) = entities.get(&number.value()) else { continue };
        restore(Change::NextSequence { entity, next: next.value() });
    }
    let mut unknown: HashMap<u32, u64> = HashMap::new();
    let mut metas = rows(transaction, METAS)?;
    for content in rows(transaction, CONTENTS)? {
        let Some(meta) = metas.next() else { return Err(Cause::Record { what: "message" }) };
        let ((key, content), (meta_key, meta)) = (content?, meta?);
        let (number, sequence) = key.value();
        let Some(&entity) = entities.get(&number) else {
            *unknown.entry(number).or_default() += 1;
            continue;
        };
        let content = Message::decode(content.value()).map_err(|_| Cause::Record { what: "message" })?;
        let meta = record::read_meta(meta.value()).filter(|_| meta_key.value() == key.value());
        let (meta, size) = meta.ok_or(Cause::Record { what: "message" })?;
        restore(Change::Put { entity, sequence, content: Arc::new(content), size, meta });
    }
    if metas.next().is_some() {
        return Err(Cause::Record { what: "message" });
    }
    for entry in rows(transaction, STATES)? {
        let (key, state) = entry?;
        let (number, session) = key.value();
        let Some(&entity) = entities.get(&number) else { continue };
        let state = record::read_state(state.value()).ok_or(Cause::Record { what: "session state" })?;
        restore(Change::SessionState { entity, session: session.into(), state: Some(state) });
    }
    for (at, entity, message_id) in seen(transaction, entities)? {
        restore(Change::Seen { entity, message_id, at });
    }
    named(transaction, &unknown)
}

/// Returns them in the order of arrival, in which they leave the window.
fn seen(
    transaction: &ReadTransaction,
    entities: &HashMap<u32, EntityId>,
) -> Result<Vec<(Timestamp, EntityId, Arc<str>)>, Cause> {
    let mut seen = Vec::new();
    for entry in rows(transaction, SEEN)? {
        let (key, at) = entry?;
        let (number, message_id) = key.value();
        if let Some(&entity) = entities.get(&number) {
            seen.push((Timestamp::from_millis(at.value()), entity, message_id.into()));
        }
    }
    seen.sort();
    Ok(seen)
}

fn named(transaction: &ReadTransaction, unknown: &HashMap<u32, u64>) -> Result<Vec<(String, u64)>, Cause> {
    let mut paths = Vec::new();
    for entry in rows(transaction, ENTITIES)? {
        let (path, number) = entry?;
        if let Some(messages) = unknown.get(&number.value()) {
            paths.push((path.value().to_owned(), *messages));
        }
    }
    Ok(paths)
}
