//! Receiving.

use std::sync::Arc;
use std::time::Duration;

use redrive_core::Transport;
use redrive_core::transport::Settlement;
use tokio::time::timeout;

use crate::case::{ARRIVAL, Case};
use crate::harness::Harness;
use crate::planning::needs;

/// With one consumer, messages arrive for the first time in the order in which they were published, each once.
pub async fn first_deliveries_come_in_order<H: Harness>(case: &Case<H>) {
    const MESSAGES: usize = 30;
    let transport = case.started().await;
    case.publish_many(MESSAGES).await;
    for n in 0..MESSAGES {
        case.complete_is(&transport, &format!("m{n}")).await;
    }
    case.nothing_is_left(&transport).await;
}

/// `receive` waits on an empty queue until a message is published.
pub async fn receive_waits_for_a_message<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let waiting = tokio::spawn({
        let transport = Arc::clone(&transport);
        async move { transport.receive().await }
    });
    case.nothing_comes(&transport).await;
    case.publish_ids(&["a"]).await;
    match timeout(ARRIVAL, waiting).await {
        Ok(Ok(Ok(Some(received)))) => {
            assert_eq!(received.delivery.id(), "a");
            case.settle(&transport, received.receipt, Settlement::Complete).await;
        }
        Ok(Ok(Ok(None))) => panic!("`receive` answers that there is no more, in the middle of its life"),
        Ok(Ok(Err(error))) => panic!("`receive` fails: {error}"),
        Ok(Err(panic)) => panic!("`receive` panics: {panic}"),
        Err(_) => panic!("`receive` does not notice the message within {ARRIVAL:?}"),
    }
}

/// Dropping the future of `receive`, at any moment, loses no message and leaves none stuck in flight.
pub async fn receive_is_cancel_safe<H: Harness>(case: &Case<H>) {
    const MESSAGES: usize = 100;
    let transport = case.started().await;
    let ids = case.publish_many(MESSAGES).await;
    let mut seen = Vec::new();
    let patience = [0, 1, 0, 50, 0, 500, 0, 2000].map(Duration::from_micros);
    let all = timeout(ARRIVAL, async {
        for patience in patience.into_iter().cycle() {
            if seen.len() == MESSAGES {
                break;
            }
            // Drops whatever the future had in progress.
            let Ok(received) = timeout(patience, transport.receive()).await else { continue };
            let Ok(Some(received)) = received else { panic!("`receive` ends in the middle of its life") };
            seen.push(received.delivery.id().to_owned());
            case.settle(&transport, received.receipt, Settlement::Complete).await;
        }
    });
    let all = all.await.is_ok();
    seen.sort();
    assert!(all, "{} of {MESSAGES} messages came; the others were lost with a future", seen.len());
    assert_eq!(seen, ids);
    case.nothing_is_left(&transport).await;
}

/// Several tasks may receive from one transport at the same time: each message goes to one of them.
pub async fn receive_may_be_called_concurrently<H: Harness>(case: &Case<H>) {
    const MESSAGES: usize = 40;
    let transport = case.started().await;
    let ids = case.publish_many(MESSAGES).await;
    let tasks = [(); 4].map(|()| {
        let transport = Arc::clone(&transport);
        tokio::spawn(async move {
            let mut seen = Vec::new();
            for _ in 0..MESSAGES / 4 {
                let Ok(Ok(Some(received))) = timeout(ARRIVAL, transport.receive()).await else { break };
                seen.push(received.delivery.id().to_owned());
                if transport.settle(received.receipt, Settlement::Complete).await.is_err() {
                    break;
                }
            }
            seen
        })
    });
    let mut seen = Vec::new();
    for task in tasks {
        seen.extend(task.await.expect("receiving does not panic"));
    }
    seen.sort();
    assert_eq!(seen, ids);
    case.nothing_is_left(&transport).await;
}

/// The time at which a message entered the queue, if the transport passes it on, is that of its publication.
pub async fn the_time_of_entering_is_that_of_the_publication<H: Harness>(case: &Case<H>) {
    // Of the broker's clock and ours; brokers tell whole seconds.
    const CLOCKS_DIFFER: Duration = Duration::from_secs(5);
    let transport = case.started().await;
    let before = transport.now();
    case.publish_ids(&["a"]).await;
    let delivery = case.complete_next(&transport).await;
    let Some(entered) = delivery.enqueued_at() else {
        return case.does_not_apply("the transport passes on no time at which a message entered the queue");
    };
    let published = before - CLOCKS_DIFFER..=transport.now() + CLOCKS_DIFFER;
    assert!(published.contains(&entered), "{entered:?} is not in {published:?}");
}

/// A transport has no more deliveries in flight than `Needs::prefetch` says; the others are free for other consumers.
pub async fn prefetch_bounds_what_is_in_flight<H: Harness>(case: &Case<H>) {
    let mut few = needs();
    few.prefetch = 2;
    let modest = case.started_with(few).await;
    case.publish_ids(&["a", "b", "c", "d", "e"]).await;
    let a = case.next(&modest).await;
    let b = case.next(&modest).await;
    case.nothing_comes(&modest).await;
    let other = case.started().await;
    assert_eq!(case.complete_ids(&other, 3).await, ["c", "d", "e"]);
    case.settle(&modest, a.receipt, Settlement::Complete).await;
    case.settle(&modest, b.receipt, Settlement::Complete).await;
    case.publish_ids(&["f"]).await;
    tokio::select! {
        received = case.next_is(&modest, "f") => drop(received),
        received = case.next_is(&other, "f") => drop(received),
    }
}
