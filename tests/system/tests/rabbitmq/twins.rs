//! A publisher that publishes the same message twice means it: both are handled, also where connections and processes end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use redrive::Delivery;
use redrive::prelude::*;
use redrive_brokers::{Proxy, broker};
use redrive_contract::eventually;
use redrive_system_tests::rabbit::{Rabbit, publish_all};
use redrive_system_tests::{Combination, on_four_combinations};
use tokio::sync::{Semaphore, oneshot, watch};

on_four_combinations!(emulator: 120; both_are_handled_after_a_restart);
on_four_combinations!(900; both_are_handled_after_a_cut);

/// How many messages are published twice.
const PAIRS: usize = 30;

/// Lets handlers come to their end, and counts how often each message was handled.
#[derive(Clone)]
struct Handled {
    permits: Arc<Semaphore>,
    times: Arc<Mutex<BTreeMap<String, usize>>>,
    total: watch::Sender<usize>,
    /// Whether the second run of each message never ends.
    second_hangs: bool,
    began: Arc<Mutex<BTreeMap<String, usize>>>,
    seconds: watch::Sender<usize>,
}

impl Handled {
    fn new(permits: usize) -> Self {
        let permits = Arc::new(Semaphore::new(permits));
        Self {
            permits,
            times: Arc::default(),
            total: watch::Sender::new(0),
            second_hangs: true,
            began: Arc::default(),
            seconds: watch::Sender::new(0),
        }
    }

    /// Waits until this many handlers came to their end.
    async fn total(&self, handled: usize) {
        self.total.subscribe().wait_for(|total| *total >= handled).await.unwrap();
    }

    /// Waits until this many second handlers began.
    async fn second_began(&self, seconds: usize) {
        self.seconds.subscribe().wait_for(|began| *began >= seconds).await.unwrap();
    }

    /// Waits until every message was handled twice.
    async fn all_twice(&self) {
        let mut total = self.total.subscribe();
        let all = async {
            while self.missing() != 0 {
                total.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(secs(240), all).await.is_err() {
            panic!("{} of {PAIRS} second messages were never handled", self.missing());
        }
    }

    fn missing(&self) -> usize {
        let times = self.times.lock().unwrap();
        PAIRS - times.values().filter(|&&times| times >= 2).count()
    }
}

async fn handle(State(handled): State<Handled>, delivery: Delivery) -> Result<(), BoxError> {
    handled.permits.acquire().await?.forget();
    let run = {
        let mut began = handled.began.lock().unwrap();
        let run = began.entry(delivery.id().to_owned()).or_default();
        *run += 1;
        *run
    };
    if run == 2 && handled.second_hangs {
        handled.seconds.send_modify(|seconds| *seconds += 1);
        // It is redelivered, and is handled beside this.
        std::future::pending::<()>().await;
    }
    *handled.times.lock().unwrap().entry(delivery.id().to_owned()).or_default() += 1;
    handled.total.send_modify(|total| *total += 1);
    Ok(())
}

async fn both_are_handled_after_a_restart(on: Combination, url: &str) {
    let scene = Scene::set(on, url).await;
    let first = Handled::new(0);
    let second = Handled { second_hangs: false, ..Handled::new(PAIRS * 4) };
    let (stop, stopped) = oneshot::channel();
    let before = tokio::spawn(scene.run(&scene.url, &first, stopped).await);
    scene.until_in_flight().await;
    stop.send(()).unwrap();
    assert_eq!(before.await.unwrap().acknowledged, 0);
    let (_running, stopped) = oneshot::channel();
    let after = tokio::spawn(scene.run(&scene.url, &second, stopped).await);
    second.all_twice().await;
    drop(_running);
    after.await.unwrap();
    scene.clear().await;
}

/// The first of each pair is handled, and the second is in flight when the connection is cut.
async fn both_are_handled_after_a_cut(on: Combination) {
    let scene = Scene::set(on, &broker(on.version).url).await;
    let address = scene.url.split('@').nth(1).unwrap().split('/').next().unwrap();
    let proxy = Proxy::start(address.parse().unwrap()).await.unwrap();
    let url = scene.url.replacen(address, &proxy.addr().to_string(), 1);
    let handled = Handled::new(PAIRS * 9);
    let (running, stopped) = oneshot::channel();
    let service = tokio::spawn(scene.run(&url, &handled, stopped).await);
    handled.total(PAIRS).await;
    handled.second_began(PAIRS).await;
    proxy.cut();
    handled.all_twice().await;
    drop(running);
    service.await.unwrap();
    scene.clear().await;
}

struct Scene {
    on: Combination,
    queue: String,
    url: String,
    rabbit: Rabbit,
}

impl Scene {
    /// Publishes each message, and then each again, the same in everything.
    async fn set(on: Combination, url: &str) -> Self {
        let queue = on.unique("twins");
        let operator = on.options(&queue).connect(url).await.unwrap();
        for _ in 0..2 {
            let pairs = (0..PAIRS).map(|number| Message::new("the same").with_id(format!("order-{number}")));
            publish_all(&operator, pairs).await;
        }
        let rabbit = Rabbit::connect(url).await;
        Self { on, queue, url: url.to_owned(), rabbit }
    }

    async fn run(
        &self,
        url: &str,
        handled: &Handled,
        stopped: oneshot::Receiver<()>,
    ) -> impl Future<Output = redrive::Report> + use<> {
        let transport = self.on.options(&self.queue).connect(url).await.unwrap();
        let consumer = Consumer::new(transport)
            .concurrency(2 * PAIRS)
            .prefetch(100)
            .grace(millis(0))
            .with_dead_letter_backoff([secs(1)])
            .handler_with(handled.clone(), handle);
        async move { consumer.run_until(async { drop(stopped.await) }).await.unwrap() }
    }

    /// Waits until the broker has handed out everything.
    async fn until_in_flight(&self) {
        eventually("everything is in flight", async || self.rabbit.ready(&self.queue).await == Some(0)).await;
    }

    async fn clear(&self) {
        let ends = ["", "--dead-letters", "--parking-lot", "--retry-1000ms"];
        self.rabbit.delete(ends.map(|end| format!("{}{end}", self.queue))).await;
    }
}
