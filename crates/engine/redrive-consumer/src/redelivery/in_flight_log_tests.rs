use std::fs::OpenOptions;
use std::time::UNIX_EPOCH;

use redrive_core::Message;

use super::*;

/// A folder for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("redrive-ledger-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn ledger(&self) -> PathBuf {
        self.0.join("orders.ledger")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn delivery(id: &str) -> Delivery {
    Delivery::new(Message::new("").with_id(id), "q", UNIX_EPOCH)
}

/// Simulates the death of the process: only what the operating system frees is released.
fn die(ledger: InFlightLog) {
    drop(ledger);
}

#[test]
fn the_next_process_knows_what_the_last_one_had_begun_with() {
    let folder = Folder::new("next");
    for deaths in 0..3 {
        let ledger = InFlightLog::open(&folder.ledger()).unwrap();
        assert_eq!((ledger.deaths(&delivery("killer")), ledger.deaths(&delivery("other"))), (deaths, 0));
        assert_eq!(ledger.names_any(), deaths > 0);
        drop(ledger.begin(&delivery("other")));
        std::mem::forget(ledger.begin(&delivery("killer")));
        die(ledger);
    }
    let ledger = InFlightLog::open(&folder.ledger()).unwrap();
    drop(ledger.begin(&delivery("killer")));
    assert!(!ledger.names_any(), "it came to an end after all");
}

#[test]
fn two_at_once_are_refused() {
    let folder = Folder::new("two");
    let first = InFlightLog::open(&folder.ledger()).unwrap();
    let refused = InFlightLog::open(&folder.ledger()).unwrap_err();
    assert!(refused.contains("in use by another consumer"), "{refused}");
    drop(first);
    InFlightLog::open(&folder.ledger()).unwrap();
}

#[test]
fn one_that_is_closed_is_free_also_while_a_child_process_begins() {
    let folder = Folder::new("child");
    let first = InFlightLog::open(&folder.ledger()).unwrap();
    // A child process inherits this until its program starts.
    let inherited = first.written().lock.try_clone().unwrap();
    drop(first);
    InFlightLog::open(&folder.ledger()).unwrap();
    drop(inherited);
}

#[test]
fn what_is_no_ledger_is_refused_and_left_as_it_is() {
    let folder = Folder::new("foreign");
    for content in [&b"dear diary\n"[..], b"redrive ledger 1\nnonsense\n", b"\xff\xfe\n"] {
        std::fs::write(folder.ledger(), content).unwrap();
        let refused = InFlightLog::open(&folder.ledger()).unwrap_err();
        assert!(refused.contains("orders.ledger") && refused.contains("move it away"), "{refused}");
        assert_eq!(std::fs::read(folder.ledger()).unwrap(), content);
    }
}

#[test]
fn a_path_that_leads_nowhere_is_refused() {
    let folder = Folder::new("nowhere");
    let refused = InFlightLog::open(&folder.0.join("missing").join("ledger")).unwrap_err();
    assert!(refused.contains("missing") && refused.contains("a folder that is there"), "{refused}");
}

#[test]
fn it_does_not_grow_for_ever() {
    let folder = Folder::new("growth");
    let ledger = InFlightLog::open(&folder.ledger()).unwrap();
    std::mem::forget(ledger.begin(&delivery("killer")));
    let long = "x".repeat(200);
    for _ in 0..2 * ROOM / 400 {
        drop(ledger.begin(&delivery(&long)));
    }
    assert!(std::fs::metadata(folder.ledger()).unwrap().len() <= ROOM as u64 + 1000);
    die(ledger);
    assert_eq!(InFlightLog::open(&folder.ledger()).unwrap().deaths(&delivery("killer")), 1);
}

#[test]
fn when_it_cannot_be_written_any_more_it_still_counts_in_memory_and_then_again_on_disk() {
    let folder = Folder::new("failing");
    let ledger = InFlightLog::open(&folder.ledger()).unwrap();
    // The file accepts no writes, as on a full disk, and cannot be replaced either.
    read_only(&ledger, &folder);
    let new = with_suffix(&folder.ledger(), ".new");
    std::fs::create_dir(&new).unwrap();
    let begun = ledger.begin(&delivery("a"));
    assert!(ledger.written().failing);
    std::fs::remove_dir(&new).unwrap();
    std::mem::forget(ledger.begin(&delivery("b")));
    assert!(!ledger.written().failing);
    drop(begun);
    die(ledger);
    let next = InFlightLog::open(&folder.ledger()).unwrap();
    assert_eq!((next.deaths(&delivery("a")), next.deaths(&delivery("b"))), (0, 1));
}

/// Makes the next line look whether the ledger is still there, without a wait.
#[cfg(unix)]
fn look_now(ledger: &InFlightLog) {
    ledger.written().next_look = Instant::now();
}

/// Replaces the open file by one that accepts no writes, as on a full disk.
fn read_only(ledger: &InFlightLog, folder: &Folder) {
    replace(ledger, File::open(folder.ledger()).unwrap());
}

fn replace(ledger: &InFlightLog, file: File) {
    ledger.written().file = file;
}

#[cfg(unix)]
#[test]
fn a_rewrite_follows_no_link() {
    let folder = Folder::new("link");
    let target = folder.0.join("target");
    std::fs::write(&target, "precious").unwrap();
    std::os::unix::fs::symlink(&target, with_suffix(&folder.ledger(), ".new")).unwrap();
    let ledger = InFlightLog::open(&folder.ledger()).unwrap();
    std::mem::forget(ledger.begin(&delivery("a")));
    die(ledger);
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
    assert_eq!(InFlightLog::open(&folder.ledger()).unwrap().deaths(&delivery("a")), 1);
}

#[cfg(unix)]
#[test]
fn whose_lock_is_deleted_keeps_its_ledger() {
    let folder = Folder::new("lock");
    let ledger = InFlightLog::open(&folder.ledger()).unwrap();
    let lock = with_suffix(&folder.ledger(), ".lock");
    std::fs::remove_file(&lock).unwrap();
    let refused = InFlightLog::open(&folder.ledger()).unwrap_err();
    assert!(refused.contains("in use by another consumer"), "{refused}");
    look_now(&ledger);
    std::mem::forget(ledger.begin(&delivery("a")));
    assert!(!ledger.is_failing() && is_at(&ledger.written().lock, &lock));
    die(ledger);
    assert_eq!(InFlightLog::open(&folder.ledger()).unwrap().deaths(&delivery("a")), 1);
}

#[cfg(unix)]
#[test]
fn whose_folder_is_deleted_says_so_until_it_is_back() {
    let folder = Folder::new("vanishing");
    let ledger = InFlightLog::open(&folder.ledger()).unwrap();
    std::fs::remove_dir_all(&folder.0).unwrap();
    look_now(&ledger);
    std::mem::forget(ledger.begin(&delivery("a")));
    assert!(ledger.is_failing());
    std::fs::create_dir(&folder.0).unwrap();
    let other = InFlightLog::open(&folder.ledger()).unwrap();
    drop(ledger.begin(&delivery("b")));
    assert!(ledger.is_failing(), "the other one has it");
    drop(other);
    drop(ledger.begin(&delivery("b")));
    assert!(!ledger.is_failing());
    die(ledger);
    let next = InFlightLog::open(&folder.ledger()).unwrap();
    assert_eq!((next.deaths(&delivery("a")), next.deaths(&delivery("b"))), (1, 0));
}

#[cfg(unix)]
#[test]
fn a_deleted_ledger_is_written_again() {
    let folder = Folder::new("deleted");
    let ledger = InFlightLog::open(&folder.ledger()).unwrap();
    std::fs::remove_file(folder.ledger()).unwrap();
    look_now(&ledger);
    std::mem::forget(ledger.begin(&delivery("a")));
    die(ledger);
    assert_eq!(InFlightLog::open(&folder.ledger()).unwrap().deaths(&delivery("a")), 1);
}

#[test]
fn half_a_line_that_a_full_disk_left_is_never_continued() {
    let folder = Folder::new("half");
    let ledger = InFlightLog::open(&folder.ledger()).unwrap();
    let on_disk = || OpenOptions::new().append(true).open(folder.ledger()).unwrap();
    // The disk is full in the middle of a line, and there is no room for a new file either.
    let new = with_suffix(&folder.ledger(), ".new");
    std::fs::create_dir(&new).unwrap();
    read_only(&ledger, &folder);
    std::mem::forget(ledger.begin(&delivery("a")));
    on_disk().write_all(b"+ 0 a").unwrap();
    // There is room for a line again, but still none for the new file; then the process dies.
    replace(&ledger, on_disk());
    std::mem::forget(ledger.begin(&delivery("b")));
    die(ledger);
    std::fs::remove_dir(&new).unwrap();
    InFlightLog::open(&folder.ledger()).unwrap();
}
