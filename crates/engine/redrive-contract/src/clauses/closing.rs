//! Closing a transport.

use std::sync::Arc;
use std::time::Duration;

use redrive_core::Transport;
use redrive_core::transport::Settlement;
use tokio::time::{Instant, timeout};

use crate::case::{ARRIVAL, Case, LEASE, within_the_lease};
use crate::harness::{Bench, Harness};
use crate::planning::{LONG, SHORT, needs, retry};

/// Closing the transport gives deliveries in flight back to the broker.
pub async fn close_gives_back_what_is_in_flight<H: Harness>(case: &Case<H>) {
    let first = case.started().await;
    let ids = case.publish_many(3).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(case.next(&first).await);
    }
    first.close().await;
    let second = case.started().await;
    assert_eq!(case.complete_ids(&second, 3).await, ids);
    drop(held);
    case.nothing_is_left(&second).await;
}

/// Closing the transport gives back to the broker what was handed out and never received.
pub async fn close_gives_back_what_was_not_received<H: Harness>(case: &Case<H>) {
    const MESSAGES: usize = 20;
    let first = case.started().await;
    let ids = case.publish_many(MESSAGES).await;
    let one = case.next(&first).await;
    first.close().await;
    drop(one);
    let second = case.started().await;
    assert_eq!(case.complete_ids(&second, MESSAGES).await, ids);
    case.nothing_is_left(&second).await;
}

/// Closing costs no attempt.
pub async fn close_costs_no_attempt<H: Harness>(case: &Case<H>) {
    let first = case.started().await;
    case.publish_ids(&["a"]).await;
    let received = case.next(&first).await;
    case.settle(&first, received.receipt, retry(&*first, &received.delivery, SHORT)).await;
    let held = case.next(&first).await;
    first.close().await;
    drop(held);
    let second = case.started().await;
    assert_eq!(case.complete_is(&second, "a").await.attempt(), 2);
}

/// After `close`, `receive` returns that there is none to come, every time, even if there are messages.
pub async fn receive_after_close_answers_none<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    transport.close().await;
    for _ in 0..3 {
        assert!(case.drain(&transport).await.is_empty(), "a closed transport takes a message");
    }
}

/// Closing the transport ends a waiting `receive`: there is none to come.
pub async fn close_ends_a_waiting_receive<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let waiting = tokio::spawn({
        let transport = Arc::clone(&transport);
        async move { transport.receive().await }
    });
    case.nothing_comes(&transport).await;
    transport.close().await;
    match timeout(ARRIVAL, waiting).await {
        Ok(Ok(Ok(None))) => {}
        Ok(Ok(Ok(Some(_)))) => panic!("something arrived from an empty queue"),
        Ok(Ok(Err(error))) => panic!("`receive` fails: {error}"),
        Ok(Err(panic)) => panic!("`receive` panics: {panic}"),
        Err(_) => panic!("`receive` still waits after the end"),
    }
}

/// A delivery cannot be settled after `close`: settling fails with [`Lost`](redrive_core::TransportErrorKind::Lost).
pub async fn settling_after_close_answers_lost<H: Harness>(case: &Case<H>) {
    let first = case.started().await;
    case.publish_ids(&["a"]).await;
    let received = case.next(&first).await;
    first.close().await;
    case.settle_is_lost(&first, received.receipt, Settlement::Complete).await;
    let second = case.started().await;
    case.complete_is(&second, "a").await;
}

/// Closing twice, and closing a transport that was never opened, does no harm.
pub async fn closing_twice_is_closing_once<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    transport.close().await;
    transport.close().await;
    case.unopened().await.close().await;
    let other = case.started().await;
    case.complete_is(&other, "a").await;
    case.nothing_is_left(&other).await;
}

/// Closing gives deliveries back at once, received or not: where the broker lends them for a time, they come again long before that
/// time is over.
pub async fn close_does_not_wait_for_leases<H: Harness>(case: &Case<H>) {
    if !case.lease_for(LEASE).await {
        return;
    }
    let mut few = needs();
    few.prefetch = 3;
    let first = case.started_with(few).await;
    let ids = case.publish_many(3).await;
    let held = case.next(&first).await;
    let closed = Instant::now();
    first.close().await;
    let second = case.started().await;
    assert_eq!(case.complete_ids(&second, 3).await, ids);
    within_the_lease(closed);
    drop(held);
}

/// Closing ends within a minute even if the connection is dead: after the other side is gone, and when nothing arrives on it any
/// more.
pub async fn close_ends_on_a_dead_connection<H: Harness>(case: &Case<H>) {
    const MOST: Duration = Duration::from_secs(60);
    let killed = case.started().await;
    case.publish_ids(&["a"]).await;
    let held = case.next_is(&killed, "a").await;
    case.kill(&killed).await;
    assert!(timeout(MOST, killed.close()).await.is_ok(), "`close` does not end after the connection is gone");
    drop(held);
    let silenced = case.started().await;
    let held = case.next_is(&silenced, "a").await;
    let is_silent = case.bench.silence(&silenced).await;
    if !is_silent.unwrap_or_else(|error| panic!("the harness does not silence the connection: {error}")) {
        return;
    }
    assert!(timeout(MOST, silenced.close()).await.is_ok(), "`close` does not end on a silent connection");
    drop(held);
}

/// A shutdown in the middle of the work loses nothing: unsettled messages go to the next transport, and waiting messages come
/// when they are due.
pub async fn shutdown_loses_nothing<H: Harness>(case: &Case<H>) {
    ending_loses_nothing(case, false).await;
}

/// The death of the process in the middle of the work loses nothing either.
pub async fn death_loses_nothing<H: Harness>(case: &Case<H>) {
    ending_loses_nothing(case, true).await;
}

async fn ending_loses_nothing<H: Harness>(case: &Case<H>, by_death: bool) {
    const MESSAGES: usize = 100;
    let first = case.started().await;
    let ids = case.publish_many(MESSAGES).await;
    let mut done = Vec::new();
    let mut held = Vec::new();
    for n in 0..MESSAGES / 2 {
        let received = case.next(&first).await;
        match n % 3 {
            0 => {
                done.push(received.delivery.id().to_owned());
                case.settle(&first, received.receipt, Settlement::Complete).await;
            }
            1 => case.settle(&first, received.receipt, retry(&*first, &received.delivery, LONG)).await,
            _ => held.push(received),
        }
    }
    if by_death {
        case.kill(&first).await;
    } else {
        first.close().await;
    }
    drop(held);
    let second = case.started().await;
    done.extend(case.complete_ids(&second, MESSAGES - done.len()).await);
    done.sort();
    assert_eq!(done, ids);
    case.nothing_is_left(&second).await;
}
