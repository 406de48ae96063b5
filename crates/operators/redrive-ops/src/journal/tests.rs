use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use redrive_core::Message;
use redrive_core::shelves::Shelved;

use super::file::Disk;
use super::*;
use crate::plan::{Plan, PlanOptions};
use crate::run::{Fate, FateSource, RunOptions};

fn handle(number: usize) -> EntryHandle {
    EntryHandle::new(Shelf::DeadLetter, number.to_string())
}

fn at() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_700_000_000_123)
}

fn operator() -> Operator {
    Operator::new("ada", "host", at()).reason("the database is back")
}

fn header_of(queue: &str, entries: usize) -> JournalHeader {
    let entries: Vec<_> =
        (0..entries).map(|number| Shelved::new(handle(number), Message::new("body"))).collect();
    let plan = Plan::new(PlanAction::Redrive, Shelf::DeadLetter, &entries, &PlanOptions::new(queue), at());
    JournalHeader::new("amqp://host", operator(), RunOptions::new().rate(77), plan)
}

fn header(entries: usize) -> JournalHeader {
    header_of("orders", entries)
}

/// A journal in which entry 0 is done, 1 failed, 2 is uncertain, 3 and 4 are open, and 5 has not had its turn.
fn written(path: &Path) -> Result<(), JournalError> {
    let mut journal = Journal::begin(path, header(6))?;
    journal.intent(PlanAction::Redrive, &[handle(0), handle(1), handle(2)], at())?;
    let failed = EntryState::Failed("too \"large\"\n".into());
    let uncertain = EntryState::Uncertain("no answer".into());
    journal.results(&[(handle(0), EntryState::Done), (handle(1), failed), (handle(2), uncertain)])?;
    journal.fates(&[SeenFate::new(handle(0), Fate::FailedOther, FateSource::Shelf)])?;
    journal.intent(PlanAction::Redrive, &[handle(3), handle(4)], at())
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    (folder, path)
}

#[test]
fn a_journal_is_read_as_it_was_written() {
    let (_folder, path) = folder();
    written(&path).unwrap();
    let replay = Journal::read(&path).unwrap();
    assert_eq!(replay.header, header(6));
    assert_eq!(replay.states[&handle(0)], EntryState::Done);
    assert_eq!(replay.states[&handle(1)], EntryState::Failed("too \"large\"\n".into()));
    assert_eq!(replay.states[&handle(2)], EntryState::Uncertain("no answer".into()));
    assert_eq!((replay.states.len(), replay.fates[&handle(0)]), (3, Fate::FailedOther));
    assert_eq!(replay.open, [handle(3), handle(4)].into());
    assert_eq!(replay.ended, None);
}

#[test]
fn an_open_entry_that_left_the_shelf_is_done_and_one_that_did_not_is_uncertain() {
    let (_folder, path) = folder();
    written(&path).unwrap();
    let mut replay = Journal::read(&path).unwrap();
    let resolved = replay.resolve(|entry| *entry == handle(4));
    assert_eq!(resolved[0], (handle(3), EntryState::Gone));
    assert!(matches!(&resolved[1], (entry, EntryState::Uncertain(_)) if *entry == handle(4)));
    let left = replay.clone().into_run(UncertainEntries::Leave).report();
    assert_eq!((left.done, left.gone, left.failed, left.uncertain, left.left), (1, 1, 1, 2, 1));
    let again = replay.into_run(UncertainEntries::SendAgain).report();
    assert_eq!((again.done, again.gone, again.failed, again.uncertain, again.left), (1, 1, 1, 0, 3));
}

/// Wherever the file ends, the journal is read up to there, and can be written on.
#[test]
fn a_part_of_a_line_at_the_end_is_dropped() {
    let (_folder, path) = folder();
    written(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let lines = |len: usize| bytes[..len].iter().filter(|byte| **byte == b'\n').count();
    for len in 0..=bytes.len() {
        fs::write(&path, &bytes[..len]).unwrap();
        if lines(len) < 2 {
            assert!(matches!(Journal::open(&path), Err(JournalError::Empty)));
            continue;
        }
        let (mut journal, replay) = Journal::open(&path).unwrap();
        // The lines after the kind and the header: intent, three results, fate, intent.
        let expected = [(0, 0), (0, 3), (1, 2), (2, 1), (3, 0), (3, 0), (3, 2)][lines(len) - 2];
        assert_eq!((replay.states.len(), replay.open.len()), expected, "{len}");
        journal.end(None, at()).unwrap();
        drop(journal);
        assert_eq!(Journal::read(&path).unwrap().ended, Some(None), "{len}");
    }
}

#[test]
fn any_other_damage_is_an_error_with_the_number_of_the_line() {
    let (_folder, path) = folder();
    written(&path).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let damages = [
        ("\"outcome\":\"done\"", "\"outcome\":\"maybe\"", 4),
        ("{\"record\":\"fate\"", "{\"record\":\"???\"", 7),
        (
            "\"record\":\"fate\",\"handle\":\"dead-letter/0\"",
            "\"record\":\"fate\",\"handle\":\"dead-letter/9\"",
            7,
        ),
        ("{\"journal\":\"run\"", "{\"journal\":\"edits\"", 1),
        ("{\"journal\"", "dear diary", 1),
        ("{\"record\":\"begin\"", "\0\0\0", 2),
        ("\"host\":\"host\"", "\"host\":\"host", 2),
        ("{\"queue\":\"orders\"}", "{\"queue\":\"payroll\"}", 2),
    ];
    for (from, to, line) in damages {
        let damaged = text.replacen(from, to, 1);
        assert_ne!(damaged, text, "{from}");
        fs::write(&path, damaged).unwrap();
        let error = Journal::open(&path).unwrap_err();
        assert!(matches!(&error, JournalError::Line { line: it, .. } if *it == line), "{from}: {error}");
        let said = error.to_string();
        assert!(said.contains("run.jsonl") && said.contains("make another plan"), "{said}");
    }
    fs::write(&path, text.replacen("\"v\":1", "\"v\":2", 1)).unwrap();
    assert!(matches!(Journal::open(&path), Err(JournalError::Version { found: 2, .. })));
    let mut lines: Vec<_> = text.split_inclusive('\n').collect();
    lines.insert(2, lines[1]);
    fs::write(&path, lines.concat()).unwrap();
    assert!(matches!(Journal::open(&path), Err(JournalError::Line { line: 3, .. })));
    lines.drain(1..3);
    fs::write(&path, lines.concat()).unwrap();
    assert!(matches!(Journal::open(&path), Err(JournalError::Line { line: 2, .. })));
}

/// A disk with room for so many bytes.
#[derive(Clone, Debug)]
struct Full(Arc<Mutex<(Vec<u8>, usize)>>);

impl Disk for Full {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (written, room) = &mut *self.0.lock().unwrap();
        let fits = bytes.len().min(*room - written.len());
        written.extend(&bytes[..fits]);
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.0.lock().unwrap().0.truncate(usize::try_from(len).unwrap());
        Ok(())
    }

    fn is_at(&self, _: &Path) -> bool {
        true
    }
}

#[test]
fn on_a_full_disk_a_step_has_no_intent_and_nothing_is_written_any_more() {
    let disk = Full(Arc::new(Mutex::new((Vec::new(), 3000))));
    let mut file = JournalFile::on(Box::new(disk.clone()), Path::new("run.jsonl"), 0);
    file.begin(&[Record::Begin { header: Box::new(header(6)) }]).unwrap();
    let mut journal = Journal(file);
    let many: Vec<_> = (0..6).cycle().take(500).map(handle).collect();
    let error = journal.intent(PlanAction::Redrive, &many, at()).unwrap_err();
    assert!(error.to_string().contains("run.jsonl"), "{error}");
    // A short line would fit, and is refused: after the error nobody knows what the disk has.
    journal.end(None, at()).unwrap_err();
    let (_folder, path) = folder();
    fs::write(&path, &disk.0.lock().unwrap().0).unwrap();
    let replay = Journal::read(&path).unwrap();
    assert_eq!((replay.open.len(), replay.ended), (0, None));
    assert!(disk.0.lock().unwrap().0.ends_with(b"\n"), "the part of a line is removed");
}

#[test]
fn one_run_at_a_time_works_on_a_shelf() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = JournalFolder::open(temporary.path().join("a/b")).unwrap();
    let (_journal, lock) = folder.begin(header(1)).unwrap();
    let mut second = header(2);
    second.run = "second".into();
    let error = folder.begin(second.clone()).unwrap_err();
    assert!(matches!(&error, JournalError::Locked { run, .. } if *run == header(1).run), "{error}");
    let (_other, _other_lock) = folder.begin(header_of("invoices", 1)).unwrap();
    assert!(folder.is_running(&header(1).run).unwrap());
    let resumed = folder.resume(&header(1).run, operator()).unwrap_err();
    assert!(matches!(resumed, JournalError::Locked { .. }), "{resumed}");
    drop(lock);
    assert!(!folder.is_running(&header(1).run).unwrap());
    let (_second, _lock) = folder.begin(second).unwrap();
    assert_eq!(folder.runs().unwrap().len(), 3);
}

#[test]
fn a_run_that_stopped_is_resumed_and_one_that_is_done_or_aborted_is_not() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = JournalFolder::open(temporary.path()).unwrap();
    let run = header(1).run;
    let (mut journal, lock) = folder.begin(header(1)).unwrap();
    journal.end(Some(StopReason::Broker("gone".into())), at()).unwrap();
    drop((journal, lock));
    for end in [Some(StopReason::SameFailure), None] {
        let (mut journal, replay, _lock) = folder.resume(&run, operator()).unwrap();
        assert_eq!(
            replay.ended,
            Some(Some(end.clone().map_or(StopReason::SameFailure, |_| StopReason::Broker("gone".into()))))
        );
        journal.end(end, at()).unwrap();
    }
    assert!(matches!(folder.resume(&run, operator()), Err(JournalError::Ended(_))));
    for none in ["", "../run", "r1"] {
        assert!(matches!(folder.read(none), Err(JournalError::NoRun(_))), "{none}");
    }
}

#[cfg(unix)]
#[test]
fn only_the_owner_reads_journals() {
    use std::os::unix::fs::PermissionsExt as _;
    let temporary = tempfile::tempdir().unwrap();
    let folder = JournalFolder::open(temporary.path().join("runs")).unwrap();
    let _begun = folder.begin(header(1)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.journal(&header(1).run)), mode(&temporary.path().join("runs"))), (0o600, 0o700));
}

#[test]
fn the_newest_run_of_a_shelf_that_ended_early_is_told() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = JournalFolder::open(temporary.path().join("runs")).unwrap();
    let (now, day) = (SystemTime::now(), Duration::from_secs(24 * 60 * 60));
    let header = |queue, number: u64| {
        let mut header = header_of(queue, 1);
        header.run = format!("r{number}");
        header
    };
    let stopped = |now| {
        let stopped = folder.stopped("amqp://host", day, now).unwrap();
        stopped.into_iter().map(|found| (found.run, found.queue, found.why)).collect::<Vec<_>>()
    };
    let told = |run: &str, queue: &str, why| vec![(run.to_owned(), queue.to_owned(), why)];

    let (mut journal, lock) = folder.begin(header("orders", 1)).unwrap();
    assert_eq!(stopped(now), [], "it goes on");
    journal.end(Some(StopReason::SameFailure), at()).unwrap();
    drop(lock);
    assert_eq!(stopped(now), told("r1", "orders", "same-failure"));
    assert_eq!(stopped(now + 2 * day), [], "long ago");
    assert_eq!(folder.stopped("amqp://other", day, now).unwrap(), []);

    let (journal, _, lock) = folder.resume("r1", operator()).unwrap();
    assert_eq!(stopped(now), [], "it goes on again");
    drop((journal, lock));
    assert_eq!(stopped(now), told("r1", "orders", "killed"));

    let (mut journal, lock) = folder.begin(header("orders", 2)).unwrap();
    journal.end(None, at()).unwrap();
    drop(lock);
    assert_eq!(stopped(now), [], "a newer one is done");
    let (mut journal, lock) = folder.begin(header("mails", 3)).unwrap();
    journal.end(Some(StopReason::Aborted), at()).unwrap();
    drop(lock);
    assert_eq!(stopped(now), told("r3", "mails", "aborted"), "each queue has its own");
}
