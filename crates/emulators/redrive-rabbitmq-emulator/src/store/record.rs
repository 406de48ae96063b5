//! Records of the state file as bytes.

use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes};
use redrive_amqp091::{Properties, RawTable, ShortStr, Table, Value};

use crate::broker::exchange::{Binding, Destination, ExchangeKind};
use crate::broker::message::{Counts, Message};
use crate::broker::queue::ready::Stored;
use crate::broker::{Change, ExchangeRecord, QueueId, QueueKind, QueueRecord, Timestamp, VHostId};

/// Stands for "never" where a time may be missing.
const NO_TIME: i64 = i64::MIN;

pub(super) fn of_queue(queue: &QueueRecord) -> Vec<u8> {
    let table = Table::new()
        .with("vhost", i64::from(queue.vhost.0))
        .with("name", queue.name.clone())
        .with("type", queue.kind.name())
        .with("auto-delete", queue.auto_delete)
        .with("arguments", queue.arguments.clone())
        .with("created", queue.created.millis());
    table.encode().as_bytes().to_vec()
}

pub(super) fn queue(id: QueueId, bytes: &[u8]) -> Option<QueueRecord> {
    let table = table(bytes)?;
    Some(QueueRecord {
        id,
        vhost: vhost(&table)?,
        name: name(&table, "name")?,
        kind: match table.get("type")?.as_str()? {
            "classic" => QueueKind::Classic,
            "quorum" => QueueKind::Quorum,
            _ => return None,
        },
        auto_delete: table.get("auto-delete")?.as_bool()?,
        arguments: table.get("arguments")?.as_table()?.clone(),
        created: Timestamp::from_millis(table.get("created")?.as_i64()?),
    })
}

pub(super) fn of_exchange(exchange: &ExchangeRecord) -> Vec<u8> {
    let table = Table::new()
        .with("vhost", i64::from(exchange.vhost.0))
        .with("name", exchange.name.clone())
        .with("type", exchange.kind.name())
        .with("auto-delete", exchange.auto_delete)
        .with("internal", exchange.internal)
        .with("arguments", exchange.arguments.clone());
    table.encode().as_bytes().to_vec()
}

pub(super) fn exchange(bytes: &[u8]) -> Option<ExchangeRecord> {
    let table = table(bytes)?;
    Some(ExchangeRecord {
        vhost: vhost(&table)?,
        name: name(&table, "name")?,
        kind: ExchangeKind::parse(table.get("type")?.as_str()?)?,
        auto_delete: table.get("auto-delete")?.as_bool()?,
        internal: table.get("internal")?.as_bool()?,
        arguments: table.get("arguments")?.as_table()?.clone(),
    })
}

pub(super) fn of_binding(vhost: VHostId, source: &ShortStr, binding: &Binding) -> Vec<u8> {
    let destination = match &binding.destination {
        Destination::Queue(queue) => Value::I64(i64::try_from(queue.0).unwrap_or(i64::MAX)),
        Destination::Exchange(name) => Value::from(name.clone()),
    };
    let table = Table::new()
        .with("vhost", i64::from(vhost.0))
        .with("source", source.clone())
        .with("destination", destination)
        .with("key", binding.key.clone())
        .with("arguments", binding.arguments.clone());
    table.encode().as_bytes().to_vec()
}

pub(super) fn binding(bytes: &[u8]) -> Option<Change> {
    let table = table(bytes)?;
    let destination = match table.get("destination")? {
        Value::I64(queue) => Destination::Queue(QueueId(u64::try_from(*queue).ok()?)),
        _ => Destination::Exchange(name(&table, "destination")?),
    };
    let binding = Binding {
        destination,
        key: name(&table, "key")?,
        arguments: table.get("arguments")?.as_table()?.clone(),
    };
    Some(Change::PutBinding { vhost: vhost(&table)?, source: name(&table, "source")?, binding })
}

pub(super) fn of_message(stored: &Stored) -> Vec<u8> {
    let message = &stored.message;
    let mut out = Vec::with_capacity(96 + message.properties.len() + message.body.len());
    out.put_u8(u8::from(stored.redelivered) | u8::from(message.died) << 1);
    out.put_u8(stored.priority);
    out.put_i64(stored.arrived.millis());
    for time in [stored.expires, stored.not_before] {
        out.put_i64(time.map_or(NO_TIME, Timestamp::millis));
    }
    for counts in [stored.counts, message.carried] {
        out.put_u32(counts.delivery);
        out.put_u32(counts.acquired);
    }
    // A message has at most as many keys as fit its headers.
    for keys in [&message.more_keys, &message.blind_keys] {
        out.put_u32(u32::try_from(keys.len()).unwrap_or(u32::MAX));
    }
    let names = [&message.exchange, &message.routing_key].into_iter();
    for text in names.chain(message.more_keys.iter()).chain(message.blind_keys.iter()) {
        out.put_u8(text.len() as u8);
        out.put_slice(text.as_bytes());
    }
    out.put_u32(u32::try_from(message.properties.len()).unwrap_or(u32::MAX));
    out.put_slice(&message.properties);
    out.put_slice(&message.body);
    out
}

pub(super) fn message(number: u64, bytes: &[u8]) -> Option<Stored> {
    // The parts are copied out: a message must not keep its whole record alive.
    let mut from = Bytes::copy_from_slice(bytes);
    let flags = from.try_get_u8().ok()?;
    let priority = from.try_get_u8().ok()?;
    let arrived = Timestamp::from_millis(from.try_get_i64().ok()?);
    let time = |from: &mut Bytes| {
        let millis = from.try_get_i64().ok()?;
        Some((millis != NO_TIME).then(|| Timestamp::from_millis(millis)))
    };
    let (expires, not_before) = (time(&mut from)?, time(&mut from)?);
    let counts = |from: &mut Bytes| {
        Some(Counts { delivery: from.try_get_u32().ok()?, acquired: from.try_get_u32().ok()? })
    };
    let (own, carried) = (counts(&mut from)?, counts(&mut from)?);
    let (more, blind) = (from.try_get_u32().ok()?, from.try_get_u32().ok()?);
    let (exchange, routing_key) = (short(&mut from)?, short(&mut from)?);
    let more_keys = (0..more).map(|_| short(&mut from)).collect::<Option<Vec<_>>>()?;
    let blind_keys = (0..blind).map(|_| short(&mut from)).collect::<Option<Vec<_>>>()?;
    let length = from.try_get_u32().ok()? as usize;
    if length > from.len() {
        return None;
    }
    let encoded = Bytes::copy_from_slice(&from.split_to(length));
    let properties = Properties::decode(&encoded).ok()?;
    let body = Bytes::copy_from_slice(&from);
    let mut message = Message::new(exchange, routing_key, more_keys.into(), &properties, encoded, body);
    message.blind_keys = blind_keys.into();
    message.died = flags & 2 != 0;
    message.carried = carried;
    Some(Stored {
        number,
        message: Arc::new(message),
        arrived,
        expires,
        not_before,
        redelivered: flags & 1 != 0,
        counts: own,
        priority,
        size: 0,
        kept: true,
    })
}

fn short(from: &mut Bytes) -> Option<ShortStr> {
    let length = usize::from(from.try_get_u8().ok()?);
    if length > from.len() {
        return None;
    }
    ShortStr::new(Bytes::copy_from_slice(&from.split_to(length))).ok()
}

fn table(bytes: &[u8]) -> Option<Table> {
    Some(RawTable::checked(Bytes::copy_from_slice(bytes)).ok()?.decode())
}

fn vhost(table: &Table) -> Option<VHostId> {
    u32::try_from(table.get("vhost")?.as_i64()?).ok().map(VHostId)
}

fn name(table: &Table, key: &str) -> Option<ShortStr> {
    match table.get(key)? {
        Value::LongStr(bytes) => ShortStr::new(bytes.clone()).ok(),
        _ => None,
    }
}
