//! Links: frames, credit, outcomes, tags.

use crate::client::{
    Client, delivery_count, eventually, lock_token, many, message, message_with_id, nothing, one, text, texts,
};
use crate::{HALF_A_MINUTE, count, emulator, with_queue};
use fe2o3_amqp::link::{ReceiverAttachError, SenderAttachError};
use fe2o3_amqp::{Receiver, Sendable, Session};
use fe2o3_amqp_types::definitions::{AmqpError, Error, ErrorCondition, SenderSettleMode};
use fe2o3_amqp_types::messaging::message::__private::Serializable;
use fe2o3_amqp_types::messaging::{
    ApplicationProperties, Body, Data, Header, Message, Modified, Outcome, Properties,
};
use fe2o3_amqp_types::primitives::{Binary, OrderedMap, SimpleValue, Symbol, Value};
use redrive_servicebus_emulator::{Emulator, Settings};
use std::collections::BTreeSet;

#[tokio::test]
async fn what_is_sent_arrives_as_it_was() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    let sent = Message::builder()
        .header(Header::builder().durable(true).priority(9).build())
        .properties(Properties::builder().message_id("m-1".to_owned()).subject("label").build())
        .application_properties(
            ApplicationProperties::builder().insert("n", 7i64).insert("text", "ü").build(),
        )
        .data(Binary::from(b"body".to_vec()))
        .build();
    client.sender("q").await.send(sent).await.expect("an outcome");
    let mut receiver = client.receiver("q", 1).await;
    let delivery = one(&mut receiver).await;
    assert_eq!(text(&delivery), "body");
    let message = delivery.message();
    let header = message.header.as_ref().expect("a header");
    assert!(header.durable);
    assert_eq!(header.priority.0, 9);
    assert_eq!(header.delivery_count, 0);
    let properties = message.properties.as_ref().expect("properties");
    assert_eq!(properties.subject.as_deref(), Some("label"));
    let mine = &message.application_properties.as_ref().expect("application properties").0;
    assert_eq!(mine.get("n"), Some(&SimpleValue::Long(7)));
    assert_eq!(mine.get("text"), Some(&SimpleValue::String("ü".to_owned())));
    receiver.accept(&delivery).await.expect("the link is open");
    eventually("it is removed", || count(&emulator, "q") == 0).await;
}

#[tokio::test]
async fn a_message_of_many_small_frames_arrives_whole() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect_with_frames_of(&emulator, 1024).await;
    let long = "0123456789abcdef".repeat(8 * 1024);
    client.send("q", &[&long, "short"]).await;
    let mut receiver = client.receiver("q", 2).await;
    let deliveries = many(&mut receiver, 2).await;
    assert!(text(&deliveries[0]) == long, "128 KB came back unchanged");
    assert_eq!(text(&deliveries[1]), "short");
}

#[tokio::test]
async fn a_batch_is_as_many_messages() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    let encoded: Vec<Data> = ["a", "b", "c"].into_iter().map(|text| Data(encode(message(text)))).collect();
    let batch = Message::builder().data_batch(encoded).build();
    let batch = Sendable::builder().message(batch).message_format(0x8001_3700).build();
    let outcome = client.sender("q").await.send(batch).await.expect("an outcome");
    assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    let mut receiver = client.receiver("q", 10).await;
    assert_eq!(texts(&many(&mut receiver, 3).await), ["a", "b", "c"]);
}

#[tokio::test]
async fn no_more_comes_than_there_is_credit_for() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    client.send("q", &["a", "b", "c", "d"]).await;
    let mut receiver = client.receiver("q", 2).await;
    assert_eq!(texts(&many(&mut receiver, 2).await), ["a", "b"]);
    nothing(&mut receiver).await;
    receiver.set_credit(1).await.expect("the link is open");
    assert_eq!(text(&one(&mut receiver).await), "c");
    nothing(&mut receiver).await;
}

#[tokio::test]
async fn a_drained_link_gets_what_is_there_and_then_nothing() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    client.send("q", &["a", "b"]).await;
    let mut receiver = client.receiver("q", 10).await;
    receiver.drain().await.expect("the link is open");
    assert_eq!(texts(&many(&mut receiver, 2).await), ["a", "b"]);
    client.send("q", &["c"]).await;
    nothing(&mut receiver).await;
    receiver.set_credit(1).await.expect("the link is open");
    assert_eq!(text(&one(&mut receiver).await), "c");
}

#[tokio::test]
async fn a_released_message_is_not_counted_and_a_modified_one_is() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    client.send("q", &["a"]).await;
    let mut receiver = client.receiver("q", 10).await;
    let first = one(&mut receiver).await;
    receiver.release(&first).await.expect("the link is open");
    let released = one(&mut receiver).await;
    assert_eq!(delivery_count(&released), 0);
    assert_ne!(lock_token(&released), lock_token(&first));
    let failed =
        Modified { delivery_failed: Some(true), undeliverable_here: None, message_annotations: None };
    receiver.modify(&released, failed).await.expect("the link is open");
    let modified = one(&mut receiver).await;
    assert_eq!(delivery_count(&modified), 1);
}

#[tokio::test]
async fn properties_of_an_abandonment_are_merged() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    client.send("q", &["a"]).await;
    let mut receiver = client.receiver("q", 10).await;
    let first = one(&mut receiver).await;
    let annotations: OrderedMap<_, Value> =
        [("why".into(), Value::from("busy".to_owned()))].into_iter().collect();
    let abandoned = Modified {
        delivery_failed: Some(true),
        undeliverable_here: None,
        message_annotations: Some(annotations),
    };
    receiver.modify(&first, abandoned).await.expect("the link is open");
    let again = one(&mut receiver).await;
    let properties = &again.message().application_properties.as_ref().expect("application properties").0;
    assert_eq!(properties.get("why"), Some(&SimpleValue::String("busy".to_owned())));
}

#[tokio::test]
async fn a_rejected_message_is_dead_lettered_with_what_was_said() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    client.send("q", &["bad"]).await;
    let mut receiver = client.receiver("q", 10).await;
    let bad = one(&mut receiver).await;
    let info = [("DeadLetterReason", "Poison"), ("DeadLetterErrorDescription", "ü"), ("extra", "x")];
    let info: OrderedMap<Symbol, Value> =
        info.into_iter().map(|(key, value)| (Symbol::from(key), Value::from(value.to_owned()))).collect();
    let condition = ErrorCondition::Custom(Symbol::from("com.microsoft:dead-letter"));
    receiver.reject(&bad, Error::new(condition, None, info)).await.expect("the link is open");
    let mut dead = client.receiver("q/$deadletterqueue", 10).await;
    let delivery = one(&mut dead).await;
    assert_eq!(text(&delivery), "bad");
    let properties = &delivery.message().application_properties.as_ref().expect("application properties").0;
    for (key, value) in [("DeadLetterReason", "Poison"), ("DeadLetterErrorDescription", "ü"), ("extra", "x")]
    {
        assert_eq!(properties.get(key), Some(&SimpleValue::String(value.to_owned())), "{key}");
    }
}

#[tokio::test]
async fn one_disposition_settles_many() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    client.send("q", &["a", "b", "c", "d", "e"]).await;
    let mut receiver = client.receiver("q", 10).await;
    let deliveries = many(&mut receiver, 5).await;
    receiver.accept_all(&deliveries[..4]).await.expect("the link is open");
    eventually("four are removed", || count(&emulator, "q") == 1).await;
}

#[tokio::test]
async fn what_is_sent_settled_is_deleted_as_it_is_received() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    client.send("q", &["a", "b"]).await;
    let mut receiver = Receiver::builder()
        .name("settled")
        .source("q")
        .sender_settle_mode(SenderSettleMode::Settled)
        .credit_mode(fe2o3_amqp::link::receiver::CreditMode::Manual)
        .attach(&mut client.session)
        .await
        .expect("a receiver");
    receiver.set_credit(1).await.expect("the link is open");
    assert_eq!(text(&one(&mut receiver).await), "a");
    eventually("it is gone", || count(&emulator, "q") == 1).await;
}

#[tokio::test]
async fn a_fire_and_forget_send_is_stored() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    let sendable = Sendable::builder().message(message("a")).settled(true).build();
    client.sender("q").await.send(sendable).await.expect("an outcome");
    eventually("it is stored", || count(&emulator, "q") == 1).await;
}

#[tokio::test]
async fn an_unknown_entity_is_not_found() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    let not_found = ErrorCondition::AmqpError(AmqpError::NotFound);
    match client.try_sender("nowhere").await {
        Err(SenderAttachError::RemoteClosedWithError(error)) => assert_eq!(error.condition, not_found),
        other => panic!("{other:?}"),
    }
    client.go_on_in_another_session().await;
    match client.try_receiver("nowhere", 0).await {
        Err(ReceiverAttachError::RemoteClosedWithError(error)) => assert_eq!(error.condition, not_found),
        other => panic!("{other:?}"),
    }
    client.go_on_in_another_session().await;
    client.send("q", &["the connection is none the worse for it"]).await;
}

#[tokio::test]
async fn a_message_above_the_limit_is_refused_and_the_connection_lives() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    let sender = client.sender("q").await;
    assert_eq!(sender.max_message_size(), Some(256 * 1024), "the limit is told");
    client.send("q", &["small"]).await;
    assert_eq!(count(&emulator, "q"), 1);
}

#[tokio::test]
async fn sessions_and_links_of_one_connection_do_not_mix() {
    let emulator = emulator(&["one", "two"]).await;
    let mut client = Client::connect(&emulator).await;
    client.send("one", &["1"]).await;
    client.send("two", &["2"]).await;
    let mut first = client.receiver("one", 5).await;
    let another = Session::begin(&mut client.connection).await.expect("another session");
    let _first_session = std::mem::replace(&mut client.session, another);
    let mut second = client.receiver("two", 5).await;
    let (one, two) = (one(&mut first).await, one(&mut second).await);
    assert_eq!((text(&one), text(&two)), ("1".to_owned(), "2".to_owned()));
    first.accept(&one).await.expect("the link is open");
    second.accept(&two).await.expect("the link is open");
    eventually("both are removed", || count(&emulator, "one") + count(&emulator, "two") == 0).await;
}

#[tokio::test]
async fn two_receivers_share_without_overlap() {
    let emulator = emulator(&["q"]).await;
    let (mut left, mut right) = (Client::connect(&emulator).await, Client::connect(&emulator).await);
    let texts: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    left.send("q", &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (mut one, mut two) = (left.receiver("q", 100).await, right.receiver("q", 100).await);
    let (first, second) = tokio::join!(many(&mut one, 100), many(&mut two, 100));
    let all: BTreeSet<String> = first.iter().chain(&second).map(text).collect();
    assert_eq!(all.len(), 200, "each message once");
}

#[tokio::test]
async fn a_duplicate_is_swallowed() {
    let emulator = with_queue("q", |queue| queue.duplicate_detection = Some(HALF_A_MINUTE)).await;
    let mut client = Client::connect(&emulator).await;
    let mut sender = client.sender("q").await;
    for _ in 0..3 {
        let outcome = sender.send(message_with_id("same", "x")).await.expect("an outcome");
        assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    }
    assert_eq!(count(&emulator, "q"), 1);
}

/// The bytes of a message, as a batch carries them.
fn encode(message: Message<Data>) -> Binary {
    let message = message.map_body(Body::<Value>::from);
    Binary::from(serde_amqp::to_vec(&Serializable(message)).expect("a message can be encoded"))
}

#[tokio::test]
async fn what_was_handed_on_too_often_rests_in_the_transfer_dead_letter_queue() {
    // Four hops are the most; the fifth is from q4 to q5.
    let builder = (0..5).fold(Emulator::builder(), |builder, number| {
        let mut onward = Settings::default();
        onward.forward_to = Some(format!("q{}", number + 1));
        builder.queue(format!("q{number}"), onward)
    });
    let emulator = builder.queue("q5", Settings::default()).start().await.expect("the emulator starts");
    let mut client = Client::connect(&emulator).await;
    client.send("q0", &["x"]).await;
    let mut receiver = client.receiver("q4/$Transfer/$DeadLetterQueue", 1).await;
    let dead = one(&mut receiver).await;
    assert_eq!(text(&dead), "x");
    let properties = &dead.message().application_properties.as_ref().expect("application properties").0;
    let reason = SimpleValue::String("MaxTransferHopCountExceeded".to_owned());
    assert_eq!(properties.get("DeadLetterReason"), Some(&reason));
    receiver.accept(&dead).await.expect("the link is open");
    eventually("it is removed", || count(&emulator, "q4/$Transfer/$DeadLetterQueue") == 0).await;
    assert_eq!(count(&emulator, "q5"), 0);
}
