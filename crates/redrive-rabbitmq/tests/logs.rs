//! What a healthy service logs, with the default levels of most programs.

mod common;

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use common::{Scene, TRIES, complete, message, needs, next, publish, retry, settle, started};
use redrive_brokers::Version;
use redrive_core::Transport as _;
use redrive_rabbitmq::QueueType;
use redrive_testkit::contract::eventually;
use tokio::sync::MutexGuard;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps each line that is logged.
struct Lines;

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line).into_owned();
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What was logged since the last call.
fn logged() -> Vec<String> {
    std::mem::take(&mut *LINES.lock().unwrap_or_else(PoisonError::into_inner))
}

mod v3_10 {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_healthy_service_logs_one_error_at_its_first_start() {
        super::a_healthy_service_logs_one_error_at_its_first_start(redrive_brokers::Version::V3_10).await;
    }
}

mod v4_3 {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_healthy_service_logs_one_error_at_its_first_start() {
        super::a_healthy_service_logs_one_error_at_its_first_start(redrive_brokers::Version::V4_3).await;
    }
}

/// The logs are those of the process.
async fn logging() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let one_at_a_time = ONE_AT_A_TIME.lock().await;
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(|| Lines);
    let _ = subscriber.with_max_level(tracing::Level::INFO).try_init();
    one_at_a_time
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_gone_with_its_messages_is_a_warning() {
    let _one_at_a_time = logging().await;
    let broker = common::emulator(Version::V4_3).await;
    let scene = Scene::new(&broker.url, "gone", QueueType::Quorum).await;
    let needs = needs(&[100], 5);
    let transport = started(scene.options(), &scene, &needs).await;
    publish(&transport, message("a")).await;
    complete(&transport, next(&transport).await.receipt).await;
    let warned = |lines: &[String]| {
        let said = lines.iter().filter(|line| line.contains("one that was there is gone"));
        said.inspect(|line| assert!(line.contains(" WARN "), "{line}")).count()
    };
    assert_eq!(warned(&logged()), 0, "at the first start nothing is gone");
    scene.delete(&scene.queue).await;
    eventually("it is said", async || warned(&logged()) == 1).await;
    transport.close().await;
    scene.tidy_up(&needs).await;
}

async fn a_healthy_service_logs_one_error_at_its_first_start(version: Version) {
    let _one_at_a_time = logging().await;
    for queue_type in [QueueType::Classic, QueueType::Quorum] {
        let mut tries = 1;
        let lines = loop {
            let lines = logged_by_two_starts(version, queue_type).await;
            // A broker that gives up a new queue ends the connection, which is one more error.
            if tries == TRIES || !lines.iter().any(|line| line.contains("INTERNAL_ERROR")) {
                break lines;
            }
            tries += 1;
        };
        let errors: Vec<_> = lines.iter().filter(|line| line.contains("ERROR")).collect();
        assert_eq!(errors.len(), 1, "{errors:#?}");
        assert!(errors[0].contains("NOT_FOUND"), "{errors:?}");
        let said = lines.iter().filter(|line| line.contains("the client library logs what was missing"));
        assert_eq!(said.count(), 1, "{lines:#?}");
    }
}

/// Starts a service twice on a new queue, which it declares.
async fn logged_by_two_starts(version: Version, queue_type: QueueType) -> Vec<String> {
    let scene = Scene::new(&redrive_brokers::broker(version).url, "logs", queue_type).await;
    let needs = needs(&[100, 1000, 60_000], 5);
    logged();
    let mut lines = Vec::new();
    for _ in ["the first start", "the second start"] {
        let transport = started(scene.options(), &scene, &needs).await;
        publish(&transport, message("a")).await;
        let hand = next(&transport).await;
        let settlement = retry(&transport, &hand.delivery, Duration::from_millis(70));
        settle(&transport, hand.receipt, settlement).await;
        let stored_by = SystemTime::now();
        let hand = next(&transport).await;
        complete(&transport, hand.receipt).await;
        transport.close().await;
        let now = logged();
        waits_where_it_says(&now, &scene.rung(100), stored_by);
        lines.extend(now);
    }
    scene.tidy_up(&needs).await;
    lines
}

/// The wait that was asked for is shorter, and a new queue delays its first copy.
fn waits_where_it_says(lines: &[String], rung: &str, stored_by: SystemTime) {
    let line = lines.iter().find(|line| line.contains("the message waits")).expect("said where it waits");
    assert!(line.contains(&format!("id=\"a\" rests_in=\"{rung}\" held_for=100ms")), "{line}");
    let due_at =
        line.trim_end().rsplit("due_at=").next().and_then(|time| humantime::parse_rfc3339(time).ok());
    let after = due_at.expect("a time").duration_since(stored_by - Duration::from_secs(1)).expect("later");
    assert!(after <= Duration::from_millis(1100), "{line}, stored by {stored_by:?}");
}
