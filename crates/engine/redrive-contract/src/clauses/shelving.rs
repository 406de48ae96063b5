//! Moving messages to shelves.

use redrive_core::transport::Settlement;
use redrive_core::{Reason, Shelf, Transport};

use crate::case::Case;
use crate::harness::Harness;
use crate::planning::{SHORT, copied, retry, shelve};
use crate::samples;

/// A message moved to the dead-letter shelf is there, and only there.
pub async fn shelve_stores_on_the_dead_letter_shelf<H: Harness>(case: &Case<H>) {
    move_stores_on(case, Shelf::DeadLetter, Shelf::Parking).await;
}

/// A message moved to the parking shelf is there, and only there.
pub async fn shelve_stores_on_the_parking_shelf<H: Harness>(case: &Case<H>) {
    move_stores_on(case, Shelf::Parking, Shelf::DeadLetter).await;
}

async fn move_stores_on<H: Harness>(case: &Case<H>, shelf: Shelf, other: Shelf) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    let received = case.next(&transport).await;
    case.settle(&transport, received.receipt, shelve(&*transport, &received.delivery, shelf)).await;
    let shelved = case.on_shelf(shelf, 1).await;
    assert_eq!(shelved[0].id(), Some("a"));
    assert!(case.read_shelf(other).await.is_empty(), "it rests on the {other} shelf too");
}

/// A message that was moved to a shelf is no longer in the queue, and is not handed out from the shelf.
pub async fn shelve_removes_the_original<H: Harness>(case: &Case<H>) {
    let first = case.started().await;
    case.publish_ids(&["a"]).await;
    let received = case.next(&first).await;
    case.settle(&first, received.receipt, shelve(&*first, &received.delivery, Shelf::DeadLetter)).await;
    case.nothing_is_left(&first).await;
    first.close().await;
    let second = case.started().await;
    case.nothing_is_left(&second).await;
    case.on_shelf(Shelf::DeadLetter, 1).await;
}

/// A message on a shelf keeps its body, its properties, and its headers, each with its type.
pub async fn shelve_keeps_the_whole_message<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    for shelf in [Shelf::DeadLetter, Shelf::Parking] {
        case.publish(samples::full(&case.harness)).await;
        let received = case.next(&transport).await;
        let settlement = shelve(&*transport, &received.delivery, shelf);
        let Settlement::Shelve { copy, .. } = &settlement else { panic!("{settlement:?} is no move") };
        let copy = copy.clone();
        case.settle(&transport, received.receipt, settlement).await;
        samples::assert_same(&case.on_shelf(shelf, 1).await[0], &copy);
    }
}

/// A shelf holds as many messages as are moved there, in the order in which they came.
pub async fn a_shelf_keeps_the_order<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a", "b", "c", "d"]).await;
    for id in ["a", "b", "c", "d"] {
        let received = case.next_is(&transport, id).await;
        let settlement = shelve(&*transport, &received.delivery, Shelf::DeadLetter);
        case.settle(&transport, received.receipt, settlement).await;
    }
    let shelved = case.on_shelf(Shelf::DeadLetter, 4).await;
    let ids: Vec<_> = shelved.iter().filter_map(|message| message.id()).collect();
    assert_eq!(ids, ["a", "b", "c", "d"]);
}

/// If the facts say that the broker can dead-letter by itself, a rejected message is on the dead-letter shelf with its body and
/// its own headers.
pub async fn native_dead_letter_reaches_the_dead_letter_shelf<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    if !transport.facts().dead_letter.is_possible() {
        return case.does_not_apply("the facts say `dead_letter: No`");
    }
    case.publish(samples::full(&case.harness)).await;
    let received = case.next(&transport).await;
    case.settle(&transport, received.receipt, Settlement::NativeDeadLetter).await;
    let shelved = case.on_shelf(Shelf::DeadLetter, 1).await;
    samples::assert_same(&shelved[0], received.delivery.message());
    case.nothing_is_left(&transport).await;
}

/// A message that was on a shelf, and that another program puts into the work queue with redrive's headers on it, is a first attempt; its
/// retry is the second.
pub async fn what_another_program_puts_back_begins_afresh<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish_ids(&["a"]).await;
    for _ in 0..2 {
        let received = case.next(&transport).await;
        let settlement = copied(&*transport, &received.delivery, SHORT);
        case.settle(&transport, received.receipt, settlement).await;
    }
    let third = case.next(&transport).await;
    assert_eq!((third.delivery.attempt(), third.delivery.put_back()), (3, None));
    let settlement = shelve(&*transport, &third.delivery, Shelf::DeadLetter);
    case.settle(&transport, third.receipt, settlement).await;
    let shelved = case.on_shelf(Shelf::DeadLetter, 1).await.remove(0);
    case.publish(shelved).await;
    let back = case.next(&transport).await;
    assert_eq!((back.delivery.attempt(), back.delivery.broker_delivery_count()), (1, 1));
    assert_eq!(back.delivery.put_back(), Some(&Reason::RetryableError));
    let settlement = retry(&*transport, &back.delivery, SHORT);
    assert!(settlement.stores_copy(), "the broker would hold the counts of before: {settlement:?}");
    case.settle(&transport, back.receipt, settlement).await;
    let second = case.complete_next(&transport).await;
    assert_eq!((second.attempt(), second.put_back()), (2, None));
}
