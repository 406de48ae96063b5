//! A broker that stores and does not confirm: every try may store one more copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use redrive_consumer::{Consumer, Event};
use redrive_contract::eventually;
use redrive_core::{Delivery, Message, secs};
use redrive_rabbitmq::RabbitMq;
use redrive_rabbitmq_emulator::Emulator;

const MESSAGES: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_does_not_answer_gets_few_more_copies() {
    let emulator = Emulator::builder().start().await.expect("started");
    let options = RabbitMq::options("orders").new_queue_wait(Duration::ZERO);
    let options = options.confirm_timeout(Duration::from_millis(300));
    let transport = options.connect(&emulator.url()).await.expect("connected");
    let messages = (0..MESSAGES).map(|number| Message::new("an order").with_id(format!("order-{number}")));
    for stored in transport.publisher().publish_all(messages).await {
        stored.expect("stored");
    }
    emulator.hold_confirms();
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let runner = Consumer::new(transport)
        .concurrency(MESSAGES)
        .observer(move |event: &Event<'_>| {
            if let Event::NotSettled { .. } = event {
                counted.fetch_add(1, Relaxed);
            }
        })
        .with_dead_letter_backoff([secs(3600)])
        .handler(async |_: Delivery| Err::<(), _>("the carrier does not answer"));
    let handle = runner.handle();
    let consuming = tokio::spawn(runner.run());

    eventually("each was tried five times", async || tries.load(Relaxed) >= 5 * MESSAGES).await;
    let vhost = emulator.default_vhost().expect("it is there");
    let copies = || vhost.counts("orders--retry-3600000ms").expect("the delay queue").ready;
    let meanwhile = copies();
    println!("{meanwhile} copies of {MESSAGES} messages after {} tries", tries.load(Relaxed));
    // One of each at most, and one for each of a few timeouts. They were 445.
    assert!((1..MESSAGES * 2).contains(&meanwhile), "{meanwhile} copies of {MESSAGES} messages");

    emulator.release_confirms();
    let settled = async || vhost.counts("orders").is_ok_and(|counts| counts.ready + counts.unacked == 0);
    eventually("all wait for their next attempt", settled).await;
    handle.stop();
    consuming.await.expect("no panic").expect("it ends in order");
}
