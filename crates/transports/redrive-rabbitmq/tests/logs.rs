//! What a healthy service logs, with the default levels of most programs.

mod common;

use std::io;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use common::{Scene, complete, dead_letter, message, needs, next, publish, retry, settle, started, text};
use lapin::BasicProperties;
use redrive_brokers::Version;
use redrive_contract::eventually;
use redrive_core::{Shelf, Shelves as _, Transport as _, TransportErrorKind};
use redrive_rabbitmq::QueueType;
use tokio::runtime::Runtime;
use tokio::sync::MutexGuard;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::prelude::*;

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

/// Makes the tests of this file for each broker.
macro_rules! tests {
    ($($test:ident),* $(,)?) => {
        tests! { @on v3_10 rabbitmq V3_10 $($test)* }
        tests! { @on v4_3 rabbitmq V4_3 $($test)* }
        tests! { @on as_3_10 emulator V3_10 $($test)* }
        tests! { @on as_4_3 emulator V4_3 $($test)* }
    };
    (@on $module:ident $on:ident $version:ident $($test:ident)*) => {
        mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let broker = crate::common::$on(redrive_brokers::Version::$version).await;
                let _one_at_a_time = crate::logging().await;
                for queue_type in [redrive_rabbitmq::QueueType::Classic, redrive_rabbitmq::QueueType::Quorum] {
                    super::$test(&broker.url, queue_type).await;
                }
            })*
        }
    };
}

tests!(
    a_healthy_service_logs_no_error,
    an_operator_at_foreign_shelves_logs_no_error,
    a_runtime_that_ends_without_closing_logs_no_error,
    many_messages_to_a_missing_queue_declare_it_once,
    many_copies_to_a_missing_shelf_declare_it_once,
);

/// The logs are those of the process.
async fn logging() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let one_at_a_time = ONE_AT_A_TIME.lock().await;
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(|| Lines);
    // As `docs/observability.md` advises.
    let lines = lines
        .with_filter(tracing_subscriber::EnvFilter::new("info"))
        .with_filter(filter_fn(|metadata| !metadata.is_span()));
    let _ = tracing_subscriber::registry().with(lines).try_init();
    one_at_a_time
}

/// A scene whose own connection runs in a runtime of its own. Nothing stands between that connection and the client library, which logs
/// its end as an error, and writes the last line in a task, after its thread has ended.
struct SceneApart {
    scene: Option<Scene>,
    runtime: Option<Runtime>,
    /// That were there before. One that a failed test left behind never ends.
    library_threads: usize,
}

impl SceneApart {
    async fn new(url: &str, test: &'static str, queue_type: QueueType) -> Self {
        let library_threads = library_threads();
        let runtime = runtime(1);
        let url = url.to_owned();
        let scene = runtime.spawn(async move { Scene::new(&url, test, queue_type).await });
        let scene = scene.await.expect("a scene");
        logged();
        Self { scene: Some(scene), runtime: Some(runtime), library_threads }
    }

    /// Drops what was logged until the connection has ended.
    async fn close(mut self) {
        let (scene, runtime) = (self.scene.take(), self.runtime.take());
        scene.expect("not closed").close().await;
        let have_ended = async || library_threads() <= self.library_threads;
        eventually("the library's threads have ended", have_ended).await;
        tokio::task::spawn_blocking(|| drop(runtime)).await.expect("no panic");
        logged();
    }
}

impl Drop for SceneApart {
    fn drop(&mut self) {
        // A test has failed. A runtime that is dropped here would panic.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl Deref for SceneApart {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        self.scene.as_ref().expect("not closed")
    }
}

fn runtime(threads: usize) -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(threads).enable_all().build().expect("a runtime")
}

/// The number of connections of the client library in this process.
fn library_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads").flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == "lapin-io-loop").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_gone_with_its_messages_is_a_warning() {
    let _one_at_a_time = logging().await;
    let broker = common::emulator(Version::V4_3).await;
    let scene = SceneApart::new(&broker.url, "gone", QueueType::Quorum).await;
    let needs = needs(&[100], 5);
    let transport = started(scene.options(), &scene, &needs).await;
    publish(&transport, message("a")).await;
    complete(&transport, next(&transport).await.receipt).await;
    let warned = |lines: &[String]| {
        let said = lines.iter().filter(|line| line.contains("one is gone"));
        said.inspect(|line| assert!(line.contains(" WARN "), "{line}")).count()
    };
    assert_eq!(warned(&logged()), 0, "at the first start nothing is gone");
    scene.delete(&scene.queue).await;
    eventually("it is said", async || warned(&logged()) == 1).await;
    transport.close().await;
    scene.tidy_up(&needs).await;
    scene.close().await;
}

/// Starts a service twice on a new queue, which it declares.
async fn a_healthy_service_logs_no_error(url: &str, queue_type: QueueType) {
    let scene = SceneApart::new(url, "logs", queue_type).await;
    let needs = needs(&[100, 1000, 60_000], 5);
    for _ in 0..2 {
        let transport = started(scene.options(), &scene, &needs).await;
        publish(&transport, message("a")).await;
        let hand = next(&transport).await;
        let settlement = retry(&transport, &hand.delivery, Duration::from_millis(70));
        settle(&transport, hand.receipt, settlement).await;
        let stored_by = SystemTime::now();
        let hand = next(&transport).await;
        complete(&transport, hand.receipt).await;
        transport.close().await;
        waits_where_it_says(&no_error(), &scene.rung(100), stored_by);
    }
    scene.tidy_up(&needs).await;
    scene.close().await;
}

/// The shelves of a queue that another program declared, which dead-letters into a queue without a delivery limit of its own. It has no
/// parking queue.
async fn an_operator_at_foreign_shelves_logs_no_error(url: &str, queue_type: QueueType) {
    let scene = SceneApart::new(url, "foreign", queue_type).await;
    let foreign = format!("{}.dlq", scene.queue);
    let kind = text(if queue_type == QueueType::Quorum { "quorum" } else { "classic" });
    scene.declare_raw(&foreign, &[("x-queue-type", kind.clone()), ("x-max-length", 100.into())]).await;
    scene.declare_raw(&scene.queue, &[("x-queue-type", kind)]).await;
    for body in [b"a", b"b"] {
        scene.publish_raw(&foreign, body, BasicProperties::default()).await;
    }
    logged();
    let options = scene.options().dead_letter_queue(&foreign).accept_low_delivery_limit(false);
    let transport = options.connect(url).await.expect("connected");
    let shelves = transport.shelves();
    assert!(shelves.count(Shelf::Parking).await.is_err(), "there is no parking queue");
    eventually("the messages are there", async || matches!(shelves.count(Shelf::DeadLetter).await, Ok(2)))
        .await;
    match shelves.browse(Shelf::DeadLetter, None, 10).await {
        Ok(page) => assert_eq!(page.entries.len(), 2),
        // The default limit of this broker is low.
        Err(refused) => assert_eq!(refused.kind(), TransportErrorKind::Unsupported, "{refused}"),
    }
    shelves.work_queue().await.expect("the work queue answers");
    let lease = shelves.lease(Shelf::DeadLetter).await.expect("nobody else has it");
    let reported = shelves.reported().await.expect("declared");
    drop((lease, reported));
    transport.close().await;
    drop(shelves);
    no_error();
    for queue in [&foreign, &scene.queue] {
        scene.delete(queue).await;
    }
    scene.close().await;
}

/// A program that publishes, and ends: nobody closes anything.
async fn a_runtime_that_ends_without_closing_logs_no_error(url: &str, queue_type: QueueType) {
    let scene = SceneApart::new(url, "ends", queue_type).await;
    let connections = library_threads();
    let (options, url) = (scene.options(), url.to_owned());
    let program = move || {
        let runtime = runtime(2);
        let transport = runtime.block_on(async {
            let transport = options.connect(&url).await.expect("connected");
            publish(&transport, message("a")).await;
            transport
        });
        drop(runtime);
        drop(transport);
    };
    tokio::task::spawn_blocking(program).await.expect("no panic");
    // The library's threads end a moment later.
    eventually("the library has ended", async || library_threads() <= connections).await;
    no_error();
    scene.tidy_up(&needs(&[], 5)).await;
    scene.close().await;
}

async fn many_messages_to_a_missing_queue_declare_it_once(url: &str, queue_type: QueueType) {
    let scene = SceneApart::new(url, "many", queue_type).await;
    let options = scene.options().new_queue_wait(Duration::from_millis(300)).wait(Duration::from_millis(500));
    let transport = options.connect(url).await.expect("connected");
    logged();
    let messages = || (0..500).map(|number| message(number.to_string()));
    let refused = transport.publisher().publish_all(messages()).await;
    assert_eq!(refused.iter().filter(|stored| stored.is_ok()).count(), 500, "{refused:?}");
    declared_once("declaring a missing queue that a message was published to");
    scene.delete(&scene.queue).await;
    let publisher = transport.publisher();
    let later = messages().map(|message| publisher.publish_after(message, Duration::from_millis(500)));
    let stored = futures::future::join_all(later).await;
    assert!(stored.iter().all(Result::is_ok), "{stored:?}");
    declared_once("declaring a missing queue that a message was published to");
    transport.close().await;
    for queue in [scene.queue.clone(), scene.dead_letters(), scene.rung(500)] {
        scene.delete(&queue).await;
    }
    scene.close().await;
}

async fn many_copies_to_a_missing_shelf_declare_it_once(url: &str, queue_type: QueueType) {
    let scene = SceneApart::new(url, "shelf", queue_type).await;
    let needs = needs(&[100], 200);
    let transport = started(common::with_short_wait(&scene), &scene, &needs).await;
    for number in 0..200 {
        publish(&transport, message(number.to_string())).await;
    }
    let mut held = Vec::new();
    while held.len() < 200 {
        held.push(next(&transport).await);
    }
    scene.delete(&scene.dead_letters()).await;
    logged();
    let settled = held.into_iter().map(|hand| {
        let settlement = dead_letter(&transport, &hand.delivery);
        settle(&transport, hand.receipt, settlement)
    });
    futures::future::join_all(settled).await;
    declared_once("the queue is missing: declaring it");
    transport.close().await;
    scene.tidy_up(&needs).await;
    scene.close().await;
}

/// Checks that this line was logged once, and little else.
fn declared_once(line: &str) {
    let lines = no_error();
    let declared = lines.iter().filter(|logged| logged.contains(line)).count();
    assert_eq!(declared, 1, "{lines:#?}");
    let size: usize = lines.iter().map(String::len).sum();
    assert!(size < 10_000, "{size} bytes: {lines:#?}");
}

/// Fails if an error was logged since the last call, by whomever. Returns all lines.
fn no_error() -> Vec<String> {
    let lines = logged();
    // A broker that gives up a new queue ends the connection, which is an error with a reason.
    let gave_up = lines.iter().any(|line| line.contains("INTERNAL_ERROR"));
    let errors: Vec<_> = lines.iter().filter(|line| line.contains("ERROR")).collect();
    assert!(gave_up || errors.is_empty(), "{errors:#?}");
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
