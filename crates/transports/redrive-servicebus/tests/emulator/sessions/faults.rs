//! Tests of faults in sessions: locks, connections, answers.

use std::time::Duration;

use redrive_contract::eventually;
use redrive_core::transport::Settlement;
use redrive_core::{BoxError, Disposition, TransportErrorKind};
use redrive_servicebus_emulator::{Effect, Fault, Step};

use super::steps::{
    FAR, TIMEOUT, complete, complete_is, concurrent, emulator, failure, next_is, nothing_comes, publish,
    retry, sessions, settle_is_lost, started, until_lost, view,
};

#[tokio::test]
async fn a_lost_session_takes_along_what_is_in_flight_of_it() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let transport = started(&emulator, concurrent(1)).await?;
    for way in ["complete", "retry", "dead-letter"] {
        publish(&transport, &["a1", "a2"]).await?;
        let held = next_is(&transport, "a1", 1).await;
        view(&emulator).expire_session_lock("a")?;
        let settlement = match way {
            "complete" => Settlement::Complete,
            "retry" => transport.plan(&held.delivery, Disposition::Retry(FAR, failure())),
            _ => transport.plan(&held.delivery, Disposition::DeadLetter(failure())),
        };
        settle_is_lost(&transport, held.receipt, settlement).await;
        let again = next_is(&transport, "a1", 1).await;
        assert_eq!(again.delivery.broker_delivery_count(), 2, "{way}: the end of a lock is counted");
        complete(&transport, again).await?;
        complete_is(&transport, "a2", 1).await?;
        assert!(view(&emulator).messages().is_empty(), "{way}: a copy was left");
    }
    Ok(())
}

#[tokio::test]
async fn nothing_is_released_of_a_session_that_is_lost() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let transport = started(&emulator, concurrent(1)).await?;
    publish(&transport, &["a1"]).await?;
    let held = next_is(&transport, "a1", 1).await;
    view(&emulator).expire_session_lock("a")?;
    until_lost(&transport, &held.receipt).await;
    settle_is_lost(&transport, held.receipt, Settlement::Release).await;
    complete_is(&transport, "a1", 1).await
}

#[tokio::test]
async fn a_lost_connection_costs_no_attempt_and_no_order() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let transport = started(&emulator, concurrent(1)).await?;
    publish(&transport, &["a1", "a2"]).await?;
    let received = next_is(&transport, "a1", 1).await;
    retry(&transport, received, Duration::ZERO).await?;
    let held = next_is(&transport, "a1", 2).await;
    emulator.drop_connections();
    until_lost(&transport, &held.receipt).await;
    settle_is_lost(&transport, held.receipt, Settlement::Complete).await;
    for (id, attempt) in [("a1", 2), ("a2", 1)] {
        complete_is(&transport, id, attempt).await?;
    }
    assert!(view(&emulator).messages().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_link_that_is_detached_is_followed_by_another() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let transport = started(&emulator, concurrent(1)).await?;
    publish(&transport, &["a1", "a2"]).await?;
    let held = next_is(&transport, "a1", 1).await;
    emulator.detach(super::steps::QUEUE);
    until_lost(&transport, &held.receipt).await;
    drop(held);
    for id in ["a1", "a2"] {
        complete_is(&transport, id, 1).await?;
    }
    Ok(())
}

/// The link of a session that rests carries no messages: Azure detaches it after ten minutes.
#[tokio::test]
async fn a_wait_that_an_error_asks_for_outlives_the_link_of_its_session() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let transport = started(&emulator, concurrent(2)).await?;
    publish(&transport, &["a1", "a2", "b1"]).await?;
    let a1 = next_is(&transport, "a1", 1).await;
    // Longer than any wait of a policy.
    retry(&transport, a1, Duration::from_secs(3600)).await?;
    let held = next_is(&transport, "b1", 1).await;
    emulator.detach(super::steps::QUEUE);
    until_lost(&transport, &held.receipt).await;
    drop(held);
    // The session of the older message is accepted first.
    complete_is(&transport, "b1", 1).await?;
    nothing_comes(&transport).await;
    assert_eq!(view(&emulator).messages().len(), 2, "a1 and a2 are where they were");
    Ok(())
}

#[tokio::test]
async fn the_lock_of_a_session_is_renewed_for_as_long_as_it_takes() -> Result<(), BoxError> {
    let mut settings = sessions();
    // The lock is renewed after half of its duration, so it survives a stall of the other half.
    settings.lock_duration = Duration::from_secs(20);
    let emulator = emulator(settings).await?;
    let transport = started(&emulator, concurrent(2)).await?;
    publish(&transport, &["a1", "b1"]).await?;
    let held = next_is(&transport, "a1", 1).await;
    let waiting = next_is(&transport, "b1", 1).await;
    retry(&transport, waiting, FAR).await?;
    let until = |session| view(&emulator).session_locked_until(session).expect("it is held");
    for _ in 0..2 {
        let (a, b) = (until("a"), until("b"));
        eventually("both are renewed", async || until("a") > a && until("b") > b).await;
    }
    assert_eq!(held.delivery.broker_delivery_count(), 1);
    complete(&transport, held).await
}

#[tokio::test]
async fn a_session_is_renewed_no_longer_than_a_message_may_be_in_hand() -> Result<(), BoxError> {
    let mut settings = sessions();
    settings.lock_duration = Duration::from_secs(1);
    let emulator = emulator(settings).await?;
    let options = concurrent(1).max_lock_renewal(Duration::from_millis(100));
    let transport = started(&emulator, options).await?;
    publish(&transport, &["a1"]).await?;
    let held = next_is(&transport, "a1", 1).await;
    let again = next_is(&transport, "a1", 1).await;
    assert!(again.delivery.broker_delivery_count() > 1);
    settle_is_lost(&transport, held.receipt, Settlement::Complete).await;
    Ok(())
}

#[tokio::test]
async fn a_retry_that_is_refused_leaves_the_delivery_in_hand() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let transport = started(&emulator, concurrent(1)).await?;
    publish(&transport, &["a1", "a2"]).await?;
    let held = next_is(&transport, "a1", 1).await;
    let settlement = transport.plan(&held.delivery, Disposition::Retry(Duration::ZERO, failure()));
    emulator.inject(Fault::new(Step::Request, Effect::server_busy()));
    let refused = transport.settle(held.receipt, settlement.clone()).await.expect_err("it was refused");
    assert_eq!(refused.error.kind(), TransportErrorKind::Unconfirmed, "{}", refused.error);
    let receipt = refused.receipt.expect("it is still in flight");
    transport.settle(receipt, settlement).await.map_err(|refused| refused.error)?;
    complete_is(&transport, "a1", 2).await?;
    Ok(())
}

#[tokio::test]
async fn a_retry_that_is_not_answered_is_counted_once() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let transport = started(&emulator, concurrent(1)).await?;
    publish(&transport, &["a1", "a2"]).await?;
    let held = next_is(&transport, "a1", 1).await;
    let settlement = transport.plan(&held.delivery, Disposition::Retry(Duration::ZERO, failure()));
    emulator.inject(Fault::new(Step::Request, Effect::DropConnection));
    let refused = transport.settle(held.receipt, settlement.clone()).await.expect_err("no answer came");
    if let Some(receipt) = refused.receipt {
        until_lost(&transport, &receipt).await;
        settle_is_lost(&transport, receipt, settlement).await;
    }
    let again = transport.next_within(TIMEOUT).await;
    assert_eq!((again.delivery.id(), again.delivery.attempt()), ("a1", 2), "it was done");
    assert_eq!(again.delivery.broker_delivery_count(), 1);
    complete(&transport, again).await?;
    complete_is(&transport, "a2", 1).await?;
    Ok(())
}
