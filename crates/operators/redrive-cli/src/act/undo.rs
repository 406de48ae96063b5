//! `redrive undo`: brings back what a run discarded.

use anyhow::{Result, bail};

use super::ask::counted;
use super::import::finish;
use crate::args::{Global, Undo};
use crate::desk::differs::differs;
use crate::desk::undo::Undoing;
use crate::desk::{State, connect, operator, within};
use crate::exit::Exit;
use crate::output::{plural, print, printable};

pub(crate) async fn run(global: &Global, command: Undo) -> Result<Exit> {
    let context = global.broker()?;
    global.may_act(&context)?;
    let state = State::open(global)?;
    let mut undoing = Undoing::of(&state, &state.run(&command.run)?)?;
    let desk = connect(global, &context, undoing.queue()).await?;
    within(global.timeout, undoing.look(&state, &desk)).await?;
    if let Some(found) = undoing.found() {
        print(&found);
    }
    print(&printable(&format!(
        "{} of `{}` discarded; {} can be restored",
        plural(undoing.removed, "message"),
        undoing.queue(),
        undoing.left()
    )));
    if let Some(resolved) = undoing.resolved.line() {
        print(&resolved);
    }
    if undoing.left() == 0 {
        return Ok(Exit::Ok);
    }
    if let Some(differs) = differs(&*desk.shelves, undoing.originals()) {
        print(&printable(&differs));
    }
    if !command.yes && !counted(undoing.left(), "restore")? {
        bail!("cancelled: nothing was changed");
    }
    let restored = undoing.run(&state, &desk, operator(command.reason.as_deref())).await?;
    print(&format!("{} of {} restored", restored.done, undoing.left()));
    let mut refusals = restored.refusals(ToString::to_string);
    if !refusals.is_empty() {
        refusals.push(format!("the originals are in {}", state.originals(undoing.run_id()).display()));
    }
    finish(restored, &refusals, "restored")
}
