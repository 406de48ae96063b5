//! Delayed retry by the broker itself: where it is refused, what it counts, and what survives.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{
    Scene, complete, dead_letter, message, needs, next, publish, retry, settle, started, tidy_up,
    with_short_wait,
};
use lapin::BasicProperties;
use redrive_brokers::{Node, Version, node_in_turn};
use redrive_consumer::Consumer;
use redrive_contract::{Started, eventually};
use redrive_core::transport::{Settlement, Signals};
use redrive_core::{Count, Delivery, Disposition, Linear, Shelf, Shelves, Transport, TransportErrorKind};
use redrive_rabbitmq::{Delay, Native, Options, QueueType, SingleQueue};

fn native(scene: &Scene) -> Options {
    with_short_wait(scene).delay(Native::between(Duration::from_millis(100), Duration::from_millis(300)))
}

async fn scene(version: Version, queue_type: QueueType) -> Scene {
    Scene::new(&redrive_brokers::broker(version).url, "native", queue_type).await
}

/// Refused before anything is declared: the broker itself would take the arguments and ignore them.
async fn native_is_refused(version: Version, queue_type: QueueType, because: &str) {
    let scene = scene(version, queue_type).await;
    let error = native(&scene).connect(&scene.url).await.expect_err("refused");
    assert_eq!(error.kind(), TransportErrorKind::Unsupported);
    for part in [because, "Delay::Ladder"] {
        assert!(error.to_string().contains(part), "`{part}` is not in: {error}");
    }
}

mod v3_10 {
    use super::*;

    #[tokio::test]
    async fn native_is_refused_on_quorum_queues() {
        native_is_refused(Version::V3_10, QueueType::Quorum, "4.3 or newer, and this is 3.10").await;
    }

    #[tokio::test]
    async fn native_is_refused_on_classic_queues() {
        native_is_refused(Version::V3_10, QueueType::Classic, "quorum queue").await;
    }
}

mod v4_3 {
    use super::*;

    #[tokio::test]
    async fn native_is_refused_on_classic_queues() {
        native_is_refused(Version::V4_3, QueueType::Classic, "quorum queue").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn native_retries_without_a_copy_until_the_policy_ends() {
        let scene = scene(Version::V4_3, QueueType::Quorum).await;
        let transport = native(&scene).connect(&scene.url).await.expect("connected");
        let (shelves, attempts) = (transport.shelves(), Arc::new(Mutex::new(Vec::new())));
        publish(&transport, message("a")).await;
        let seen = Arc::clone(&attempts);
        let handler = move |delivery: Delivery| {
            let (attempt, hop) = (delivery.attempt(), delivery.history().copy_number);
            seen.lock().unwrap().push((attempt, hop));
            async { Err::<(), _>(io::Error::other("not today")) }
        };
        let policy = Linear::from(Duration::from_millis(100)).cap(Duration::from_millis(300)).attempts(4);
        let runner = Consumer::new(transport).with_dead_letter_backoff(policy).handler(handler);
        let handle = runner.handle();
        let running = tokio::spawn(runner.run());
        let shelved = async || shelves.count(Shelf::DeadLetter).await.unwrap_or(0) > 0;
        eventually("it is dead-lettered", shelved).await;
        let shelved = shelves.browse(Shelf::DeadLetter, None, 10).await.expect("browsed").entries.remove(0);
        handle.stop();
        running.await.expect("no panic").expect("it ran");
        assert_eq!(*attempts.lock().unwrap(), [(1, 0), (2, 0), (3, 0), (4, 0)]);
        let history = &shelved.history;
        assert_eq!((history.attempt, history.copy_number, history.past.len()), (Count::Known(4), 1, 1));
        tidy_up(&scene, &[], &[]).await;
    }

    #[tokio::test]
    async fn native_needs_room_for_its_attempts() {
        let scene = scene(Version::V4_3, QueueType::Quorum).await;
        let transport = native(&scene).delivery_limit(5).connect(&scene.url).await.expect("connected");
        let mut needs = needs(&[100], 10);
        needs.attempts = Some(7);
        let error = transport
            .open(&needs, Signals::ignored())
            .await
            .expect_err("the broker ends it after 6 deliveries");
        assert_eq!(error.kind(), TransportErrorKind::Unsupported);
        assert!(error.to_string().contains("delivery limit"), "{error}");
        transport.close().await;
    }

    /// What is held back, and what is in flight, survives the broker; its attempts do too. Held back for so long that it is not
    /// in flight again when the broker dies.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn native_survives_the_death_of_its_broker() {
        const HELD_BACK: Duration = Duration::from_secs(15);
        let node = node_in_turn(Version::V4_3).await;
        let scene = Scene::new(&node.url(), "native", QueueType::Quorum).await;
        let transport = scene
            .options()
            .delay(Native::between(HELD_BACK, 2 * HELD_BACK))
            .connect(&scene.url)
            .await
            .expect("connected");
        let transport = Started::open(transport, &needs(&[100], 10)).await.expect("started");
        // A copy is stored only once the new queues are safe.
        publish(&transport, message("first")).await;
        let first = next(&transport).await;
        let settlement = dead_letter(&transport, &first.delivery);
        settle(&transport, first.receipt, settlement).await;
        publish(&transport, message("held-back")).await;
        publish(&transport, message("in-hand")).await;
        let (first, second) = (next(&transport).await, next(&transport).await);
        let settlement = retry(&transport, &first.delivery, HELD_BACK);
        assert!(matches!(settlement, Settlement::RetryInPlace { .. }), "{settlement:?}");
        settle(&transport, first.receipt, settlement).await;
        // Its count is with the broker once another answer has come on the same connection, and on its disk once a later message
        // is: the quorum queues of a node share one log.
        transport.shelves().count(Shelf::DeadLetter).await.expect("counted");
        scene.publish_raw(&scene.dead_letters(), b"later", BasicProperties::default()).await;
        node.aside(Node::restart).await.expect("killed and restarted");
        drop(second);
        let mut back = Vec::new();
        for _ in 0..2 {
            let received = next(&transport).await;
            back.push((received.delivery.id().to_owned(), received.delivery.attempt()));
            complete(&transport, received.receipt).await;
        }
        back.sort();
        assert_eq!(back, [("held-back".to_owned(), 2), ("in-hand".to_owned(), 2)]);
        transport.close().await;
        node.pass_on();
    }

    #[tokio::test]
    async fn a_snooze_goes_by_a_copy_and_keeps_the_attempt() {
        let scene = scene(Version::V4_3, QueueType::Quorum).await;
        let transport = started(native(&scene), &scene, &needs(&[100], 10)).await;
        publish(&transport, message("a")).await;
        let received = next(&transport).await;
        let settlement = retry(&transport, &received.delivery, Duration::from_millis(100));
        settle(&transport, received.receipt, settlement).await;
        let received = next(&transport).await;
        let snoozed = Disposition::snooze(Duration::from_millis(50));
        let settlement = transport.plan(&received.delivery, snoozed);
        assert!(settlement.stores_copy());
        settle(&transport, received.receipt, settlement).await;
        let received = next(&transport).await;
        assert_eq!((received.delivery.attempt(), received.delivery.history().snoozes), (2, 1));
        complete(&transport, received.receipt).await;
        transport.close().await;
        tidy_up(&scene, &[scene.rung(50)], &[]).await;
    }

    /// What a mode cannot do is in the log of its start.
    #[tokio::test]
    async fn caveats_are_logged_at_the_start() {
        let scene = scene(Version::V4_3, QueueType::Quorum).await;
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        for (delay, says) in [
            (Delay::from(SingleQueue::durable()), "at least as long as those before it"),
            (
                Native::between(Duration::from_secs(1), Duration::from_secs(2)).into(),
                "costs the messages in flight",
            ),
        ] {
            let transport =
                with_short_wait(&scene).delay(delay).connect(&scene.url).await.expect("connected");
            let transport = Started::open(transport, &needs(&[100], 10)).await.expect("started");
            transport.close().await;
            assert!(log.shown().contains(says), "`{says}` is not in: {}", log.shown());
            let exchanges = ["backoff", "retry"].map(|name| format!("{}--{name}", scene.queue));
            tidy_up(&scene, &[], &exchanges).await;
        }
    }
}

/// A place for logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
