//! `redrive export`: messages as lines of JSON, without loss.

use std::fs::OpenOptions;
use std::io::Write as _;

use anyhow::{Context as _, Result};
use redrive::ops::ExportedEntry;

use super::select::select;
use crate::args::{Export, Global};
use crate::exit::Exit;
use crate::output::print;

pub(crate) async fn run(global: &Global, command: Export) -> Result<Exit> {
    let context = global.broker()?;
    let selected = select(global, &context, &command.which).await?;
    let entries = selected.entries();
    let lines = entries
        .iter()
        .map(|entry| ExportedEntry::new(&selected.desk.queue, &entry.entry, selected.now).to_line());
    match &command.output {
        None => {
            for line in lines {
                print(&line?);
            }
        }
        Some(path) => {
            let write = || -> Result<()> {
                let mut options = OpenOptions::new();
                options.write(true).create_new(true);
                #[cfg(unix)]
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
                let mut file = options.open(path)?;
                for line in lines {
                    writeln!(file, "{}", line?)?;
                }
                Ok(file.sync_all()?)
            };
            write().with_context(|| format!("cannot export to {}", path.display()))?;
        }
    }
    eprintln!("{} messages", entries.len());
    Ok(Exit::Ok)
}
