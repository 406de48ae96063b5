//! The second table of log lines in `docs/observability.md`: each line is written, at its level, and says of which message.

use std::sync::Arc;

use redrive::memory::Memory;
use redrive::prelude::*;
use redrive::transport::{Facts, NativeDeadLetter, Signal};
use redrive::{NoRetry, TransportError, TransportErrorKind};
use redrive_contract::{Fault, Faulty, LockLossTransport};
use redrive_system_tests::recorded::{Recorded, Shown};
use redrive_system_tests::shared::Shared;
use redrive_system_tests::{Diary, QUEUE, memory_with, numbered};
use tokio::sync::{Notify, Semaphore};
use tower::limit::GlobalConcurrencyLimitLayer;
use tracing::Level;

/// The lines of the table: text and level.
fn documented() -> Vec<(&'static str, Level)> {
    let page = include_str!("../../../docs/observability.md");
    let table = page.split("| line, of a consumer |").nth(1).expect("the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let (line, level) = (cells.next().unwrap(), cells.next().unwrap());
        (line.trim_matches('`'), level.parse().expect("a level"))
    })
    .collect()
}

#[tokio::test(start_paused = true)]
async fn every_line_of_the_table_is_written_at_its_level() {
    let recorded = Recorded::default();
    let _guard = tracing::subscriber::set_default(recorded.clone());
    interrupted_and_changed().await;
    refused().await;
    not_ready().await;
    too_large(NativeDeadLetter::LastResort).await;
    too_large(NativeDeadLetter::No).await;
    lost_before_it_was_settled().await;
    lost_in_the_handler().await;
    suspected().await;
    panicked_and_out_of_time().await;
    cut_off().await;

    let events = recorded.events();
    let documented = documented();
    assert!(!documented.is_empty(), "the table has no lines");
    for (text, level) in documented {
        // Behind it stands what is known only then, or nothing.
        let of = |(_, fields): &&(Level, Shown)| {
            fields["message"]
                .strip_prefix(text)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with([':', ',']))
        };
        let found: Vec<_> = events.iter().filter(of).collect();
        assert!(!found.is_empty(), "`{text}` is not written");
        for (found, fields) in found {
            assert_eq!(*found, level, "{fields:?}");
        }
    }
    let of_a_message = |(_, fields): &&(Level, Shown)| fields.contains_key("message_id");
    for (_, fields) in events.iter().filter(of_a_message) {
        assert_eq!(fields["queue"], QUEUE, "{fields:?}");
    }
    for text in [
        "not settled: the message",
        "lost while it was handled",
        "not copied",
        "the message cannot be copied",
        "redelivered after",
        "handled alone",
    ] {
        let lines = events.iter().filter(|(_, fields)| fields["message"].starts_with(text));
        lines.for_each(|(_, fields)| assert!(fields.contains_key("message_id"), "{fields:?}"));
    }
}

async fn fail() -> Result<(), BoxError> {
    Err("no answer".into())
}

/// The connection is lost, and comes back for one queue and then for all; then the broker is another one.
async fn interrupted_and_changed() {
    let (_broker, memory) = memory_with(numbered(1));
    let transport = Shared::new(Arc::new(memory));
    let (voice, diary) = (transport.voice(), Diary::new());
    let runner = Consumer::new(transport)
        .observer(diary.observer())
        .with_dead_letter_backoff([secs(60)])
        .handler(async || ());
    let telling = async {
        diary.ended(1).await;
        voice.tell(Signal::Disconnected(TransportError::new(TransportErrorKind::Unreachable, "away")));
        voice.tell(Signal::PartlyConnected(TransportError::new(
            TransportErrorKind::Unreachable,
            "one is away",
        )));
        voice.tell(Signal::Connected);
        let mut facts = Facts::new("memory");
        facts.delays.longest = Some(secs(1));
        voice.tell(Signal::FactsChanged(facts));
    };
    runner.run_until(telling).await.unwrap();
}

/// Copies are not stored at first.
async fn refused() {
    let (_broker, memory) = memory_with(numbered(1));
    let faulty = Faulty::new(memory).on_settle(|attempted| match attempted.number {
        ..3 => Fault::Refused(TransportErrorKind::Unconfirmed),
        _ => Fault::None,
    });
    run(faulty).await;
}

/// Somebody else holds the only place of a limit for a while.
async fn not_ready() {
    let (_broker, memory) = memory_with(numbered(1));
    let (places, diary) = (Arc::new(Semaphore::new(1)), Diary::new());
    let held = Arc::clone(&places).try_acquire_owned().unwrap();
    let runner = Consumer::new(memory)
        .observer(diary.observer())
        .layer(GlobalConcurrencyLimitLayer::with_semaphore(places))
        .handler(async || ());
    let holding = async {
        tokio::time::sleep(mins(2)).await;
        drop(held);
        diary.ended(1).await;
    };
    runner.run_until(holding).await.unwrap();
}

/// No copy is stored. Without a broker that moves it, the message stays in flight until the end.
async fn too_large(dead_letter: NativeDeadLetter) {
    let (_broker, memory) = memory_with(numbered(1));
    let faulty = Faulty::new(memory).on_settle(|attempted| match attempted.settlement.stores_copy() {
        true => Fault::Refused(TransportErrorKind::TooLarge),
        false => Fault::None,
    });
    let said: fn(&mut Facts) = match dead_letter {
        NativeDeadLetter::No => |facts| facts.dead_letter = NativeDeadLetter::No,
        _ => |_| {},
    };
    let runner = Consumer::new(Shared::saying(Arc::new(faulty), said))
        .grace(secs(1))
        .with_dead_letter_backoff(NoRetry)
        .handler(fail);
    runner.run_until(tokio::time::sleep(secs(1))).await.unwrap();
}

async fn lost_before_it_was_settled() {
    let (_broker, memory) = memory_with(numbered(1));
    run(Faulty::new(memory).fail_settle(1, Fault::LostBefore)).await;
}

async fn run(faulty: Faulty<Memory>) {
    let diary = Diary::new();
    let runner =
        Consumer::new(faulty).observer(diary.observer()).with_dead_letter_backoff(NoRetry).handler(fail);
    runner.run_until(diary.ended(1)).await.unwrap();
}

/// The lock of a delivery expires while it is handled.
async fn lost_in_the_handler() {
    let (_broker, memory) = memory_with(numbered(1));
    let transport = LockLossTransport::new(memory);
    let in_flight = transport.in_flight();
    let (began, diary) = (Arc::new(Notify::new()), Diary::new());
    let handler = {
        let began = Arc::clone(&began);
        move |delivery: Delivery| {
            let began = Arc::clone(&began);
            async move {
                if delivery.broker_delivery_count() == 1 {
                    began.notify_one();
                    std::future::pending::<()>().await;
                }
            }
        }
    };
    let runner = Consumer::new(transport).observer(diary.observer()).handler(handler);
    let losing = async {
        began.notified().await;
        assert!(in_flight.lose("0"));
        diary.ended(1).await;
    };
    runner.run_until(losing).await.unwrap();
}

/// A process died with the first message.
async fn suspected() {
    let (broker, dead) = memory_with(numbered(2));
    let began = Arc::new(Notify::new());
    let handler = {
        let began = Arc::clone(&began);
        move || {
            began.notify_one();
            std::future::pending::<()>()
        }
    };
    tokio::select! {
        ended = Consumer::new(dead).concurrency(1).prefetch(1).handler(handler).run() => panic!("{ended:?}"),
        () = began.notified() => {}
    }
    let diary = Diary::new();
    let runner = Consumer::new(broker.transport(QUEUE)).observer(diary.observer()).handler(async || ());
    runner.run_until(diary.ended(2)).await.unwrap();
}

async fn panicked_and_out_of_time() {
    let (_broker, memory) = memory_with(numbered(2));
    let diary = Diary::new();
    let runner = Consumer::new(memory)
        .grace(secs(1))
        .observer(diary.observer())
        .with_dead_letter_backoff(NoRetry)
        .handler(|delivery: Delivery| async move {
            assert!(delivery.id() != "0", "dropped the vase");
            std::future::pending::<()>().await;
        });
    runner.run_until(diary.ended(1)).await.unwrap();
}

/// The transport cannot go on.
async fn cut_off() {
    let (_broker, memory) = memory_with([]);
    let error = || TransportError::new(TransportErrorKind::Unauthorized, "revoked");
    let faulty = Faulty::new(memory).on_receive(move |_| Some(error()));
    Consumer::new(faulty).handler(async || ()).run().await.unwrap_err();
}
