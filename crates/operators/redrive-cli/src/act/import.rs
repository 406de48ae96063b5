//! `redrive import`: puts exported messages onto a shelf.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use redrive::Shelf;
use redrive::ops::{AuditAction, AuditRecord, ExportLines, ExportedEntry, require_reason};

use super::ask::counted;
use crate::args::{Global, Import};
use crate::desk::differs::differs;
use crate::desk::import::{Importing, import};
use crate::desk::restore::Restored;
use crate::desk::{State, connect, operator, within};
use crate::exit::{Exit, usage};
use crate::output::{note, plural, print, printable};

pub(crate) async fn run(global: &Global, command: Import) -> Result<Exit> {
    let context = global.broker()?;
    global.may_act(&context)?;
    let file =
        File::open(&command.file).with_context(|| format!("cannot open {}", command.file.display()))?;
    let mut lines = ExportLines::new(BufReader::new(file));
    let mut entries: Vec<(u64, ExportedEntry)> = Vec::new();
    while let Some(entry) = lines.next() {
        entries.push((lines.line(), entry?));
    }
    let other = entries.iter().map(|(_, entry)| entry).find(|entry| entry.queue != command.queue);
    if let Some(other) = other.filter(|_| !command.from_other_queues) {
        return Err(usage(format!(
            "{} was exported from `{}`: pass --from-other-queues to put it onto a shelf of `{}`",
            other.handle, other.queue, command.queue
        )));
    }
    let reason = command.reason.as_deref();
    require_reason(entries.len() as u64, reason).map_err(|error| usage(format!("{error}: pass --reason")))?;
    let state = State::open(global)?;
    let shelf = command.shelf.map(Shelf::from);
    let desk = connect(global, &context, &command.queue).await?;
    let importing = within(global.timeout, import(&state, &desk, shelf, entries)).await?;
    print(&printable(&found(&importing, &command.file)));
    if let Some(resolved) = importing.resolved.line() {
        print(&resolved);
    }
    if importing.left() == 0 {
        return Ok(Exit::Ok);
    }
    if let Some(differs) = differs(&*desk.shelves, importing.originals()) {
        print(&printable(&differs));
    }
    if !command.yes && !counted(importing.left(), "put back")? {
        bail!("cancelled: nothing was changed");
    }
    let mut audit = state.audit()?;
    let restored = importing.run(&state, &desk).await?;
    let (by, now) = (operator(reason), SystemTime::now());
    let shelf = shelf.unwrap_or(Shelf::DeadLetter);
    let mut record = AuditRecord::new(by.who, by.host, now, AuditAction::Import, &desk.queue, shelf)
        .filter(&command.file.display().to_string())
        .counts(restored.counts());
    if let Some(reason) = reason {
        record = record.reason(reason);
    }
    audit
        .append(&record)
        .context("the messages are put back, and that could not be noted in the audit log")?;
    print(&format!("{} of {} put back", restored.done, importing.left()));
    let refusals = restored.refusals(|name| importing.place(name));
    finish(restored, &refusals, "put back")
}

/// Says what was not put back. Every other message was.
pub(super) fn finish(restored: Restored, refusals: &[String], done: &str) -> Result<Exit> {
    for refusal in refusals {
        note!("{}", printable(refusal));
    }
    let refused = restored.refused.len();
    if let Some(error) = restored.ended {
        return Err(error.context(format!("the rest was not {done}: run the same command again to continue")));
    }
    if refused == 0 {
        return Ok(Exit::Ok);
    }
    note!(
        "{} not {done}: repair the cause, then the same command tries only those",
        plural(refused, "message")
    );
    Ok(Exit::Incomplete)
}

/// Returns how many messages the file has, and why some of them are left out.
fn found(importing: &Importing, file: &Path) -> String {
    let mut text = format!(
        "{} in {}: {} to put back",
        plural(importing.all, "message"),
        file.display(),
        importing.left()
    );
    let before = importing.all - importing.new;
    for (count, why) in [(before, "were put back before"), (importing.on_shelf, "are on the shelf already")] {
        if count > 0 {
            text = format!("{text}, {count} {why}");
        }
    }
    text
}
