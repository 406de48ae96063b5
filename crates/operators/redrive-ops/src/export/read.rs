//! All lines of an export.

use std::io::BufRead;

use super::{ExportedEntry, ParseLineError};

/// Reads the lines of an export, one entry at a time. Empty lines are skipped. It ends after the first error.
#[derive(Debug)]
pub struct ExportLines<R> {
    from: R,
    /// Number of the last line that was read.
    line: u64,
    ended: bool,
}

/// A line of an export could not be read.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {error}")]
#[non_exhaustive]
pub struct ReadExportError {
    /// Number of the line; the first one is 1.
    pub line: u64,
    /// Why it could not be read.
    #[source]
    pub error: ReadLineError,
}

/// Why a line could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadLineError {
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The line is no exported entry.
    #[error(transparent)]
    Parse(#[from] ParseLineError),
}

impl<R: BufRead> ExportLines<R> {
    /// Reads lines from here.
    pub fn new(from: R) -> Self {
        Self { from, line: 0, ended: false }
    }

    /// Returns the number of the line that was read last; the first one is 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    fn read(&mut self) -> Result<Option<ExportedEntry>, ReadLineError> {
        loop {
            let mut text = String::new();
            self.line += 1;
            if self.from.read_line(&mut text)? == 0 {
                return Ok(None);
            }
            if !text.trim_start_matches('\u{feff}').trim().is_empty() {
                return Ok(Some(ExportedEntry::from_line(&text)?));
            }
        }
    }
}

impl<R: BufRead> Iterator for ExportLines<R> {
    type Item = Result<ExportedEntry, ReadExportError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let read = self.read();
        self.ended = !matches!(read, Ok(Some(_)));
        read.map_err(|error| ReadExportError { line: self.line, error }).transpose()
    }
}
