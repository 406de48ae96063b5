//! What a consumer writes down itself, for queues that do not count deliveries.

use std::path::PathBuf;
use std::sync::Arc;

use redrive::memory::Memory;
use redrive::prelude::*;
use redrive::transport::Settlement;
use redrive::{ConsumerError, NoRetry, Transport, TransportErrorKind};
use redrive_system_tests::shared::Shared;
use redrive_system_tests::{Diary, QUEUE, memory_with, numbered, reason};

use redrive_contract::{Fault, Faulty};

use super::ALLOWED;

/// A ledger with these lines, gone with the test.
struct LedgerFile(PathBuf);

impl LedgerFile {
    fn with(test: &str, lines: &str) -> Self {
        let path = std::env::temp_dir().join(format!("redrive-{test}-{}", std::process::id()));
        std::fs::write(&path, lines).unwrap();
        Self(path)
    }
}

impl Drop for LedgerFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_file(self.0.with_extension("lock"));
    }
}

async fn with_ledger(
    file: &LedgerFile,
    transport: Memory,
    diary: &Diary,
) -> Result<redrive::Report, ConsumerError> {
    let count = transport.broker().depth(QUEUE);
    run(file, transport, diary, diary.ended(count)).await
}

async fn run(
    file: &LedgerFile,
    transport: impl Transport,
    diary: &Diary,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<redrive::Report, ConsumerError> {
    Consumer::new(Shared::saying(Arc::new(transport), |facts| facts.counting.deliveries = false))
        .ledger(&file.0)
        .grace(secs(1))
        .with_dead_letter_backoff(DeadLetterBackoff::new(NoRetry).poison_after(ALLOWED))
        .observer(diary.observer())
        .handler(async || {})
        .run_until(shutdown)
        .await
}

#[tokio::test(start_paused = true)]
async fn a_poison_message_stays_counted_when_its_shelf_refuses_it() {
    let file = LedgerFile::with("refused.ledger", "redrive ledger 1\n! 3 0 1\n+ 0 1\n");
    let (broker, transport) = memory_with([Message::new("x").with_id("1")]);
    let full = Faulty::new(transport).on_settle(|attempted| match attempted.settlement {
        Settlement::Shelve { .. } => Fault::Refused(TransportErrorKind::Unconfirmed),
        _ => Fault::None,
    });
    let report = run(&file, full, &Diary::new(), tokio::time::sleep(secs(60))).await.unwrap();
    assert_eq!((report.acknowledged, broker.depth(QUEUE)), (0, 1), "{report:?}");
    let report = with_ledger(&file, broker.transport(QUEUE), &Diary::new()).await.unwrap();
    assert_eq!(report.acknowledged, 0, "its handler ran again");
    assert_eq!(reason(&broker.shelf(QUEUE, Shelf::DeadLetter)[0]), "PoisonMessage");
    let left = std::fs::read_to_string(&file.0).unwrap();
    assert!(left.lines().last().is_some_and(|line| line.starts_with('-')), "it is off the queue: {left}");
}

#[tokio::test(start_paused = true)]
async fn the_ledger_turns_away_what_a_queue_that_does_not_count_would_hand_out_for_ever() {
    let file = LedgerFile::with("bounds.ledger", "redrive ledger 1\n! 3 0 1\n! 1 0 2\n+ 0 1\n+ 0 3\n- 0 3\n");
    let (broker, transport) = memory_with(numbered(5));
    let diary = Diary::new();
    let report = with_ledger(&file, transport, &diary).await.unwrap();
    let shelf = broker.shelf(QUEUE, Shelf::DeadLetter);
    assert_eq!(shelf.iter().filter_map(|message| message.id()).collect::<Vec<_>>(), ["1"]);
    assert_eq!(reason(&shelf[0]), "PoisonMessage");
    assert_eq!((report.acknowledged, report.suspects), (4, 2));
    let count = |id| {
        diary
            .entries()
            .iter()
            .find(|entry| entry.delivery.id() == id)
            .map(|it| it.delivery.broker_delivery_count())
    };
    assert_eq!([count("1"), count("2"), count("3")], [Some(5), Some(2), Some(1)]);
    assert_eq!(
        std::fs::read_to_string(&file.0).unwrap().lines().filter(|line| line.starts_with('!')).count(),
        2,
        "the file was begun again with what counted"
    );
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_cannot_be_read_is_refused_before_the_first_message() {
    let file = LedgerFile::with("broken.ledger", "dear diary\n");
    let (broker, transport) = memory_with(numbered(5));
    let refused = with_ledger(&file, transport, &Diary::new()).await.unwrap_err();
    assert!(matches!(refused, ConsumerError::Ledger { .. }), "{refused}");
    assert!(refused.to_string().contains("broken.ledger") && refused.to_string().contains("move it away"));
    assert_eq!((broker.depth(QUEUE), broker.held(QUEUE)), (5, 0));
}
