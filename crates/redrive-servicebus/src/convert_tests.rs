use super::*;

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
    let wire = outgoing(&full(), Outgoing { copy_id: Some("order-7#r1.5".into()), enqueue_at: None });
    let id = wire.properties.as_ref().and_then(|properties| properties.message_id.clone());
    assert_eq!(id, Some(MessageId::String("order-7#r1.5".into())));
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
    let found = incoming(wire);
    assert_eq!((found.sequence_number, found.delivery_count), (41, 4));
    assert_eq!(found.locked_until, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(5)));
    assert_eq!(found.dead_letter_reason.as_deref(), Some("Broken"));
    assert_eq!(found.dead_letter_description.as_deref(), Some("in words"));
    assert_eq!(found.shelf.as_deref(), Some("parking"));
    assert_eq!(found.message, full());
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
