//! State of a ledger: which messages a handler began with and never ended with. Pure; the file is in
//! [`in_flight_log`](super::in_flight_log).
//!
//! The file consists of lines whose fields are separated by one blank:
//!
//! | line | meaning |
//! |---|---|
//! | `redrive ledger 1` | the first line: identifies the file |
//! | `! 2 0 order-7` | two processes died with copy 0 of message `order-7` |
//! | `+ 0 order-7` | a handler begins with it |
//! | `- 0 order-7` | it came to an end |
//! | `< 0 order-7` | it was given back before it came to an end |

use std::collections::HashMap;
use std::fmt::Write as _;

use redrive_core::Delivery;
use redrive_core::engine::lasting_headers;
use redrive_core::text::fnv1a;

/// First line of every ledger.
pub(crate) const TITLE: &str = "redrive ledger 1";

/// Maximum number of messages that are counted but never redelivered; the one unseen for longest is forgotten first.
const MOST_COUNTED: usize = 4096;

/// Identifies one copy of one message: `COPY ID`, with blanks and unprintable characters of the id escaped. A message without an
/// id of its own is identified by a hash of its content, behind an escape that no id contains: messages with identical content
/// share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(String);

impl Key {
    pub(crate) fn of(delivery: &Delivery) -> Self {
        let history = delivery.history();
        if history.id_assigned || delivery.id().is_empty() {
            return Self(format!("{} %={:016x}", history.copy_number, content_hash(delivery)));
        }
        let mut key = format!("{} ", history.copy_number);
        for byte in delivery.id().bytes() {
            if byte.is_ascii_graphic() && byte != b'%' {
                key.push(char::from(byte));
            } else {
                // Writing to a String never fails.
                let _ = write!(key, "%{byte:02x}");
            }
        }
        Self(key)
    }

    fn read(text: &str) -> Option<Self> {
        let (copy_number, id) = text.split_once(' ')?;
        let whole = copy_number.parse::<u32>().is_ok()
            && !id.is_empty()
            && id.bytes().all(|byte| byte.is_ascii_graphic());
        whole.then(|| Self(text.to_owned()))
    }
}

/// Hashes the content; every process computes the same value.
fn content_hash(delivery: &Delivery) -> u64 {
    let message = delivery.message();
    let mut others = format!("{}\n{}\n", delivery.exchange(), delivery.routing_key());
    for (name, value) in lasting_headers(delivery) {
        // Writing to a String never fails.
        let _ = writeln!(others, "{name}={value:?}");
    }
    fnv1a(others.bytes().chain(message.body().iter().copied()))
}

/// Counts for one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    /// Number of processes that died with it.
    deaths: u32,
    /// Number of handlers that run now; more than one only if several messages share an id.
    open: u32,
    /// When it was last recorded, on the ledger's own count.
    seen: u64,
}

/// State that results from the lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LedgerState {
    entries: HashMap<Key, Entry>,
    /// Number of entries with deaths.
    counted: usize,
    now: u64,
}

impl LedgerState {
    /// Reads what an ended process left. Every message that it began with and never ended is counted. The last line may be
    /// incomplete, if the machine stopped while writing it.
    ///
    /// # Errors
    ///
    /// Says what is wrong, and in which line, if the text contains something that redrive does not write.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut state = Self::default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = whole.split('\n').enumerate();
        match lines.next() {
            Some((_, TITLE)) => {}
            // An empty file, or the beginning of a title that was not written to its end.
            Some((_, "")) if TITLE.starts_with(text) => return Ok(state),
            _ => return Err(format!("its first line is not `{TITLE}`: it is no ledger of redrive")),
        }
        for (index, line) in lines {
            state
                .take_in(line)
                .ok_or_else(|| format!("line {} is not one that redrive writes", index + 1))?;
        }
        state.end_of_process();
        Ok(state)
    }

    /// Records that a handler begins. Returns the line to write.
    pub(crate) fn begin(&mut self, key: &Key) -> String {
        self.entry(key).open += 1;
        format!("+ {}\n", key.0)
    }

    /// Records that it came to an end. Returns the line to write.
    pub(crate) fn end(&mut self, key: &Key) -> String {
        if let Some(entry) = self.entries.get_mut(key) {
            self.counted -= usize::from(entry.deaths > 0);
            entry.deaths = 0;
            entry.open = entry.open.saturating_sub(1);
            if entry.open == 0 {
                self.entries.remove(key);
            }
        }
        format!("- {}\n", key.0)
    }

    /// Records that it was given back before it came to an end, which says nothing about its effect. Returns the line to write.
    pub(crate) fn give_back(&mut self, key: &Key) -> String {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.open = entry.open.saturating_sub(1);
            if entry.open == 0 && entry.deaths == 0 {
                self.entries.remove(key);
            }
        }
        format!("< {}\n", key.0)
    }

    /// Returns how many processes died with it.
    pub(crate) fn deaths(&self, key: &Key) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.deaths)
    }

    /// Returns the number of messages that processes died with.
    pub(crate) fn counted(&self) -> usize {
        self.counted
    }

    /// Returns the whole state, in as few lines as possible.
    pub(crate) fn write(&self) -> String {
        let mut text = format!("{TITLE}\n");
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_unstable_by_key(|(_, entry)| entry.seen);
        for (Key(key), entry) in entries {
            if entry.deaths > 0 {
                // Writing to a String never fails.
                let _ = writeln!(text, "! {} {key}", entry.deaths);
            }
            for _ in 0..entry.open {
                let _ = writeln!(text, "+ {key}");
            }
        }
        text
    }

    fn take_in(&mut self, line: &str) -> Option<()> {
        let (sign, rest) = line.split_once(' ')?;
        match sign {
            "+" => drop(self.begin(&Key::read(rest)?)),
            "-" => drop(self.end(&Key::read(rest)?)),
            "<" => drop(self.give_back(&Key::read(rest)?)),
            "!" => {
                let (deaths, key) = rest.split_once(' ')?;
                let (deaths, key) = (deaths.parse().ok().filter(|&deaths| deaths > 0)?, Key::read(key)?);
                let entry = self.entry(&key);
                let before = std::mem::replace(&mut entry.deaths, deaths);
                self.counted += usize::from(before == 0);
            }
            _ => return None,
        }
        Some(())
    }

    fn end_of_process(&mut self) {
        for entry in self.entries.values_mut() {
            if std::mem::take(&mut entry.open) > 0 {
                self.counted += usize::from(entry.deaths == 0);
                entry.deaths = entry.deaths.saturating_add(1);
            }
        }
        if self.entries.len() > MOST_COUNTED {
            let mut seen: Vec<u64> = self.entries.values().map(|entry| entry.seen).collect();
            seen.sort_unstable();
            let oldest_kept = seen[seen.len() - MOST_COUNTED];
            self.entries.retain(|_, entry| entry.seen >= oldest_kept);
            self.counted = self.entries.len();
        }
    }

    fn entry(&mut self, key: &Key) -> &mut Entry {
        self.now += 1;
        let entry = self.entries.entry(key.clone()).or_default();
        entry.seen = self.now;
        entry
    }
}

#[cfg(test)]
#[path = "ledger_state_tests.rs"]
mod tests;
