//! `redrive export`: messages as lines of JSON, without loss.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use redrive::ops::{ExportedEntry, own_file};

use super::select::select;
use crate::args::{Export, Global};
use crate::exit::Exit;
use crate::output::{is_writable, note, plural, print};

pub(crate) async fn run(global: &Global, command: Export) -> Result<Exit> {
    let context = global.broker()?;
    if let Some(path) = &command.output {
        is_new(path)?;
    }
    let selected = select(global, &context, &command.which).await?;
    let entries = selected.entries();
    let lines = entries
        .iter()
        .map(|entry| ExportedEntry::new(&selected.desk.queue, &entry.entry, selected.now).to_line());
    match &command.output {
        None => {
            for line in lines {
                print(&line?);
                if !is_writable() {
                    break;
                }
            }
        }
        Some(path) => {
            let write = || -> Result<()> {
                let mut file = own_file::options().write(true).create_new(true).open(path)?;
                for line in lines {
                    writeln!(file, "{}", line?)?;
                }
                Ok(file.sync_all()?)
            };
            write().with_context(|| cannot(path))?;
        }
    }
    note!("{}", selected.nothing().unwrap_or_else(|| plural(entries.len(), "message")));
    Ok(Exit::Ok)
}

/// Refuses a file that exists, before the broker is asked.
fn is_new(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        bail!(
            "{}: it exists, and an export never overwrites a file. Name another one, or remove it",
            cannot(path)
        );
    }
    Ok(())
}

fn cannot(path: &Path) -> String {
    format!("cannot export to {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_exists_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("orders.jsonl");
        is_new(&path).unwrap();
        std::fs::write(&path, "1").unwrap();
        assert!(is_new(&path).unwrap_err().to_string().contains("never overwrites"));
    }
}
