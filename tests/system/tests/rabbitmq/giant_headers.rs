//! Headers of megabytes. A broker takes them from whoever it grants frames as large, and hands them out to everybody in one frame.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use redrive::{Consumer, Message, Reason, Shelf, Shelves as _, millis};
use redrive_brokers::own_node_with;
use redrive_contract::found;
use redrive_system_tests::rabbit::{Rabbit, publish};
use redrive_system_tests::{Combination, Diary, on_both_versions};

on_both_versions!(600; headers_of_megabytes_stop_nobody);

const FRAME: usize = 18 << 20;
const GIANT: usize = 17 << 20;

async fn headers_of_megabytes_stop_nobody(on: Combination) {
    let start = move || own_node_with(on.version, &[&format!("frame_max = {FRAME}")]);
    let node = tokio::task::spawn_blocking(start).await.unwrap();
    let (queue, url) = (on.unique("giant"), node.url());
    let with_large_frames = format!("amqp://guest:guest@{}/%2f", node.address());
    let operator = on.options(&queue).connect(&url).await.unwrap();
    publish(&operator.publisher(), Message::new("first").with_id("first")).await;
    let mut headers = FieldTable::default();
    headers.insert("fill".into(), AMQPValue::LongString("h".repeat(GIANT).into()));
    let giant = BasicProperties::default()
        .with_headers(headers)
        .with_message_id("giant".into())
        .with_delivery_mode(2);
    Rabbit::connect(&with_large_frames).await.publish(&queue, giant, b"an order").await.unwrap();
    operator.publish(Message::new("last").with_id("last")).await.unwrap();
    let diary = Diary::new();
    let runner = Consumer::new(on.options(&queue).connect(&url).await.unwrap())
        .observer(diary.observer())
        .with_dead_letter_backoff([millis(50)])
        .handler(async || {});
    let said = runner.run_until(diary.ended(3)).await.unwrap();
    assert_eq!((said.acknowledged, said.dead_lettered), (2, 1));
    // On a machine that stands still it may have been given back before, and have been redelivered.
    let entries = diary.entries();
    let giants = entries.iter().filter(|entry| entry.delivery.id() == "giant");
    let failures: Vec<_> = giants.filter_map(|entry| entry.disposition.as_ref()?.failure()).collect();
    let reasons: Vec<_> = failures.iter().map(|failure| failure.reason()).collect();
    assert_eq!(reasons, [&Reason::MalformedHeaders], "{diary:?}");
    // By the broker, hence whole.
    let shelved = found("it is on the shelf", async || {
        let shelved = operator.shelves().browse(Shelf::DeadLetter, None, 10).await.unwrap().entries;
        (!shelved.is_empty()).then_some(shelved)
    })
    .await;
    assert_eq!((shelved.len(), shelved[0].message.id()), (1, Some("giant")));
}
