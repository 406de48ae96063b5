//! Several kinds of message in one queue, end to end.

use std::collections::BTreeSet;
use std::sync::Arc;

use redrive::header_names;
use redrive::memory::Memory;
use redrive::prelude::*;
use redrive_system_tests::shared::Shared;
use redrive_system_tests::{Diary, QUEUE, header, memory_with, reason};
use tokio::time::sleep;

use crate::handlers::{fail, succeed};

fn of_kind(kind: &str) -> Message {
    Message::new("an order").with_id(kind).with_kind(kind)
}

#[tokio::test(start_paused = true)]
async fn the_transport_is_told_the_waits_of_every_route() {
    let shared = Shared::new(Arc::new(Memory::new(QUEUE)));
    let needs = shared.needs();
    let inner = Router::by_content_type()
        .route("text/csv", fail.with_dead_letter_backoff([secs(7)]))
        .fallback(succeed)
        .unwrap();
    let router = Router::by_kind()
        .route("order.placed", succeed)
        .route("order.cancelled", fail.with_dead_letter_backoff([secs(5)]))
        .route("order.imported", inner)
        .unknown(UnknownKey::DeadLetter)
        .unwrap();
    let consumer = Consumer::new(shared).with_dead_letter_backoff([secs(1)]).handler(router);
    consumer.run_until(sleep(secs(1))).await.unwrap();
    assert_eq!(needs.lock().unwrap().waits, BTreeSet::from([secs(1), secs(5), secs(7)]));
}

#[tokio::test(start_paused = true)]
async fn each_kind_ends_as_its_route_says_and_an_unknown_one_on_the_shelf() {
    let kinds = ["order.placed", "order.cancelled", "order.lost"];
    let (broker, transport) = memory_with(kinds.map(of_kind));
    let router = Router::by_kind()
        .route("order.placed", fail)
        .route("order.cancelled", fail.with_dead_letter_backoff([secs(1), secs(1), secs(1)]))
        .unknown(UnknownKey::DeadLetter)
        .unwrap();
    let diary = Diary::new();
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([secs(1)])
        .observer(diary.observer())
        .handler(router);
    consumer.run_until(diary.ended(3)).await.unwrap();
    let mut shelf: Vec<_> = broker.shelf(QUEUE, Shelf::DeadLetter);
    shelf.sort_by_key(|message| message.id().map(str::to_owned));
    let ended: Vec<_> =
        shelf.iter().map(|message| (reason(message), header(message, header_names::ATTEMPT))).collect();
    let told = [("MaxDeliveryCountExceeded", "4"), ("NoRoute", "1"), ("MaxDeliveryCountExceeded", "2")];
    assert_eq!(ended, told.map(|(reason, attempts)| (reason.to_owned(), attempts.to_owned())));
}
