//! The journal of edits of a shelf by a program: what each command was to do, and what became of each message, so that a command goes on
//! where one died.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use redrive::Message;
use redrive::ops::{ContentDigest, JournalError, JournalFile, JournalRecord, Operator};
use redrive::shelves::{EntryHandle, Shelved};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Record {
    Begin {
        begin: Box<Begin>,
    },
    /// Of the last command.
    Reached {
        reached: Reached,
    },
    /// A message is edited next.
    Begun {
        handle: String,
        copy: Copy,
    },
    /// What became of it.
    Ended {
        handle: String,
        state: Ended,
        /// The handle of the edited message, if the broker tells it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        now: Option<String>,
    },
}

impl JournalRecord for Record {
    const KIND: &'static str = "edited";
    const VERSION: u32 = 1;
    const IF_LOST: &'static str =
        "look whether edited copies are on the shelf beside their originals, then move this file away";
}

/// What a command is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Begin {
    /// The selection and the program.
    pub(super) filter: String,
    pub(super) by: Operator,
    pub(super) originals: Option<PathBuf>,
}

/// How far a command came.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reached {
    /// What is done so far, by all commands, is in the audit log.
    Audited,
    /// Nothing is left to edit, and the plan is made.
    Planned,
}

/// What became of an entry.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ended {
    Done,
    NotStored,
    /// It has left the shelf, and no edited copy was found.
    Gone,
}

/// The edited message, as it is to be stored: to find it after a crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Copy {
    content: String,
    /// Of the body and the id alone: a broker may add headers.
    identity: String,
}

impl Copy {
    pub(super) fn of(stored: &Message) -> Self {
        Self { content: ContentDigest::of(stored).to_string(), identity: identity(stored) }
    }
}

fn identity(message: &Message) -> String {
    let alone = Message::new(message.body().clone());
    let alone = message.id().map_or_else(|| alone.clone(), |id| alone.clone().with_id(id));
    ContentDigest::of(&alone).to_string()
}

/// What the journal says of what was done before. Pure.
#[derive(Debug, Default)]
pub(super) struct Past {
    commands: Vec<Command>,
    /// What was begun and has no result.
    open: HashMap<EntryHandle, Open>,
}

#[derive(Debug)]
struct Command {
    begin: Begin,
    /// Each entry that was replaced, with its handle now.
    done: Vec<Option<EntryHandle>>,
    /// How many of them the audit log has; `None` if it does not have the command.
    audited: Option<usize>,
    is_planned: bool,
}

#[derive(Debug)]
struct Open {
    command: usize,
    copy: Copy,
}

/// What a command did that is not in the audit log: it died before, or learned only later that the broker had stored an edit.
#[derive(Debug)]
pub(super) struct Unaudited {
    pub(super) begin: Begin,
    pub(super) done: u64,
}

/// What became of an entry that a process was editing when it died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Became {
    /// Its edited copy is there, and the entry is not.
    Edited(EntryHandle),
    /// It is as it was, and nothing else there looks like its edited copy.
    NotStored,
    /// Neither it nor its copy is there.
    Gone,
    /// It is there, and beside it what may be its copy.
    Uncertain,
}

impl Past {
    fn add(&mut self, record: Record) -> Result<()> {
        match record {
            Record::Begin { begin } => self.commands.push(Command {
                begin: *begin,
                done: Vec::new(),
                audited: None,
                is_planned: false,
            }),
            Record::Reached { reached } => {
                let last = self.commands.last_mut().context("nothing was begun")?;
                match reached {
                    Reached::Audited => {
                        self.commands
                            .iter_mut()
                            .for_each(|command| command.audited = Some(command.done.len()));
                    }
                    Reached::Planned => last.is_planned = true,
                }
            }
            Record::Begun { handle, copy } => {
                let command = self.commands.len().checked_sub(1).context("nothing was begun")?;
                self.open.insert(handle.parse()?, Open { command, copy });
            }
            Record::Ended { handle, state, now } => {
                let open = self.open.remove(&handle.parse()?);
                let command = open.and_then(|open| self.commands.get_mut(open.command));
                if let (Ended::Done, Some(command)) = (state, command) {
                    command.done.push(now.map(|now| now.parse()).transpose()?);
                }
            }
        }
        Ok(())
    }

    /// Returns the commands of which the audit log does not have all.
    pub(super) fn unaudited(&self) -> Vec<Unaudited> {
        let unaudited = self.commands.iter().filter(|command| command.audited != Some(command.done.len()));
        let rest = |command: &Command| command.done.len() - command.audited.unwrap_or(0);
        unaudited
            .map(|command| Unaudited { begin: command.begin.clone(), done: rest(command) as u64 })
            .collect()
    }

    /// Returns what the same command edited before it was finished, by the handles of now as far as the broker told them.
    pub(super) fn unplanned(&self, filter: &str) -> Vec<Option<EntryHandle>> {
        let newest_first = self.commands.iter().rev().filter(|command| command.begin.filter == filter);
        let unfinished: Vec<_> = newest_first.take_while(|command| !command.is_planned).collect();
        unfinished.into_iter().rev().flat_map(|command| command.done.iter().cloned()).collect()
    }

    /// Returns true if entries have no result.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns true if [`became`](Self::became) needs this entry: it has no result, or may be the copy of one.
    pub(super) fn concerns(&self, entry: &Shelved) -> bool {
        let identity = identity(&entry.message);
        self.open.contains_key(&entry.handle) || self.open.values().any(|open| open.copy.identity == identity)
    }

    /// Decides what became of the entries that have no result, by all that is on the shelf now.
    pub(super) fn became(&self, entries: &[&Shelved]) -> Vec<(EntryHandle, Became)> {
        let mut known: HashSet<_> =
            self.commands.iter().flat_map(|command| command.done.iter().flatten().cloned()).collect();
        let mut open: Vec<_> = self.open.iter().collect();
        open.sort_by_key(|(entry, _)| entry.to_string());
        let mut became = Vec::new();
        for (entry, Open { copy, .. }) in open {
            let is_there = entries.iter().any(|there| there.handle == *entry);
            let mut others =
                entries.iter().filter(|other| other.handle != *entry && !known.contains(&other.handle));
            let what = if !is_there {
                let is_copy =
                    |other: &&&Shelved| ContentDigest::of(&other.message).to_string() == copy.content;
                others.find(is_copy).map_or(Became::Gone, |copy| Became::Edited(copy.handle.clone()))
            } else if others.any(|other| identity(&other.message) == copy.identity) {
                Became::Uncertain
            } else {
                Became::NotStored
            };
            if let Became::Edited(now) = &what {
                known.insert(now.clone());
            }
            became.push((entry.clone(), what));
        }
        became
    }
}

/// The file.
pub(super) struct EditJournal(JournalFile<Record>);

impl EditJournal {
    /// Reads a journal, and returns how long it is. One that does not exist is empty.
    pub(super) fn read(path: &Path) -> Result<(Past, u64)> {
        let mut past = Past::default();
        let len = JournalFile::read(path, |record| past.add(record))?;
        Ok((past, len))
    }

    /// Opens it for writing. The shelf must be locked.
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(Self(JournalFile::open_or_create(path, |_| Ok::<_, String>(()))?))
    }

    /// Notes a command. It is on the disk when this returns.
    pub(super) fn begin(&mut self, begin: Begin) -> Result<(), JournalError> {
        self.0.commit(&[Record::Begin { begin: Box::new(begin) }])
    }

    /// Notes that a message is edited next, and what is stored. It is on the disk when this returns.
    pub(super) fn begun(&mut self, entry: &EntryHandle, copy: Copy) -> Result<(), JournalError> {
        self.0.commit(&[Record::Begun { handle: entry.to_string(), copy }])
    }

    /// Notes what became of it, with its handle now. It is on the disk with the next one: a power cut leaves one in doubt.
    pub(super) fn ended(
        &mut self,
        entry: &EntryHandle,
        state: Ended,
        now: Option<&EntryHandle>,
    ) -> Result<(), JournalError> {
        let now = now.map(ToString::to_string);
        self.0.append(&[Record::Ended { handle: entry.to_string(), state, now }])
    }

    /// Notes how far the last command came. It is on the disk when this returns.
    pub(super) fn reached(&mut self, reached: Reached) -> Result<(), JournalError> {
        self.0.commit(&[Record::Reached { reached }])
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use redrive::Shelf;

    use super::*;

    fn handle(entry: &str) -> EntryHandle {
        EntryHandle::new(Shelf::DeadLetter, entry)
    }

    fn on_shelf(entry: &str, message: Message) -> Shelved {
        Shelved::new(handle(entry), message)
    }

    /// A journal in a file of its own, and what it says.
    struct Noted(tempfile::TempDir);

    impl Noted {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("journal")
        }

        fn note(&self, note: impl FnOnce(&mut EditJournal) -> Result<(), JournalError>) {
            note(&mut EditJournal::open(&self.path()).unwrap()).unwrap();
        }

        fn begin(&self, filter: &str) {
            let by = Operator::new("ada", "ops-1", SystemTime::now()).reason("a typing error");
            let filter = filter.to_owned();
            self.note(|journal| journal.begin(Begin { filter, by, originals: None }));
        }

        fn edited(&self, entry: &str, now: &str) {
            self.note(|journal| journal.begun(&handle(entry), Copy::of(&Message::new(now.to_owned()))));
            self.note(|journal| journal.ended(&handle(entry), Ended::Done, Some(&handle(now))));
        }

        fn past(&self) -> Past {
            EditJournal::read(&self.path()).unwrap().0
        }

        fn unaudited(&self) -> Vec<(String, u64)> {
            let unaudited = self.past().unaudited().into_iter();
            unaudited.map(|Unaudited { begin, done }| (begin.filter, done)).collect()
        }

        fn unplanned(&self, filter: &str) -> Vec<String> {
            let unplanned = self.past().unplanned(filter);
            unplanned.into_iter().flatten().map(|handle| handle.entry().to_owned()).collect()
        }
    }

    #[test]
    fn what_was_edited_before_a_kill_is_planned_and_audited_by_the_command_that_goes_on() {
        let noted = Noted::new();
        noted.begin("eur");
        noted.edited("1", "1e");
        noted.edited("2", "2e");
        let [died] = &noted.past().unaudited()[..] else { panic!("one command") };
        assert_eq!((died.done, died.begin.by.reason.as_deref()), (2, Some("a typing error")));
        assert_eq!(died.begin.filter, "eur");
        noted.note(|journal| journal.reached(Reached::Audited));

        noted.begin("other");
        noted.edited("9", "9e");
        noted.note(|journal| journal.reached(Reached::Audited));
        noted.note(|journal| journal.reached(Reached::Planned));
        noted.begin("eur");
        noted.edited("3", "3e");
        assert_eq!(noted.unplanned("eur"), ["1e", "2e", "3e"]);
        assert_eq!(noted.unaudited(), [("eur".to_owned(), 1)], "only the last one");
        noted.note(|journal| journal.reached(Reached::Planned));
        assert!(noted.unplanned("eur").is_empty() && noted.unplanned("other").is_empty());
        noted.begin("eur");
        noted.edited("4", "4e");
        assert_eq!(noted.unplanned("eur"), ["4e"], "what was planned is not planned again");
    }

    #[test]
    fn an_edit_whose_answer_was_lost_is_audited_once_it_is_found() {
        let noted = Noted::new();
        noted.begin("eur");
        noted.edited("1", "1e");
        noted.note(|journal| journal.begun(&handle("2"), Copy::of(&Message::new("2e"))));
        noted.note(|journal| journal.reached(Reached::Audited));
        noted.begin("other");
        noted.note(|journal| journal.reached(Reached::Audited));
        assert_eq!(noted.unaudited(), []);
        noted.note(|journal| journal.ended(&handle("2"), Ended::Done, Some(&handle("2e"))));
        assert_eq!(noted.unaudited(), [("eur".to_owned(), 1)]);
        noted.note(|journal| journal.reached(Reached::Audited));
        assert_eq!(noted.unaudited(), []);
    }

    #[test]
    fn what_a_dead_process_had_begun_is_decided_by_the_shelf() {
        let noted = Noted::new();
        noted.begin("eur");
        let edited = |id: &str| Message::new("EUR").with_id(id);
        for id in ["a", "b", "c", "d"] {
            noted.note(|journal| journal.begun(&handle(id), Copy::of(&edited(id))));
        }
        let original = |id: &str| on_shelf(id, Message::new("eur").with_id(id));
        let shelf = [
            original("a"),
            // The broker added something: it may be the copy all the same.
            original("b"),
            on_shelf("b-copy", edited("b").with_header("x-by-broker", 1_i64)),
            on_shelf("c-copy", edited("c")),
        ];
        let became = noted.past().became(&shelf.iter().collect::<Vec<_>>());
        assert_eq!(
            became,
            [
                (handle("a"), Became::NotStored),
                (handle("b"), Became::Uncertain),
                (handle("c"), Became::Edited(handle("c-copy"))),
                (handle("d"), Became::Gone),
            ]
        );
        noted.note(|journal| journal.ended(&handle("a"), Ended::NotStored, None));
        noted.note(|journal| journal.ended(&handle("c"), Ended::Done, Some(&handle("c-copy"))));
        noted.note(|journal| journal.ended(&handle("d"), Ended::Gone, None));
        let became = noted.past().became(&shelf.iter().collect::<Vec<_>>());
        assert_eq!(became, [(handle("b"), Became::Uncertain)]);
        assert_eq!(noted.unplanned("eur"), ["c-copy"]);
    }

    #[test]
    fn a_torn_line_is_nothing_and_no_whole_one_is_passed_over() {
        let noted = Noted::new();
        noted.begin("eur");
        noted.note(|journal| journal.begun(&handle("1"), Copy::of(&Message::new("1e"))));
        let text = std::fs::read_to_string(noted.path()).unwrap();
        let torn = r#"{"handle":"dead-letter/1","state":"do"#;
        let read = |text: String| {
            std::fs::write(noted.path(), text).unwrap();
            EditJournal::read(&noted.path())
        };
        assert!(read(format!("{text}{torn}")).unwrap().0.is_open());
        noted.note(|journal| journal.ended(&handle("1"), Ended::NotStored, None));
        assert!(!noted.past().is_open(), "what follows is a line of its own");
        let damaged = read(format!("{text}{torn}\n")).unwrap_err().to_string();
        assert!(damaged.contains("line 4 of") && damaged.contains("move this file away"), "{damaged}");
        let first = text.split_inclusive('\n').next().unwrap();
        assert!(read(format!("{first}{{}}\n")).is_err());
        assert!(read(text.split_inclusive('\n').skip(1).collect()).is_err(), "no edits without a kind");
    }
}
