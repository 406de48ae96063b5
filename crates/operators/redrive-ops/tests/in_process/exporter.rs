//! The metrics of shelves, on virtual time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use redrive_consumer::Consumer;
use redrive_core::shelves::{EntryHandle, Holder, Selection, ShelfCursor, ShelfPage, ShelfReport};
use redrive_core::{BoxError, Message, NoRetry, Shelf, Shelves, TransportError, TransportErrorKind, secs};
use redrive_memory::{MemoryBroker, MemoryShelves};
use redrive_ops::{ShelfExporter, ShelfMetrics, SnapshotOptions};

const DEAD_LETTERS: &str = r#"queue_name="orders",shelf="dead-letter""#;

/// Shelves of a broker that can fail or hang.
struct Faulty {
    shelves: MemoryShelves,
    fails: AtomicBool,
    hangs: AtomicBool,
    /// Whether somebody else may hold entries.
    held: AtomicBool,
    asked: AtomicU32,
    browsed: AtomicU32,
    /// How long a read takes.
    takes: Duration,
}

impl Faulty {
    fn new(broker: &MemoryBroker, takes: Duration) -> Arc<Self> {
        Arc::new(Self {
            shelves: broker.shelves("orders"),
            fails: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            held: AtomicBool::new(false),
            asked: AtomicU32::new(0),
            browsed: AtomicU32::new(0),
            takes,
        })
    }

    async fn answers(&self) -> Result<(), TransportError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.fails.load(Ordering::Relaxed) {
            return Err(TransportError::new(TransportErrorKind::Unreachable, "the broker is away"));
        }
        tokio::time::sleep(self.takes).await;
        Ok(())
    }
}

#[async_trait]
impl Shelves for Faulty {
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError> {
        self.answers().await?;
        self.shelves.count(shelf).await
    }

    async fn holder(&self, _: Shelf) -> Result<Option<Holder>, TransportError> {
        Ok(self.held.load(Ordering::Relaxed).then_some(Holder::Lease))
    }

    async fn browse(
        &self,
        shelf: Shelf,
        after: Option<&ShelfCursor>,
        limit: usize,
    ) -> Result<ShelfPage, TransportError> {
        self.answers().await?;
        self.browsed.fetch_add(1, Ordering::Relaxed);
        self.shelves.browse(shelf, after, limit).await
    }

    async fn redrive(&self, _: Shelf, _: &Selection) -> Result<ShelfReport, TransportError> {
        unreachable!("looking changes nothing")
    }

    async fn park(&self, _: &Selection) -> Result<ShelfReport, TransportError> {
        unreachable!("looking changes nothing")
    }

    async fn discard(&self, _: Shelf, _: &Selection) -> Result<ShelfReport, TransportError> {
        unreachable!("looking changes nothing")
    }

    async fn replace(&self, _: &EntryHandle, _: Message) -> Result<Option<EntryHandle>, TransportError> {
        unreachable!("looking changes nothing")
    }

    async fn redrive_as(&self, _: &EntryHandle, _: Message) -> Result<(), TransportError> {
        unreachable!("looking changes nothing")
    }
}

/// Makes this many orders fail.
async fn fail(broker: &MemoryBroker, orders: std::ops::Range<u32>) -> Result<(), BoxError> {
    for order in orders {
        broker.publish("orders", Message::new(order.to_string()).with_id(format!("id-{order}")))?;
    }
    let handler = |order: String| async move { Err::<(), _>(format!("order {order} has no address")) };
    let done = async {
        while broker.depth("orders") > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    Consumer::new(broker.transport("orders"))
        .with_dead_letter_backoff(NoRetry)
        .handler(handler)
        .run_until(done)
        .await?;
    Ok(())
}

fn exporter(broker: &MemoryBroker, shelves: Arc<dyn Shelves>) -> ShelfExporter {
    let clock = broker.clone();
    ShelfExporter::new().watch("orders", shelves).clock(move || clock.now())
}

/// Returns the value of the series that begins like this, if there is one.
fn value(metrics: &ShelfMetrics, series: &str) -> Option<f64> {
    let page = metrics.render();
    let found: Vec<_> = page.lines().filter(|line| line.starts_with(series)).collect();
    assert!(found.len() < 2, "{found:?}");
    found.first().map(|line| line.rsplit(' ').next().expect("a value").parse().expect("a number"))
}

fn of_shelf(metrics: &ShelfMetrics, name: &str) -> Option<f64> {
    value(metrics, &format!("{name}{{{DEAD_LETTERS}}}"))
}

/// Lets the tasks run, and time pass.
async fn after(seconds: u64) {
    tokio::time::sleep(secs(seconds) + Duration::from_millis(10)).await;
}

#[tokio::test(start_paused = true)]
async fn metrics_follow_the_shelf() -> Result<(), BoxError> {
    let broker = MemoryBroker::new();
    fail(&broker, 0..3).await?;
    let metrics = exporter(&broker, Arc::new(broker.shelves("orders"))).start();
    assert_eq!(of_shelf(&metrics, "shelf_readable"), Some(0.0), "nothing was read yet");
    assert_eq!(of_shelf(&metrics, "shelf_messages"), None);
    assert_eq!(of_shelf(&metrics, "shelf_read_age_seconds"), None);

    after(10).await;
    assert_eq!(of_shelf(&metrics, "shelf_readable"), Some(1.0));
    assert_eq!(of_shelf(&metrics, "shelf_messages"), Some(3.0));
    assert_eq!(of_shelf(&metrics, "shelf_truncated"), Some(0.0));
    let of_reason = format!("shelf_messages_by_reason{{{DEAD_LETTERS},reason=\"MaxDeliveryCountExceeded\"}}");
    assert_eq!(value(&metrics, &of_reason), Some(3.0), "{}", metrics.render());
    assert_eq!(value(&metrics, &format!("shelf_messages_by_group{{{DEAD_LETTERS},group=\"")), Some(3.0));
    assert!(of_shelf(&metrics, "shelf_oldest_age_seconds").is_some_and(|age| (10.0..11.0).contains(&age)));
    let page = metrics.render();
    assert!(!page.contains("address") && !page.contains("id-"), "no text and no id: {page}");
    assert!(page.contains(r#"shelf_messages{queue_name="orders",shelf="parking"} 0"#), "{page}");

    // Between two reads, the age of the values and of the oldest entry grow.
    fail(&broker, 3..4).await?;
    after(10).await;
    assert_eq!(of_shelf(&metrics, "shelf_messages"), Some(3.0));
    assert!(of_shelf(&metrics, "shelf_read_age_seconds").is_some_and(|age| (20.0..21.0).contains(&age)));
    assert!(of_shelf(&metrics, "shelf_oldest_age_seconds").is_some_and(|age| (20.0..21.0).contains(&age)));
    after(20).await;
    assert_eq!(of_shelf(&metrics, "shelf_messages"), Some(4.0));

    broker.shelves("orders").discard(Shelf::DeadLetter, &Selection::All).await?.into_result()?;
    after(30).await;
    assert_eq!(of_shelf(&metrics, "shelf_messages"), Some(0.0));
    assert_eq!(of_shelf(&metrics, "shelf_oldest_age_seconds"), None, "an empty shelf has no oldest entry");
    assert_eq!(value(&metrics, &of_reason), None);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_shelf_that_cannot_be_read_shows_its_last_values_and_says_so() -> Result<(), BoxError> {
    let broker = MemoryBroker::new();
    fail(&broker, 0..3).await?;
    let shelves = Faulty::new(&broker, Duration::ZERO);
    let metrics = exporter(&broker, shelves.clone()).start();
    after(1).await;
    shelves.fails.store(true, Ordering::Relaxed);
    after(99).await;
    assert_eq!(of_shelf(&metrics, "shelf_readable"), Some(0.0));
    assert_eq!(of_shelf(&metrics, "shelf_messages"), Some(3.0), "an alert on it does not end");
    assert!(of_shelf(&metrics, "shelf_read_age_seconds").is_some_and(|age| (100.0..101.0).contains(&age)));

    shelves.fails.store(false, Ordering::Relaxed);
    after(30).await;
    assert_eq!(of_shelf(&metrics, "shelf_readable"), Some(1.0));
    assert!(of_shelf(&metrics, "shelf_read_age_seconds").is_some_and(|age| age < 31.0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_does_not_answer_delays_nobody() -> Result<(), BoxError> {
    let broker = MemoryBroker::new();
    fail(&broker, 0..1).await?;
    let silent = Faulty::new(&broker, Duration::ZERO);
    silent.hangs.store(true, Ordering::Relaxed);
    let metrics = exporter(&broker, Arc::new(broker.shelves("orders"))).watch("silent", silent).start();
    after(100).await;
    assert_eq!(of_shelf(&metrics, "shelf_messages"), Some(1.0));
    assert!(of_shelf(&metrics, "shelf_read_age_seconds").is_some_and(|age| age < 31.0));
    let of_silent = r#"{queue_name="silent",shelf="dead-letter"}"#;
    assert_eq!(value(&metrics, &format!("shelf_readable{of_silent}")), Some(0.0));
    assert_eq!(value(&metrics, &format!("shelf_messages{of_silent}")), None);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn reading_ends_with_the_last_clone() {
    let broker = MemoryBroker::new();
    for hangs in [false, true] {
        let shelves = Faulty::new(&broker, Duration::ZERO);
        shelves.hangs.store(hangs, Ordering::Relaxed);
        let left: Weak<Faulty> = Arc::downgrade(&shelves);
        let metrics = exporter(&broker, shelves).start();
        let clone = metrics.clone();
        drop(metrics);
        after(1).await;
        assert!(left.upgrade().is_some_and(|shelves| shelves.asked.load(Ordering::Relaxed) > 0));
        drop(clone);
        after(0).await;
        assert!(left.upgrade().is_none(), "hangs: {hangs}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_shelf_is_left_alone_for_longer() {
    let broker = MemoryBroker::new();
    let shelves = Faulty::new(&broker, secs(60));
    let metrics = exporter(&broker, shelves.clone()).start();
    after(299).await;
    let both_shelves_once = 2;
    assert_eq!(shelves.asked.load(Ordering::Relaxed), both_shelves_once);
    after(1).await;
    assert_eq!(shelves.asked.load(Ordering::Relaxed), 2 * both_shelves_once);
    drop(metrics);
}

#[tokio::test(start_paused = true)]
async fn only_counting_reads_no_entry() -> Result<(), BoxError> {
    let broker = MemoryBroker::new();
    fail(&broker, 0..2).await?;
    let shelves = Faulty::new(&broker, Duration::ZERO);
    let metrics = exporter(&broker, shelves.clone()).count_only("orders", shelves.clone()).start();
    after(1).await;
    assert_eq!(of_shelf(&metrics, "shelf_messages"), Some(2.0));
    assert_eq!(of_shelf(&metrics, "shelf_readable"), Some(1.0));
    for name in
        ["shelf_truncated", "shelf_oldest_age_seconds", "shelf_messages_by_reason", "shelf_messages_by_group"]
    {
        assert_eq!(value(&metrics, &format!("{name}{{")), None);
    }
    assert_eq!(shelves.browsed.load(Ordering::Relaxed), 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_others_may_hold_is_not_passed_over() -> Result<(), BoxError> {
    let broker = MemoryBroker::new();
    fail(&broker, 0..2).await?;
    let shelves = Faulty::new(&broker, Duration::ZERO);
    let read = exporter(&broker, shelves.clone()).start();
    let counted = exporter(&broker, shelves.clone()).count_only("orders", shelves.clone()).start();
    for held in [false, true] {
        shelves.held.store(held, Ordering::Relaxed);
        after(31).await;
        for metrics in [&read, &counted] {
            assert_eq!(of_shelf(metrics, "shelf_partial"), Some(f64::from(held)), "{}", metrics.render());
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_large_shelf_is_counted_in_full_and_said_to_be_truncated() -> Result<(), BoxError> {
    let broker = MemoryBroker::new();
    fail(&broker, 0..5).await?;
    let shelves = Arc::new(broker.shelves("orders"));
    let metrics =
        exporter(&broker, shelves).snapshots(SnapshotOptions::new().limit(4)).prefix("shop")?.start();
    after(1).await;
    assert_eq!(of_shelf(&metrics, "shop_shelf_messages"), Some(5.0));
    assert_eq!(of_shelf(&metrics, "shop_shelf_truncated"), Some(1.0));
    assert_eq!(value(&metrics, &format!("shop_shelf_messages_by_group{{{DEAD_LETTERS}")), Some(4.0));
    Ok(())
}

#[test]
fn a_prefix_that_no_metric_may_have_is_refused() {
    for prefix in ["", "7up", "my-shop", "ä", "a b"] {
        ShelfExporter::new().prefix(prefix).expect_err(prefix);
    }
    for prefix in ["a", "_a", "my:shop_7"] {
        assert!(ShelfExporter::new().prefix(prefix).is_ok(), "{prefix}");
    }
}
