//! Tests of foreign properties with names that redrive uses, by mistake or on purpose: no header of a message selects a
//! destination or removes data.

use std::time::Duration;

use fe2o3_amqp_types::messaging::{
    ApplicationProperties, Body, Data, Header, Message as Wire, MessageAnnotations, Priority, Properties,
};
use fe2o3_amqp_types::primitives::{SimpleValue, Symbol, Value};
use redrive_contract::eventually;
use redrive_core::shelves::Selection;
use redrive_core::transport::Settlement;
use redrive_core::{BoxError, Disposition, Message, Shelf, Shelves as _};
use redrive_servicebus::ServiceBus;
use redrive_servicebus_emulator::amqp::Value as Amqp;
use redrive_servicebus_emulator::{Emulator, Settings};

use crate::raw;

use super::bench::{DEAD_LETTERS, QUEUE, TIMEOUT, broken, emulator, retry_next, settle_next, started};

type AnyMessage = Wire<Body<Value>>;

fn data(bytes: &[u8]) -> Body<Value> {
    Body::Data(vec![Data(bytes.to_vec().into())].into())
}

fn with_property(body: Body<Value>, name: &str, value: &str) -> AnyMessage {
    let mut message: AnyMessage = Wire::from(body);
    message.properties =
        Some(Properties { message_id: Some("a".to_owned().into()), ..Properties::default() });
    let properties = ApplicationProperties::builder().insert(name, SimpleValue::String(value.to_owned()));
    message.application_properties = Some(properties.build());
    message
}

async fn send(emulator: &Emulator, message: AnyMessage) -> Result<(), BoxError> {
    raw::send(emulator, QUEUE, message).await
}

#[tokio::test]
async fn a_foreign_mark_for_a_body_destroys_none() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator.connection_string(), ServiceBus::options(QUEUE)).await?;
    for (kind, body) in [("value", &b"@lost body text"[..]), ("value", b"@"), ("string", b"text")] {
        send(&emulator, with_property(data(body), "x-servicebus-body", kind)).await?;
        for _ in 0..2 {
            assert_eq!(retry_next(&transport).await?.message().body(), body, "{kind}");
            let sent = &emulator.entity(QUEUE)?.messages()[0].message;
            assert_eq!(sent.data()?.concat(), body, "{kind}");
        }
        settle_next(&transport, Disposition::Ack).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_message_without_a_body_stays_without_one() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator.connection_string(), ServiceBus::options(QUEUE)).await?;
    send(&emulator, with_property(Body::Empty, "kind", "signal")).await?;
    for _ in 0..3 {
        assert_eq!(retry_next(&transport).await?.message().body(), "");
    }
    Ok(())
}

#[tokio::test]
async fn a_retry_copy_keeps_what_another_client_wrote() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator.connection_string(), ServiceBus::options(QUEUE)).await?;
    let mut message = with_property(data(b"body"), "plain", "text");
    message.header = Some(Header { priority: Priority(7), ..Header::default() });
    if let Some(properties) = &mut message.properties {
        properties.user_id = Some(vec![b'm', 0xe9].into());
    }
    if let Some(properties) = &mut message.application_properties {
        properties.0.insert("kind".to_owned(), SimpleValue::Symbol(Symbol::from("urgent")));
    }
    let annotations =
        MessageAnnotations::builder().insert(Symbol::from("x-opt-jms-msg-type"), Value::Byte(5));
    message.message_annotations = Some(annotations.build());
    send(&emulator, message).await?;
    for _ in 0..2 {
        assert_eq!(retry_next(&transport).await?.message().properties().priority, Some(7));
        let copy = &emulator.entity(QUEUE)?.messages()[0].message;
        assert_eq!(copy.header.priority, Some(7));
        assert_eq!(copy.properties.user_id.as_ref().map(|user| user.to_vec()), Some(vec![b'm', 0xe9]));
        assert_eq!(copy.application_properties.get("kind"), Some(&Amqp::Symbol("urgent".into())));
        assert_eq!(copy.message_annotations.get("x-opt-jms-msg-type"), Some(&Amqp::Byte(5)));
    }
    Ok(())
}

#[tokio::test]
async fn a_forged_mark_hides_no_dead_letter_from_its_shelf() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator.connection_string(), ServiceBus::options(QUEUE)).await?;
    let dead_letter = Disposition::DeadLetter(broken());
    for native in [false, true] {
        send(&emulator, with_property(data(b"body"), "x-servicebus-shelf", "parking")).await?;
        let received = transport.next_within(TIMEOUT).await;
        let settlement = match native {
            true => Settlement::NativeDeadLetter,
            false => transport.plan(&received.delivery, dead_letter.clone()),
        };
        transport.settle(received.receipt, settlement).await.map_err(|refused| refused.error)?;
    }
    let shelves = transport.shelves();
    assert_eq!((shelves.count(Shelf::DeadLetter).await?, shelves.count(Shelf::Parking).await?), (2, 0));
    assert_eq!(shelves.park(&Selection::All).await?.into_result()?, 2);
    assert_eq!((shelves.count(Shelf::DeadLetter).await?, shelves.count(Shelf::Parking).await?), (0, 2));
    assert_eq!(shelves.redrive(Shelf::Parking, &Selection::All).await?.into_result()?, 2);
    for _ in 0..2 {
        settle_next(&transport, Disposition::Park(broken())).await?;
    }
    assert_eq!((shelves.count(Shelf::DeadLetter).await?, shelves.count(Shelf::Parking).await?), (0, 2));
    assert_eq!(emulator.entity(DEAD_LETTERS)?.messages().len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_forged_mark_hides_nothing_that_the_broker_dead_letters() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    settings.max_delivery_count = 1;
    let emulator = emulator(settings).await?;
    let transport = started(&emulator.connection_string(), ServiceBus::options(QUEUE)).await?;
    send(&emulator, with_property(data(b"body"), "x-servicebus-shelf", "parking")).await?;
    drop(transport.next_within(TIMEOUT).await);
    let dead = emulator.entity(DEAD_LETTERS)?;
    eventually("the broker dead-letters it", async || !dead.messages().is_empty()).await;
    assert_eq!(transport.shelves().count(Shelf::DeadLetter).await?, 1);
    Ok(())
}

/// With `ForwardDeadLetteredMessagesTo` a work queue has messages that were dead-lettered before.
#[tokio::test]
async fn the_reason_of_an_earlier_dead_lettering_is_shown_to_the_handler_and_survives() -> Result<(), BoxError>
{
    let builder = Emulator::builder().queue(QUEUE, Settings::default());
    let emulator = builder.queue("parked", Settings::default()).start().await?;
    let options = ServiceBus::options(QUEUE).parking_queue("parked");
    let transport = started(&emulator.connection_string(), options).await?;
    let before = [("DeadLetterReason", "CardExpired"), ("DeadLetterErrorDescription", "card 4711 expired")];
    let message = before
        .iter()
        .fold(Message::new("").with_id("a"), |message, (name, value)| message.with_header(*name, *value));
    transport.publish(message.clone()).await?;
    for disposition in [Disposition::Retry(Duration::ZERO, broken()), Disposition::Park(broken())] {
        let delivery = settle_next(&transport, disposition).await?;
        for (name, value) in before {
            assert_eq!(delivery.message().headers().get(name), Some(&value.into()), "{name}");
        }
    }
    let parked = &emulator.entity("parked")?.messages()[0].message.application_properties;
    for (name, value) in before {
        assert_eq!(parked.get(name).and_then(Amqp::as_text), Some(value), "{name}");
    }
    // The broker writes the reason of the next dead-lettering over it.
    transport.publish(message).await?;
    settle_next(&transport, Disposition::DeadLetter(broken())).await?;
    let dead = &emulator.entity(DEAD_LETTERS)?.messages()[0].message.application_properties;
    assert_eq!(dead.get("DeadLetterReason").and_then(Amqp::as_text), Some("Broken"));
    Ok(())
}
