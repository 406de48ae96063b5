//! An hour of retries on the clock of the emulator.

use std::time::{Duration, Instant};

use redrive_consumer::Consumer;
use redrive_contract::eventually;
use redrive_core::{Delivery, Message, Shelf, Shelves as _, mins};
use redrive_rabbitmq::{QueueType, RabbitMq};
use redrive_rabbitmq_emulator::{Emulator, Version};

/// The waits of a message that fails for good: together an hour.
const WAITS: [Duration; 4] = [mins(1), mins(4), mins(10), mins(45)];
const A_MOMENT: Duration = Duration::from_millis(1);

/// Number of messages: `REDRIVE_TEST_LADDER`, 300 by default.
fn size() -> usize {
    std::env::var("REDRIVE_TEST_LADDER").map_or(300, |size| size.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_3_10_classic() {
    an_hour(Version::V3_10, QueueType::Classic).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_4_3_quorum() {
    an_hour(Version::V4_3, QueueType::Quorum).await;
}

/// Every message is handled five times, never early, and then dead-lettered.
async fn an_hour(version: Version, queue_type: QueueType) {
    let emulator = Emulator::builder().version(version).virtual_clock().start().await.expect("started");
    let connected = async || {
        let options = RabbitMq::options("orders").queue_type(queue_type);
        options.connect(&emulator.url()).await.expect("connected")
    };
    let begun = Instant::now();
    let operator = connected().await;
    let messages = (0..size()).map(|number| Message::new("an order").with_id(format!("order-{number}")));
    for stored in operator.publisher().publish_all(messages).await {
        stored.expect("stored");
    }
    let fail = async |_: Delivery| Err::<(), _>("the carrier does not answer");
    let runner =
        Consumer::new(connected().await).concurrency(256).with_dead_letter_backoff(WAITS).handler(fail);
    let handle = runner.handle();
    let consuming = tokio::spawn(runner.run());

    let vhost = emulator.default_vhost().expect("it is there");
    let count = |ends: &str| {
        let queues = vhost.queues().into_iter().filter(|queue| queue.name.ends_with(ends));
        queues.map(|queue| queue.counts.ready).sum::<usize>()
    };
    for wait in WAITS {
        let delay_queue = format!("--retry-{}ms", wait.as_millis());
        // A delivery that is not settled yet would time out within the longest wait.
        let settled = || vhost.counts("orders").is_ok_and(|counts| counts.unacked == 0);
        let waiting = async || count(&delay_queue) == size() && settled();
        eventually(&format!("all wait for {wait:?}"), waiting).await;
        emulator.advance(wait - A_MOMENT);
        assert_eq!(count(&delay_queue), size(), "none is early");
        emulator.advance(A_MOMENT);
    }
    eventually("all are dead-lettered", async || count("--dead-letters") == size()).await;
    println!(
        "{} messages, five attempts each, in {:?} of the broker's hour: {:.1?}",
        size(),
        WAITS.iter().sum::<Duration>(),
        begun.elapsed()
    );
    let page = operator.shelves().browse(Shelf::DeadLetter, None, 10).await.expect("a page");
    assert!(page.entries.iter().all(|entry| entry.history.attempt.or_highest() == 5), "{page:?}");
    handle.stop();
    consuming.await.expect("no panic").expect("it ends in order");
}
