//! The tables of the state file.

use std::collections::HashMap;

use redb::{ReadTransaction, TableDefinition, WriteTransaction};
use redrive_emulator_host::{Cause, check_format, rows};

use super::record;
use crate::broker::{Change, QueueId};

/// Raised with every change that older versions cannot read.
const FORMAT: u32 = 1;

const META: TableDefinition<'_, &str, u32> = TableDefinition::new("meta");
const DEFINITIONS: TableDefinition<'_, &str, &str> = TableDefinition::new("definitions");
const QUEUES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("queues");
/// By virtual host and name.
const EXCHANGES: TableDefinition<'_, (u32, &[u8]), &[u8]> = TableDefinition::new("exchanges");
/// The record is the key.
const BINDINGS: TableDefinition<'_, &[u8], ()> = TableDefinition::new("bindings");
/// By queue and place.
const MESSAGES: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("messages");

/// Creates all tables, so that they can be read. Returns whether the file is new.
pub(super) fn create(transaction: &WriteTransaction) -> Result<bool, Cause> {
    let new = check_format(transaction, META, &"format", FORMAT)?;
    transaction.open_table(DEFINITIONS)?;
    transaction.open_table(QUEUES)?;
    transaction.open_table(EXCHANGES)?;
    transaction.open_table(BINDINGS)?;
    transaction.open_table(MESSAGES)?;
    Ok(new)
}

pub(super) fn write(transaction: &WriteTransaction, changes: &[Change]) -> Result<(), Cause> {
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
pub(super) fn read(transaction: &ReadTransaction, mut apply: impl FnMut(Change)) -> Result<(), Cause> {
    let definitions = transaction.open_table(DEFINITIONS)?;
    if let Some(text) = definitions.get("all")? {
        apply(Change::Definitions(text.value().to_owned()));
    }
    for row in rows(transaction, EXCHANGES)? {
        let (_, value) = row?;
        apply(Change::PutExchange(
            record::exchange(value.value()).ok_or(Cause::Record { what: "exchange" })?,
        ));
    }
    for row in rows(transaction, QUEUES)? {
        let (id, value) = row?;
        let queue = record::queue(QueueId(id.value()), value.value());
        apply(Change::PutQueue(queue.ok_or(Cause::Record { what: "queue" })?));
    }
    for row in rows(transaction, BINDINGS)? {
        let (key, _) = row?;
        apply(record::binding(key.value()).ok_or(Cause::Record { what: "binding" })?);
    }
    for row in rows(transaction, MESSAGES)? {
        let (key, value) = row?;
        let (queue, number) = key.value();
        let stored = record::message(number, value.value()).ok_or(Cause::Record { what: "message" })?;
        apply(Change::PutMessage { queue: QueueId(queue), stored });
    }
    Ok(())
}
