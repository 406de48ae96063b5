//! Tests of lost locks: the handler is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redrive_consumer::{Consumer, Event, Report, State};
use redrive_core::{BoxError, Delivery, Message};
use redrive_servicebus::{Options, ServiceBus};
use redrive_servicebus_emulator::{Emulator, Settings};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const QUEUE: &str = "orders";
const TIMEOUT: Duration = Duration::from_secs(120);
/// The duration of locks that the test takes away: they must not expire if the machine stalls.
const LASTING: Duration = Duration::from_secs(60);
/// The duration of locks that must be renewed or expire before the test continues: as short as stalls of the machine allow.
const SHORT: Duration = Duration::from_secs(16);

/// A handler whose first run never ends, and whose later runs end at once.
#[derive(Clone)]
struct Service {
    runs: Arc<AtomicUsize>,
    /// The delivery count at the start of each run.
    began: mpsc::UnboundedSender<u32>,
    dropped: mpsc::UnboundedSender<()>,
}

struct Scene {
    emulator: Emulator,
    began: mpsc::UnboundedReceiver<u32>,
    dropped: mpsc::UnboundedReceiver<()>,
    lost: Arc<AtomicUsize>,
    acked: Arc<Notify>,
    running: JoinHandle<Report>,
}

struct OnDrop(mpsc::UnboundedSender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

async fn handle(State(service): State<Service>, delivery: Delivery) {
    assert_eq!(delivery.attempt(), 1, "a lost lock is not a failure");
    let first = service.runs.fetch_add(1, Ordering::SeqCst) == 0;
    let _ = service.began.send(delivery.broker_delivery_count());
    if first {
        let _told = OnDrop(service.dropped.clone());
        std::future::pending::<()>().await;
    }
}

impl Scene {
    /// Starts a consumer with one message in its handler.
    async fn set(options: Options, prefetch: u32, lock_duration: Duration) -> Result<Self, BoxError> {
        let mut settings = Settings::default();
        settings.lock_duration = lock_duration;
        let emulator = Emulator::builder().queue(QUEUE, settings).start().await?;
        let transport = options.max_delivery_count(100).connect(&emulator.connection_string()).await?;
        transport.publish(Message::new("").with_id("a")).await?;
        let (began, began_at) = mpsc::unbounded_channel();
        let (dropped, dropped_at) = mpsc::unbounded_channel();
        let service = Service { runs: Arc::default(), began, dropped };
        let (lost, acked) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (counts, tells, end) = (Arc::clone(&lost), Arc::clone(&acked), Arc::new(Notify::new()));
        let ends = Arc::clone(&end);
        let runner = Consumer::new(transport)
            .concurrency(4)
            .prefetch(prefetch)
            .observer(move |event: &Event<'_>| match event {
                Event::Lost { .. } => drop(counts.fetch_add(1, Ordering::SeqCst)),
                Event::Settled { .. } => {
                    tells.notify_one();
                    ends.notify_one();
                }
                _ => {}
            })
            .handler_with(service, handle);
        let running = tokio::spawn(async move {
            runner.run_until(async move { end.notified().await }).await.expect("it ends in order")
        });
        let mut scene = Self { emulator, began: began_at, dropped: dropped_at, lost, acked, running };
        assert_eq!(scene.began().await, 1);
        Ok(scene)
    }

    async fn began(&mut self) -> u32 {
        timeout(TIMEOUT, self.began.recv()).await.expect("a handler begins in time").expect("it lives")
    }

    /// Checks that the handler was dropped, and that the message was redelivered, uncharged, and completed.
    async fn ends(mut self) -> Result<(), BoxError> {
        timeout(TIMEOUT, self.dropped.recv()).await.expect("the handler is dropped in time");
        assert_eq!(self.began().await, 2, "handed out once more");
        timeout(TIMEOUT, self.acked.notified()).await.expect("it is settled in time");
        let report = timeout(TIMEOUT, self.running).await??;
        assert_eq!((report.acknowledged, report.lost, report.retried), (1, 1, 0));
        assert_eq!(report.suspects, 0, "nobody died of it");
        assert_eq!(self.lost.load(Ordering::SeqCst), 1);
        assert!(self.emulator.entity(QUEUE)?.messages().is_empty());
        Ok(())
    }
}

/// The consumer has room for more messages: the message is redelivered to it at once.
#[tokio::test]
async fn a_lock_that_is_lost_drops_the_handler_when_the_message_comes_again() -> Result<(), BoxError> {
    let scene = Scene::set(ServiceBus::options(QUEUE), 10, LASTING).await?;
    assert_eq!(scene.emulator.entity(QUEUE)?.expire_locks(), 1);
    scene.ends().await
}

/// The consumer has no room: only the renewal shows that the lock is lost.
#[tokio::test]
async fn a_lock_that_is_lost_drops_the_handler_when_it_is_not_renewed() -> Result<(), BoxError> {
    let scene = Scene::set(ServiceBus::options(QUEUE).prefetch_count(1), 1, SHORT).await?;
    assert_eq!(scene.emulator.entity(QUEUE)?.expire_locks(), 1);
    scene.ends().await
}

#[tokio::test]
async fn a_handler_is_dropped_when_its_lock_is_not_renewed_any_more() -> Result<(), BoxError> {
    let options = ServiceBus::options(QUEUE).max_lock_renewal(Duration::from_millis(100));
    Scene::set(options, 1, SHORT).await?.ends().await
}
