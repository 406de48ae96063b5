//! Several consumers under one shutdown.

use std::time::Duration;

use redrive_consumer::{Consumer, Consumers, Health, Phase, Runner};
use redrive_core::{BoxError, Message, millis, secs};
use redrive_memory::Memory;
use tokio::time::{Instant, sleep};

fn consumer(transport: Memory, handling: Duration) -> Runner<Memory> {
    Consumer::new(transport).grace(secs(10)).handler(move || sleep(handling))
}

async fn with_one_message(queue: &str) -> Result<Memory, BoxError> {
    let transport = Memory::new(queue);
    transport.publish(Message::new("x")).await?;
    Ok(transport)
}

#[tokio::test(start_paused = true)]
async fn one_shutdown_ends_all_and_their_grace_begins_together() -> Result<(), BoxError> {
    let (quick, slow) = (with_one_message("quick").await?, with_one_message("slow").await?);
    let consumers = Consumers::new().with(consumer(quick, secs(6))).with(consumer(slow, secs(8)));
    let handle = consumers.handle();
    assert!(handle.is_live() && !handle.is_ready());
    let began = Instant::now();
    let reports = consumers.run_until(sleep(secs(1))).await?;
    assert_eq!(began.elapsed().as_secs(), 8, "not one after the other");
    let handled: Vec<_> =
        reports.iter().map(|(queue, report)| (queue.as_str(), report.acknowledged)).collect();
    assert_eq!(handled, [("quick", 1), ("slow", 1)]);
    assert!(handle.health().iter().all(|(_, health)| health.phase == Phase::Stopped));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_refused_stops_the_others() -> Result<(), BoxError> {
    let orders = with_one_message("orders").await?;
    let missing = std::env::temp_dir().join("no-such-folder-of-redrive/ledger");
    let refused = Consumer::new(Memory::new("payments")).ledger(missing).handler(async || ());
    let consumers = Consumers::new().with(consumer(orders, millis(10))).with(refused);
    let handle = consumers.handle();
    let failed = consumers.run_until(std::future::pending()).await.expect_err("one is refused");
    assert!(failed.to_string().contains("`payments`"), "{failed}");
    assert_eq!(failed.reports.len(), 1, "the other ended in order");
    assert_eq!(failed.reports[0].0, "orders");
    assert!(!handle.is_live(), "a restart may help");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn handles_stop_pause_and_tell_of_each() -> Result<(), BoxError> {
    let consumers = Consumers::new()
        .with(consumer(Memory::new("orders"), millis(1)))
        .with(consumer(Memory::new("payments"), millis(1)));
    let handle = consumers.handle();
    let running = tokio::spawn(consumers.run_until(std::future::pending()));
    sleep(secs(1)).await;
    assert!(handle.is_ready());
    let (_, payments) = handle.iter().find(|(queue, _)| *queue == "payments").expect("it is there");
    payments.pause();
    let changed = payments.health_changed().await;
    assert!(changed.paused_for.is_some() && !handle.is_ready(), "{changed}");
    handle.resume();
    sleep(secs(1)).await;
    assert!(handle.is_ready());
    handle.stop();
    running.await??;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_consumer_in_its_grace_period_is_not_ready() -> Result<(), BoxError> {
    let consumer = consumer(with_one_message("orders").await?, secs(6));
    let handle = consumer.handle();
    let running = tokio::spawn(consumer.run_until(sleep(secs(1))));
    let ready = handle.wait_for_health(Health::is_ready).await;
    assert_eq!(ready.phase, Phase::Running);
    let stopping = handle.wait_for_health(|health| !health.is_ready()).await;
    assert_eq!((stopping.phase, stopping.to_string().as_str()), (Phase::Stopping, "stopping"));
    assert_eq!(running.await??.acknowledged, 1);
    assert_eq!(handle.health().phase, Phase::Stopped);
    Ok(())
}

#[tokio::test]
async fn a_consumer_that_panicked_is_not_live() {
    let consumer = consumer(Memory::new("orders"), millis(1));
    let handle = consumer.handle();
    let running = tokio::spawn(consumer.run_until(async { panic!("no signal handler") }));
    assert!(running.await.unwrap_err().is_panic());
    assert!(!handle.health().is_live(), "{}", handle.health());
}
