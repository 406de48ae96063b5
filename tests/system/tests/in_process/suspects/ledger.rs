//! What a consumer writes down itself, for queues that do not count deliveries.

use std::path::PathBuf;
use std::sync::Arc;

use redrive::ConsumerError;
use redrive::NoRetry;
use redrive::memory::Memory;
use redrive::prelude::*;
use redrive_system_tests::shared::Shared;
use redrive_system_tests::{Diary, QUEUE, memory_with, numbered, reason};

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
    Consumer::new(Shared::saying(Arc::new(transport), |facts| facts.counting.deliveries = false))
        .ledger(&file.0)
        .with_dead_letter_backoff(DeadLetterBackoff::new(NoRetry).poison_after(ALLOWED))
        .observer(diary.observer())
        .handler(async || {})
        .run_until(diary.ended(count))
        .await
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
