//! What worker processes write down, line by line, so that the one who kills them knows what they did.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A worker takes messages.
    Started,
    /// The handler was called.
    Began {
        /// Of the message.
        id: String,
        /// 1 the first time.
        attempt: u32,
        /// By the broker's count.
        handed_out: u32,
    },
    /// The handler succeeded.
    Handled {
        /// Of the message.
        id: String,
    },
    /// The delivery was lost in the middle of its handling, or before it was settled.
    Lost {
        /// Of the message.
        id: String,
    },
    /// The broker was told, and answered as far as it does.
    Settled {
        /// Of the message.
        id: String,
        /// The word of the disposition, or `on-sight`.
        disposition: String,
    },
}

impl Line {
    fn write(&self) -> String {
        match self {
            Self::Started => "started\n".to_owned(),
            Self::Began { id, attempt, handed_out } => format!("began {id} {attempt} {handed_out}\n"),
            Self::Handled { id } => format!("handled {id}\n"),
            Self::Lost { id } => format!("lost {id}\n"),
            Self::Settled { id, disposition } => format!("settled {id} {disposition}\n"),
        }
    }

    fn read(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split(' ').collect();
        Some(match words[..] {
            ["started"] => Self::Started,
            ["began", id, attempt, handed_out] => Self::Began {
                id: id.to_owned(),
                attempt: attempt.parse().ok()?,
                handed_out: handed_out.parse().ok()?,
            },
            ["handled", id] => Self::Handled { id: id.to_owned() },
            ["lost", id] => Self::Lost { id: id.to_owned() },
            ["settled", id, word] => Self::Settled { id: id.to_owned(), disposition: word.to_owned() },
            _ => return None,
        })
    }
}

/// The end of the log that workers write to.
#[derive(Debug)]
pub struct LogWriter(File);

impl LogWriter {
    /// Opens the log, and creates it if needed.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().append(true).create(true).open(path).map(Self)
    }

    /// Writes a line. What was written stays, whatever becomes of this process: each line is one write to a file in
    /// append mode.
    ///
    /// # Panics
    /// When it cannot be written: without its log a test would prove nothing.
    pub fn write(&self, line: &Line) {
        (&self.0).write_all(line.write().as_bytes()).expect("the log can be written");
    }
}

/// All that is known of one message.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// How often the handler was called.
    pub runs: u32,
    /// The highest attempt.
    pub attempt: u32,
    /// The highest count of the broker.
    pub handed_out: u32,
    /// How often the handler succeeded.
    pub handled: u32,
    /// How often it was acknowledged, and the worker lived to say so.
    pub acked: u32,
    /// How often it was put onto a shelf, likewise.
    pub shelved: u32,
    /// How often it was deduplicated.
    pub on_sight: u32,
}

/// The end of the log that is read: everything so far, by id.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    /// The beginning of a line that is not finished.
    rest: Vec<u8>,
    /// How many workers took messages.
    pub started: u32,
    /// How often handlers were called.
    pub runs: u64,
    /// How many deliveries were lost.
    pub lost: u64,
    /// What became of each message.
    pub records: HashMap<String, Record>,
}

impl Log {
    /// A new log at `path`.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        LogWriter::open(path)?;
        let (path, file) = (path.to_owned(), File::open(path)?);
        Ok(Self { path, file, rest: Vec::new(), started: 0, runs: 0, lost: 0, records: HashMap::new() })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes in what was written since the last time.
    ///
    /// # Panics
    /// When it cannot be read, or there is something in it that no worker writes.
    pub fn catch_up(&mut self) {
        self.file.read_to_end(&mut self.rest).expect("the log can be read");
        let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else { return };
        let lines: Vec<u8> = self.rest.drain(..=end).collect();
        for line in String::from_utf8_lossy(&lines).lines() {
            let line = Line::read(line).unwrap_or_else(|| panic!("no worker writes {line:?}"));
            self.take_in(line);
        }
    }

    fn take_in(&mut self, line: Line) {
        match line {
            Line::Started => self.started += 1,
            Line::Began { id, attempt, handed_out } => {
                self.runs += 1;
                let record = self.records.entry(id).or_default();
                record.runs += 1;
                record.attempt = record.attempt.max(attempt);
                record.handed_out = record.handed_out.max(handed_out);
            }
            Line::Lost { .. } => self.lost += 1,
            Line::Handled { id } => self.records.entry(id).or_default().handled += 1,
            Line::Settled { id, disposition } => {
                let record = self.records.entry(id).or_default();
                match disposition.as_str() {
                    "ack" => record.acked += 1,
                    "dead-letter" | "park" => record.shelved += 1,
                    "on-sight" => record.on_sight += 1,
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let id = || "m-1".to_owned();
        for line in [
            Line::Started,
            Line::Began { id: id(), attempt: 2, handed_out: 3 },
            Line::Handled { id: id() },
            Line::Lost { id: id() },
            Line::Settled { id: id(), disposition: "on-sight".into() },
        ] {
            assert_eq!(Line::read(line.write().trim_end()), Some(line));
        }
        assert_eq!(Line::read("began m-1 2"), None);
    }
}
