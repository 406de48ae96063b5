//! Tests of full entities and messages: the errors say so, and no message blocks the others forever.

use std::time::Duration;

use redrive_consumer::{Consumer, Health};
use redrive_contract::eventually;
use redrive_core::transport::{Received, Settlement};
use redrive_core::{BoxError, Delivery, Disposition, Message, Shelf, Shelves as _, TransportErrorKind};
use redrive_servicebus::{Options, ServiceBus, Sessions, Transactions};
use redrive_servicebus_emulator::{Effect, Emulator, Fault, Settings, Step};
use tokio::time::timeout;

use super::bench::{DEAD_LETTERS, QUEUE, TIMEOUT, broken, emulator, started};

/// Starts an emulator with a queue that has room for its message, but not for a copy.
async fn full(builder: redrive_servicebus_emulator::Builder) -> Result<Emulator, BoxError> {
    let mut settings = Settings::default();
    settings.max_size = 3000;
    Ok(builder.queue(QUEUE, settings).start().await?)
}

async fn refused_retry(address: &str, options: Options) -> Result<(), BoxError> {
    let transport = started(address, options).await?;
    transport.publish(Message::new(vec![b'x'; 2000]).with_id("a")).await?;
    let Received { delivery, receipt, .. } = transport.next_within(TIMEOUT).await;
    let settlement = transport.plan(&delivery, Disposition::Retry(Duration::from_secs(1), broken()));
    let refused = transport.settle(receipt, settlement).await.expect_err("there is no room");
    assert!(refused.receipt.is_some(), "it is still in flight");
    assert_eq!(refused.error.kind(), TransportErrorKind::Full);
    let said = refused.error.to_string();
    assert!(said.contains("quota") && said.contains("`orders`"), "{said}");
    Ok(())
}

#[tokio::test]
async fn an_exceeded_quota_is_named() -> Result<(), BoxError> {
    for transactions in [Transactions::Auto, Transactions::Off] {
        let emulator = full(Emulator::builder()).await?;
        let options = ServiceBus::options(QUEUE).transactions(transactions);
        refused_retry(&emulator.connection_string(), options).await?;
        assert_eq!(emulator.entity(QUEUE)?.messages().len(), 1, "{transactions:?}: only looked for room");
    }
    Ok(())
}

#[cfg(feature = "rest")]
#[tokio::test]
async fn an_exceeded_quota_is_named_by_rest() -> Result<(), BoxError> {
    let builder = Emulator::builder().queue("dead", Settings::default()).listen_http("127.0.0.1:0");
    let emulator = full(builder).await?;
    let options =
        ServiceBus::options(QUEUE).backend(redrive_servicebus::Backend::Rest).dead_letter_queue("dead");
    refused_retry(&emulator.http_connection_string().ok_or("no HTTP")?, options).await
}

/// Nothing can be stored in a queue at its quota. Only its consumer makes room.
#[tokio::test]
async fn a_queue_at_its_quota_does_not_stop_its_consumer() -> Result<(), BoxError> {
    for transactions in [Transactions::Auto, Transactions::Off] {
        let mut settings = Settings::default();
        settings.max_size = 30_000;
        let emulator = Emulator::builder().queue(QUEUE, settings).start().await?;
        let publisher = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
        let mut published = 0;
        while publisher.publish(Message::new(vec![b'x'; 2000]).with_id(published.to_string())).await.is_ok() {
            published += 1;
        }
        assert!(published > 8, "{published}");
        let handler = |delivery: Delivery| async move {
            let fails = delivery.id().len() == 1 && delivery.attempt() < 3;
            if fails { Err(broken().to_string().into()) } else { Ok::<_, BoxError>(Disposition::Ack) }
        };
        let queue = emulator.entity(QUEUE)?;
        let emptied =
            async move { eventually("the queue is empty", async || queue.messages().is_empty()).await };
        let options = ServiceBus::options(QUEUE).transactions(transactions);
        let transport = options.connect(&emulator.connection_string()).await?;
        let waits = [Duration::from_millis(100); 2];
        let runner = Consumer::new(transport).concurrency(2).with_dead_letter_backoff(waits).handler(handler);
        let report = timeout(TIMEOUT, runner.run_until(emptied)).await??;
        assert_eq!(
            (report.acknowledged, report.dead_lettered),
            (published, 0),
            "{transactions:?}: {report:?}"
        );
    }
    Ok(())
}

/// The link of all copies may end over any of them: only a message alone on a new link is judged.
#[tokio::test]
async fn a_link_that_ends_over_a_size_condemns_only_a_message_that_was_alone_on_it() -> Result<(), BoxError> {
    for (transactions, links_ended) in
        [Transactions::Auto, Transactions::Off].map(|of| [(of, 1), (of, 2)]).concat()
    {
        let emulator = emulator(Settings::default()).await?;
        let options = ServiceBus::options(QUEUE).transactions(transactions);
        let transport = started(&emulator.connection_string(), options).await?;
        transport.publish(Message::new("").with_id("a")).await?;
        let Received { delivery, receipt, .. } = transport.next_within(TIMEOUT).await;
        let condition = "amqp:link:message-size-exceeded".to_owned();
        emulator.inject(Fault::new(Step::Send, Effect::Detach { condition }).times(links_ended));
        let retry = transport.plan(&delivery, Disposition::Retry(Duration::ZERO, broken()));
        let settled = transport.settle(receipt, retry).await;
        if links_ended == 1 {
            settled.map_err(|refused| refused.error)?;
            assert_eq!(transport.next_within(TIMEOUT).await.delivery.attempt(), 2, "{transactions:?}");
        } else {
            let refused = settled.expect_err("it was alone on its link");
            assert!(refused.receipt.is_some(), "{transactions:?}: it is still in flight");
            assert_eq!(
                refused.error.kind(),
                TransportErrorKind::TooLarge,
                "{transactions:?}: {}",
                refused.error
            );
        }
        assert_eq!(emulator.entity(QUEUE)?.messages().len(), 1, "{transactions:?}");
        // The session of the links lives on.
        transport.publish(Message::new("").with_id("b")).await?;
    }
    Ok(())
}

/// Sends a message whose properties have the largest size that Service Bus allows, so that nothing can be added.
async fn publish_filled(publisher: &ServiceBus, id: &str) -> Result<(), BoxError> {
    for spare in (40..400).step_by(4) {
        let message = Message::new("body").with_id(id);
        let message = message.with_header("filling", "x".repeat(64 * 1024 - spare));
        if publisher.publish(message).await.is_ok() {
            return Ok(());
        }
    }
    Err("it never fits".into())
}

#[tokio::test]
async fn a_message_whose_properties_are_full_is_dead_lettered_without_words() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let publisher = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
    for id in ["before", "full", "after"] {
        match id {
            "full" => publish_filled(&publisher, id).await?,
            id => publisher.publish(Message::new("").with_id(id)).await?,
        }
    }
    let handler = |delivery: Delivery| async move {
        if delivery.id() == "full" { Err(BoxError::from("it does not work")) } else { Ok(Disposition::Ack) }
    };
    let queue = emulator.entity(QUEUE)?;
    let emptied = async move { eventually("the queue is empty", async || queue.messages().is_empty()).await };
    let transport = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
    let runner = Consumer::new(transport).with_dead_letter_backoff([Duration::ZERO]).handler(handler);
    let report = timeout(TIMEOUT, runner.run_until(emptied)).await??;
    assert_eq!(report.acknowledged, 2, "{report:?}");
    let dead = emulator.entity(DEAD_LETTERS)?.messages();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].message.data()?.concat(), b"body");
    assert_eq!(
        publisher.shelves().browse(Shelf::DeadLetter, None, 10).await?.entries[0].message.id(),
        Some("full")
    );
    Ok(())
}

#[tokio::test]
async fn what_fits_no_longer_is_said_shorter() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator.connection_string(), ServiceBus::options(QUEUE)).await?;
    // There is room for a reason, but not for a long description.
    let message = Message::new("").with_id("a").with_header("filling", "x".repeat(61 * 1024));
    transport.publish(message).await?;
    let Received { delivery, receipt, .. } = transport.next_within(TIMEOUT).await;
    let mut copy = delivery.message().clone();
    copy.headers_mut().insert(redrive_core::header_names::REASON, "Broken");
    copy.headers_mut().insert(redrive_core::header_names::ERROR, "it does not work; ".repeat(300));
    let shelve = Settlement::Shelve { shelf: Shelf::DeadLetter, copy };
    transport.settle(receipt, shelve).await.map_err(|refused| refused.error)?;
    let dead = &emulator.entity(DEAD_LETTERS)?.messages()[0];
    let reason =
        dead.message.application_properties.get("DeadLetterReason").and_then(|reason| reason.as_text());
    assert_eq!(reason, Some("Broken"));
    Ok(())
}

/// What an unwell broker refuses for a moment is written in full later.
#[tokio::test]
async fn a_refusal_for_another_reason_costs_no_word_of_the_failure_history() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = started(&emulator.connection_string(), ServiceBus::options(QUEUE)).await?;
    for (shelf, condition) in
        [(Shelf::DeadLetter, "com.microsoft:operation-cancelled"), (Shelf::Parking, "amqp:not-allowed")]
    {
        transport.publish(Message::new("").with_id("a")).await?;
        let Received { delivery, mut receipt, .. } = transport.next_within(TIMEOUT).await;
        let disposition = match shelf {
            Shelf::Parking => Disposition::Park(broken()),
            _ => Disposition::DeadLetter(broken()),
        };
        let settlement = transport.plan(&delivery, disposition);
        emulator.inject(Fault::new(Step::Request, Effect::refuse(condition)).times(3));
        for _ in 0..3 {
            let refused = transport.settle(receipt, settlement.clone()).await.expect_err("it is refused");
            assert!(refused.error.to_string().contains(condition), "{}", refused.error);
            receipt = refused.receipt.expect("it is still in flight");
        }
        transport.settle(receipt, settlement).await.map_err(|refused| refused.error)?;
        let shelved = transport.shelves().browse(shelf, None, 10).await?.entries;
        assert_eq!(shelved.len(), 1, "{shelf:?}");
        let history = &shelved[0].history;
        assert!(history.error.is_some() && history.reason.is_some(), "{shelf:?}: {history:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_delivery_count_that_leaves_no_hand_out_for_the_handler_is_refused() -> Result<(), BoxError> {
    let mut settings = Settings::default();
    settings.max_delivery_count = 2;
    let emulator = emulator(settings).await?;
    let options = |count| ServiceBus::options(QUEUE).max_delivery_count(count);
    let handler = |_: Delivery| async { Ok::<_, BoxError>(Disposition::Ack) };
    for (count, sessions) in [(2, false), (2, true)] {
        let mut options = options(count);
        if sessions {
            options = options.sessions(Sessions::concurrent(1));
        }
        let transport = options.connect(&emulator.connection_string()).await?;
        let runner = Consumer::new(transport).with_dead_letter_backoff([]).handler(handler);
        let refused = timeout(TIMEOUT, runner.run_until(std::future::pending())).await?;
        let said = refused.expect_err("innocents would be shelved").to_string();
        assert!(said.contains("MaxDeliveryCount") && said.contains('3'), "{count}: {said}");
    }
    let transport = options(3).connect(&emulator.connection_string()).await?;
    let runner = Consumer::new(transport).with_dead_letter_backoff([]).handler(handler);
    let handle = runner.handle();
    let started = async move { drop(handle.wait_for_health(Health::is_ready).await) };
    timeout(TIMEOUT, runner.run_until(started)).await??;
    Ok(())
}
