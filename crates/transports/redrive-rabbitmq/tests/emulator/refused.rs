//! A copy that the broker refuses for what is in it stops no others.

use std::time::Duration;

use redrive_core::shelves::Selection;
use redrive_core::transport::Settlement;
use redrive_core::{Shelf, Shelves as _, Transport as _, TransportErrorKind};

use crate::common::{
    Scene, complete, dead_letter, message, needs, next, publish, retry, settle, started, tidy_up,
    with_short_wait,
};

crate::tests!(emulator: a_copy_that_cannot_be_stored_spares_the_others, an_edit_that_cannot_be_stored_is_told);

/// What only the channel of its requester may publish: clients of other protocols can send such a message.
const ANOTHERS: &str = "amq.rabbitmq.reply-to";

async fn a_copy_that_cannot_be_stored_spares_the_others(scene: Scene) {
    let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    let mut hands = Vec::new();
    for id in ["a", "b", "c"] {
        publish(&transport, message(id)).await;
        hands.push(next(&transport).await);
    }
    // At the same time, so that they go together.
    let mut refused = Vec::new();
    let settled = hands.into_iter().map(async |hand| {
        let Settlement::Reschedule { wait, mut copy } =
            retry(&transport, &hand.delivery, Duration::from_millis(100))
        else {
            panic!("no copy")
        };
        if hand.delivery.id() == "b" {
            copy.properties_mut().reply_to = Some(ANOTHERS.to_owned());
        }
        transport.settle(hand.receipt, Settlement::Reschedule { wait, copy }).await.err()
    });
    refused.extend(futures::future::join_all(settled).await.into_iter().flatten());
    assert_eq!(refused.len(), 1, "{refused:?}");
    let refused = refused.remove(0);
    assert_eq!(refused.error.kind(), TransportErrorKind::Refused, "{}", refused.error);
    assert!(refused.error.to_string().contains("fast reply consumer"), "{}", refused.error);
    let receipt = refused.receipt.expect("it is still in flight");
    transport.settle(receipt, Settlement::NativeDeadLetter).await.expect("moved by the broker");
    for _ in 0..2 {
        let again = next(&transport).await;
        assert!(again.delivery.id() != "b" && again.delivery.attempt() == 2, "{:?}", again.delivery);
        complete(&transport, again.receipt).await;
    }
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

async fn an_edit_that_cannot_be_stored_is_told(scene: Scene) {
    let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    for id in ["a", "b"] {
        publish(&transport, message(id)).await;
        let hand = next(&transport).await;
        let settlement = dead_letter(&transport, &hand.delivery);
        settle(&transport, hand.receipt, settlement).await;
    }
    let shelves = transport.shelves();
    let entries = shelves.browse(Shelf::DeadLetter, None, 10).await.expect("a page").entries;
    let mut edited = entries[0].message.clone();
    edited.properties_mut().reply_to = Some(ANOTHERS.to_owned());
    let refused = shelves.redrive_as(&entries[0].handle, edited).await.expect_err("refused");
    assert_eq!(refused.kind(), TransportErrorKind::Refused, "{refused}");
    assert!(refused.is_certainly_not_stored());
    // It is where it was, and all go on.
    let redriven = shelves.redrive(Shelf::DeadLetter, &Selection::All).await.expect("redriven");
    assert_eq!(redriven.into_result().expect("redriven"), 2);
    for _ in 0..2 {
        let again = next(&transport).await;
        complete(&transport, again.receipt).await;
    }
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}
