//! What is written can be read back, from a file that survives a crash.

use redb::TableDefinition;

use super::disk::Disk;
use super::*;

const FORMAT: u32 = 1;
const META: TableDefinition<'_, &str, u32> = TableDefinition::new("meta");
const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records");

/// A record: its number, and its content.
type Record = (u64, Vec<u8>);

fn record(number: u64) -> Record {
    (number, format!("the content of {number}").into_bytes())
}

/// Prepares a file, as an emulator does at its start. Returns what is in it.
fn load(file: &mut StateFile) -> Result<Vec<Record>, StoreError> {
    file.write(|transaction| {
        check_format(transaction, META, &"format", FORMAT)?;
        transaction.open_table(RECORDS)?;
        Ok(())
    })?;
    file.read(|transaction| {
        rows(transaction, RECORDS)?
            .map(|row| row.map(|(number, content)| (number.value(), content.value().to_vec())))
            .collect()
    })
}

fn open(path: &Path) -> Result<(StateFile, Vec<Record>), StoreError> {
    let mut file = StateFile::at(path);
    let found = load(&mut file)?;
    Ok((file, found))
}

fn opened(path: &Path) -> StateFile {
    open(path).expect("a file that can be begun").0
}

fn write(file: &mut StateFile, records: &[Record]) -> Result<(), StoreError> {
    file.write(|transaction| {
        let mut table = transaction.open_table(RECORDS)?;
        for (number, content) in records {
            table.insert(number, &content[..])?;
        }
        Ok(())
    })
}

fn journal(mut file: StateFile) -> Journal<Record> {
    load(&mut file).expect("a file that can be read");
    Journal::start(move |records: &[Record]| write(&mut file, records)).expect("a thread")
}

#[test]
fn a_file_knows_its_format_and_whether_it_is_new() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut file = StateFile::at(&folder.path().join("state"));
    let mut check = |reads| file.write(|transaction| check_format(transaction, META, &"format", reads));
    assert!(check(1).expect("a new file"));
    assert!(!check(1).expect("a known file"));
    let error = check(2).expect_err("another format").to_string();
    assert!(error.contains("format 1, this one reads 2"), "{error}");
}

#[test]
fn a_batch_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let mut file = opened(&path);
    let failed: Result<(), _> = file.write(|transaction| {
        transaction.open_table(RECORDS)?.insert(1, &b"half"[..])?;
        Err(Cause::Record { what: "record" })
    });
    failed.expect_err("it failed");
    write(&mut file, &[record(2)]).expect("the next one is written");
    drop(file);
    assert_eq!(open(&path).expect("a whole file").1, [record(2)]);
}

#[test]
fn a_file_that_is_none_is_refused_and_not_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    std::fs::write(&path, b"a letter to my aunt").expect("a file");
    let error = open(&path).expect_err("no state file");
    assert!(error.to_string().contains("state"), "{error}");
    assert_eq!(std::fs::read(&path).expect("a file"), b"a letter to my aunt");
}

/// Returns a state file of many pages, closed in order or as a killed process leaves it, and its content.
fn written(killed: bool) -> (Vec<u8>, Vec<Record>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let mut file = opened(&path);
    let records: Vec<_> = (0..300).map(record).collect();
    for batch in records.chunks(10) {
        write(&mut file, batch).expect("a file that can be written");
    }
    let killed = killed.then(|| std::fs::read(&path).expect("a file"));
    drop(file);
    (killed.unwrap_or_else(|| std::fs::read(&path).expect("a file")), records)
}

/// Returns what an emulator reads from a file of these bytes.
fn found(bytes: &[u8]) -> Result<Vec<Record>, StoreError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    std::fs::write(&path, bytes).expect("a file");
    open(&path).map(|(_, found)| found)
}

#[test]
fn a_file_that_was_cut_is_refused() {
    for killed in [false, true] {
        let (bytes, whole) = written(killed);
        assert_eq!(found(&bytes).expect("a whole file"), whole);
        for length in [1, 100, 4095, 4096, 4097, 8192, 20_000, bytes.len() / 2, bytes.len() - 1] {
            let error = found(&bytes[..length]).expect_err("a cut file");
            assert!(error.to_string().contains("state"), "{error}");
        }
    }
}

#[test]
fn flipped_bytes_are_refused_or_change_nothing() {
    let mut refused = 0;
    for killed in [false, true] {
        let (bytes, whole) = written(killed);
        let mut next = 7_u64;
        for _ in 0..100 {
            let mut damaged = bytes.clone();
            for _ in 0..16 {
                next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (next >> 20) as usize % damaged.len();
                damaged[at] ^= 1 << ((next >> 60) % 8);
            }
            match found(&damaged) {
                Ok(found) => assert!(found == whole, "something was lost without a word"),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 20, "only {refused} of 200 files were found to be damaged");
}

#[test]
fn a_damaged_header_is_refused_or_changes_nothing() {
    let (bytes, whole) = written(false);
    for at in 0..64 {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        if let Ok(found) = found(&damaged) {
            assert!(found == whole, "byte {at}: something was lost without a word");
        }
    }
}

#[cfg(unix)]
#[test]
fn only_its_owner_can_read_a_state_file() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    drop(opened(&path));
    assert_eq!(mode(&path), 0o600);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(opened(&path));
    assert_eq!(mode(&path), 0o600, "one of an earlier version");

    let other = folder.path().join("other");
    std::fs::write(&other, "not a state file").unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(open(&other).unwrap_err());
    assert_eq!(mode(&other), 0o644, "another file keeps its mode");
    let link = folder.path().join("link");
    symlink(folder.path().join("elsewhere"), &link).unwrap();
    drop(open(&link).unwrap_err());
    assert!(!folder.path().join("elsewhere").exists(), "nothing is created through a link");
}

#[test]
fn a_file_is_used_by_one_emulator_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let _first = opened(&path);
    assert!(open(&path).is_err());
}

#[tokio::test]
async fn what_is_waited_for_is_on_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let journal = journal(StateFile::at(&path));
    let records: Vec<_> = (0..20).map(record).collect();
    for record in &records {
        journal.hand_in(vec![record.clone()]);
    }
    assert_eq!(journal.written(journal.ticket()).await, Ok(()));
    journal.abandon();
    assert_eq!(open(&path).expect("a whole file").1, records);
}

#[tokio::test]
async fn who_waits_for_what_will_not_be_written_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(StateFile::at(&folder.path().join("state")));
    journal.abandon();
    journal.hand_in(vec![record(1)]);
    assert!(journal.written(journal.ticket()).await.is_err());
}

#[tokio::test]
async fn what_a_full_disk_does_not_take_is_told_and_written_once_there_is_room() {
    let disk = Disk::default();
    let journal = journal(disk.file());
    journal.hand_in(vec![record(1)]);
    assert_eq!(journal.written(journal.ticket()).await, Ok(()));
    assert_eq!((journal.failing(), journal.outages()), (None, 0));
    disk.set_full(true);
    for number in [2, 3] {
        journal.hand_in(vec![record(number)]);
        let told = journal.written(journal.ticket()).await.expect_err("there is no room");
        assert!(told.contains("the state file 'disk'"), "{told}");
    }
    assert!(journal.failing().is_some());
    assert_eq!(journal.outages(), 1);
    let later = journal.written_since(journal.ticket(), 1).await;
    assert_eq!(later, Ok(()), "who came later waits for nothing");
    disk.set_full(false);
    journal.recovered().await;
    assert_eq!(journal.failing(), None);
    assert_eq!(journal.written(journal.ticket()).await, Ok(()));
    journal.close();
    assert_eq!(load(&mut disk.file()).expect("a whole file"), [record(1), record(2), record(3)]);
}

#[tokio::test]
async fn a_journal_that_is_closed_on_a_full_disk_ends() {
    let disk = Disk::default();
    let journal = journal(disk.file());
    journal.hand_in(vec![record(1)]);
    assert_eq!(journal.written(journal.ticket()).await, Ok(()));
    disk.set_full(true);
    journal.hand_in(vec![record(2)]);
    assert!(journal.written(journal.ticket()).await.is_err());
    journal.close();
    assert!(journal.failing().is_some());
    disk.set_full(false);
    let found = load(&mut disk.file()).expect("a whole file");
    assert_eq!(found, [record(1)], "what nobody was told is not there");
}
