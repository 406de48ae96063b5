//! What operators do with the shelves, and what one message on them does to the others.

mod common;

use common::{Scene, complete, message, needs, next, publish, settle, started, tidy_up, with_short_wait};
use lapin::BasicProperties;
use lapin::options::BasicGetOptions;
use lapin::types::{AMQPValue, FieldTable};
use redrive_core::{
    EntryOutcome, Message, Selection, Settlement, Shelf, ShelfReport, Shelves, Transport, TransportError,
    TransportErrorKind, header_names,
};
use redrive_rabbitmq::{DeathHistory, RabbitMq};
use redrive_testkit::contract::{Started, eventually};

tests!(
    a_message_that_outgrows_a_frame_on_its_shelf_leaves_the_others_readable,
    what_cannot_be_copied_stays_and_the_others_are_moved,
    no_header_names_the_queue_of_a_redrive,
    an_empty_page_is_no_end_and_passes_nothing_over,
);

/// A content header takes this many bytes beside the text: the message fills what a client library reads to the last byte.
const FILLS_A_FRAME: usize = 130_900;
const TOO_LARGE_TO_BE_COPIED: usize = 120_000;

fn with_header(id: &str, bytes: usize) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert("large".into(), AMQPValue::LongString("h".repeat(bytes).into()));
    BasicProperties::default().with_headers(headers).with_message_id(id.into()).with_delivery_mode(2)
}

async fn shelf_with(transport: &Started<RabbitMq>, scene: &Scene, large: usize) {
    for id in ["a", "large", "b"] {
        match id {
            "large" => scene.publish_raw(&scene.queue, b"body", with_header(id, large)).await,
            _ => publish(transport, message(id)).await,
        }
        let received = next(transport).await;
        // The broker adds its `x-death`.
        settle(transport, received.receipt, Settlement::NativeDeadLetter).await;
    }
    let shelves = transport.shelves();
    eventually("all are on the shelf", async || {
        shelves.count(Shelf::DeadLetter).await.expect("counted") == 3
    })
    .await;
}

async fn ids(transport: &RabbitMq, shelf: Shelf) -> Vec<String> {
    let shelved = transport.shelves().browse(shelf, None, 10).await.expect("browsed").entries;
    shelved.iter().filter_map(|shelved| shelved.message.id().map(str::to_owned)).collect()
}

async fn a_message_that_outgrows_a_frame_on_its_shelf_leaves_the_others_readable(scene: Scene) {
    let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    shelf_with(&transport, &scene, FILLS_A_FRAME).await;
    let shelved = transport.shelves().browse(Shelf::DeadLetter, None, 10).await.expect("browsed").entries;
    assert_eq!(
        shelved.iter().map(|shelved| shelved.message.id()).collect::<Vec<_>>(),
        [Some("a"), Some("large"), Some("b")]
    );
    let large = &shelved[1];
    assert_eq!(
        (&large.message.body()[..], DeathHistory::read(large.message.headers()).count_in(&scene.queue)),
        (&b"body"[..], 1)
    );
    let marked = format!("{:?}", large.message.headers());
    assert!(marked.contains("`large` (130911 bytes)"), "what is not shown is named: {marked}");
    the_others_are_moved(&transport).await;
    // Not even a message that is read in part is mistaken for another one.
    let again =
        transport.shelves().browse(Shelf::DeadLetter, None, 10).await.expect("browsed").entries.remove(0);
    assert_eq!(again.handle, large.handle);
    let discarded = transport.shelves().discard(Shelf::DeadLetter, &again.handle.into()).await;
    assert_eq!(discarded.expect("an operator's word").into_result().expect("it can be removed"), 1);
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

async fn what_cannot_be_copied_stays_and_the_others_are_moved(scene: Scene) {
    let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    shelf_with(&transport, &scene, TOO_LARGE_TO_BE_COPIED).await;
    the_others_are_moved(&transport).await;
    let large =
        transport.shelves().browse(Shelf::DeadLetter, None, 10).await.expect("browsed").entries.remove(0);
    let text = large.message.headers().get("large").and_then(redrive_core::Value::as_str).map(str::len);
    assert_eq!(text, Some(TOO_LARGE_TO_BE_COPIED), "it is as it was");
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

/// Redriven, failed again, and parked: all but the one that is too large, which stays where it is.
async fn the_others_are_moved(transport: &Started<RabbitMq>) {
    let shelves = transport.shelves();
    let says_what_stays = |report: Result<ShelfReport, TransportError>| {
        let report = report.expect("the work begins");
        assert!(report.stopped.is_none(), "{:?}", report.stopped);
        let outcomes: Vec<_> =
            report.entries.iter().map(|entry| (entry.id.as_deref(), &entry.outcome)).collect();
        assert!(
            matches!(
                &outcomes[..],
                [
                    (Some("a"), EntryOutcome::Done),
                    (Some("large"), EntryOutcome::Failed(_)),
                    (Some("b"), EntryOutcome::Done)
                ] | [
                    (Some("large"), EntryOutcome::Failed(_)),
                    (Some("a"), EntryOutcome::Done),
                    (Some("b"), EntryOutcome::Done)
                ]
            ),
            "{outcomes:?}"
        );
        let error = report.into_result().expect_err("not all were moved");
        assert_eq!(error.kind(), TransportErrorKind::TooLarge, "{error}");
        let said = error.to_string();
        assert!(said.contains("2 messages") && said.contains("`large`"), "{said}");
    };
    says_what_stays(shelves.redrive(Shelf::DeadLetter, &Selection::All).await);
    assert_eq!(ids(transport, Shelf::DeadLetter).await, ["large"]);
    for id in ["a", "b"] {
        let received = next(transport).await;
        assert_eq!(received.delivery.id(), id);
        settle(transport, received.receipt, Settlement::NativeDeadLetter).await;
    }
    eventually("both are back on the shelf", async || {
        shelves.count(Shelf::DeadLetter).await.expect("counted") == 3
    })
    .await;
    says_what_stays(shelves.park(&Selection::All).await);
    assert_eq!(ids(transport, Shelf::DeadLetter).await, ["large"]);
    assert_eq!(ids(transport, Shelf::Parking).await, ["a", "b"]);
}

/// A publisher names the queue of somebody else. Only the operator's list makes it a destination.
async fn no_header_names_the_queue_of_a_redrive(scene: Scene) {
    let [victim, partner] = ["victim", "partner"].map(|name| format!("{}.{name}", scene.queue));
    let options = with_short_wait(&scene).shelves_shared_with([&partner]);
    let transport = started(options, &scene, &needs(&[100], 10)).await;
    for queue in [&victim, &partner] {
        scene.declare_raw(queue, &[]).await;
        let named = Message::new("body").with_id(&**queue).with_header(header_names::SOURCE_QUEUE, &**queue);
        publish(&transport, named).await;
        let received = next(&transport).await;
        settle(&transport, received.receipt, Settlement::NativeDeadLetter).await;
    }
    let shelves = transport.shelves();
    eventually("both are on the shelf", async || {
        shelves.count(Shelf::DeadLetter).await.expect("counted") == 2
    })
    .await;
    assert_eq!(
        shelves
            .redrive(Shelf::DeadLetter, &Selection::All)
            .await
            .expect("redriven")
            .into_result()
            .expect("redriven"),
        2
    );
    let again = next(&transport).await;
    assert_eq!(again.delivery.id(), victim);
    complete(&transport, again.receipt).await;
    let get = BasicGetOptions { no_ack: true };
    let to_partner = scene.raw.basic_get(partner.as_str().into(), get).await.expect("there is the queue");
    assert!(to_partner.is_some(), "it shares the shelf");
    assert!(scene.raw.basic_get(victim.as_str().into(), get).await.expect("there is the queue").is_none());
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100), victim, partner], &[]).await;
}

async fn an_empty_page_is_no_end_and_passes_nothing_over(scene: Scene) {
    let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    shelf_with(&transport, &scene, 10).await;
    let shelves = transport.shelves();
    let (mut shown, mut after) = (Vec::new(), None);
    for limit in [0, 1, 0, 1, 0, 1] {
        let page = shelves.browse(Shelf::DeadLetter, after.as_ref(), limit).await.expect("browsed");
        assert_eq!(page.entries.len(), limit);
        shown.extend(page.entries.into_iter().filter_map(|entry| entry.message.id().map(str::to_owned)));
        after = page.next;
        assert_eq!(after.is_some(), shown.len() < 3, "after {shown:?}");
    }
    assert_eq!(shown, ["a", "large", "b"]);
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}
