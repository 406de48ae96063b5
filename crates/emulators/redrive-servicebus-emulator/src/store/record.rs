//! Records of the state file, as AMQP values: that codec exists, is total, and lets a record grow at its end.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::amqp::{Map, Reader, Value, encode_value};
use crate::broker::rules::Rule;
use crate::broker::{Meta, Place, Timestamp};

const ACTIVE: u8 = 0;
const DEFERRED: u8 = 1;
const SCHEDULED: u8 = 2;

pub(super) fn meta(meta: &Meta, size: u64) -> Vec<u8> {
    let time = |time: Option<Timestamp>| time.map_or(Value::Null, |time| Value::Timestamp(time.millis()));
    let (place, due) = match meta.place {
        Place::Active => (ACTIVE, None),
        Place::Deferred => (DEFERRED, None),
        Place::Scheduled(at) => (SCHEDULED, Some(at)),
    };
    encoded(&Value::List(vec![
        Value::Ubyte(place),
        time(due),
        Value::Uint(meta.delivery_count),
        time(Some(meta.enqueued_at)),
        Value::Long(meta.enqueued_sequence),
        time(meta.expires_at),
        meta.dead_letter_source.as_deref().into(),
        Value::Ulong(size),
    ]))
}

pub(super) fn read_meta(bytes: &[u8]) -> Option<(Meta, u64)> {
    let Value::List(fields) = decoded(bytes)? else { return None };
    let [place, due, delivery_count, enqueued_at, enqueued_sequence, expires_at, source, size, ..] =
        &fields[..]
    else {
        return None;
    };
    let time = |value: &Value| value.as_i64().map(Timestamp::from_millis);
    let place = match (place, time(due)) {
        (Value::Ubyte(ACTIVE), _) => Place::Active,
        (Value::Ubyte(DEFERRED), _) => Place::Deferred,
        (Value::Ubyte(SCHEDULED), Some(at)) => Place::Scheduled(at),
        _ => return None,
    };
    let meta = Meta {
        place,
        delivery_count: delivery_count.as_u32()?,
        enqueued_at: time(enqueued_at)?,
        enqueued_sequence: enqueued_sequence.as_i64()?,
        expires_at: time(expires_at),
        dead_letter_source: source.as_text().map(Arc::from),
    };
    Some((meta, u64::try_from(size.as_i64()?).ok()?))
}

pub(super) fn state(state: &Bytes, updated: Timestamp) -> Vec<u8> {
    encoded(&Value::List(vec![Value::Timestamp(updated.millis()), state.clone().into()]))
}

pub(super) fn read_state(bytes: &[u8]) -> Option<(Bytes, Timestamp)> {
    match decoded(bytes)?.as_items()? {
        [updated, state, ..] => Some((state.as_binary()?.clone(), Timestamp::from_millis(updated.as_i64()?))),
        _ => None,
    }
}

pub(super) fn rules(rules: &[Rule]) -> Vec<u8> {
    let rule = |rule: &Rule| Value::Map(rule.to_request().with("name", rule.name.as_str()));
    encoded(&Value::List(rules.iter().map(rule).collect()))
}

pub(super) fn read_rules(bytes: &[u8]) -> Option<Vec<Rule>> {
    let rule = |map: &Map| Rule::from_request(map.get("name")?.as_text()?, map).ok();
    decoded(bytes)?.as_items()?.iter().map(|value| rule(value.as_map()?)).collect()
}

fn encoded(value: &Value) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    encode_value(value, &mut bytes);
    bytes.to_vec()
}

fn decoded(bytes: &[u8]) -> Option<Value> {
    Reader::new(bytes).value().ok()
}
