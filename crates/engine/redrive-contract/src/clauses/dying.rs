//! Death of the process.

use std::time::Duration;

use redrive_core::Shelf;
use redrive_core::transport::Settlement;
use tokio::time::timeout;

use crate::case::{ARRIVAL, Case};
use crate::harness::Harness;
use crate::planning::{SHORT, copied, retry, shelve};

/// The messages that a process held when it died come to the next one; no unsettled message is lost.
pub async fn process_death_brings_messages_back<H: Harness>(case: &Case<H>) {
    let first = case.started().await;
    let ids = case.publish_many(5).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(case.next(&first).await);
    }
    case.kill(&first).await;
    let second = case.started().await;
    assert_eq!(case.complete_ids(&second, 5).await, ids);
    drop(held);
    case.nothing_is_left(&second).await;
}

/// If the facts say that the broker counts deliveries, each death of a process that held a message counts as one. If the broker
/// does not count, the message is marked as handed out before.
pub async fn process_death_counts_as_declared<H: Harness>(case: &Case<H>) {
    let mut transport = case.started().await;
    case.publish_ids(&["a"]).await;
    for deaths in 0..3 {
        let received = case.next_is(&transport, "a").await;
        let handed_out = received.delivery.broker_delivery_count();
        assert_eq!(
            received.delivery.redelivered(),
            deaths > 0,
            "marked as handed out before, after {deaths} deaths"
        );
        if transport.facts().counting.deliveries {
            assert_eq!(handed_out, deaths + 1, "after {deaths} deaths");
        } else {
            assert_eq!(handed_out, (deaths + 1).min(2), "after {deaths} deaths");
        }
        case.kill(&transport).await;
        drop(received);
        transport = case.started().await;
    }
}

/// The death of a process is not a failure: the attempt stays the same. If the broker retries in place and counts both together,
/// a death costs one attempt and no more.
pub async fn process_death_costs_no_attempt<H: Harness>(case: &Case<H>) {
    let first = case.started().await;
    case.publish_ids(&["a"]).await;
    let received = case.next(&first).await;
    case.settle(&first, received.receipt, retry(&*first, &received.delivery, SHORT)).await;
    let held = case.next(&first).await;
    assert_eq!(held.delivery.attempt(), 2);
    case.kill(&first).await;
    let second = case.started().await;
    let charged = u32::from(second.facts().delays.in_place.is_some());
    assert_eq!(case.complete_is(&second, "a").await.attempt(), 2 + charged);
}

/// A delivery whose transport died cannot be settled any more: every way of settling fails with
/// [`Lost`](redrive_core::TransportErrorKind::Lost), and the message is redelivered. An error that says that the copy is stored tells
/// the truth: the copy is there.
pub async fn settling_after_death_answers_lost<H: Harness>(case: &Case<H>) {
    let first = case.started().await;
    let ids = case.publish_many(4).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(case.next(&first).await);
    }
    case.kill(&first).await;
    let mut claims = Vec::new();
    for (n, received) in held.into_iter().enumerate() {
        let settlement = match n {
            0 => Settlement::Complete,
            1 => Settlement::Release,
            2 => copied(&*first, &received.delivery, SHORT),
            _ => shelve(&*first, &received.delivery, Shelf::DeadLetter),
        };
        let is_claimed = case.settle_is_lost(&first, received.receipt, settlement).await;
        claims.push((received.delivery.id().to_owned(), is_claimed));
    }
    // A copy may have been stored before the loss was noticed: then there are two, never none.
    let second = case.started().await;
    let mut originals = Vec::new();
    let mut copies = Vec::new();
    while originals.len() < 4 {
        let delivery = case.complete_next(&second).await;
        let seen = if delivery.history().copy_number == 0 { &mut originals } else { &mut copies };
        seen.push(delivery.id().to_owned());
    }
    originals.sort();
    assert_eq!(originals, ids);
    // A consumer that is told of a copy does not handle the message again when it is redelivered.
    let (retried, shelved) = (&claims[2], &claims[3]);
    if retried.1 && !copies.contains(&retried.0) {
        assert_eq!(
            case.complete_is(&second, &retried.0).await.history().copy_number,
            1,
            "the copy of the retry"
        );
    }
    if shelved.1 {
        case.on_shelf(Shelf::DeadLetter, 1).await;
    }
    assert!(!claims[0].1 && !claims[1].1, "a settlement that stores no copy claims one: {claims:?}");
}

/// A receipt from before the death of its transport does not settle a delivery that another transport holds now.
pub async fn a_dead_receipt_harms_no_other<H: Harness>(case: &Case<H>) {
    let first = case.started().await;
    case.publish_ids(&["a"]).await;
    let dead = case.next(&first).await;
    case.kill(&first).await;
    let second = case.started().await;
    let held = case.next_is(&second, "a").await;
    case.settle_is_lost(&first, dead.receipt, Settlement::Complete).await;
    case.kill(&second).await;
    drop(held);
    let third = case.started().await;
    case.complete_is(&third, "a").await;
    case.nothing_is_left(&third).await;
}

/// If the broker limits deliveries, a message that reaches the limit is on the dead-letter shelf and is handed out no more; it is
/// not lost.
pub async fn a_message_at_the_delivery_limit_is_shelved<H: Harness>(case: &Case<H>) {
    const MOST: u32 = 50;
    let mut transport = case.started().await;
    let Some(limit) = transport.facts().limits.deliveries.filter(|&limit| limit <= MOST) else {
        return case.does_not_apply(format!("the facts name no `limits.deliveries` of at most {MOST}"));
    };
    case.publish_ids(&["killer"]).await;
    // Brokers differ by one: some still hand the message out at the limit itself.
    for _ in 0..limit + 2 {
        let Some(received) = next_or_shelved(case, &transport).await else { break };
        case.kill(&transport).await;
        drop(received);
        transport = case.started().await;
    }
    let shelved = case.on_shelf(Shelf::DeadLetter, 1).await;
    assert_eq!(shelved[0].id(), Some("killer"));
    case.nothing_is_left(&transport).await;
}

async fn next_or_shelved<H: Harness>(
    case: &Case<H>,
    transport: &crate::StartedOf<H>,
) -> Option<redrive_core::transport::Received<crate::ReceiptOf<H>>> {
    let looked = timeout(ARRIVAL, async {
        loop {
            if let Ok(received) = timeout(Duration::from_millis(100), transport.receive()).await {
                return received.unwrap_or_else(|error| panic!("`receive` fails: {error}"));
            }
            if !case.read_shelf(Shelf::DeadLetter).await.is_empty() {
                return None;
            }
        }
    });
    looked.await.unwrap_or_else(|_| panic!("the message is neither handed out nor on the dead-letter shelf"))
}
