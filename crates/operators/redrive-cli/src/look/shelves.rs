//! `redrive shelves`: how many messages are on the shelves.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::time::SystemTime;

use anyhow::Result;
use redrive::ops::UncertainEntries;
use redrive::shelves::Holder;
use redrive::{Shelf, TransportError, TransportErrorKind, plausible};
use serde_json::json;

use crate::args::{Global, Queues};
use crate::desk::{Desk, State, connect, named_queues, within};
use crate::exit::{Exit, chain};
use crate::output::{ago, note, print_json, printable, rfc3339, shelf_name, table};
use crate::settings::Context;

pub(crate) async fn run(global: &Global, command: Queues) -> Result<Exit> {
    let context = global.broker()?;
    let now = SystemTime::now();
    let mut rows = table(["queue", "shelf", "messages", "oldest"]);
    let (mut data, mut failed) = (Vec::new(), Vec::new());
    for queue in named_queues(global, &context, &command.queues).await? {
        let looked = match look(global, &context, &queue).await {
            Ok(looked) => looked,
            Err(error) => {
                // Another queue may exist; a broker that does not answer keeps silent for all of them.
                let goes_on = is_of_queue(&error);
                failed.push(error);
                if goes_on { continue } else { break }
            }
        };
        for (counted, oldest) in looked {
            let ShelfCount { shelf, count, holder } = counted;
            let oldest = oldest.and_then(|oldest| plausible(oldest, now));
            rows.row([queue.clone(), shelf_name(shelf), counted.shown(), ago(oldest, now)]);
            let sharers = context.sharers(&queue, shelf);
            note_sharers(&queue, shelf, &sharers);
            data.push(json!({
                "queue": queue, "shelf": shelf.to_string(), "count": count, "not_counted": holder.map(|holder| holder.to_string()),
                "oldest": rfc3339(oldest), "shared_with": sharers,
            }));
        }
    }
    match global.json {
        true if data.is_empty() && !failed.is_empty() => {}
        true => print_json(&data)?,
        false => rows.print(),
    }
    let Some(last) = failed.pop() else { return Ok(Exit::Ok) };
    for error in &failed {
        note!("error: {}", printable(&chain(error)));
    }
    Err(last)
}

/// Says that something of this machine works on a shelf: what it holds is not seen by others.
pub(crate) fn note_work(global: &Global, desk: &Desk, shelf: Shelf) {
    if let Some(Work { holder, .. }) = work(global, desk, shelf) {
        note!("{holder} works on the {shelf} shelf of `{}` now, and holds messages of it", desk.queue);
    }
}

/// Says that the count of a shelf includes messages of other queues: it stands in their rows too.
fn note_sharers(queue: &str, shelf: Shelf, sharers: &BTreeSet<String>) {
    if !sharers.is_empty() {
        let others: Vec<_> = sharers.iter().map(|other| format!("`{}`", printable(other))).collect();
        note!(
            "the {shelf} shelf of `{queue}` is also that of {}: its count is theirs too",
            others.join(", ")
        );
    }
}

/// Counts the shelves of a queue, and returns since when they have messages.
async fn look(
    global: &Global,
    context: &Context,
    queue: &str,
) -> Result<Vec<(ShelfCount, Option<SystemTime>)>> {
    let desk = connect(global, context, queue).await?;
    let mut looked = Vec::new();
    for counted in counts(global, &desk).await? {
        note_work(global, &desk, counted.shelf);
        if let Some(holder) = counted.holder {
            note!(
                "the {} shelf of `{}` may have more messages: {holder}",
                counted.shelf,
                printable(&desk.queue)
            );
        }
        let oldest = oldest(global, &desk, &counted).await?;
        looked.push((counted, oldest));
    }
    Ok(looked)
}

/// Returns since when a shelf has messages, if all of it was counted.
///
/// # Errors
///
/// If the broker cannot be read, or not in time.
pub(crate) async fn oldest(global: &Global, desk: &Desk, counted: &ShelfCount) -> Result<Option<SystemTime>> {
    if counted.holder.is_some() || counted.count.unwrap_or(0) == 0 {
        return Ok(None);
    }
    within(global.timeout, async { Ok(desk.shelves.oldest(counted.shelf).await?) }).await
}

/// The number of messages on a shelf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShelfCount {
    pub(crate) shelf: Shelf,
    /// With those that a run of this machine holds; `None` where the broker has no parking queue.
    pub(crate) count: Option<u64>,
    /// Who may hold more.
    pub(crate) holder: Option<Holder>,
}

impl ShelfCount {
    /// Returns the count as people read it.
    pub(crate) fn shown(&self) -> String {
        match (self.count, self.holder) {
            (None, _) => "no such queue".to_owned(),
            (Some(count), None) => count.to_string(),
            (Some(count), Some(_)) => format!("at least {count}"),
        }
    }
}

/// Work of this machine on a shelf. The broker does not count what it holds.
pub(crate) struct Work {
    /// The run, or another holder of the lock.
    pub(crate) holder: String,
    /// How many messages of a run had no turn yet.
    left: u64,
}

/// Returns the work of this machine on a shelf, if there is any.
pub(crate) fn work(global: &Global, desk: &Desk, shelf: Shelf) -> Option<Work> {
    let journals = State::open(global).and_then(|state| state.journals()).ok()?;
    let holder = journals.holder(&desk.broker, &desk.queue, shelf).ok()??;
    let replay = journals.read(&holder).ok();
    let left = replay.map_or(0, |replay| replay.into_run(UncertainEntries::Leave).report().left);
    Some(Work { holder, left })
}

/// Counts the messages on each shelf.
///
/// # Errors
///
/// If the broker cannot be read, or not in time; also if there is no dead-letter queue: the name of the work queue may be wrong.
pub(crate) async fn counts(global: &Global, desk: &Desk) -> Result<Vec<ShelfCount>> {
    let mut counts = Vec::new();
    for shelf in [Shelf::DeadLetter, Shelf::Parking] {
        let counted = within(global.timeout, async {
            match desk.shelves.count_with_holder(shelf).await {
                Ok((count, holder)) => Ok((Some(count), holder)),
                Err(error) if shelf == Shelf::Parking && error.is_missing_shelf() => Ok((None, None)),
                Err(error) => Err(error.into()),
            }
        });
        let (count, holder) = counted.await.map_err(|error| explained(error, "count", &desk.queue, shelf))?;
        let held = work(global, desk, shelf).map_or(0, |work| work.left);
        counts.push(ShelfCount { shelf, count: count.map(|count| count.max(held)), holder });
    }
    Ok(counts)
}

/// The broker has no queue of this name. Its own error advises programmers.
#[derive(Debug)]
struct MissingQueue(String);

impl fmt::Display for MissingQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for MissingQueue {}

/// Adds to an error what could not be done on a shelf, and what to check.
pub(crate) fn explained(error: anyhow::Error, what: &str, queue: &str, shelf: Shelf) -> anyhow::Error {
    let cannot = format!("cannot {what} the {shelf} shelf of `{queue}`");
    let Some(transport) = error.downcast_ref::<TransportError>() else { return error.context(cannot) };
    if let Some(missing) = missing_queue(transport) {
        let field = if shelf == Shelf::Parking { "parking-queues" } else { "dead-letter-queues" };
        return MissingQueue(format!(
            "{cannot}: the broker has no queue `{missing}`. Check the name of the work queue, and the virtual host in the broker's URL. \
             A consumer declares its shelf when it starts for the first time; `{field}` of the context names one with another name"
        ))
        .into();
    }
    match transport.is_missing_shelf() {
        true => error.context(format!("{cannot}: is `{queue}` the name of the work queue?")),
        false => error.context(cannot),
    }
}

/// Returns the queue that RabbitMQ does not have.
fn missing_queue(error: &TransportError) -> Option<String> {
    if error.kind() != TransportErrorKind::Topology {
        return None;
    }
    let text = error.to_string();
    let (queue, rest) = text.strip_prefix("queue `")?.split_once('`')?;
    rest.starts_with(" does not exist").then(|| queue.to_owned())
}

/// Returns true if another queue of the same broker may give another answer.
fn is_of_queue(error: &anyhow::Error) -> bool {
    error.is::<MissingQueue>()
        || error.chain().any(|cause| cause.downcast_ref().is_some_and(TransportError::is_missing_shelf))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained_error(kind: TransportErrorKind, text: &str) -> anyhow::Error {
        let error = TransportError::new(kind, text).with_source(std::io::Error::other("NOT_FOUND"));
        explained(error.into(), "count", "nosuch", Shelf::DeadLetter)
    }

    #[test]
    fn a_queue_that_is_missing_is_no_advice_for_programmers() {
        let text = "queue `nosuch--dead-letters` does not exist: declare it, or use Topology::Declare";
        let error = explained_error(TransportErrorKind::Topology, text);
        let said = chain(&error);
        assert!(
            said.contains("the broker has no queue `nosuch--dead-letters`") && said.contains("virtual host"),
            "{said}"
        );
        assert!(!said.contains("Topology") && !said.contains("NOT_FOUND"), "{said}");
        assert!(is_of_queue(&error));
    }

    #[test]
    fn another_error_says_what_the_broker_said() {
        let error = explained_error(TransportErrorKind::Unreachable, "refused");
        assert_eq!(chain(&error), "cannot count the dead-letter shelf of `nosuch`: refused: NOT_FOUND");
        assert!(!is_of_queue(&error));
        let error = explained_error(TransportErrorKind::Topology, "create the entity");
        assert!(chain(&error).contains("is `nosuch` the name of the work queue?: create the entity"));
        assert!(is_of_queue(&error.context("cannot connect")));
    }
}
