//! The consumer's own promises, on the in-process broker and virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redrive::memory::{Memory, MemoryOptions};
use redrive::prelude::*;
use redrive::transport::Needs;
use redrive::{ConsumerError, Event, Report, header_names};
use redrive_contract::Started;
use redrive_system_tests::shared::Shared;
use redrive_system_tests::{Diary, QUEUE, header, memory_with, numbered, place, reason};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::handlers::{counted, succeed};

async fn must_not_run() {
    panic!("the handler must not run")
}

async fn fail() -> Result<(), BoxError> {
    Err("amqp://user:hunter2@broker: no answer".into())
}

#[tokio::test(start_paused = true)]
async fn as_many_are_handled_at_once_as_asked_and_no_more() {
    let (_broker, transport) = memory_with(numbered(50));
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handler = {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        move || {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(secs(1)).await;
                running.fetch_sub(1, Ordering::SeqCst);
            }
        }
    };
    let diary = Diary::new();
    let consumer = Consumer::new(transport).concurrency(7).observer(diary.observer()).handler(handler);
    consumer.run_until(diary.ended(50)).await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 7);
}

/// A delivery that is dropped on the way to its handler is redelivered with a higher count: that is the only way to notice it.
#[tokio::test(start_paused = true)]
async fn everything_is_handed_out_once_however_much_comes_at_once() {
    const MESSAGES: usize = 500;
    let (_broker, transport) = memory_with(numbered(MESSAGES));
    let diary = Diary::new();
    let again = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&again);
    let handler = move |delivery: Delivery| {
        seen.fetch_add(usize::from(delivery.broker_delivery_count() > 1), Ordering::SeqCst);
        async {}
    };
    let consumer = Consumer::new(transport).concurrency(200).observer(diary.observer()).handler(handler);
    let report = consumer.run_until(diary.ended(MESSAGES)).await.unwrap();
    assert_eq!((again.load(Ordering::SeqCst), report.suspects), (0, 0));
    assert_eq!(report.acknowledged, MESSAGES as u64);
}

#[tokio::test(start_paused = true)]
async fn a_ladder_of_hours_passes_in_no_time() {
    let (broker, transport) = memory_with(numbered(1));
    let began = broker.now();
    let diary = Diary::new();
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([mins(10), mins(60), mins(600)])
        .observer(diary.observer())
        .handler(fail);
    consumer.run_until(diary.ended(1)).await.unwrap();
    assert_eq!(diary.names(), ["retry", "retry", "retry", "dead-letter"]);
    let lasted = broker.now().duration_since(began).unwrap();
    assert!(lasted >= mins(670) && lasted < mins(671), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_written_on_a_failed_message_tells_its_story_and_no_secret() {
    let (broker, transport) =
        memory_with([Message::new("x").with_id("m").with_header("traceparent", "00-aa-bb-01")]);
    let diary = Diary::new();
    let consumer =
        Consumer::new(transport).with_dead_letter_backoff([secs(1)]).observer(diary.observer()).handler(fail);
    consumer.run_until(diary.ended(1)).await.unwrap();
    let shelved = broker.shelf(QUEUE, Shelf::DeadLetter).remove(0);
    assert_eq!(header(&shelved, header_names::ATTEMPT), "2");
    assert_eq!(header(&shelved, header_names::MESSAGE_ID), "m");
    assert_eq!(header(&shelved, "traceparent"), "00-aa-bb-01", "W3C trace context survives every hop");
    assert!(!format!("{shelved:?}").contains("hunter2"), "{shelved:?}");
    let history = redrive::FailureHistory::read(&shelved);
    assert_eq!(history.past.len(), 2);
    assert_eq!(history.past[0].wait_ms, Some(1000));
    assert!(history.first_failed_at.unwrap() < history.last_failed_at.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_error_that_no_layer_decides_about_is_dead_lettered() {
    let (broker, transport) = memory_with(numbered(1));
    let diary = Diary::new();
    let consumer = Consumer::new(transport).observer(diary.observer()).handler(fail);
    consumer.run_until(diary.ended(1)).await.unwrap();
    assert_eq!(reason(&broker.shelf(QUEUE, Shelf::DeadLetter)[0]), "Undecided");
}

#[tokio::test(start_paused = true)]
async fn a_count_that_cannot_be_read_is_not_taken_for_zero() {
    for (name, value) in [(header_names::ATTEMPT, "many"), (header_names::REDRIVES, "-3")] {
        let (broker, transport) = memory_with([Message::new("x").with_id("m").with_header(name, value)]);
        let diary = Diary::new();
        let consumer = Consumer::new(transport)
            .with_dead_letter_backoff([secs(1)])
            .observer(diary.observer())
            .handler(must_not_run);
        consumer.run_until(diary.ended(1)).await.unwrap();
        let shelves = [Shelf::DeadLetter, Shelf::Parking];
        let shelved = shelves.iter().flat_map(|&shelf| broker.shelf(QUEUE, shelf)).next().unwrap();
        assert_eq!(reason(&shelved), "MalformedHeaders");
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_shelf_cannot_be_written_the_message_stays_and_the_intake_rests() {
    let (broker, transport) = memory_with(numbered(20));
    broker.set_shelf_writable(QUEUE, Shelf::DeadLetter, false);
    let runs = Arc::new(AtomicUsize::new(0));
    let diary = Diary::new();
    let intake = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&intake);
    let consumer = Consumer::new(transport)
        .concurrency(4)
        .with_dead_letter_backoff(redrive::NoRetry)
        .observer(diary.observer())
        .observer(move |event: &Event<'_>| match event {
            Event::IntakePaused { .. } => seen.lock().unwrap().push("paused"),
            Event::IntakeResumed { .. } => seen.lock().unwrap().push("resumed"),
            _ => {}
        })
        .handler(counted(&runs, fail));
    let operator = async {
        sleep(mins(10)).await;
        let while_unwritable = runs.load(Ordering::SeqCst);
        assert!(while_unwritable <= 4, "{while_unwritable} handlers ran, and none could be settled");
        assert_eq!(broker.depth(QUEUE), 20, "every message is still there");
        broker.set_shelf_writable(QUEUE, Shelf::DeadLetter, true);
        diary.ended(20).await;
    };
    consumer.run_until(operator).await.unwrap();
    assert_eq!(broker.shelf(QUEUE, Shelf::DeadLetter).len(), 20);
    assert_eq!(runs.load(Ordering::SeqCst), 20, "no handler ran twice for one message");
    let intake = intake.lock().unwrap();
    assert_eq!((intake.first(), intake.last()), (Some(&"paused"), Some(&"resumed")), "{intake:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_in_the_middle_of_that_gives_the_message_back() {
    let (broker, transport) = memory_with(numbered(1));
    broker.set_shelf_writable(QUEUE, Shelf::DeadLetter, false);
    let consumer =
        Consumer::new(transport).grace(secs(5)).with_dead_letter_backoff(redrive::NoRetry).handler(fail);
    let report = consumer.run_until(sleep(mins(1))).await.unwrap();
    assert_eq!((report.released, report.dead_lettered), (1, 0));
    assert_eq!(place(&broker), "ready");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_handlers_finish_and_gives_back_what_has_not_begun() {
    let (broker, transport) = memory_with(numbered(10));
    let began = Arc::new(Semaphore::new(0));
    let handler = {
        let began = Arc::clone(&began);
        move || {
            began.add_permits(1);
            sleep(secs(20))
        }
    };
    let shutdown = {
        let began = Arc::clone(&began);
        async move { drop(began.acquire_many(3).await.unwrap()) }
    };
    let report = Consumer::new(transport).concurrency(3).handler(handler).run_until(shutdown).await.unwrap();
    assert_eq!(report.acknowledged, 3);
    assert_eq!(broker.depth(QUEUE), 7);
    assert_eq!(broker.held(QUEUE), 0);
}

/// The loop and the handlers have tasks of their own: none of them may outlive the future that was dropped.
#[tokio::test]
async fn a_consumer_that_is_dropped_drops_its_handlers_and_their_messages_come_again() {
    let (broker, transport) = memory_with(numbered(1));
    let begun = Arc::new(Semaphore::new(0));
    let beginning = Arc::clone(&begun);
    let handler = move || {
        beginning.add_permits(1);
        std::future::pending::<()>()
    };
    tokio::select! {
        ended = Consumer::new(transport).handler(handler).run() => panic!("it ended by itself: {ended:?}"),
        began = begun.acquire() => began.unwrap().forget(),
    }
    let next = broker.transport(QUEUE);
    let next = Started::open(next, &Needs::none()).await.unwrap();
    let received = next.receive().await.unwrap().unwrap();
    assert_eq!(received.delivery.broker_delivery_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pause_stops_the_intake_and_a_resume_starts_it() {
    let (broker, transport) = memory_with(numbered(1));
    let diary = Diary::new();
    let consumer = Consumer::new(transport).observer(diary.observer()).handler(succeed);
    let handle = consumer.handle();
    let running = tokio::spawn(consumer.run());
    diary.ended(1).await;
    handle.pause();
    sleep(secs(1)).await;
    broker.publish(QUEUE, Message::new("later")).unwrap();
    sleep(mins(10)).await;
    assert_eq!(broker.depth(QUEUE), 1, "paused");
    handle.resume();
    diary.ended(2).await;
    handle.stop();
    handle.resume();
    assert_eq!(running.await.unwrap().unwrap().acknowledged, 2);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_still_starting_ends_when_it_is_asked_to() {
    for by_handle in [false, true] {
        let memory = Arc::new(Memory::new(QUEUE));
        let consumer = Consumer::new(Shared::new(Arc::clone(&memory)).that_never_opens()).handler(succeed);
        let handle = consumer.handle();
        let shutdown = async move {
            sleep(secs(5)).await;
            if by_handle {
                handle.stop();
                std::future::pending::<()>().await;
            }
        };
        let ended = tokio::time::timeout(mins(10), consumer.run_until(shutdown)).await;
        assert_eq!(ended.expect("it ends").unwrap().acknowledged, 0);
        memory.publish(Message::new("x")).await.expect_err("the transport is closed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_consumer_paused_before_its_start_takes_nothing() {
    let (broker, transport) = memory_with(numbered(1));
    let consumer = Consumer::new(transport).handler(succeed);
    consumer.handle().pause();
    consumer.run_until(sleep(mins(1))).await.unwrap();
    assert_eq!(place(&broker), "ready");
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_costs_no_attempt_and_no_message() {
    let (broker, transport) = memory_with(numbered(1));
    let transport = Arc::new(transport);
    let diary = Diary::new();
    let interrupted = Arc::new(AtomicUsize::new(0));
    let handler = {
        let (transport, interrupted) = (Arc::clone(&transport), Arc::clone(&interrupted));
        move |Attempt(attempt): Attempt| {
            assert_eq!(attempt, 1);
            if interrupted.fetch_add(1, Ordering::SeqCst) == 0 {
                transport.interrupt();
            }
            fail()
        }
    };
    let consumer = Consumer::new(Shared::new(transport))
        .with_dead_letter_backoff(redrive::NoRetry)
        .observer(diary.observer())
        .handler(handler);
    let report = consumer.run_until(diary.ended(1)).await.unwrap();
    assert_eq!((report.lost, report.dead_lettered), (1, 1));
    assert_eq!(header(&broker.shelf(QUEUE, Shelf::DeadLetter)[0], header_names::ATTEMPT), "1");
}

#[tokio::test(start_paused = true)]
async fn what_was_given_back_is_never_taken_for_its_twin() {
    let twin = || Message::new("the same").with_id("twin");
    let (broker, transport) = memory_with([twin(), twin()]);
    let transport = Arc::new(transport);
    let runs = Arc::new(AtomicUsize::new(0));
    let handler = {
        let (transport, runs) = (Arc::clone(&transport), Arc::clone(&runs));
        move || {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            if run == 1 {
                // Both are redelivered, marked as redelivered.
                transport.interrupt();
            }
            async move {
                // The one is done meanwhile.
                sleep(secs(if run == 2 { 1 } else { 2 })).await;
                if [2, 4].contains(&run) { Disposition::Ack } else { Disposition::Release }
            }
        }
    };
    let consumer = Consumer::new(Shared::new(transport))
        .concurrency(2)
        .suspects(redrive::Suspects::none())
        .handler(handler);
    consumer.run_until(sleep(mins(1))).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 5, "the other was not handled");
    assert_eq!(broker.depth(QUEUE), 0);
}

#[tokio::test(start_paused = true)]
async fn a_snoozed_copy_is_never_taken_for_its_original() {
    let (broker, transport) = memory_with(numbered(1));
    let transport = Arc::new(transport);
    let runs = Arc::new(AtomicUsize::new(0));
    let handler = {
        let (transport, runs) = (Arc::clone(&transport), Arc::clone(&runs));
        move || {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            if run == 1 {
                transport.interrupt();
            }
            async move {
                match run {
                    0 => Ok(Disposition::snooze(secs(1))),
                    // Not settled: the copy is redelivered, marked as redelivered, with its original's id and attempt.
                    1 => Err("the connection is gone"),
                    _ => Ok(Disposition::Ack),
                }
            }
        }
    };
    let diary = Diary::new();
    let consumer = Consumer::new(Shared::new(transport))
        .with_dead_letter_backoff(redrive::NoRetry)
        .observer(diary.observer())
        .handler(handler);
    consumer.run_until(diary.settled(2)).await.unwrap();
    assert_eq!(diary.names(), ["snooze", "ack"]);
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    assert_eq!(broker.depth(QUEUE), 0);
}

#[tokio::test(start_paused = true)]
async fn the_transport_is_told_what_will_be_asked_of_it() {
    let needs_of = async |build: fn(Consumer<Shared<Memory>>) -> redrive::Runner<Shared<Memory>>| {
        let shared = Shared::new(Arc::new(Memory::new(QUEUE)));
        let needs = shared.needs();
        build(Consumer::new(shared)).run_until(sleep(secs(1))).await.unwrap();
        needs.lock().unwrap().clone()
    };
    let derived = needs_of(|consumer| consumer.concurrency(8).handler(succeed)).await;
    assert_eq!((derived.prefetch, derived.deliveries), (16, None));
    assert!(derived.waits.is_empty());
    let said = needs_of(|consumer| {
        consumer.prefetch(3).with_dead_letter_backoff([secs(1), secs(5)]).handler(succeed)
    });
    let said = said.await;
    assert_eq!((said.prefetch, said.deliveries), (3, Some(10)));
    assert_eq!(said.waits.into_iter().collect::<Vec<_>>(), [secs(1), secs(5)]);
    let by_handler = needs_of(|consumer| consumer.handler(succeed.with_dead_letter_backoff([secs(7)])));
    assert_eq!(by_handler.await.waits.into_iter().collect::<Vec<_>>(), [secs(7)]);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_the_broker_cannot_honour_is_refused() {
    let transport = Memory::with(QUEUE, MemoryOptions::new().delivery_limit(5));
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff(DeadLetterBackoff::new([secs(1)]).poison_after(5))
        .handler(succeed);
    let error = consumer.run().await.unwrap_err();
    assert!(matches!(error, ConsumerError::Refused { .. }));
    let said = error.to_string();
    assert!(said.contains("5 deliveries") && said.contains("poison_after"), "{said}");
}

#[tokio::test]
async fn a_retry_policy_around_a_retry_policy_is_refused() {
    let consumer = Consumer::new(Memory::new(QUEUE))
        .with_dead_letter_backoff([secs(60)])
        .handler(succeed.with_dead_letter_backoff([secs(1), secs(5)]));
    let error = consumer.run().await.unwrap_err();
    assert!(matches!(error, ConsumerError::Refused { .. }));
    let said = error.to_string();
    for part in ["inner one (waits 1s, 5s)", "outer one (waits 1m) never acts", "remove one"] {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
}

#[tokio::test]
async fn a_message_that_comes_without_an_id_keeps_the_one_it_is_given() {
    let (broker, transport) = memory_with([Message::new("nameless")]);
    let diary = Diary::new();
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff([millis(1), millis(1)])
        .observer(diary.observer())
        .handler(fail);
    consumer.run_until(diary.ended(1)).await.unwrap();
    let ids: Vec<_> = diary.entries().iter().map(|entry| entry.delivery.id().to_owned()).collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| *id == ids[0] && id.len() == 32), "{ids:?}");
    assert_eq!(broker.shelf(QUEUE, Shelf::DeadLetter)[0].id(), Some(ids[0].as_str()));
}

#[tokio::test(start_paused = true)]
async fn an_empty_queue_is_no_reason_to_end() {
    let (_broker, transport) = memory_with([]);
    let report = Consumer::new(transport).handler(succeed).run_until(sleep(mins(60))).await.unwrap();
    assert_eq!(report, Report::default());
}
