//! A handler that is slower than the broker's consumer timeout: what it handles is lost each time before it can be settled, and
//! no queue but a quorum queue of 3.10 counts that. It ends on the shelf all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lapin::BasicProperties;
use redrive::Shelves as _;
use redrive::prelude::*;
use redrive::rabbitmq::{QueueType, RabbitMq};
use redrive_brokers::{Node, Version};
use redrive_system_tests::rabbit::Rabbit;
use redrive_system_tests::{Diary, reason, within};

/// How often a handler may run for one message.
const ALLOWED: u32 = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v3_10_classic() {
    ends_on_the_shelf(Version::V3_10, QueueType::Classic).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v4_3_quorum() {
    ends_on_the_shelf(Version::V4_3, QueueType::Quorum).await;
}

async fn ends_on_the_shelf(version: Version, queue_type: QueueType) {
    let node = Node::start_async(version, &["consumer_timeout = 1000"]).await.unwrap();
    let often = ["eval", "application:set_env(rabbit, channel_tick_interval, 200)."];
    node.aside(move |node| node.ctl(&often)).await.unwrap();
    let connect =
        async || RabbitMq::options("slow").queue_type(queue_type).connect(&node.url()).await.unwrap();
    let operator = connect().await;
    // One whose failure is never recorded, and one without an id that succeeds and is never acknowledged.
    operator.publish(Message::new("fails").with_id("fails")).await.unwrap();
    // A publisher of redrive would give it an id.
    let rabbit = Rabbit::connect(&node.url()).await;
    rabbit.publish("slow", BasicProperties::default(), b"succeeds").await.unwrap();
    rabbit.close().await;
    let runs: Arc<[AtomicU32; 2]> = Arc::default();
    let (counted, diary) = (Arc::clone(&runs), Diary::new());
    let consumer = Consumer::new(connect().await)
        .concurrency(2)
        .grace(millis(0))
        .with_dead_letter_backoff(DeadLetterBackoff::new([secs(1)]).poison_after(ALLOWED))
        .observer(diary.observer())
        .handler(move |body: String| {
            let fails = body == "fails";
            counted[usize::from(fails)].fetch_add(1, Ordering::SeqCst);
            async move {
                // Longer than the broker allows: no event tells the handler that the delivery is taken back.
                tokio::time::sleep(millis(2500)).await;
                if fails { Err(BoxError::from("no answer")) } else { Ok(()) }
            }
        });
    let both_end = within(secs(300), "both end", diary.ended(2));
    consumer.run_until(both_end).await.unwrap();
    let shelf = operator.shelves().browse(Shelf::DeadLetter, None, 9).await.unwrap().entries;
    let reasons: Vec<_> = shelf.iter().map(|shelved| reason(&shelved.message)).collect();
    // A busy broker may look only when the handler has ended: what it then settles counts, as an attempt or as handled.
    assert!(!reasons.is_empty(), "what never succeeds ends on the shelf");
    assert!(
        reasons.iter().all(|it| ["PoisonMessage", "MaxDeliveryCountExceeded"].contains(&it.as_str())),
        "{reasons:?}"
    );
    let runs = runs.each_ref().map(|runs| runs.load(Ordering::SeqCst));
    // While the first runs are not lost yet, it may be redelivered.
    assert!(runs.iter().all(|&runs| runs <= 2 * ALLOWED + 2), "{runs:?}");
}
