//! `redrive shelves`: how many messages are on the shelves.

use std::time::SystemTime;

use anyhow::{Context as _, Result};
use redrive::Shelf;
use redrive::transport::{TransportError, TransportErrorKind};
use serde_json::json;

use crate::args::{Global, Queues};
use crate::desk::{Desk, connect_all, within};
use crate::exit::Exit;
use crate::output::{ago, print_json, rfc3339, shelf_name, table};

pub(crate) async fn run(global: &Global, command: Queues) -> Result<Exit> {
    let context = global.broker()?;
    let desks = connect_all(global, &context, &command.queues).await?;
    let now = SystemTime::now();
    let mut rows = table(["queue", "shelf", "messages", "oldest"]);
    let mut data = Vec::new();
    for desk in &desks {
        for (shelf, count) in counts(global, desk).await? {
            let oldest = match count {
                Some(count) if count > 0 => {
                    within(global.timeout, async { Ok(desk.shelves.oldest(shelf).await?) }).await?
                }
                _ => None,
            };
            let shown = count.map_or_else(|| "no such queue".to_owned(), |count| count.to_string());
            rows.row([desk.queue.clone(), shelf_name(shelf), shown, ago(oldest, now)]);
            data.push(json!({ "queue": desk.queue, "shelf": shelf.to_string(), "count": count, "oldest": rfc3339(oldest) }));
        }
    }
    match global.json {
        true => print_json(&data)?,
        false => rows.print(),
    }
    Ok(Exit::Ok)
}

/// Returns the number of messages on each shelf; `None` where the broker has no parking queue.
///
/// # Errors
///
/// If the broker cannot be read, or not in time; also if there is no dead-letter queue: the name of the work queue may be wrong.
pub(crate) async fn counts(global: &Global, desk: &Desk) -> Result<Vec<(Shelf, Option<u64>)>> {
    let mut counts = Vec::new();
    for shelf in [Shelf::DeadLetter, Shelf::Parking] {
        let counted = within(global.timeout, async {
            match desk.shelves.count(shelf).await {
                Ok(count) => Ok(Some(count)),
                Err(error) if shelf == Shelf::Parking && is_missing(&error) => Ok(None),
                Err(error) => Err(error.into()),
            }
        });
        let count = counted.await.with_context(|| cannot("count", desk, shelf))?;
        counts.push((shelf, count));
    }
    Ok(counts)
}

/// Returns what cannot be done on a shelf, for an error.
pub(crate) fn cannot(what: &str, desk: &Desk, shelf: Shelf) -> String {
    format!("cannot {what} the {shelf} shelf of `{0}`: is `{0}` the name of the work queue?", desk.queue)
}

/// A queue that nobody declared, or a shelf that this broker does not have.
fn is_missing(error: &TransportError) -> bool {
    use TransportErrorKind::{NotFound, Topology, Unsupported};
    matches!(error.kind(), NotFound | Topology | Unsupported)
}
