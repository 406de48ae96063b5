//! Undos and imports on a broker in this process.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use redrive::memory::MemoryBroker;
use redrive::ops::{
    EntryState, ExportedEntry, JournalHeader, Operator, Plan, PlanAction, PlanOptions, RunOptions,
};
use redrive::shelves::{EntryHandle, Shelved};
use redrive::{Message, Shelf};

use super::import::import;
use super::restore::restore;
use super::restore_journal::{Noted, Notes};
use super::undo::Undoing;
use super::{Desk, State};

fn desk(broker: &MemoryBroker) -> Desk {
    Desk {
        broker: "memory".to_owned(),
        queue: "orders".to_owned(),
        shelves: Arc::new(broker.shelves("orders")),
        is_service_bus: false,
    }
}

fn state() -> (tempfile::TempDir, State) {
    let folder = tempfile::tempdir().unwrap();
    let state = State::at(folder.path().to_owned()).unwrap();
    (folder, state)
}

fn operator() -> Operator {
    Operator::new("ada", "ops-1", SystemTime::UNIX_EPOCH)
}

fn exported(shelf: Shelf, number: usize) -> ExportedEntry {
    let handle = EntryHandle::new(shelf, number.to_string());
    let shelved = Shelved::new(handle, Message::new(format!("{shelf} {number}")));
    ExportedEntry::new("orders", &shelved, SystemTime::UNIX_EPOCH)
}

/// The bodies on a shelf, in its order.
fn on_shelf(broker: &MemoryBroker, shelf: Shelf) -> Vec<String> {
    let messages = broker.shelf("orders", shelf);
    messages.iter().map(|message| String::from_utf8_lossy(message.body()).into_owned()).collect()
}

#[tokio::test]
async fn an_undo_restores_in_the_order_of_the_originals() {
    const ENTRIES: usize = 40;
    let (broker, (_folder, state)) = (MemoryBroker::new(), state());
    let desk = desk(&broker);
    let originals: Vec<_> = (0..ENTRIES).map(|number| exported(Shelf::DeadLetter, number)).collect();
    let shelved: Vec<_> =
        originals.iter().map(|entry| Shelved::new(entry.handle.clone(), entry.for_shelf())).collect();
    let options = PlanOptions::new("orders");
    let plan = Plan::new(PlanAction::Discard, Shelf::DeadLetter, &shelved, &options, SystemTime::UNIX_EPOCH);
    let header = JournalHeader::new("memory", operator(), RunOptions::new(), plan);
    let run = header.run.clone();
    let handles: Vec<_> = originals.iter().map(|entry| entry.handle.clone()).collect();
    let (mut journal, lock) = state.journals().unwrap().begin(header).unwrap();
    journal.intent(PlanAction::Discard, &handles, SystemTime::UNIX_EPOCH).unwrap();
    // The run discards them in another order than that of the file.
    let results: Vec<_> = handles.into_iter().rev().map(|handle| (handle, EntryState::Done)).collect();
    journal.results(&results).unwrap();
    journal.end(None, SystemTime::UNIX_EPOCH).unwrap();
    drop((journal, lock));
    state.save_originals(&run, originals.iter()).unwrap();

    let restored = Undoing::of(&state, &run).unwrap().run(&state, &desk, operator()).await.unwrap();
    assert!(restored.ended.is_none(), "{restored:?}");
    let expected: Vec<_> = (0..ENTRIES).map(|number| format!("{} {number}", Shelf::DeadLetter)).collect();
    assert_eq!(on_shelf(&broker, Shelf::DeadLetter), expected);
    assert_eq!(Undoing::of(&state, &run).unwrap().left(), 0);
}

#[tokio::test]
async fn an_import_to_both_shelves_puts_each_message_onto_its_own_once() {
    let (broker, (_folder, state)) = (MemoryBroker::new(), state());
    let desk = desk(&broker);
    let file = || {
        let shelves = [Shelf::Parking, Shelf::DeadLetter, Shelf::Parking, Shelf::DeadLetter];
        (1..).zip(shelves).map(|(line, shelf)| (line, exported(shelf, line as usize))).collect::<Vec<_>>()
    };
    let importing = import(&state, &desk, None, file()).await.unwrap();
    assert_eq!((importing.all, importing.new, importing.left()), (4, 4, 4));

    // Both shelves are locked before the first message is put back.
    let folder = state.journals().unwrap();
    let lock = folder.lock("memory", "orders", Shelf::Parking, "another command").unwrap();
    let refused = importing.run(&state, &desk).await.unwrap_err();
    assert!(format!("{refused:#}").contains("another command"), "{refused:#}");
    assert_eq!(on_shelf(&broker, Shelf::DeadLetter), [""; 0]);
    drop(lock);

    let restored = importing.run(&state, &desk).await.unwrap();
    assert_eq!((restored.done, restored.refused.len()), (4, 0), "{restored:?}");
    for (shelf, lines) in [(Shelf::DeadLetter, [2, 4]), (Shelf::Parking, [1, 3])] {
        assert_eq!(on_shelf(&broker, shelf), lines.map(|line| format!("{shelf} {line}")));
    }
    let again = import(&state, &desk, None, file()).await.unwrap();
    assert_eq!((again.all, again.new, again.left()), (4, 0, 0));
    let late = importing.run(&state, &desk).await.unwrap_err();
    assert!(late.to_string().contains("another command restored messages meanwhile"), "{late:#}");
}

#[tokio::test]
async fn nothing_is_restored_once_the_journal_is_deleted_or_replaced() {
    let delete = |path: &Path| fs::remove_file(path).unwrap();
    let replace = |path: &Path| {
        let content = fs::read(path).unwrap();
        fs::rename(path, path.with_extension("old")).unwrap();
        fs::write(path, content).unwrap();
    };
    for remove in [&delete as &dyn Fn(&Path), &replace] {
        let (broker, folder) = (MemoryBroker::new(), tempfile::tempdir().unwrap());
        let path = folder.path().join("run.undone");
        let entry = exported(Shelf::DeadLetter, 1);
        let mut notes = Notes::open(&path).unwrap();
        notes.note(&EntryHandle::new(Shelf::DeadLetter, "0"), Noted::Begun).unwrap();
        remove(&path);
        let entries = std::iter::once((&entry.handle, &entry));
        let restored = restore(&broker.shelves("orders"), entries, notes).await;
        let error = format!("{:#}", restored.ended.expect("an error"));
        assert!(error.contains("run.undone") && error.contains("compare the shelf"), "{error}");
        assert_eq!((restored.done, on_shelf(&broker, Shelf::DeadLetter).len()), (0, 0));
    }
}
