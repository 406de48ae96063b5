//! The tables of the state file.

use std::collections::HashMap;

use redb::{ReadTransaction, ReadableTable as _, TableDefinition, WriteTransaction};

use super::{Reason, record};
use crate::broker::{Change, QueueId};

/// Raised with every change that older versions cannot read.
pub(super) const FORMAT: u32 = 1;

const META: TableDefinition<'_, &str, u32> = TableDefinition::new("meta");
const DEFINITIONS: TableDefinition<'_, &str, &str> = TableDefinition::new("definitions");
const QUEUES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("queues");
/// By virtual host and name.
const EXCHANGES: TableDefinition<'_, (u32, &[u8]), &[u8]> = TableDefinition::new("exchanges");
/// The record is the key.
const BINDINGS: TableDefinition<'_, &[u8], ()> = TableDefinition::new("bindings");
/// By queue and place.
const MESSAGES: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("messages");

/// Returns whether the file is new.
pub(super) fn check_format(transaction: &WriteTransaction) -> Result<bool, Reason> {
    let mut meta = transaction.open_table(META).map_err(redb::Error::from)?;
    let found = meta.get("format").map_err(redb::Error::from)?.map(|format| format.value());
    match found {
        Some(FORMAT) => {}
        Some(found) => return Err(Reason::Format { found }),
        None => {
            meta.insert("format", FORMAT).map_err(redb::Error::from)?;
        }
    }
    transaction.open_table(DEFINITIONS).map_err(redb::Error::from)?;
    transaction.open_table(QUEUES).map_err(redb::Error::from)?;
    transaction.open_table(EXCHANGES).map_err(redb::Error::from)?;
    transaction.open_table(BINDINGS).map_err(redb::Error::from)?;
    transaction.open_table(MESSAGES).map_err(redb::Error::from)?;
    Ok(found.is_none())
}

pub(super) fn write(transaction: &WriteTransaction, changes: &[Change]) -> Result<(), Reason> {
    write_all(transaction, changes).map_err(Reason::Database)
}

fn write_all(transaction: &WriteTransaction, changes: &[Change]) -> Result<(), redb::Error> {
    let mut definitions = transaction.open_table(DEFINITIONS)?;
    let mut queues = transaction.open_table(QUEUES)?;
    let mut exchanges = transaction.open_table(EXCHANGES)?;
    let mut bindings = transaction.open_table(BINDINGS)?;
    let mut messages = transaction.open_table(MESSAGES)?;
    let mut latest = HashMap::new();
    for change in changes {
        match change {
            // The last change of a message decides; many come and go within one batch.
            Change::PutMessage { queue, stored } => {
                latest.insert((queue.0, stored.number), Some(stored));
            }
            Change::RemoveMessage { queue, number } => {
                latest.insert((queue.0, *number), None);
            }
            Change::Definitions(text) => {
                definitions.insert("all", text.as_str())?;
            }
            Change::PutQueue(queue) => {
                queues.insert(queue.id.0, record::of_queue(queue).as_slice())?;
            }
            Change::RemoveQueue { queue } => {
                queues.remove(queue.0)?;
                latest.retain(|(of, _), _| *of != queue.0);
                messages.retain_in((queue.0, 0)..=(queue.0, u64::MAX), |_, _| false)?;
            }
            Change::PutExchange(exchange) => {
                let key = (exchange.vhost.0, exchange.name.as_bytes());
                exchanges.insert(key, record::of_exchange(exchange).as_slice())?;
            }
            Change::RemoveExchange { vhost, name } => {
                exchanges.remove((vhost.0, name.as_bytes()))?;
            }
            Change::PutBinding { vhost, source, binding } => {
                bindings.insert(record::of_binding(*vhost, source, binding).as_slice(), ())?;
            }
            Change::RemoveBinding { vhost, source, binding } => {
                bindings.remove(record::of_binding(*vhost, source, binding).as_slice())?;
            }
        }
    }
    for (key, stored) in latest {
        match stored {
            Some(stored) => messages.insert(key, record::of_message(stored).as_slice())?,
            None => messages.remove(key)?,
        };
    }
    Ok(())
}

/// Reads everything, in an order in which it can be applied.
pub(super) fn read(transaction: &ReadTransaction, mut apply: impl FnMut(Change)) -> Result<(), Reason> {
    let definitions = transaction.open_table(DEFINITIONS).map_err(redb::Error::from)?;
    if let Some(text) = definitions.get("all").map_err(redb::Error::from)? {
        apply(Change::Definitions(text.value().to_owned()));
    }
    let table = transaction.open_table(EXCHANGES).map_err(redb::Error::from)?;
    for entry in table.iter().map_err(redb::Error::from)? {
        let (_, value) = entry.map_err(redb::Error::from)?;
        apply(Change::PutExchange(
            record::exchange(value.value()).ok_or(Reason::Record { what: "exchange" })?,
        ));
    }
    let table = transaction.open_table(QUEUES).map_err(redb::Error::from)?;
    for entry in table.iter().map_err(redb::Error::from)? {
        let (id, value) = entry.map_err(redb::Error::from)?;
        let queue = record::queue(QueueId(id.value()), value.value());
        apply(Change::PutQueue(queue.ok_or(Reason::Record { what: "queue" })?));
    }
    let table = transaction.open_table(BINDINGS).map_err(redb::Error::from)?;
    for entry in table.iter().map_err(redb::Error::from)? {
        let (key, _) = entry.map_err(redb::Error::from)?;
        apply(record::binding(key.value()).ok_or(Reason::Record { what: "binding" })?);
    }
    let table = transaction.open_table(MESSAGES).map_err(redb::Error::from)?;
    for entry in table.iter().map_err(redb::Error::from)? {
        let (key, value) = entry.map_err(redb::Error::from)?;
        let (queue, number) = key.value();
        let stored = record::message(number, value.value()).ok_or(Reason::Record { what: "message" })?;
        apply(Change::PutMessage { queue: QueueId(queue), stored });
    }
    Ok(())
}
