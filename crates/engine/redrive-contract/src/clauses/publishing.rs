//! Publishing through the transport, as a service does.

use redrive_core::transport::Settlement;
use redrive_core::{Message, Publisher, Transport, TransportError, TransportErrorKind};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::case::Case;
use crate::eventually::eventually;
use crate::harness::{Bench, Harness};
use crate::planning::{CLOCK_ERROR, SHORT};
use crate::samples;

/// A message published beside the consumer is received complete.
pub async fn what_is_published_is_received_whole<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let message = case.harness.as_published(samples::full(&case.harness));
    published(case, &transport.publisher(), message).await;
    samples::assert_arrived(&case.harness, case.complete_next(&transport).await.message());
    case.nothing_is_left(&transport).await;
}

/// A message that is published without an id has one when it arrives, as if it had been published with it; any other message
/// keeps its own id.
pub async fn publishing_gives_an_id_where_there_is_none<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    for body in ["first", "second"] {
        published(case, &transport.publisher(), case.harness.as_published(Message::new(body))).await;
    }
    let (first, second) = (case.complete_next(&transport).await, case.complete_next(&transport).await);
    assert!(!first.id().is_empty() && !second.id().is_empty());
    assert_ne!(first.id(), second.id());
    assert!(!first.history().id_assigned, "the id is another with every arrival");
    published(case, &transport.publisher(), case.harness.as_published(Message::new("third").with_id("mine")))
        .await;
    case.complete_is(&transport, "mine").await;
}

/// A publisher works before its transport is opened.
pub async fn publishing_works_before_opening<H: Harness>(case: &Case<H>) {
    let transport = case.unopened().await;
    let publisher = transport.publisher();
    published(case, &publisher, case.harness.as_published(Message::new("before").with_id("before"))).await;
    // As if in another process: a published message does not depend on its publisher.
    let other = case.started().await;
    case.complete_is(&other, "before").await;
    published(case, &publisher, case.harness.as_published(Message::new("after").with_id("after"))).await;
    case.complete_is(&other, "after").await;
    case.nothing_is_left(&other).await;
}

/// Many messages that are published at once are all stored, each exactly once.
pub async fn publish_all_stores_all<H: Harness>(case: &Case<H>) {
    const MESSAGES: usize = 300;
    let transport = case.started().await;
    let mut ids: Vec<String> = (0..MESSAGES).map(|n| format!("m{n}")).collect();
    let message = |id: &String| case.harness.as_published(Message::new(id.clone()).with_id(id.clone()));
    // A stored message is not published again: otherwise it would be there twice.
    let left = Mutex::new(ids.clone());
    eventually("all are stored", async || {
        let mut left = left.lock().await;
        let results = transport.publisher().publish_all(left.iter().map(message)).await;
        assert_eq!(results.len(), left.len());
        let mut results = results.into_iter();
        left.retain(|_| results.next().is_some_and(|result| !is_stored(case, result)));
        left.is_empty()
    })
    .await;
    ids.sort();
    assert_eq!(case.complete_ids(&transport, MESSAGES).await, ids);
    case.nothing_is_left(&transport).await;
}

/// Of several messages published at once each has its own result, in its place: a message that the broker refuses makes no other
/// fail.
pub async fn publish_all_fails_only_what_is_refused<H: Harness>(case: &Case<H>) {
    let Some(refused) = case.harness.refused() else {
        return case.does_not_apply("the harness names no message that the broker refuses by itself");
    };
    let transport = case.started().await;
    // Makes the queue ready to accept messages.
    published(case, &transport.publisher(), case.harness.as_published(Message::new("").with_id("first")))
        .await;
    case.complete_is(&transport, "first").await;
    let message = |id: &str| case.harness.as_published(Message::new("").with_id(id));
    let messages = [message("a"), case.harness.as_published(refused), message("b"), message("c")];
    let results = transport.publisher().publish_all(messages).await;
    assert_eq!(results.len(), 4);
    for (place, result) in results.iter().enumerate() {
        assert_eq!(result.is_err(), place == 1, "{place}: {result:?}");
    }
    assert_eq!(case.complete_ids(&transport, 3).await, ["a", "b", "c"]);
    case.nothing_is_left(&transport).await;
}

/// A message published with a delay arrives after the delay, and not earlier.
pub async fn publishing_with_a_delay_is_never_early<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let publisher = transport.publisher();
    let message = |id: &str| case.harness.as_published(Message::new("later").with_id(id));
    let begun = Instant::now();
    match publisher.publish_after(message("after"), SHORT).await {
        Err(error) if error.kind() == TransportErrorKind::Unsupported => {
            assert!(error.to_string().len() > 20, "the refusal does not say what to do: {error}");
            return case
                .does_not_apply("the broker, as it is set up, holds no message back that is published");
        }
        answer => answer.unwrap_or_else(|error| panic!("`publish_after` fails: {error}")),
    }
    case.complete_is(&transport, "after").await;
    let waited = begun.elapsed();
    assert!(waited + CLOCK_ERROR >= SHORT, "arrived after {waited:?} instead of {SHORT:?}");

    let (begun, time) = (Instant::now(), transport.now() + SHORT);
    let answer = publisher.publish_at(message("at"), time).await;
    answer.unwrap_or_else(|error| panic!("`publish_at` fails: {error}"));
    let arrived = case.complete_is(&transport, "at").await;
    let waited = begun.elapsed();
    assert!(waited + CLOCK_ERROR >= SHORT, "arrived after {waited:?} instead of {SHORT:?}");
    assert_eq!((arrived.attempt(), &arrived.message().body()[..]), (1, &b"later"[..]));
    published(case, &publisher, message("over")).await;
    case.complete_is(&transport, "over").await;
    case.nothing_is_left(&transport).await;
}

/// A publisher works again after the connection was lost. What is published meanwhile may fail.
pub async fn publishing_goes_on_after_an_interruption<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let publisher = transport.publisher();
    let message = |id: &str| case.harness.as_published(Message::new("").with_id(id));
    published(case, &publisher, message("before")).await;
    case.complete_is(&transport, "before").await;
    if !case.interrupt(&transport).await {
        return;
    }
    eventually("a message is stored after the interruption", async || {
        publisher.publish(message("after")).await.is_ok()
    })
    .await;
    // The interruption may take an acknowledgement with it.
    loop {
        let received = case.next(&transport).await;
        let is_after = received.delivery.id() == "after";
        let settled = case.try_settle(&transport, received.receipt, Settlement::Complete).await;
        if is_after && settled.is_ok() {
            break;
        }
    }
}

/// A publisher to another queue reaches that queue and no other.
pub async fn publishing_to_another_queue_reaches_only_that<H: Harness>(case: &Case<H>) {
    let Some(neighbour) = case.neighbour().await else {
        return case.does_not_apply("the harness has no other queue on this broker");
    };
    let transport = case.started().await;
    let other = transport.publisher().to(neighbour.transport.queue());
    published(case, &other, case.harness.as_published(Message::new("").with_id("a"))).await;
    case.complete_is(&neighbour.transport, "a").await;
    case.nothing_comes(&transport).await;
    neighbour.transport.close().await;
    neighbour.bench.tidy_up().await;
}

/// Publishing to a queue that does not exist is an error: `Ok` means that the message is stored.
pub async fn publishing_to_nowhere_fails<H: Harness>(case: &Case<H>) {
    let Some(missing) = case.harness.missing_queue() else {
        return case.does_not_apply("the harness names no queue that is missing");
    };
    let transport = case.started().await;
    let nowhere = transport.publisher().to(missing);
    match nowhere.publish(case.harness.as_published(Message::new("lost").with_id("lost"))).await {
        Ok(()) => panic!("a message for a queue that is not there is said to be stored"),
        Err(error) => assert!(error.to_string().contains(missing), "{error}"),
    }
    published(case, &transport.publisher(), case.harness.as_published(Message::new("").with_id("a"))).await;
    case.complete_is(&transport, "a").await;
}

/// A publisher of a closed transport fails with [`Closed`](redrive_core::TransportErrorKind::Closed), each time.
pub async fn publishing_after_close_answers_closed<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let publisher = transport.publisher();
    transport.close().await;
    let message = || case.harness.as_published(Message::new("late").with_id("late"));
    for publisher in [&publisher, &publisher.clone(), &transport.publisher()] {
        let error = publisher.publish(message()).await.expect_err("the transport is closed");
        assert_eq!(error.kind(), TransportErrorKind::Closed, "{error}");
    }
    let results = publisher.publish_all([message(), message()]).await;
    assert!(results.len() == 2 && results.iter().all(Result::is_err), "{results:?}");
    let other = case.started().await;
    case.nothing_is_left(&other).await;
}

/// Publishes as services do: publishes again what a new queue refused.
async fn published<H: Harness>(case: &Case<H>, publisher: &Publisher, message: Message) {
    let is_stored = async || is_stored(case, publisher.publish(message.clone()).await);
    eventually("the message is stored", is_stored).await;
}

/// Returns false if publishing again is worthwhile.
fn is_stored<H: Harness>(case: &Case<H>, answer: Result<(), TransportError>) -> bool {
    match answer {
        Ok(()) => true,
        Err(error) if error.kind() == TransportErrorKind::Full && case.harness.refuses_in_new_queues() => {
            false
        }
        Err(error) => panic!("publishing fails: {error}"),
    }
}
