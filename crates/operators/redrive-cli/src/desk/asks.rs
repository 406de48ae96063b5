//! What other processes ask of a run: lines in a file beside its journal, which the process of the run reads.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use redrive::ops::{RunControl, own_file};
use serde::{Deserialize, Serialize};

/// How often a run looks for what is asked of it.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What is asked of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "ask")]
pub(crate) enum Ask {
    Pause,
    Resume,
    Abort,
    Rate { per_second: u32 },
}

impl Ask {
    /// Passes it on to the run.
    pub(crate) fn of(self, control: &RunControl) {
        match self {
            Self::Pause => control.pause(),
            Self::Resume => control.resume(),
            Self::Abort => control.abort(),
            Self::Rate { per_second } => control.rate(per_second),
        }
    }
}

/// Asks something of the run of this file.
///
/// # Errors
///
/// If it cannot be written.
pub(crate) fn ask(path: &Path, ask: Ask) -> Result<()> {
    let write = || -> Result<()> {
        let line = format!("{}\n", serde_json::to_string(&ask)?);
        Ok(own_file::options().append(true).create(true).open(path)?.write_all(line.as_bytes())?)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Passes everything that is asked on to the run, for ever.
pub(crate) async fn pass_on(path: PathBuf, control: RunControl) {
    let mut passed = 0;
    let mut tick = tokio::time::interval(LOOK_EVERY);
    loop {
        tick.tick().await;
        // A file that cannot be read asks for nothing: the run is not to end for it.
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for ask in new(&text, &mut passed) {
            ask.of(&control);
        }
    }
}

/// Returns what was asked since, in whole lines. A line that is none asks for nothing.
fn new(text: &str, passed: &mut usize) -> Vec<Ask> {
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let lines = text.get(*passed..whole).unwrap_or_default();
    *passed = whole;
    lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_passed_on_once_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ask");
        let mut passed = 0;
        let mut look = || new(&std::fs::read_to_string(&path).unwrap_or_default(), &mut passed);
        assert_eq!(look(), []);
        ask(&path, Ask::Pause).unwrap();
        ask(&path, Ask::Rate { per_second: 5 }).unwrap();
        assert_eq!(look(), [Ask::Pause, Ask::Rate { per_second: 5 }]);
        assert_eq!(look(), []);
        std::fs::write(&path, format!("{}nonsense\n{{\"ask\":\"ab", std::fs::read_to_string(&path).unwrap()))
            .unwrap();
        assert_eq!(look(), []);
    }
}
