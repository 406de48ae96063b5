//! The rules, with their times shortened: a test cannot wait for half an hour.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// How far back the rules look in a test, wherever they compare with what was: long enough for a few scrapes on a busy machine.
pub(crate) const OFFSET: &str = "5s";

/// The rules in the file `path`: each alert fires at once, and looks back by [`OFFSET`].
pub(crate) fn shortened(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
    Ok(text.lines().map(|line| shorten(line) + "\n").collect())
}

fn shorten(line: &str) -> String {
    if line.trim_start().starts_with("for: ") {
        return line.replace("for: ", "for: 0s # ");
    }
    let mut pieces = line.split(" offset ");
    let mut shortened = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let duration = piece.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(piece.len());
        shortened += &format!(" offset {OFFSET}{}", &piece[duration..]);
    }
    shortened
}

#[test]
fn an_alert_fires_at_once_and_looks_back_by_seconds() {
    assert_eq!(shorten("        for: 15m"), "        for: 0s # 15m");
    assert_eq!(
        shorten("  max(a[1d] offset 1h) - b offset 30m >= 10"),
        "  max(a[1d] offset 5s) - b offset 5s >= 10"
    );
    assert_eq!(shorten("      # for a while"), "      # for a while");
}
