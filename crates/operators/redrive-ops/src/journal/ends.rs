//! The first and the last record of a journal, without what is between them: a journal of a large run has many megabytes.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use redrive_core::Shelf;
use serde::Deserialize;

use crate::as_text;

/// Part of a file in which the last line is looked for first.
const TAIL: u64 = 64 << 10;

/// What the first record says of the work, without its entries.
#[derive(Deserialize)]
pub(super) struct Head {
    pub(super) broker: String,
    pub(super) plan: PlanHead,
}

#[derive(Deserialize)]
pub(super) struct PlanHead {
    pub(super) queue: String,
    #[serde(with = "as_text::shelf")]
    pub(super) shelf: Shelf,
}

impl Head {
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        #[derive(Deserialize)]
        struct Begin {
            header: Head,
        }
        // Behind the line with the kind of the journal.
        let first =
            BufReader::new(File::open(path)?).split(b'\n').nth(1).unwrap_or_else(|| Ok(Vec::new()))?;
        Ok(serde_json::from_slice::<Begin>(&first)?.header)
    }
}

/// Returns the last whole line, which may be the first one.
pub(super) fn last_line(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    // A line is longer than the tail only if it is the first one, or quotes a very long error.
    for from in [len.saturating_sub(TAIL), 0] {
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.by_ref().take(len - from).read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[..end]);
        match whole.iter().rposition(|byte| *byte == b'\n') {
            Some(before) => return Ok(whole[before + 1..].to_vec()),
            None if from == 0 => return Ok(whole.to_vec()),
            None => {}
        }
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::{TAIL, last_line};

    #[test]
    fn the_last_whole_line_is_found_wherever_it_begins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let long = |letter: &str| letter.repeat(TAIL as usize + 10);
        let cases = [
            (String::new(), String::new()),
            ("torn".to_owned(), String::new()),
            ("one\n".to_owned(), "one".to_owned()),
            ("one\ntwo\ntorn".to_owned(), "two".to_owned()),
            (format!("{}\n", long("a")), long("a")),
            (format!("one\n{}\n", long("b")), long("b")),
            (format!("{}\ntwo\n{}", long("c"), "torn"), "two".to_owned()),
        ];
        for (text, expected) in cases {
            std::fs::write(&path, &text).unwrap();
            assert_eq!(String::from_utf8(last_line(&path).unwrap()).unwrap(), expected);
        }
    }
}
