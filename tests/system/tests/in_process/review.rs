//! Faults that a review found: each test failed before the fix.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use redrive::prelude::*;
use redrive::transport::{
    DeliveryBuilder, Facts, NativeDeadLetter, Needs, OpenError, Origin, Planning, Received, Receiver,
    SettleError, Settlement, Signals,
};
use redrive::{
    Delivery, Event, NoRetry, Publisher, Transport, TransportError, TransportErrorKind, header_names,
};
use redrive_contract::{Fault, Faulty};
use redrive_system_tests::shared::Shared;
use redrive_system_tests::{Diary, QUEUE, memory_with, numbered};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::handlers::{counted, fail, succeed};

/// After a pause it still hands out some, as they were prefetched.
struct Prefetching<T>(T, usize);

struct PrefetchingReceiver<R> {
    inner: R,
    prefetched: usize,
    phase: Mutex<Phase>,
}

enum Phase {
    Taking,
    Paused { left: usize },
}

impl<T: Transport> Transport for Prefetching<T> {
    type Receiver = PrefetchingReceiver<T::Receiver>;

    fn queue(&self) -> &str {
        self.0.queue()
    }

    async fn open(&self, needs: &Needs, signals: Signals) -> Result<(Self::Receiver, Facts), OpenError> {
        let (inner, facts) = self.0.open(needs, signals).await?;
        Ok((PrefetchingReceiver { inner, prefetched: self.1, phase: Mutex::new(Phase::Taking) }, facts))
    }

    async fn close(&self) {
        self.0.close().await;
    }

    fn publisher(&self) -> Publisher {
        self.0.publisher()
    }

    fn now(&self) -> std::time::SystemTime {
        self.0.now()
    }
}

impl<R: Receiver> Receiver for PrefetchingReceiver<R> {
    type Receipt = R::Receipt;

    async fn receive(&self) -> Result<Option<Received<R::Receipt>>, TransportError> {
        if let Phase::Paused { left } = &mut *self.phase.lock().unwrap() {
            let Some(fewer) = left.checked_sub(1) else { return Ok(None) };
            *left = fewer;
            return self.inner.receive().now_or_never().unwrap_or(Ok(None));
        }
        self.inner.receive().await
    }

    async fn settle(
        &self,
        receipt: R::Receipt,
        settlement: Settlement,
    ) -> Result<(), SettleError<R::Receipt>> {
        self.inner.settle(receipt, settlement).await
    }

    async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        if limit > 0 {
            *self.phase.lock().unwrap() = Phase::Taking;
            return self.inner.set_limit(limit).await;
        }
        let mut phase = self.phase.lock().unwrap();
        if let Phase::Taking = *phase {
            *phase = Phase::Paused { left: self.prefetched };
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_settled_is_not_given_back_as_a_copy_that_nobody_knows() {
    let (broker, transport) = memory_with(numbered(1));
    let faulty = Faulty::new(transport).fail_settle(1, Fault::LostBefore);
    let prefetching = Prefetching(faulty, 1);
    let lost = Arc::new(Notify::new());
    let shutdown = Arc::clone(&lost);
    // The shutdown comes when the acknowledgement is lost: the message is redelivered, and no handler begins with it.
    let consumer = Consumer::new(Shared::saying(Arc::new(prefetching), |facts| {
        facts.counting.releases = true;
    }))
    .observer(move |event: &Event<'_>| {
        if matches!(event, Event::NotSettled { .. }) {
            lost.notify_one();
        }
    })
    .handler(succeed);
    let report = consumer.run_until(async move { shutdown.notified().await }).await.unwrap();
    assert_eq!((report.deduplicated, report.released), (1, 0), "{report:?}");
    assert_eq!(broker.depth(QUEUE), 0, "it was handled, and must not be handled again");
}

#[test]
fn what_is_not_due_is_not_due_either_when_it_was_given_back() {
    let mut facts = Facts::new("test");
    facts.counting.releases = true;
    let now = std::time::UNIX_EPOCH + secs(1_700_000_000);
    let planning = Planning::new(now, &facts);
    let message =
        Message::new("x").with_id("m").with_header(header_names::NOT_BEFORE, "2030-01-01T00:00:00.000Z");
    let delivery =
        DeliveryBuilder::new(message, Origin::new(QUEUE, "", ""), now).broker_delivery_count(2).build();
    let Settlement::Reschedule { copy, .. } = Settlement::plan(&delivery, Disposition::Release, &planning)
    else {
        panic!("not given back as a copy")
    };
    let again = Delivery::new(copy, QUEUE, now);
    assert!(Settlement::wait_on(&again, &planning).is_some(), "its wait was cut short");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_can_never_be_copied_does_not_stop_all_others() {
    // The try, of all at storing a copy, that fails because of the broker.
    for in_trouble in [None, Some(0), Some(3)] {
        let (broker, transport) = memory_with(numbered(20));
        let tries = AtomicUsize::new(0);
        let faulty = Faulty::new(transport).on_settle(move |attempted| {
            if !attempted.settlement.stores_copy() {
                return Fault::None;
            }
            let is_in_trouble = Some(tries.fetch_add(1, Ordering::SeqCst)) == in_trouble;
            Fault::Refused(if is_in_trouble {
                TransportErrorKind::Unconfirmed
            } else {
                TransportErrorKind::TooLarge
            })
        });
        let said = Shared::saying(Arc::new(faulty), |said| said.dead_letter = NativeDeadLetter::No);
        let consumer =
            Consumer::new(said).concurrency(2).grace(secs(1)).with_dead_letter_backoff(NoRetry).handler(
                |body: String| async move {
                    // Slow: they are there after the trouble.
                    sleep(secs(1)).await;
                    if body == "0" { fail().await } else { Ok(()) }
                },
            );
        let report = consumer.run_until(sleep(mins(10))).await.unwrap();
        assert_eq!((report.acknowledged, report.released), (19, 1), "{in_trouble:?}: {report:?}");
        assert_eq!(broker.depth(QUEUE), 1, "it stays");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_zero_does_not_run_the_handler_without_a_pause() {
    let (_broker, transport) = memory_with(numbered(1));
    let faulty = Faulty::new(transport).on_settle(|attempted| {
        if attempted.settlement.stores_copy() {
            Fault::Refused(TransportErrorKind::Full)
        } else {
            Fault::None
        }
    });
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let consumer = Consumer::new(faulty).grace(Duration::ZERO).handler(move || {
        // It would go on for ever.
        let is_enough = counted.fetch_add(1, Ordering::SeqCst) > 1000;
        std::future::ready(if is_enough { Disposition::Ack } else { Disposition::snooze(Duration::ZERO) })
    });
    consumer.run_until(sleep(secs(10))).await.unwrap();
    let runs = runs.load(Ordering::SeqCst);
    assert!((50..=101).contains(&runs), "{runs} in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_begins_at_the_shutdown_whatever_the_broker_is_asked() {
    let (_broker, transport) = memory_with(numbered(2));
    let faulty = Faulty::new(transport).on_settle(|attempted| match attempted.settlement {
        Settlement::Release if attempted.number == 1 => Fault::Hangs,
        _ => Fault::None,
    });
    let consumer = Consumer::new(Prefetching(faulty, 1))
        .concurrency(1)
        .grace(secs(2))
        .handler(async || sleep(mins(60)).await);
    let handle = consumer.handle();
    let began = tokio::time::Instant::now();
    let shutdown = async move {
        sleep(secs(1)).await;
        handle.pause();
        sleep(secs(1)).await;
    };
    consumer.run_until(shutdown).await.unwrap();
    assert!(began.elapsed() < secs(5), "it ended after {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_panicking_observer_or_redactor_changes_nothing_for_the_message() {
    let (broker, transport) = memory_with([Message::new("x").with_id("m")]);
    let diary = Diary::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([secs(1)])
        .redactor(|_| panic!("no text is good enough"))
        .observer(|event: &Event<'_>| {
            if matches!(event, Event::Decided { .. }) {
                panic!("the metrics are broken")
            }
        })
        .observer(diary.observer())
        .handler(counted(&runs, fail));
    // Before, it was given back at once, handled again, and so on without end or pause.
    tokio::time::timeout(mins(1), consumer.run_until(diary.ended(1))).await.expect("it ends").unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    let shelf = broker.shelf(QUEUE, Shelf::DeadLetter);
    assert_eq!(shelf.len(), 1);
    assert!(!format!("{shelf:?}").contains("no answer"), "a text that was not redacted is not written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_blocks_its_thread_does_not_keep_the_consumer_from_ending() {
    let (_broker, transport) = memory_with(numbered(1));
    let (began, over) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let handler = {
        let (began, over) = (Arc::clone(&began), Arc::clone(&over));
        move || {
            began.notify_one();
            while !over.load(Ordering::SeqCst) {
                std::thread::sleep(millis(10));
            }
            succeed()
        }
    };
    let consumer = Consumer::new(transport).grace(Duration::ZERO).handler(handler);
    let ended =
        tokio::time::timeout(secs(300), consumer.run_until(async move { began.notified().await })).await;
    over.store(true, Ordering::SeqCst);
    ended.expect("it ends").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pause_gives_back_even_when_no_copy_can_be_stored() {
    let deliveries_before = |message: Message| message.with_header(header_names::HANDED_OUT, 1_i64);
    let (broker, transport) = memory_with(numbered(5).map(deliveries_before));
    let faulty = Faulty::new(transport).on_settle(|attempted| {
        if attempted.settlement.stores_copy() {
            Fault::Refused(TransportErrorKind::Unconfirmed)
        } else {
            Fault::None
        }
    });
    let prefetching = Prefetching(faulty, 1);
    let paused = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&paused);
    let consumer = Consumer::new(Shared::saying(Arc::new(prefetching), |facts| {
        facts.counting.releases = true;
    }))
    .observer(move |event: &Event<'_>| {
        if matches!(event, Event::Settled { disposition: Disposition::Release, .. }) {
            seen.fetch_add(1, Ordering::SeqCst);
        }
    })
    .handler(succeed);
    consumer.handle().pause();
    let operator = async {
        sleep(millis(10)).await;
        assert_eq!(paused.load(Ordering::SeqCst), 1, "it is held by a consumer that does nothing with it");
        assert_eq!(broker.held(QUEUE), 0);
    };
    consumer.run_until(operator).await.unwrap();
    assert_eq!(broker.depth(QUEUE), 5);
}
