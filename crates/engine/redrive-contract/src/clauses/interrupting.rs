//! Loss of the connection while the process lives on.

use std::collections::BTreeSet;

use redrive_core::transport::Settlement;
use tokio::time::timeout;

use crate::case::{ARRIVAL, Case};
use crate::harness::{Harness, StartedOf};

/// What is redelivered after a lost connection comes after [`Interrupted`](redrive_core::transport::Signal::Interrupted). It can be told from
/// what a dead process held, by a number of the broker or by the count of interruptions. It costs no attempt, unless the broker
/// retries in place and counts it.
pub async fn an_interruption_is_signalled_before_what_comes_again<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_many(3).await;
    let held = case.next(&transport).await;
    if !case.interrupt(&transport).await {
        return;
    }
    drop(held);
    case.publish_ids(&["after"]).await;
    complete_all(case, &transport, ["m0", "m1", "m2", "after"].map(str::to_owned).into()).await;
}

/// After a lost connection the transport continues by itself: every message is handled, after each of several interruptions. If it
/// signalled `Disconnected`, it signals `Connected`.
pub async fn an_interruption_ends_and_loses_nothing<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    for round in 0..3 {
        let ids = ["before", "also before", "after"].map(|when| format!("{when} {round}"));
        case.publish_ids(&[&ids[0], &ids[1]]).await;
        if !case.interrupt(&transport).await {
            return;
        }
        case.publish_ids(&[&ids[2]]).await;
        complete_all(case, &transport, ids.into()).await;
        let connected = timeout(ARRIVAL, transport.connected()).await;
        connected.expect("`Disconnected` is followed by `Connected`, once deliveries are redelivered");
    }
}

/// Completes all of these, however often each comes, and any other message that comes because its settlement was lost.
async fn complete_all<H: Harness>(case: &Case<H>, transport: &StartedOf<H>, mut left: BTreeSet<String>) {
    while !left.is_empty() {
        let received = case.next(transport).await;
        let delivery = received.delivery;
        if delivery.redelivered() {
            assert!(
                transport.interruptions() > 0,
                "`{}` is redelivered, and no `Interrupted` came before",
                delivery.id()
            );
            assert!(
                delivery.broker_number().is_some() || delivery.interruptions() > 0,
                "`{}` is redelivered without a number of the broker and without a count of interruptions",
                delivery.id()
            );
            if transport.facts().delays.in_place.is_none() {
                assert_eq!(delivery.attempt(), 1, "`{}` was charged for an interruption", delivery.id());
            }
        }
        let settled = case.try_settle(transport, received.receipt, Settlement::Complete).await;
        if settled.is_ok() {
            left.remove(delivery.id());
        }
    }
}
