//! The consumer reacts at once when a broker accepts messages again, and when it comes back as another version.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::memory::Memory;
use redrive::prelude::*;
use redrive::transport::{
    Facts, NativeDeadLetter, Needs, OpenError, ReceiptOf, Received, Receiver, SettleError, Settlement,
    Signal, Signals,
};
use redrive::{Event, Publisher, Transport, TransportError};
use redrive_system_tests::shared::Voice;
use redrive_system_tests::{Diary, QUEUE, memory_with, numbered, place};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing_subscriber::fmt::MakeWriter;

/// The in-process broker with signals from the test.
struct Telling {
    inner: Memory,
    voice: Voice,
    settled: Arc<Mutex<Vec<&'static str>>>,
}

/// Moves dead letters itself, if requested.
struct TellingReceiver {
    inner: <Memory as Transport>::Receiver,
    settled: Arc<Mutex<Vec<&'static str>>>,
}

impl Telling {
    fn new(inner: Memory) -> Self {
        Self { inner, voice: Voice::default(), settled: Arc::default() }
    }
}

impl Transport for Telling {
    type Receiver = TellingReceiver;

    fn queue(&self) -> &str {
        self.inner.queue()
    }

    fn publisher(&self) -> Publisher {
        self.inner.publisher()
    }

    async fn open(&self, needs: &Needs, signals: Signals) -> Result<(TellingReceiver, Facts), OpenError> {
        let (inner, mut facts) = self.inner.open(needs, signals.clone()).await?;
        facts.dead_letter = NativeDeadLetter::LastResort;
        self.voice.speak_to(signals);
        Ok((TellingReceiver { inner, settled: Arc::clone(&self.settled) }, facts))
    }

    async fn close(&self) {
        self.inner.close().await;
    }

    fn now(&self) -> std::time::SystemTime {
        self.inner.now()
    }
}

impl Receiver for TellingReceiver {
    type Receipt = ReceiptOf<Memory>;

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
            Settlement::NativeDeadLetter => self.inner.settle(receipt, Settlement::Complete).await,
            other => self.inner.settle(receipt, other).await,
        }
    }

    async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        self.inner.set_limit(limit).await
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
    let voice = transport.voice.clone();
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
        voice.tell(Signal::Recovered);
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
    let (voice, settled) = (transport.voice.clone(), Arc::clone(&transport.settled));
    let diary = Diary::new();
    let runner = Consumer::new(transport)
        .concurrency(1)
        .with_dead_letter_backoff([secs(1)])
        .observer(diary.observer())
        .observer(move |event: &Event<'_>| {
            if matches!(event, Event::Settled { .. }) {
                let mut facts = Facts::new("memory");
                facts.dead_letter = NativeDeadLetter::Preferred;
                voice.tell(Signal::FactsChanged(facts));
            }
        })
        .handler(fail);
    runner.run_until(diary.ended(2)).await.unwrap();
    assert_eq!(*settled.lock().unwrap(), ["shelve", "native-dead-letter"]);
}

#[tokio::test(start_paused = true)]
async fn facts_that_no_longer_meet_the_needs_are_logged_once() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let (_broker, inner) = memory_with(numbered(2));
    let transport = Telling::new(inner);
    let voice = transport.voice.clone();
    let diary = Diary::new();
    let runner = Consumer::new(transport)
        .concurrency(1)
        .with_dead_letter_backoff([secs(60)])
        .observer(diary.observer())
        .observer(move |event: &Event<'_>| {
            if matches!(event, Event::Settled { .. }) {
                let mut facts = Facts::new("memory");
                facts.delays.longest = Some(secs(30));
                facts.counting.deliveries = false;
                voice.tell(Signal::FactsChanged(facts));
            }
        })
        .handler(fail);
    runner.run_until(diary.ended(2)).await.unwrap();
    for said in ["asks for a wait of 1m", "does not count how often"] {
        assert_eq!(log.text().matches(said).count(), 1, "`{said}` in {}", log.text());
    }
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
