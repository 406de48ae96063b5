use std::time::UNIX_EPOCH;

use redrive_core::shelves::EntryHandle;
use redrive_core::{TransportError, TransportErrorKind};

use super::*;
use crate::printable::steers_a_terminal;

fn record() -> AuditRecord {
    AuditRecord::new("alice", "ops-1", UNIX_EPOCH, AuditAction::Redrive, "orders", Shelf::DeadLetter)
}

#[test]
fn a_reason_is_needed_beyond_a_hundred_messages() {
    for reason in [None, Some(""), Some(" \n")] {
        assert_eq!(require_reason(100, reason), Ok(()));
        assert_eq!(require_reason(101, reason), Err(ReasonRequired { messages: 101 }));
    }
    assert_eq!(require_reason(u64::MAX, Some("the database is back")), Ok(()));
}

#[test]
fn a_report_is_counted_by_outcomes() {
    let mut report = ShelfReport::default();
    let failed = || EntryOutcome::Failed(TransportError::new(TransportErrorKind::Full, "full"));
    let outcomes = [
        EntryOutcome::Done,
        EntryOutcome::Done,
        EntryOutcome::Done,
        failed(),
        failed(),
        EntryOutcome::NotFound,
    ];
    for (number, outcome) in outcomes.into_iter().enumerate() {
        report.note(EntryHandle::new(Shelf::DeadLetter, number.to_string()), Some("secret-id"), outcome);
    }
    let counts = AuditCounts::from(&report);
    assert_eq!(counts, AuditCounts { done: 3, failed: 2, not_found: 1, not_tried: 0 });
}

#[test]
fn a_record_is_one_line_without_secrets() {
    let record = record()
        .reason("a\n\u{1b}[2Jb\u{9b} password=hunter2")
        .filter("error~\"token=abc123\"")
        .run_id("r1")
        .plan_digest("d1");
    let line = record.to_line();
    assert!(!line.chars().any(steers_a_terminal), "{line:?}");
    assert!(!line.contains("hunter2") && !line.contains("abc123"), "{line}");
    let read: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&read["v"], &read["run_id"], &read["plan_digest"]), (&1.into(), &"r1".into(), &"d1".into()));
}

#[test]
fn records_are_appended_by_several_and_after_a_torn_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let (mut one, mut other) = (AuditLog::open(&path).unwrap(), AuditLog::open(&path).unwrap());
    one.append(&record().run_id("1")).unwrap();
    other.append(&record().run_id("2")).unwrap();
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    one.append(&record().run_id("3")).unwrap();
    AuditLog::open(&path).unwrap().append(&record().run_id("4")).unwrap();

    let text = std::fs::read_to_string(&path).unwrap();
    let expected =
        ["1", "", "3", "4"].map(|id| if id.is_empty() { None } else { Some(record().run_id(id).to_line()) });
    for (line, expected) in text.lines().zip(&expected) {
        match expected {
            Some(expected) => assert_eq!(line, expected),
            None => assert!(serde_json::from_str::<serde_json::Value>(line).is_err(), "the torn one: {line}"),
        }
    }
    assert_eq!(text.lines().count(), expected.len());
}

#[cfg(unix)]
#[test]
fn a_new_file_is_its_owners_and_the_mode_of_another_stays() {
    use std::os::unix::fs::PermissionsExt as _;

    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    AuditLog::open(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    AuditLog::open(&path).unwrap().append(&record()).unwrap();
    assert_eq!(mode(&path), 0o640);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let mut log = AuditLog::open("/dev/full").unwrap();
    assert!(log.append(&record()).is_err());
}

#[cfg(unix)]
#[test]
fn a_file_that_is_moved_away_or_deleted_is_begun_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let mut log = AuditLog::open(&path).unwrap();
    log.append(&record().run_id("1")).unwrap();
    std::fs::rename(&path, folder.path().join("audit.1")).unwrap();
    log.append(&record().run_id("2")).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap().trim_end(), record().run_id("2").to_line());
    std::fs::remove_dir_all(folder.path()).unwrap();
    assert!(log.append(&record().run_id("3")).is_err());
}
