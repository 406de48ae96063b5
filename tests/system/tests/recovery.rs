//! A broker that says that it takes messages again is believed at once; and one that comes back as another version.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::memory::Memory;
use redrive::prelude::*;
use redrive::{
    Capabilities, Event, Needs, Publisher, Received, SettleError, Settlement, Transport, TransportError,
};
use redrive_system_tests::{Diary, QUEUE, memory_with, numbered, place};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// The in-process broker with a voice.
struct Telling {
    inner: Memory,
    word: Arc<watch::Sender<()>>,
    /// From then on it moves dead letters itself.
    upgraded: Arc<AtomicBool>,
    settled: Arc<Mutex<Vec<&'static str>>>,
}

impl Telling {
    fn new(inner: Memory) -> Self {
        Self {
            inner,
            word: Arc::new(watch::Sender::new(())),
            upgraded: Arc::default(),
            settled: Arc::default(),
        }
    }
}

impl Transport for Telling {
    type Receipt = <Memory as Transport>::Receipt;

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        capabilities.native_dead_letter |= self.upgraded.load(Ordering::SeqCst);
        capabilities.prefers_native_dead_letter |= self.upgraded.load(Ordering::SeqCst);
        capabilities
    }

    fn publisher(&self) -> Publisher {
        self.inner.publisher()
    }

    async fn start(&self, needs: &Needs) -> Result<(), TransportError> {
        self.inner.start(needs).await
    }

    async fn receive(&self) -> Result<Option<Received<Self::Receipt>>, TransportError> {
        self.inner.receive().await
    }

    async fn settle(
        &self,
        receipt: Self::Receipt,
        settlement: Settlement,
    ) -> Result<(), SettleError<Self::Receipt>> {
        self.settled.lock().unwrap().push(settlement.name());
        match settlement {
            Settlement::Reject => self.inner.settle(receipt, Settlement::Complete).await,
            other => self.inner.settle(receipt, other).await,
        }
    }

    async fn pause(&self) -> Result<(), TransportError> {
        self.inner.pause().await
    }

    async fn resume(&self) -> Result<(), TransportError> {
        self.inner.resume().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }

    fn recovered(&self) -> impl Future<Output = ()> + Send {
        let mut word = self.word.subscribe();
        async move { word.changed().await.expect("the test holds the sender") }
    }

    fn now(&self) -> std::time::SystemTime {
        self.inner.now()
    }
}

async fn fail() -> Result<(), BoxError> {
    Err("no such address").permanent().map_err(Into::into)
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_was_refused_is_stored_as_soon_as_the_broker_takes_it() {
    let (broker, inner) = memory_with(numbered(1));
    broker.set_shelf_writable(QUEUE, Shelf::DeadLetter, false);
    let transport = Telling::new(inner);
    let word = Arc::clone(&transport.word);
    let (refusals, mut refused) = watch::channel(0);
    let diary = Diary::new();
    let runner = Consumer::new(transport)
        .with_dead_letter_backoff([secs(1)])
        .observer(diary.observer())
        .observer(move |event: &Event<'_>| {
            if matches!(event, Event::NotSettled { .. }) {
                refusals.send_modify(|times| *times += 1);
            }
        })
        .handler(fail);
    let watching = async {
        // By now the waits are of half a minute.
        refused.wait_for(|times| *times == 12).await.expect("the consumer runs");
        sleep(secs(1)).await;
        broker.set_shelf_writable(QUEUE, Shelf::DeadLetter, true);
        word.send_replace(());
        let began = Instant::now();
        diary.ended(1).await;
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    };
    runner.run_until(watching).await.unwrap();
    assert_eq!(place(&broker), "dead-letter shelf");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_upgraded_under_a_running_consumer_is_used_as_it_is_now() {
    let (_broker, inner) = memory_with(numbered(2));
    let transport = Telling::new(inner);
    let (upgraded, settled) = (Arc::clone(&transport.upgraded), Arc::clone(&transport.settled));
    let diary = Diary::new();
    let runner = Consumer::new(transport)
        .concurrency(1)
        .with_dead_letter_backoff([secs(1)])
        .observer(diary.observer())
        .observer(move |event: &Event<'_>| {
            if matches!(event, Event::Settled { .. }) {
                upgraded.store(true, Ordering::SeqCst);
            }
        })
        .handler(fail);
    runner.run_until(diary.ended(2)).await.unwrap();
    assert_eq!(*settled.lock().unwrap(), ["move", "reject"]);
}
