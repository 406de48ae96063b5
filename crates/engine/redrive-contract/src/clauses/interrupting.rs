//! Loss of the connection while the process lives on.

use std::collections::BTreeSet;

use futures::future::join;
use redrive_core::transport::Settlement;
use tokio::time::timeout;

use crate::case::{ARRIVAL, Case};
use crate::harness::{Bench, Harness, StartedOf};
use crate::planning::{SHORT, copied};

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

/// What a settlement says of its copy is true, also while the connection is lost: a copy that is said to be stored comes, and one that
/// is said not to be stored does not.
pub async fn what_is_said_of_a_copy_in_an_interruption_is_true<H: Harness>(case: &Case<H>) {
    const ROUNDS: usize = 5;
    let transport = case.started().await;
    for round in 0..ROUNDS {
        let id = format!("m{round}");
        case.publish_ids(&[&id]).await;
        let received = case.next_is(&transport, &id).await;
        let settlement = copied(&*transport, &received.delivery, SHORT);
        let (cut, settled) =
            join(case.interrupt(&transport), case.try_settle(&transport, received.receipt, settlement)).await;
        if !cut {
            return;
        }
        let (is_stored, is_not_stored) = match settled {
            Ok(()) => (true, false),
            // A receipt that comes back settles the message itself.
            Err(failed) => (failed.copy_stored, failed.error.is_certainly_not_stored()),
        };
        let mut copies = 0;
        let mut originals = 0;
        while copies + originals == 0 || (is_stored && copies == 0) {
            let received = case.next_is(&transport, &id).await;
            let is_copy = received.delivery.history().copy_number > 0;
            if case.try_settle(&transport, received.receipt, Settlement::Complete).await.is_ok() {
                if is_copy { copies += 1 } else { originals += 1 }
            }
        }
        copies += late_copies(case, &transport, &id).await;
        assert!(!(is_not_stored && copies > 0), "a copy came that was said not to be stored");
    }
}

/// If the connection is lost after the broker has stored a copy, the error does not say that none was stored. The copy comes; so may
/// the message itself, as a redelivery, and then there are two, never none.
pub async fn a_copy_whose_confirmation_is_lost_is_not_disowned<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    // The first copy makes everything ready that a copy takes: its answers must arrive.
    let received = case.next_is(&transport, "a").await;
    case.settle(&transport, received.receipt, copied(&*transport, &received.delivery, SHORT)).await;
    let received = case.next_is(&transport, "a").await;
    let prepared = case.bench.cut_after_copy(&transport).await;
    let prepared = prepared.unwrap_or_else(|error| panic!("the harness does not prepare the fault: {error}"));
    if !case.applies_if(prepared, || "the harness cannot cut the connection after a copy".to_owned()) {
        return;
    }
    let settlement = copied(&*transport, &received.delivery, SHORT);
    match case.try_settle(&transport, received.receipt, settlement).await {
        Ok(()) => {}
        Err(failed) => {
            let error = &failed.error;
            let kind = error.kind();
            assert!(
                !error.is_certainly_not_stored(),
                "{kind:?} says that no copy was stored, and one was: {error}"
            );
        }
    }
    loop {
        let received = case.next_is(&transport, "a").await;
        let is_copy = received.delivery.history().copy_number > 1;
        let settled = case.try_settle(&transport, received.receipt, Settlement::Complete).await;
        if is_copy && settled.is_ok() {
            break;
        }
    }
}

/// Completes what is left of a message whose copy may be stored, and comes later. Returns the number of copies.
async fn late_copies<H: Harness>(case: &Case<H>, transport: &StartedOf<H>, id: &str) -> usize {
    let mut copies = 0;
    while let Ok(received) = timeout(3 * SHORT, transport.receive()).await {
        let received = received.unwrap_or_else(|error| panic!("`receive` fails: {error}"));
        let received = received.expect("the transport is open");
        assert_eq!(received.delivery.id(), id, "another message than expected came next");
        copies += usize::from(received.delivery.history().copy_number > 0);
        // What is lost comes again.
        let _ = case.try_settle(transport, received.receipt, Settlement::Complete).await;
    }
    copies
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
