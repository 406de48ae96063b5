//! What was restored to a shelf, entry by entry, on the disk: noted before and after, so that a process that dies leaves few in doubt.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use redrive::EntryHandle;
use serde::{Deserialize, Serialize};

/// What was stored before.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RestoreJournal {
    pub(super) begun: HashSet<EntryHandle>,
    done: HashSet<EntryHandle>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    handle: String,
    state: Noted,
}

/// What is noted of one entry.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Noted {
    Begun,
    Done,
    NotStored,
}

impl RestoreJournal {
    /// Reads a file; one that does not exist is empty.
    ///
    /// # Errors
    ///
    /// If it cannot be read or parsed.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        Self::parse(&text).with_context(|| format!("cannot read {}", path.display()))
    }

    /// A process that dies may leave a part of a line at the end: nothing was done for it.
    fn parse(text: &str) -> Result<Self> {
        let mut journal = Self::default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            let Line { handle, state } = serde_json::from_str(line)?;
            let handle: EntryHandle = handle.parse()?;
            match state {
                Noted::Begun => {
                    journal.done.remove(&handle);
                    journal.begun.insert(handle)
                }
                Noted::Done => journal.done.insert(handle),
                Noted::NotStored => journal.begun.remove(&handle),
            };
        }
        Ok(journal)
    }

    /// A process died while it stored this one, or had no answer.
    pub(super) fn is_uncertain(&self, handle: &EntryHandle) -> bool {
        self.begun.contains(handle) && !self.done.contains(handle)
    }
}

/// Removes a part of a line that a full disk or a dead process left: what follows would be read as one line with it.
pub(super) fn cut_torn_line(path: &Path, mut file: &std::fs::File) -> Result<()> {
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    if last == [b'\n'] {
        return Ok(());
    }
    let bytes = std::fs::read(path)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if whole < bytes.len() {
        file.set_len(whole as u64)?;
    }
    Ok(())
}

/// Appends a line, and returns when it is on the disk.
///
/// # Errors
///
/// If it cannot be written: the entry must not be stored then.
pub(super) fn note(path: &Path, entry: &EntryHandle, state: Noted) -> Result<()> {
    let line = Line { handle: entry.to_string(), state };
    let write = || -> Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        cut_torn_line(path, &file)?;
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        file.write_all(text.as_bytes())?;
        Ok(file.sync_all()?)
    };
    write().with_context(|| format!("cannot write {}: nothing more is stored", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_had_begun_is_uncertain_and_a_torn_line_is_nothing() {
        let line = |entry: &str, state: &str| {
            format!("{{\"handle\":\"dead-letter/{entry}\",\"state\":\"{state}\"}}\n")
        };
        let text = [
            line("1", "begun"),
            line("1", "done"),
            line("2", "begun"),
            line("3", "begun"),
            line("3", "not-stored"),
        ]
        .concat();
        let journal = RestoreJournal::parse(&format!("{text}{{\"handle\":\"dead-le")).unwrap();
        let handle = |entry: &str| -> EntryHandle { format!("dead-letter/{entry}").parse().unwrap() };
        assert!(journal.begun.contains(&handle("1")) && !journal.is_uncertain(&handle("1")));
        assert!(journal.is_uncertain(&handle("2")));
        assert!(!journal.begun.contains(&handle("3")), "it can be tried again");
        assert!(RestoreJournal::parse("{}\n").is_err());
    }
}
