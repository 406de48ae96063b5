//! The metrics of shelves on real brokers: they show failures by group, whoever dead-lettered them, and reading changes nothing.

use std::sync::Arc;
use std::time::Duration;

use lapin::BasicProperties;
use lapin::options::{BasicGetOptions, BasicNackOptions};
use redrive::ops::{ShelfExporter, SnapshotOptions, snapshot};
use redrive::prelude::*;
use redrive_contract::{eventually, found};
use redrive_servicebus_emulator::{Emulator, Settings};
use redrive_system_tests::rabbit::{Rabbit, publish_all};
use redrive_system_tests::{Combination, Diary, numbered, on_four_combinations, within};

on_four_combinations!(
    emulator: 120;
    metrics_show_the_shelves_of_rabbitmq,
);

const FAILED: usize = 30;
const PARKED: usize = 3;

async fn fail(delivery: Delivery) -> Result<Disposition, BoxError> {
    let number: usize = delivery.id().trim_start_matches(|c: char| !c.is_ascii_digit()).parse()?;
    if number < PARKED {
        return Ok(Disposition::Park(Failure::custom("OutOfStock", format!("no stock for order {number}"))));
    }
    Err(format!("order {number}: the carrier does not answer after {number}ms"))?
}

/// Lets the messages of the queue fail: all but those that are parked go onto the dead-letter shelf.
async fn let_fail(transport: impl Transport) {
    let diary = Diary::new();
    let consumer =
        Consumer::new(transport).with_dead_letter_backoff(redrive::NoRetry).observer(diary.observer());
    consumer.handler(fail).run_until(diary.ended(FAILED + PARKED)).await.unwrap();
}

/// The page of metrics, once it shows what it should.
async fn page_with(exporter: ShelfExporter, series: &[&str]) -> String {
    let metrics = exporter.interval(Duration::from_secs(2)).start();
    found("the page shows every series", async || {
        let page = metrics.render();
        series.iter().all(|it| page.lines().any(|line| line == *it)).then_some(page)
    })
    .await
}

async fn metrics_show_the_shelves_of_rabbitmq(on: Combination, url: &str) {
    let queue = on.unique("metrics");
    let rabbit = Rabbit::connect(url).await;
    let operator = on.options(&queue).connect(url).await.unwrap();
    publish_all(&operator, numbered(FAILED + PARKED)).await;
    let_fail(on.options(&queue).connect(url).await.unwrap()).await;
    // Two that the broker dead-letters, without a header of redrive.
    let channel = rabbit.channel().await;
    for _ in 0..2 {
        rabbit.publish(&queue, BasicProperties::default(), b"bare").await.unwrap();
        let get =
            async || channel.basic_get(queue.as_str().into(), BasicGetOptions::default()).await.unwrap();
        let got = found("it can be rejected", get).await;
        got.delivery.acker.nack(BasicNackOptions { requeue: false, ..Default::default() }).await.unwrap();
    }

    let (shelves, shelf) = (operator.shelves(), format!("{queue}--dead-letters"));
    for _ in 0..3 {
        let page = page_with(
            ShelfExporter::new().watch("orders", Arc::new(shelves.clone())),
            &[
                r#"shelf_messages{queue_name="orders",shelf="dead-letter"} 32"#,
                r#"shelf_messages{queue_name="orders",shelf="parking"} 3"#,
                r#"shelf_messages_by_reason{queue_name="orders",shelf="dead-letter",reason="MaxDeliveryCountExceeded"} 30"#,
                r#"shelf_messages_by_reason{queue_name="orders",shelf="dead-letter",reason="rejected"} 2"#,
                r#"shelf_messages_by_reason{queue_name="orders",shelf="parking",reason="OutOfStock"} 3"#,
                r#"shelf_readable{queue_name="orders",shelf="dead-letter"} 1"#,
            ],
        )
        .await;
        assert!(
            page.contains("shelf_oldest_age_seconds{queue_name=\"orders\",shelf=\"dead-letter\"}"),
            "{page}"
        );
        // An exporter that is dropped in the middle of a look gives back a moment later.
        eventually("it holds nothing", async || rabbit.ready(&shelf).await == Some(32)).await;
    }
    let options = SnapshotOptions::new();
    let snapshot = snapshot(&shelves, Shelf::DeadLetter, &options).await.unwrap();
    let texts: Vec<_> = snapshot.groups.iter().map(|group| (group.template.text(), group.count)).collect();
    assert_eq!(texts, [("order <number>: the carrier does not answer after <duration>", 30), ("", 2)]);
    eventually("nobody holds an entry any more", async || rabbit.ready(&shelf).await == Some(32)).await;
    let ends = ["", "--dead-letters", "--parking-lot"];
    rabbit.delete(ends.map(|end| format!("{queue}{end}"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_show_the_shelves_of_service_bus() {
    let emulator = Emulator::builder().queue("orders", Settings::default()).start().await.unwrap();
    let connected = async || ServiceBus::connect(&emulator.connection_string(), "orders").await.unwrap();
    let operator = connected().await;
    for sent in operator.publisher().publish_all(numbered(FAILED + PARKED)).await {
        sent.unwrap();
    }
    let shown = async {
        let_fail(connected().await).await;
        page_with(
            ShelfExporter::new().watch("orders", Arc::new(operator.shelves())),
            &[
                r#"shelf_messages{queue_name="orders",shelf="dead-letter"} 30"#,
                r#"shelf_messages{queue_name="orders",shelf="parking"} 3"#,
                r#"shelf_messages_by_reason{queue_name="orders",shelf="parking",reason="OutOfStock"} 3"#,
            ],
        )
        .await
    };
    let page = within(secs(60), "the metrics", shown).await;
    let groups = page.lines().filter(|line| line.starts_with("shelf_messages_by_group{")).count();
    assert_eq!(groups, 2, "one on each shelf: {page}");
    let before = operator.shelves().count(Shelf::DeadLetter).await.unwrap();
    assert_eq!(before, 30);
}
