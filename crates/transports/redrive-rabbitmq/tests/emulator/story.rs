//! What a copy that waits carries: the attempt, when it is due, and the rest in one header.

use std::time::Duration;

use crate::common::{Scene, complete, message, needs, next, publish, retry, settle};
use lapin::BasicProperties;
use lapin::options::{BasicAckOptions, BasicGetOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use redrive_consumer::Consumer;
use redrive_contract::eventually;
use redrive_core::{BoxError, DeadLetterBackoff, Delivery, Shelf, Shelves, Transport, header_names};
use redrive_rabbitmq::Topology;

crate::tests!(emulator: what_waits_carries_few_headers, a_story_of_a_later_version_is_set_aside_with_its_message);

const WAIT: Duration = Duration::from_secs(60);

async fn what_waits_carries_few_headers(scene: Scene) {
    let waits = needs(&[60_000], 10);
    let transport = scene.started(&waits).await;
    publish(&transport, message("a").with_header("tenant", "blue")).await;
    let first = next(&transport).await;
    let settlement = retry(&transport, &first.delivery, WAIT);
    settle(&transport, first.receipt, settlement).await;

    let waiting = scene.raw.basic_get(scene.rung(60_000).as_str().into(), BasicGetOptions::default()).await;
    let waiting = waiting.expect("got").expect("it waits").delivery;
    let headers = waiting.properties.headers().clone().expect("headers");
    let ours: Vec<_> =
        headers.inner().keys().map(ShortString::as_str).filter(|name| !name.starts_with("x-")).collect();
    assert_eq!(ours, [header_names::ATTEMPT, header_names::DUE_AT, header_names::STORY, "tenant"]);

    // As if the wait were over.
    scene.publish_raw(&scene.queue, &waiting.data, waiting.properties).await;
    waiting.acker.ack(BasicAckOptions::default()).await.expect("acknowledged");
    let again = next(&transport).await;
    let (delivery, history) = (&again.delivery, again.delivery.history());
    assert_eq!((delivery.id(), delivery.attempt(), history.copy_number), ("a", 2, 1));
    assert_eq!((history.past.len(), history.source_queue.as_deref()), (1, Some(&*scene.queue)));
    assert!(!delivery.message().headers().contains(header_names::STORY));
    complete(&transport, again.receipt).await;
    transport.close().await;
    scene.tidy_up(&waits).await;
}

/// For a team that went back one version: what it could not read is on the shelf, and the later version reads it there.
async fn a_story_of_a_later_version_is_set_aside_with_its_message(scene: Scene) {
    const LATER: &str = r#"{"v":2,"hop":7}"#;
    let waits = needs(&[60_000], 10);
    scene.started(&waits).await.close().await;
    for (id, story) in [("later", Some(LATER)), ("plain", None)] {
        let mut headers = FieldTable::default();
        headers.insert(header_names::ATTEMPT.into(), AMQPValue::LongLongInt(1));
        if let Some(story) = story {
            headers.insert(header_names::STORY.into(), AMQPValue::LongString(story.into()));
        }
        let properties = BasicProperties::default().with_message_id(id.into()).with_headers(headers);
        scene.publish_raw(&scene.queue, b"body", properties).await;
    }
    let transport = scene.options().topology(Topology::Verify).connect(&scene.url).await.expect("connected");
    let shelves = transport.shelves();
    let (handled, mut handles) = tokio::sync::mpsc::unbounded_channel();
    let consumer = Consumer::new(transport).with_dead_letter_backoff(DeadLetterBackoff::new([WAIT])).handler(
        move |delivery: Delivery| {
            let handled = handled.clone();
            async move {
                handled.send(delivery.id().to_owned()).expect("awaited");
                Ok::<(), BoxError>(())
            }
        },
    );
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(consumer.run_until(async { drop(stopped.await) }));
    assert_eq!(handles.recv().await.as_deref(), Some("plain"));
    eventually("the other is on the shelf", async || {
        shelves.count(Shelf::DeadLetter).await.is_ok_and(|count| count == 1)
    })
    .await;
    drop(stop);
    running.await.expect("joined").expect("ended");
    assert!(handles.try_recv().is_err(), "no handler sees the other");

    let shelved = scene.raw.basic_get(scene.dead_letters().as_str().into(), BasicGetOptions::default()).await;
    let shelved = shelved.expect("got").expect("it is there").delivery;
    let headers = shelved.properties.headers().clone().expect("headers");
    assert_eq!(headers.inner().get(header_names::STORY), Some(&AMQPValue::LongString(LATER.into())));
    assert_eq!(
        (&shelved.data[..], shelved.properties.message_id().as_ref().map(ShortString::as_str)),
        (&b"body"[..], Some("later"))
    );
    scene.tidy_up(&waits).await;
}
