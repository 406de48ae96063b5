//! What operators do with the shelves, and what one message on them does to the others.

mod common;

use common::{Scene, complete, needs, next, publish, settle, started, tidy_up, until, with_short_wait};
use lapin::options::BasicGetOptions;
use redrive_core::{Message, Selection, Settlement, Shelf, Shelves, Transport, header_names};

tests!(no_header_names_the_queue_of_a_redrive);

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
        settle(&transport, received.receipt, Settlement::Reject).await;
    }
    let shelves = transport.shelves();
    until("both are on the shelf", async || shelves.count(Shelf::DeadLetter).await.expect("counted") == 2)
        .await;
    assert_eq!(shelves.redrive(Shelf::DeadLetter, &Selection::All).await.expect("redriven"), 2);
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
