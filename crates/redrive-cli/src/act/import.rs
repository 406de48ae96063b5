//! `redrive import`: puts exported messages onto a shelf.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use redrive::Shelf;
use redrive::ops::{AuditAction, AuditCounts, AuditRecord, ExportLines, ExportedEntry, require_reason};

use super::ask::counted;
use crate::args::{Global, Import};
use crate::desk::differs::differs;
use crate::desk::import::{Importing, import};
use crate::desk::{State, connect, operator, within};
use crate::exit::{Exit, usage};
use crate::output::{plural, print, printable};

pub(crate) async fn run(global: &Global, command: Import) -> Result<Exit> {
    let context = global.broker()?;
    global.may_act(&context)?;
    let file =
        File::open(&command.file).with_context(|| format!("cannot open {}", command.file.display()))?;
    let entries: Vec<ExportedEntry> = ExportLines::new(BufReader::new(file)).collect::<Result<_, _>>()?;
    let other = entries.iter().find(|entry| entry.queue != command.queue);
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
    if importing.uncertain > 0 {
        print(&format!(
            "{} may be put back, by a try that died or got no answer: look whether they are there",
            importing.uncertain
        ));
    }
    if importing.left() == 0 {
        return Ok(Exit::Ok);
    }
    if let Some(differs) = differs(&*desk.shelves, importing.originals()) {
        print(&printable(&differs));
    }
    if !command.yes && !counted(importing.left(), "put back")? {
        bail!("not done: the answer was no");
    }
    let mut audit = state.audit()?;
    let (done, failed) = importing.run(&state, &desk).await?;
    let (by, now) = (operator(reason), SystemTime::now());
    let shelf = shelf.unwrap_or(Shelf::DeadLetter);
    let mut record = AuditRecord::new(by.who, by.host, now, AuditAction::Import, &desk.queue, shelf)
        .filter(&command.file.display().to_string())
        .counts(AuditCounts::done(done));
    if let Some(reason) = reason {
        record = record.reason(reason);
    }
    audit
        .append(&record)
        .context("the messages are put back, and that could not be noted in the audit log")?;
    print(&format!("{done} of {} put back", importing.left()));
    match failed {
        Some(error) => Err(error.context("the rest was not put back: the same command goes on with it")),
        None => Ok(Exit::Ok),
    }
}

/// Returns how many messages the file has, and why some of them are left out.
fn found(importing: &Importing, file: &Path) -> String {
    let mut text = format!(
        "{} in {}: {} to put back",
        plural(importing.all, "message"),
        file.display(),
        importing.left()
    );
    let before = importing.all - importing.new - importing.uncertain;
    for (count, why) in [(before, "were put back before"), (importing.on_shelf, "are on the shelf already")] {
        if count > 0 {
            text = format!("{text}, {count} {why}");
        }
    }
    text
}
