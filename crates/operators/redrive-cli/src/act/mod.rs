//! Commands that act on entries: a plan, a question, a run.
//!
//! | module | does |
//! |---|---|
//! | [`plan`] | makes a plan, and shows it |
//! | [`ask`] | asks before anything is done |
//! | [`apply`] | exports the originals, runs the plan, writes the audit log |
//! | [`runs`] | lists runs, and goes on with one |
//! | [`edit`] | changes one message |
//! | [`edit_many`] | changes many by one program |
//! | [`import`] | puts exported messages onto a shelf |
//! | [`undo`] | brings back what was discarded |

pub(crate) mod apply;
mod ask;
pub(crate) mod edit;
mod edit_many;
pub(crate) mod import;
pub(crate) mod plan;
pub(crate) mod runs;
pub(crate) mod undo;

use anyhow::Result;
use redrive::ops::PlanAction;

use crate::args::{AtOnce, Global};
use crate::exit::Exit;
use crate::look::select::{require_selection, select};

/// Plans, asks and runs: `redrive redrive orders g1`.
///
/// # Errors
///
/// If a selection is missing or wrong, nobody can be asked, or the broker cannot be used.
pub(crate) async fn at_once(global: &Global, action: PlanAction, command: AtOnce) -> Result<Exit> {
    let context = global.broker()?;
    global.may_act(&context)?;
    require_selection(&command.which, &command.handle, command.all, &action.to_string())?;
    let selected = select(global, &context, &command.which).await?;
    let Some(saved) =
        plan::make(global, &selected, action, &command.handle, command.max_redrives, command.with_unknown)?
    else {
        return Ok(Exit::Ok);
    };
    plan::show(&saved, &command.pace);
    if saved.plan.entries().is_empty() {
        return Ok(Exit::Ok);
    }
    apply::apply(global, &selected.desk, &saved, &command.pace).await
}
