//! Tests of the behaviour of sessions that the transport relies on.

use std::time::{Duration, Instant};

use redrive_brokers::report;
use redrive_contract::Started;
use redrive_core::transport::{Needs, Received, Settlement};
use redrive_core::{BoxError, Disposition, Failure, Message, Transport};
use redrive_servicebus::{Receipt, ServiceBus, Sessions};
use tokio::time::timeout;

use crate::namespace::Place;
use crate::raw::TIMEOUT;

/// A retry abandons the message by request and writes the history on it, while the link of the session is open.
#[tokio::test]
async fn a_retry_is_written_on_the_message_and_keeps_its_place() -> Result<(), BoxError> {
    let place = Place::with_sessions("retry").await?;
    let transport = started(&place).await?;
    publish(&transport, &["a1", "a2"]).await?;
    for attempt in 1..3 {
        let received = next(&transport).await?;
        let delivery = &received.delivery;
        assert_eq!((delivery.id(), delivery.attempt(), delivery.broker_delivery_count()), ("a1", attempt, 1));
        assert_eq!(delivery.history().past.len(), attempt as usize - 1);
        let retry = Disposition::Retry(Duration::from_millis(100), Failure::custom("Broken", "it fails"));
        let settlement = transport.plan(delivery, retry);
        settle(&transport, received.receipt, settlement).await?;
    }
    for id in ["a1", "a2"] {
        let received = next(&transport).await?;
        assert_eq!(received.delivery.id(), id);
        settle(&transport, received.receipt, Settlement::Complete).await?;
    }
    end(&place, &[transport]).await;
    Ok(())
}

/// A session is free as soon as its link is closed, which counts no delivery.
#[tokio::test]
async fn a_close_lets_a_session_go() -> Result<(), BoxError> {
    let place = Place::with_sessions("close").await?;
    let first = started(&place).await?;
    publish(&first, &["a1"]).await?;
    let held = next(&first).await?;
    first.close().await;
    drop(held);
    let second = started(&place).await?;
    let again = next(&second).await?;
    assert_eq!((again.delivery.id(), again.delivery.broker_delivery_count()), ("a1", 1));
    settle(&second, again.receipt, Settlement::Complete).await?;
    end(&place, &[second]).await;
    Ok(())
}

/// No message of a session is lost when its process crashes. The closing report says when the session is free and if that counts
/// a delivery.
#[tokio::test]
async fn a_session_of_a_dead_process_comes_again() -> Result<(), BoxError> {
    let place = Place::with_sessions("death").await?;
    let first = started(&place).await?;
    publish(&first, &["a1"]).await?;
    let held = next(&first).await?;
    first.crash().await;
    drop(held);
    let second = started(&place).await?;
    let begun = Instant::now();
    let again = next(&second).await?;
    assert_eq!(again.delivery.id(), "a1");
    if place.namespace.on_azure {
        report(&format!(
            "Azure Service Bus: what a dead process had in flight of a session was redelivered after {:?}, as delivery {}",
            begun.elapsed(),
            again.delivery.broker_delivery_count()
        ));
    }
    settle(&second, again.receipt, Settlement::Complete).await?;
    end(&place, &[second]).await;
    Ok(())
}

async fn started(place: &Place) -> Result<Started<ServiceBus>, BoxError> {
    let options = ServiceBus::options(&*place.name).sessions(Sessions::concurrent(2));
    let transport = options.connect(&place.namespace.connection_string).await?;
    let transport = Started::open(transport, &Needs::none()).await?;
    Ok(transport)
}

async fn publish(transport: &ServiceBus, ids: &[&str]) -> Result<(), BoxError> {
    for id in ids {
        let mut message = Message::new(format!("body of {id}")).with_id(*id);
        message.properties_mut().session_id = Some("a".to_owned());
        transport.publish(message).await?;
    }
    Ok(())
}

async fn next(transport: &Started<ServiceBus>) -> Result<Received<Receipt>, BoxError> {
    Ok(timeout(TIMEOUT, transport.receive()).await??.ok_or("there is no more")?)
}

async fn settle(
    transport: &Started<ServiceBus>,
    receipt: Receipt,
    settlement: Settlement,
) -> Result<(), BoxError> {
    Ok(transport.settle(receipt, settlement).await.map_err(|refused| refused.error)?)
}

async fn end(place: &Place, transports: &[Started<ServiceBus>]) {
    for transport in transports {
        transport.close().await;
    }
    place.end().await;
}
