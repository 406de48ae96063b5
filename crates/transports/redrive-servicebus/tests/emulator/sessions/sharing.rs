//! Tests of several sessions and several consumers.

use std::collections::HashMap;
use std::time::Duration;

use redrive_contract::{Started, eventually};
use redrive_core::transport::Needs;
use redrive_core::{BoxError, Transport};
use redrive_servicebus::{Entity, ServiceBus, Sessions};
use redrive_servicebus_emulator::{Effect, Emulator, Fault, Settings, Step, Topic};

use super::steps::{
    FAR, QUEUE, TIMEOUT, complete, complete_is, concurrent, emulator, in_turns, next_is, nothing_comes,
    publish, retry, sessions, started, view, with,
};

/// Settings whose locks do not expire while a test waits until a session is released.
fn held_for_long() -> Settings {
    let mut settings = sessions();
    settings.lock_duration = Duration::from_secs(300);
    settings
}

#[tokio::test]
async fn two_consumers_share_the_sessions() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let both = [started(&emulator, in_turns(2)).await?, started(&emulator, in_turns(2)).await?];
    let ids: Vec<String> = (0..8).flat_map(|n| ('a'..='h').map(move |s| format!("{s}{n}"))).collect();
    publish(&both[0], &ids.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let mut seen: HashMap<String, Vec<String>> = HashMap::new();
    for _ in 0..ids.len() {
        let (received, by) = tokio::select! {
            received = both[0].next_within(TIMEOUT) => (received, &both[0]),
            received = both[1].next_within(TIMEOUT) => (received, &both[1]),
        };
        assert_eq!(received.delivery.broker_delivery_count(), 1, "it went to two");
        let id = received.delivery.id().to_owned();
        seen.entry(id[..1].to_owned()).or_default().push(id);
        complete(by, received).await?;
    }
    assert_eq!(seen.len(), 8);
    for (session, seen) in seen {
        let in_order: Vec<String> = (0..8).map(|n| format!("{session}{n}")).collect();
        assert_eq!(seen, in_order);
    }
    Ok(())
}

#[tokio::test]
async fn more_sessions_than_are_held_come_one_after_the_other() -> Result<(), BoxError> {
    let emulator = emulator(held_for_long()).await?;
    let transport = started(&emulator, in_turns(1)).await?;
    let mut ids = ["a1", "b1", "c1", "a2", "d1"];
    publish(&transport, &ids).await?;
    let mut seen = Vec::new();
    for _ in ids {
        let received = transport.next_within(TIMEOUT).await;
        let id = received.delivery.id().to_owned();
        let others = || ["a", "b", "c", "d"].into_iter().filter(|session| !id.starts_with(session));
        let held = |session| view(&emulator).session_locked_until(session).is_some();
        eventually("no other one is held", async || !others().any(held)).await;
        assert!(held(&id[..1]), "of a session that nobody holds");
        complete(&transport, received).await?;
        seen.push(id);
    }
    let place = |id: &str| seen.iter().position(|seen| seen == id);
    assert!(place("a1") < place("a2"), "{seen:?}");
    ids.sort_unstable();
    seen.sort_unstable();
    assert_eq!(seen, ids);
    let held = |session| view(&emulator).session_locked_until(session).is_some();
    eventually("the last one is let go", async || !["a", "b", "c", "d"].into_iter().any(held)).await;
    Ok(())
}

#[tokio::test]
async fn a_session_that_is_not_idle_is_kept() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let transport = started(&emulator, concurrent(1)).await?;
    publish(&transport, &["a1", "b1"]).await?;
    complete_is(&transport, "a1", 1).await?;
    nothing_comes(&transport).await;
    publish(&transport, &["a2"]).await?;
    complete_is(&transport, "a2", 1).await?;
    Ok(())
}

#[tokio::test]
async fn a_close_lets_sessions_go_at_once() -> Result<(), BoxError> {
    let emulator = emulator(held_for_long()).await?;
    let first = started(&emulator, concurrent(3)).await?;
    publish(&first, &["a1", "b1", "c1"]).await?;
    let a1 = next_is(&first, "a1", 1).await;
    let b1 = next_is(&first, "b1", 1).await;
    retry(&first, b1, FAR).await?;
    complete_is(&first, "c1", 1).await?;
    first.close().await;
    for session in ["a", "b", "c"] {
        eventually("it is let go", async || view(&emulator).session_locked_until(session).is_none()).await;
    }
    let second = started(&emulator, concurrent(3)).await?;
    let again = next_is(&second, "a1", 1).await;
    assert_eq!(again.delivery.broker_delivery_count(), 1, "a close is not counted");
    drop(a1);
    complete(&second, again).await
}

#[tokio::test]
async fn a_wait_goes_on_in_the_next_consumer() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let first = started(&emulator, concurrent(1)).await?;
    publish(&first, &["a1", "a2"]).await?;
    let a1 = next_is(&first, "a1", 1).await;
    retry(&first, a1, FAR).await?;
    first.close().await;
    let second = started(&emulator, concurrent(2)).await?;
    eventually("the session is held", async || view(&emulator).session_locked_until("a").is_some()).await;
    nothing_comes(&second).await;
    publish(&second, &["b1"]).await?;
    complete_is(&second, "b1", 1).await?;
    assert_eq!(view(&emulator).messages()[0].delivery_count, 1, "waiting on is not counted");
    Ok(())
}

#[tokio::test]
async fn a_pause_lets_go_what_is_not_in_hand() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let paused = started(&emulator, concurrent(2)).await?;
    publish(&paused, &["a1", "b1"]).await?;
    let a1 = next_is(&paused, "a1", 1).await;
    complete_is(&paused, "b1", 1).await?;
    // Enough time to request the next message of b.
    nothing_comes(&paused).await;
    paused.pause().await?;
    assert!(paused.receive().await?.is_none());
    eventually("b is let go", async || view(&emulator).session_locked_until("b").is_none()).await;
    assert!(view(&emulator).session_locked_until("a").is_some(), "a1 can still be settled");
    complete(&paused, a1).await?;
    eventually("a is let go", async || view(&emulator).session_locked_until("a").is_none()).await;
    paused.resume().await?;
    publish(&paused, &["a2"]).await?;
    complete_is(&paused, "a2", 1).await?;
    Ok(())
}

#[tokio::test]
async fn a_pause_in_the_middle_of_a_session_is_no_end_of_it() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let transport = started(&emulator, concurrent(1)).await?;
    publish(&transport, &["a1", "a2"]).await?;
    let a1 = next_is(&transport, "a1", 1).await;
    for _ in 0..3 {
        transport.pause().await?;
        assert!(transport.receive().await?.is_none());
        transport.resume().await?;
    }
    complete(&transport, a1).await?;
    complete_is(&transport, "a2", 1).await?;
    Ok(())
}

#[tokio::test]
async fn where_no_session_is_free_it_is_asked_for_again() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let sessions = Sessions::concurrent(2).looking_for(Duration::from_millis(20));
    let transport = started(&emulator, with(sessions)).await?;
    for ids in [["a1", "a2"], ["b1", "b2"]] {
        nothing_comes(&transport).await;
        publish(&transport, &ids).await?;
        for id in ids {
            complete_is(&transport, id, 1).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_refusal_at_once_is_followed_by_another_try() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let transport = concurrent(1).connect(&emulator.connection_string()).await?;
    publish(&transport, &["a1", "a2"]).await?;
    // The first one is the check at the start.
    for condition in ["com.microsoft:timeout", "com.microsoft:server-busy"] {
        let refusal = Effect::Refuse { condition: condition.to_owned() };
        emulator.inject(Fault::new(Step::Attach, refusal).on(QUEUE).after(1).times(2));
    }
    let transport = Started::open(transport, &Needs::none()).await?;
    for id in ["a1", "a2"] {
        complete_is(&transport, id, 1).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_subscription_with_sessions_is_retried_without_a_queue_of_its_own() -> Result<(), BoxError> {
    let topic = Topic::new("events", Settings::default()).subscription("billing", sessions());
    let emulator = Emulator::builder().topic(topic).start().await?;
    let options = ServiceBus::options(Entity::subscription("events", "billing"));
    let transport = started(&emulator, options.sessions(Sessions::concurrent(2))).await?;
    publish(&transport, &["a1", "a2"]).await?;
    for attempt in 1..3 {
        let received = next_is(&transport, "a1", attempt).await;
        retry(&transport, received, Duration::ZERO).await?;
    }
    complete_is(&transport, "a1", 3).await?;
    complete_is(&transport, "a2", 1).await?;
    Ok(())
}
