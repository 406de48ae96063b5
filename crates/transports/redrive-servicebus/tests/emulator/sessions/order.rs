//! Tests of the order of messages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive_consumer::Consumer;
use redrive_contract::eventually;
use redrive_core::transport::Settlement;
use redrive_core::{BoxError, Delivery, Disposition, Shelf, Shelves};

use super::steps::{
    FAR, complete, complete_is, concurrent, emulator, failure, in_turns, next_is, nothing_comes, publish,
    retry, sessions, settle, started, view,
};

#[tokio::test]
async fn a_retry_holds_up_its_session_and_no_other() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let transport = started(&emulator, concurrent(2)).await?;
    publish(&transport, &["a1", "a2", "b1", "b2"]).await?;
    let a1 = next_is(&transport, "a1", 1).await;
    retry(&transport, a1, FAR).await?;
    for id in ["b1", "b2"] {
        complete_is(&transport, id, 1).await?;
    }
    nothing_comes(&transport).await;
    assert_eq!(view(&emulator).messages().len(), 2, "a1 and a2 are where they were");
    Ok(())
}

#[tokio::test]
async fn a_retried_message_comes_before_what_follows_it() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let transport = started(&emulator, concurrent(1)).await?;
    publish(&transport, &["a1", "a2"]).await?;
    for (attempt, wait) in [(1, 0), (2, 20), (3, 0)] {
        let received = next_is(&transport, "a1", attempt).await;
        assert_eq!(
            received.delivery.broker_delivery_count(),
            1,
            "deliveries are counted from the last failure on"
        );
        retry(&transport, received, Duration::from_millis(wait)).await?;
    }
    let received = next_is(&transport, "a1", 4).await;
    assert_eq!(received.delivery.history().past.len(), 3, "the history is on the message itself");
    let messages = view(&emulator).messages();
    assert_eq!(messages.len(), 2, "nothing was copied");
    assert_eq!((messages[0].delivery_count, messages[0].sequence_number), (3, 1));
    complete(&transport, received).await?;
    complete_is(&transport, "a2", 1).await?;
    Ok(())
}

#[tokio::test]
async fn one_message_of_a_session_is_in_hand() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let transport = started(&emulator, concurrent(4)).await?;
    publish(&transport, &["a1", "a2"]).await?;
    let a1 = next_is(&transport, "a1", 1).await;
    nothing_comes(&transport).await;
    complete(&transport, a1).await?;
    complete_is(&transport, "a2", 1).await?;
    Ok(())
}

#[tokio::test]
async fn what_is_given_back_comes_first_again() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let transport = started(&emulator, concurrent(1)).await?;
    publish(&transport, &["a1", "a2"]).await?;
    let received = next_is(&transport, "a1", 1).await;
    settle(&transport, received.receipt, Settlement::Release).await?;
    let received = next_is(&transport, "a1", 1).await;
    assert_eq!(received.delivery.broker_delivery_count(), 1, "giving back is not counted");
    // Dropped by a thread without a runtime.
    std::thread::spawn(move || drop(received)).join().expect("dropping does not panic");
    let received = next_is(&transport, "a1", 1).await;
    assert_eq!(received.delivery.broker_delivery_count(), 2, "a dropped receipt is");
    let settlement = transport.plan(&received.delivery, Disposition::snooze(Duration::ZERO));
    settle(&transport, received.receipt, settlement).await?;
    let received = next_is(&transport, "a1", 1).await;
    assert_eq!(received.delivery.history().snoozes, 1);
    let dead = transport.plan(&received.delivery, Disposition::DeadLetter(failure()));
    settle(&transport, received.receipt, dead).await?;
    complete_is(&transport, "a2", 1).await?;
    Ok(())
}

#[tokio::test]
async fn what_never_comes_to_its_end_is_dead_lettered_by_the_broker_with_its_story() -> Result<(), BoxError> {
    let mut settings = sessions();
    settings.max_delivery_count = 3;
    let emulator = emulator(settings).await?;
    let transport = started(&emulator, concurrent(1).max_delivery_count(3)).await?;
    publish(&transport, &["a1", "a2"]).await?;
    let received = next_is(&transport, "a1", 1).await;
    retry(&transport, received, Duration::ZERO).await?;
    for _ in 0..2 {
        drop(next_is(&transport, "a1", 2).await);
    }
    complete_is(&transport, "a2", 1).await?;
    let shelved = transport.shelves().browse(Shelf::DeadLetter, None, 10).await?.entries;
    assert_eq!(shelved[0].message.id(), Some("a1"));
    assert_eq!(shelved[0].history.past.len(), 1);
    Ok(())
}

/// The messages of each session, as the handler recorded them.
type Seen = Arc<Mutex<HashMap<String, Vec<String>>>>;

/// Records a message, and returns how often it was handled.
fn note(seen: &Seen, id: &str) -> usize {
    let mut seen = seen.lock().expect("nobody panics");
    let session = seen.entry(id[..1].to_owned()).or_default();
    session.push(id.to_owned());
    session.iter().filter(|&other| other == id).count()
}

#[tokio::test]
async fn a_consumer_keeps_the_order_of_every_session_over_retries() -> Result<(), BoxError> {
    const SESSIONS: usize = 6;
    const MESSAGES: usize = 8;
    let emulator = emulator(sessions()).await?;
    let transport = in_turns(3).max_delivery_count(20).connect(&emulator.connection_string()).await?;
    let ids: Vec<String> = (0..MESSAGES)
        .flat_map(|n| ["a", "b", "c", "d", "e", "f"].map(|session| format!("{session}{n}")))
        .collect();
    publish(&transport, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let seen = Seen::default();
    let diary = Arc::clone(&seen);
    let handler = move |delivery: Delivery| {
        let tried = note(&diary, delivery.id());
        // Every third message fails twice.
        let fails = delivery.id()[1..].parse::<usize>().is_ok_and(|n| n % 3 == 0) && tried < 3;
        async move { if fails { Err(BoxError::from("not yet")) } else { Ok(()) } }
    };
    let consumer = Consumer::new(transport)
        .concurrency(8)
        .with_dead_letter_backoff([Duration::from_millis(1), Duration::from_millis(30)])
        .handler(handler);
    let handle = consumer.handle();
    let running = tokio::spawn(consumer.run());
    eventually("all were handled", async || view(&emulator).messages().is_empty()).await;
    handle.stop();
    running.await??;
    let expected: Vec<String> = (0..MESSAGES)
        .flat_map(|n| std::iter::repeat_n(n.to_string(), if n % 3 == 0 { 3 } else { 1 }))
        .collect();
    let seen = seen.lock().expect("nobody panics");
    assert_eq!(seen.len(), SESSIONS);
    for (session, seen) in &*seen {
        let seen: Vec<String> = seen.iter().map(|id| id[1..].to_owned()).collect();
        assert_eq!(seen, expected, "in session {session}");
    }
    Ok(())
}
