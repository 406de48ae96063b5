//! `redrive browse`: the messages on a shelf.

use anyhow::Result;
use redrive::Shelf;
use redrive::ops::{ExportedEntry, ShownFailure};
use serde_json::Value;

use super::select::select;
use crate::args::{Browse, Global};
use crate::exit::Exit;
use crate::output::{ago, failure, note, print_json, short, table};

pub(crate) async fn run(global: &Global, command: Browse) -> Result<Exit> {
    let context = global.broker()?;
    let selected = select(global, &context, &command.which).await?;
    let (now, shelf) = (selected.now, Shelf::from(command.which.shelf));
    let entries = selected.entries();
    let page = entries.page(command.offset, command.limit);
    if global.json {
        let lines = page.entries.iter().map(|entry| {
            let line = ExportedEntry::new(&selected.desk.queue, &entry.entry, now).to_line()?;
            let mut line: Value = serde_json::from_str(&line)?;
            line["group"] = entry.group.to_string().into();
            Ok(line)
        });
        print_json(&lines.collect::<Result<Vec<_>>>()?)?;
        return Ok(Exit::Ok);
    }
    let until = page.offset + page.entries.len();
    let shown = selected
        .nothing()
        .unwrap_or_else(|| format!("messages {} to {until} of {}", (page.offset + 1).min(until), page.total));
    note!("{} {shelf}: {shown}, read {} ago", selected.desk.queue, short(selected.view.age(now)));
    let mut rows = table(["handle", "shelved", "attempt", "redrives", "id", "failure"]);
    for viewed in &page.entries {
        let (entry, history) = (&viewed.entry, &viewed.entry.history);
        let told = ShownFailure::of(entry);
        rows.row([
            entry.handle.to_string(),
            ago(viewed.time(), now),
            history.attempt.or_highest().to_string(),
            history.redrives.or_highest().to_string(),
            told.id.clone().unwrap_or_else(|| "-".to_owned()),
            failure(told.reason.as_deref(), told.text()),
        ]);
    }
    rows.print();
    if until < page.total {
        note!("the next ones: --offset {until}");
    }
    Ok(Exit::Ok)
}
