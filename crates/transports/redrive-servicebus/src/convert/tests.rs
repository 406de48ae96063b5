//! Tests of converting messages.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fe2o3_amqp_types::messaging::annotations::OwnedKey;
use fe2o3_amqp_types::messaging::{
    AmqpSequence, AmqpValue, Batch, Body, Data, MessageAnnotations, MessageId, Priority,
};
use fe2o3_amqp_types::primitives::{OrderedMap, SimpleValue, Symbol};
use redrive_core::{Headers, Message, Timestamp, Value, header_names as names};
use serde_amqp::Value as Amqp;

use super::annotations::ANNOTATIONS;
use super::body::BODY;
use super::changes::MAX_TEXT_UNITS;
use super::copy_id::copy_id;
use super::incoming::FOREIGN_PREFIX;
use super::names::{
    COPY_OF, KEPT_DESCRIPTION, KEPT_REASON, PARTITION_KEY, PRIORITY, REPLY_TO_SESSION, SHELF,
};
use super::values::{from_property, to_property};
use super::*;

const OF_A_COPY: &str = "order-7#r1.5.0123456789abcdef";

fn symbol(name: &str) -> OwnedKey {
    OwnedKey::Symbol(Symbol::from(name))
}

fn full() -> Message {
    let mut message = Message::new(vec![0_u8, 255])
        .with_id("order-7")
        .with_correlation_id("conversation")
        .with_content_type("application/octet-stream")
        .with_header("tenant", "blue")
        .with_header("list", Value::List(vec![Value::I64(1)]));
    let properties = message.properties_mut();
    properties.content_encoding = Some("gzip".into());
    properties.reply_to = Some("answers".into());
    properties.kind = Some("order.placed".into());
    properties.to = Some("there".into());
    properties.user_id = Some("me".into());
    properties.app_id = Some("shop".into());
    properties.cluster_id = Some("c".into());
    properties.session_id = Some("s".into());
    properties.priority = Some(3);
    properties.timestamp = Some(Timestamp::from_unix_millis(1_700_000_000_123));
    properties.expiration = Some(Duration::from_secs(9));
    properties.persistent = Some(true);
    message
}

#[test]
fn a_message_is_the_same_on_the_other_side() {
    assert_eq!(incoming(outgoing(&full(), Outgoing::default())).message, full());
    let bare = incoming(outgoing(&Message::new("x"), Outgoing::default())).message;
    assert_eq!((bare.id(), &bare.body()[..]), (None, &b"x"[..]));
}

#[test]
fn a_copy_has_another_id_on_the_wire_and_the_same_one_for_handlers() {
    let wire = outgoing(&full(), Outgoing { copy_id: Some(OF_A_COPY.into()), enqueue_at: None });
    let id = wire.properties.as_ref().and_then(|properties| properties.message_id.clone());
    assert_eq!(id, Some(MessageId::String(OF_A_COPY.into())));
    assert_eq!(incoming(wire).message, full());
}

#[test]
fn when_it_is_to_be_enqueued_is_an_annotation() {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_234);
    let wire = outgoing(&full(), Outgoing { copy_id: None, enqueue_at: Some(at) });
    let annotations = wire.message_annotations.expect("there are annotations").0;
    let scheduled = annotations.get(&symbol("x-opt-scheduled-enqueue-time"));
    assert_eq!(scheduled, Some(&Amqp::Timestamp(1_234.into())));
}

#[test]
fn bodies_of_every_kind_are_sent_on_as_what_they_were() {
    for body in [
        Body::Value(AmqpValue(Amqp::String("text".into()))),
        Body::Value(AmqpValue(Amqp::Binary(vec![1, 2].into()))),
        Body::Value(AmqpValue(Amqp::Long(7))),
        Body::Sequence(Batch::new(vec![AmqpSequence(vec![Amqp::Bool(true)]), AmqpSequence(vec![])])),
    ] {
        let mut wire = outgoing(&full(), Outgoing::default());
        wire.body = body.clone();
        let again = outgoing(&incoming(wire).message, Outgoing::default());
        assert_eq!(again.body, body);
    }
}

#[test]
fn what_the_broker_says_is_read_and_is_no_header() {
    let mut wire = outgoing(&full(), Outgoing::default());
    let header = wire.header.as_mut().expect("there is a header");
    header.delivery_count = 4;
    let mut annotations = OrderedMap::new();
    annotations.insert(symbol("x-opt-sequence-number"), Amqp::Long(41));
    annotations.insert(symbol("x-opt-locked-until"), Amqp::Timestamp(5_000.into()));
    wire.message_annotations = Some(MessageAnnotations(annotations));
    let properties = &mut wire.application_properties.as_mut().expect("there are properties").0;
    properties.insert(REASON.into(), SimpleValue::String("Broken".into()));
    properties.insert(DESCRIPTION.into(), SimpleValue::String("in words".into()));
    properties.insert(SHELF.into(), SimpleValue::String("parking".into()));
    let elsewhere = incoming(wire.clone()).read_from("orders");
    assert_eq!(elsewhere.dead_letter_reason, None, "a header like all others");
    for (name, value) in [(REASON, "Broken"), (DESCRIPTION, "in words")] {
        assert_eq!(elsewhere.message.headers().get(name), Some(&value.into()), "{name}");
    }
    let found = incoming(wire).read_from("orders/$DeadLetterQueue");
    assert_eq!((found.sequence_number, found.delivery_count), (41, 4));
    assert_eq!(found.locked_until, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(5)));
    assert_eq!(found.dead_letter_reason.as_deref(), Some("Broken"));
    assert_eq!(found.dead_letter_description.as_deref(), Some("in words"));
    assert_eq!(found.shelf.as_deref(), Some("parking"));
    assert_eq!(found.message, full());
}

/// What is read from a shelf outside of the dead-letter queue has all that is to be put back there, and nothing else has it.
#[test]
fn the_kept_reason_is_a_header_of_what_is_on_a_shelf_only() {
    let text = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned));
    let dead = Incoming {
        message: full(),
        dead_letter_reason: Some("Rejected".to_owned()),
        dead_letter_description: Some("in words".to_owned()),
        ..Incoming::default()
    };
    let parked = dead.with_reason_of_others(full());
    let found = incoming(outgoing(&parked, Outgoing::default())).read_from("parked");
    assert_eq!(found.message, parked, "header for header");
    let said = ["Rejected", "in words"].map(|text| Some(text.to_owned()));
    assert_eq!(found.reason_of_others().map(text), said);
    assert_eq!(found.with_reason_of_others(full()), parked, "an edit cannot lose it");
    assert_eq!(without_reason_of_others(found.message.clone()), full(), "it leaves its shelf");

    let wire = outgoing(&parked, Outgoing::default());
    let in_dead_letters = incoming(wire.clone()).read_from("orders/$DeadLetterQueue");
    let mut in_work_queue = incoming(wire).read_from("orders");
    in_work_queue.name_kept_reason_foreign();
    for elsewhere in [in_dead_letters, in_work_queue] {
        assert_eq!(elsewhere.reason_of_others().map(text), [None, None], "another program wrote it");
        for (name, said) in [KEPT_REASON, KEPT_DESCRIPTION].into_iter().zip(["Rejected", "in words"]) {
            let headers = elsewhere.message.headers();
            assert_eq!(
                headers.get(&format!("{FOREIGN_PREFIX}{name}")),
                Some(&said.into()),
                "it is carried on"
            );
            assert!(!headers.contains(name));
        }
    }
}

#[test]
fn a_native_dead_lettering_makes_the_message_read_like_its_copy() {
    let mut delivered = full();
    delivered.headers_mut().insert(names::NOT_BEFORE, "then");
    let mut copy = delivered.clone();
    copy.headers_mut().remove(names::NOT_BEFORE);
    copy.headers_mut().insert(names::ATTEMPT, 2_i64);
    let mut wire = outgoing(&delivered, Outgoing::default());
    let properties = &mut wire.application_properties.as_mut().expect("there are properties").0;
    let changes = changes(delivered.headers(), &copy);
    assert_eq!(changes.len(), 2, "{changes:?}");
    for (name, value) in changes {
        properties.insert(name, value);
    }
    assert_eq!(incoming(wire).message, copy);
}

#[test]
fn an_endless_time_to_live_is_none() {
    let mut wire = outgoing(&full(), Outgoing::default());
    wire.header.as_mut().expect("there is a header").ttl = Some(u32::MAX);
    assert_eq!(incoming(wire).message.properties().expiration, None);
}

/// Returns a message of another program that has only redrive's mark for bodies.
fn marked_data(mark: &str, bytes: &[u8]) -> WireMessage {
    let mut wire = outgoing(&Message::new(bytes.to_vec()).with_id("a"), Outgoing::default());
    let properties = &mut wire.application_properties.as_mut().expect("there are properties").0;
    properties.insert(BODY.into(), SimpleValue::String(mark.into()));
    wire
}

fn data(bytes: &[u8]) -> Body<Amqp> {
    Body::Data(Batch::new(vec![Data(bytes.to_vec().into())]))
}

/// Copies a message several times, each time from the last copy.
fn copied(mut wire: WireMessage, times: u32) -> WireMessage {
    for hop in 1..=times {
        let found = incoming(wire);
        let copy_id = found.message.id().map(|id| copy_id(id, hop, &found.copy_source("orders")));
        wire = outgoing(&found.message, Outgoing { copy_id, enqueue_at: None });
    }
    wire
}

/// Returns a message of another program that has its own id and body, and the marks of a copy.
fn marked_as_copy(id: &str, original: impl Into<SimpleValue>, mark: &str, bytes: &[u8]) -> WireMessage {
    let mut wire = marked_data(mark, bytes);
    wire.properties.as_mut().expect("there are properties").message_id = Some(MessageId::String(id.into()));
    let properties = &mut wire.application_properties.as_mut().expect("there are properties").0;
    properties.insert(COPY_OF.into(), original.into());
    wire
}

#[test]
fn the_id_of_an_original_is_believed_on_copies_only() {
    let text = |text: &str| SimpleValue::String(text.to_owned());
    for (id, original) in [
        ("mine".to_owned(), text("order-7")),
        (OF_A_COPY.replace("order-7", "mine"), text("order-7")),
        (OF_A_COPY.to_owned(), text("order-8")),
        (format!("{OF_A_COPY}x"), text("order-7")),
        ("order-7#r1.5".to_owned(), text("order-7")),
        ("order-7".to_owned(), text("order-7")),
        ("order-7#r".to_owned(), text("order-7")),
        ("mine".to_owned(), SimpleValue::Long(7)),
    ] {
        let wire = marked_as_copy(&id, original.clone(), "string", b"text");
        for times in 0..3 {
            let copy = copied(wire.clone(), times);
            assert_eq!(copy.body, data(b"text"), "{id} {times}");
            let found = incoming(copy).message;
            assert_eq!(found.id(), Some(&*id), "{times}");
            let kept = found.headers().get(&format!("{FOREIGN_PREFIX}{COPY_OF}"));
            assert_eq!(kept, Some(&from_property(original.clone())), "it is carried on: {id} {times}");
        }
    }
}

#[test]
fn the_id_of_an_original_is_believed_on_its_copies() {
    let long = "ä".repeat(127);
    let shortened = format!("{}~808af9c4e582aa2671a5b26e943b85bb", "ä".repeat(73));
    for (id, original) in [("order-7", "order-7"), ("a#r1.2", "a#r1.2"), (&*shortened, &*long)] {
        let id = OF_A_COPY.replace("order-7", id);
        let wire = marked_as_copy(&id, SimpleValue::String(original.into()), "string", b"text");
        let found = incoming(wire.clone());
        assert_eq!(found.message.id(), Some(original));
        assert_eq!(copied(wire, 1).body, Body::Value(AmqpValue(Amqp::String("text".into()))));
    }
}

#[test]
fn a_foreign_mark_changes_no_body_however_often_it_is_copied() {
    let value = serde_amqp::to_vec(&Amqp::Bool(true)).expect("it can be encoded");
    for (mark, bytes) in [
        ("value", &b"@lost body text"[..]),
        ("value", &value),
        ("sequence", b"\x45"),
        ("string", b"text"),
        ("binary", b"text"),
        ("empty", b""),
        ("something", b"text"),
    ] {
        for times in 1..4 {
            assert_eq!(copied(marked_data(mark, bytes), times).body, data(bytes), "{mark} {times}");
        }
    }
}

#[test]
fn a_mark_that_a_copy_by_rest_carries_is_believed_where_all_bytes_agree() {
    let value = serde_amqp::to_vec(&Amqp::Long(7)).expect("it can be encoded");
    let by_rest = |mark: &str, bytes: &[u8]| {
        let wire = marked_as_copy(OF_A_COPY, SimpleValue::String("order-7".into()), mark, bytes);
        copied(wire, 1).body
    };
    assert_eq!(by_rest("value", &value), Body::Value(AmqpValue(Amqp::Long(7))));
    assert_eq!(by_rest("string", b"text"), Body::Value(AmqpValue(Amqp::String("text".into()))));
    let longer = [&value[..], b"!"].concat();
    assert_eq!(by_rest("value", &longer), data(&longer));
    assert_eq!(by_rest("string", &[0xff]), data(&[0xff]));
}

#[test]
fn a_body_that_is_not_there_reads_the_same_on_every_copy() {
    for body in [Body::Empty, Body::Value(AmqpValue(Amqp::Null))] {
        let mut wire = outgoing(&full(), Outgoing::default());
        wire.body = body;
        for times in 0..3 {
            assert_eq!(incoming(copied(wire.clone(), times)).message.body(), "");
        }
        assert_eq!(copied(wire, 2).body, Body::Value(AmqpValue(Amqp::Null)));
    }
}

#[test]
fn a_copy_keeps_what_somebody_else_wrote() {
    let mut wire = outgoing(&full(), Outgoing::default());
    let header = wire.header.as_mut().expect("there is a header");
    header.priority = Priority(7);
    wire.properties.as_mut().expect("there are properties").user_id = Some(vec![b'm', 0xe9].into());
    let properties = &mut wire.application_properties.as_mut().expect("there are properties").0;
    properties.swap_remove(PRIORITY);
    properties.insert("kind".into(), SimpleValue::Symbol(Symbol::from("urgent")));
    properties.insert("plain".into(), SimpleValue::String("text".into()));
    let mut annotations = OrderedMap::new();
    annotations.insert(symbol("x-opt-sequence-number"), Amqp::Long(41));
    annotations.insert(symbol("x-opt-jms-msg-type"), Amqp::Byte(5));
    annotations.insert(symbol("x-shop"), Amqp::Symbol(Symbol::from("north")));
    annotations.insert(symbol("x-list"), Amqp::List(vec![Amqp::Bool(true)]));
    wire.message_annotations = Some(MessageAnnotations(annotations));
    assert_eq!(incoming(wire.clone()).message.properties().priority, Some(7));
    for times in 1..3 {
        let copy = copied(wire.clone(), times);
        assert_eq!(copy.header.as_ref().map(|header| header.priority), Some(Priority(7)));
        let user = copy.properties.as_ref().and_then(|properties| properties.user_id.clone());
        assert_eq!(user.map(fe2o3_amqp_types::primitives::Binary::into_vec), Some(vec![b'm', 0xe9]));
        let properties = &copy.application_properties.as_ref().expect("there are properties").0;
        assert_eq!(properties.get("kind"), Some(&SimpleValue::Symbol(Symbol::from("urgent"))));
        assert_eq!(properties.get("plain"), Some(&SimpleValue::String("text".into())));
        let annotations = copy.message_annotations.expect("there are annotations").0;
        assert_eq!(annotations.get(&symbol("x-opt-jms-msg-type")), Some(&Amqp::Byte(5)));
        assert_eq!(annotations.get(&symbol("x-shop")), Some(&Amqp::Symbol(Symbol::from("north"))));
        assert_eq!(annotations.get(&symbol("x-list")), Some(&Amqp::List(vec![Amqp::Bool(true)])));
        assert!(!annotations.contains_key(&symbol("x-opt-sequence-number")), "the broker's own");
    }
}

#[test]
fn no_header_schedules_a_copy_or_replaces_what_is_there() {
    let at = Value::Timestamp(Timestamp::from_unix_millis(i64::MAX));
    let forged = Value::Table(Headers::from_iter([(SCHEDULED_AT, at)]));
    let together = Value::Table(Headers::from_iter([("tenant", "red")]));
    let mut message = full().with_header(ANNOTATIONS, forged).with_header(carried::PACKED, together);
    message.headers_mut().insert(carried::USER_ID, Value::Bytes(Bytes::from_static(b"somebody")));
    let copy = copied(outgoing(&message, Outgoing::default()), 1);
    let annotations = copy.message_annotations.as_ref();
    assert!(annotations.is_none_or(|found| !found.0.contains_key(&symbol(SCHEDULED_AT))));
    let read = incoming(copy).message;
    assert_eq!(read.headers().get("tenant"), Some(&"blue".into()));
    assert_eq!(read.properties().user_id.as_deref(), Some("me"));
}

#[test]
fn a_mark_is_believed_where_redrive_wrote_it() {
    let parked = |shelf_of: Option<&str>, reason: Option<&str>, history: Option<&str>| {
        let mut message = Message::new("");
        if let Some(history) = history {
            message.headers_mut().insert(names::REASON, history);
        }
        let found = Incoming {
            message,
            sequence_number: 7,
            dead_letter_reason: reason.map(str::to_owned),
            shelf: Some(PARKED.to_owned()),
            shelf_of: shelf_of.map(str::to_owned),
            ..Incoming::default()
        };
        found.is_parked()
    };
    assert!(parked(Some("7"), Some("MaxDeliveryCountExceeded"), None), "an operator parked it");
    assert!(!parked(None, Some("Broken"), Some("Broken")), "redrive dead-lettered it, and wrote no number");
    assert!(!parked(Some("8"), Some("MaxDeliveryCountExceeded"), None), "written on another message");
    assert!(!parked(None, Some("MaxDeliveryCountExceeded"), Some("Broken")), "the broker dead-lettered it");
    assert!(!parked(None, Some("MaxDeliveryCountExceeded"), None));
    assert!(!parked(None, None, None));
}

#[test]
fn a_property_is_no_partition_key_however_often_it_is_copied() {
    let mut wire = outgoing(&full(), Outgoing::default());
    let properties = &mut wire.application_properties.as_mut().expect("there are properties").0;
    for name in [PARTITION_KEY, REPLY_TO_SESSION] {
        properties.insert(name.into(), SimpleValue::String("forged".into()));
    }
    let mut in_a_table = outgoing(&full(), Outgoing::default());
    let properties = &mut in_a_table.application_properties.as_mut().expect("there are properties").0;
    let table = [PARTITION_KEY, REPLY_TO_SESSION].map(|name| (name, Value::from("forged")));
    properties.insert(carried::PACKED.into(), to_property(&Value::Table(Headers::from_iter(table))));
    for (wire, times) in [(&wire, 1), (&wire, 2), (&in_a_table, 1), (&in_a_table, 2)] {
        let copy = copied(wire.clone(), times);
        assert_eq!(copy.message_annotations, None);
        assert_eq!(copy.properties.and_then(|properties| properties.reply_to_group_id), None);
        let properties = copy.application_properties.expect("there are properties").0;
        assert!(properties.contains_key(&format!("{FOREIGN_PREFIX}{PARTITION_KEY}")), "it is carried on");
    }
}

#[test]
fn a_text_is_cut_as_dotnet_counts() {
    assert_eq!(cut("short"), "short");
    let long = "👋".repeat(5000);
    assert_eq!(cut(&long).encode_utf16().count(), MAX_TEXT_UNITS);
    assert_eq!(cut(&format!("x{long}")).encode_utf16().count(), MAX_TEXT_UNITS - 1);
}
