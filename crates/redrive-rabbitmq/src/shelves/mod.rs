//! The shelves of a queue, for operators.
//!
//! `scan` is one way along a shelf, `fingerprint` what tells its entries apart, `numbers` what tells those apart that are
//! alike, `cursor` what was shown of them.

mod cursor;
mod fingerprint;
mod numbers;
mod scan;

use std::sync::Arc;

use async_trait::async_trait;
use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::{
    EntryHandle, EntryOutcome, Message, Selection, Shelf, ShelfCursor, ShelfPage, ShelfReport, Shelved,
    Shelves, TransportError, TransportErrorKind, edited, redriven,
};
use tracing::{info, warn};

use crate::broker::Broker;
use crate::convert;
use crate::delay::Way;
use crate::error;
use crate::publish::AlarmTime;
use crate::session::Session;
use crate::topology;
use cursor::Shown;
use fingerprint::Fingerprint;
pub(crate) use numbers::Taken;
use scan::{Found, ShelfScan};

/// The dead-letter queue and the parking queue of one work queue; made by
/// [`RabbitMq::shelves`](crate::RabbitMq::shelves).
///
/// Messages are looked at from the head of the queue on with `basic.get`, each held until the work is done and then given back
/// in order. Only messages that are there when the work begins are touched. While somebody else consumes or browses the shelf,
/// what they hold is not seen, and a handle of it is not found.
///
/// RabbitMQ does not number its messages. A [handle](EntryHandle) is a hash of the whole message, so that a message that differs
/// in anything is another entry. Those that are alike in everything are numbered; in the process that took one of them off the
/// shelf the others keep their numbers, in any other they are counted again from the head.
#[derive(Debug, Clone)]
pub struct RabbitMqShelves {
    broker: Arc<Broker>,
}

/// What is done with a message that is meant.
enum Deed {
    Redrive,
    RedriveAs(Message),
    Park,
    /// Its edited copy stays on the shelf.
    Replace(Message),
    Remove,
}

/// What the work came to.
#[derive(Default)]
struct Worked {
    report: ShelfReport,
    /// The handle of what was stored in place of an entry.
    replaced: Option<EntryHandle>,
}

impl RabbitMqShelves {
    pub(crate) fn new(broker: Arc<Broker>) -> Self {
        Self { broker }
    }

    async fn scan(&self, shelf: Shelf) -> Result<ShelfScan<'_>, TransportError> {
        let queue = self.broker.plan.names.shelf(shelf)?.to_owned();
        let live = self.broker.live().await?;
        let session = Session::at_once(live.channel().await?, live);
        Ok(ShelfScan::new(session, queue, shelf, &self.broker.taken))
    }

    /// Does the deed to every entry that is meant. Whatever happens, all others are given back.
    async fn work(&self, shelf: Shelf, which: &Selection, deed: &Deed) -> Result<Worked, TransportError> {
        let mut scan = self.scan(shelf).await?;
        let mut worked = Worked::default();
        let stopped = self.work_through(&mut scan, shelf, which, deed, &mut worked).await;
        scan.end().await;
        let report = &mut worked.report;
        match stopped {
            // Nothing was begun.
            Err(error) if report.entries.is_empty() => return Err(error),
            stopped => report.stopped = stopped.err(),
        }
        report.complete(shelf, which);
        info!(%shelf, queue = self.broker.queue(), done = report.done(), of = report.entries.len(), "worked through a shelf");
        Ok(worked)
    }

    async fn work_through(
        &self,
        scan: &mut ShelfScan<'_>,
        shelf: Shelf,
        which: &Selection,
        deed: &Deed,
        worked: &mut Worked,
    ) -> Result<(), TransportError> {
        let most = match which {
            Selection::Handles(handles) => handles.iter().filter(|handle| handle.shelf() == shelf).count(),
            _ => usize::MAX,
        };
        while worked.report.entries.len() < most
            && let Some(found) = scan.next().await?
        {
            fail_point(FailPoint::Taken);
            if !which.includes(&found.shelved) {
                scan.keep(&found);
                continue;
            }
            let stored = self.store(shelf, deed, &found).await;
            if stored.is_err() {
                scan.keep(&found);
            }
            let done = match stored {
                Ok(stored) => scan.remove(&found).await.map(|()| stored),
                Err(error) => Err(error),
            };
            let (outcome, stopped) = match done {
                Ok(stored) => {
                    let replaced = stored.map(|fingerprint| scan.name_of_stored(fingerprint).handle(shelf));
                    worked.replaced = replaced;
                    (EntryOutcome::Done, None)
                }
                Err(error) if is_about_this_entry(&error) => (EntryOutcome::Failed(error), None),
                Err(error) => (EntryOutcome::Failed(error.clone()), Some(error)),
            };
            let Shelved { handle, message, .. } = found.shelved;
            worked.report.note(handle, message.id(), outcome);
            if let Some(error) = stopped {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Stores a copy where the deed says, if it says so. Answers the fingerprint of one that stays on the shelf.
    async fn store(
        &self,
        shelf: Shelf,
        deed: &Deed,
        found: &Found,
    ) -> Result<Option<Fingerprint>, TransportError> {
        let message = &found.shelved.message;
        let names = &self.broker.plan.names;
        let (queue, copy) = match deed {
            Deed::Remove => return Ok(None),
            _ if !found.whole => return Err(error::read_in_part()),
            Deed::Redrive => (self.way_back(&found.shelved), self.redriven(message)),
            Deed::RedriveAs(changed) => {
                (self.way_back(&found.shelved), self.redriven(&edited(message, changed.clone())))
            }
            Deed::Park => (&*names.parking, for_good(message)),
            Deed::Replace(changed) => (names.shelf(shelf)?, for_good(&edited(message, changed.clone()))),
        };
        let stays = match deed {
            Deed::Replace(_) => Some(self.fingerprint_as_stored(&copy)?),
            _ => None,
        };
        self.broker.store(&Way::queue(queue), copy, AlarmTime::Counts).await?;
        Ok(stays)
    }

    /// Of a copy as it will be read from its queue.
    fn fingerprint_as_stored(&self, copy: &Message) -> Result<Fingerprint, TransportError> {
        let user = self.broker.publisher()?.link().user();
        let copy = convert::for_publishing(copy.clone(), &user);
        let properties = convert::properties(&copy, true)?;
        Ok(Fingerprint::of(&convert::message(&properties, copy.body().to_vec())))
    }

    /// Does the deed to one entry.
    async fn work_on(&self, entry: &EntryHandle, deed: Deed) -> Result<Option<EntryHandle>, TransportError> {
        let worked = self.work(entry.shelf(), &entry.clone().into(), &deed).await?;
        let Some(result) = worked.report.entries.into_iter().next() else {
            return Err(error::no_entry(entry));
        };
        match result.outcome {
            EntryOutcome::Done => Ok(worked.replaced),
            EntryOutcome::Failed(error) => Err(error),
            _ => Err(error::no_entry(entry)),
        }
    }
}

/// True when others may be stored all the same.
fn is_about_this_entry(error: &TransportError) -> bool {
    error::is_about_one_message(error) || error.kind() == TransportErrorKind::Full
}

impl RabbitMqShelves {
    fn redriven(&self, shelved: &Message) -> Message {
        let mut copy = redriven(shelved);
        self.broker.mode().redriven(&mut copy);
        copy
    }

    /// The queue whose consumer failed: this one, or one of those that share the shelves.
    fn way_back(&self, shelved: &Shelved) -> &str {
        let (own, named) = (self.broker.queue(), shelved.story.source_queue.as_deref());
        let chosen = chosen(own, &self.broker.options.shelves_shared_with, named);
        if let Some(named) = named.filter(|named| *named != chosen) {
            let id = shelved.message.id();
            warn!(
                queue = own,
                named,
                id,
                "a message names a queue that does not share this shelf: it is redriven to this one"
            );
        }
        chosen
    }
}

/// A header is anybody's to write: it chooses among the queues that the operator named, and is nothing else.
fn chosen<'a>(own: &'a str, shared_with: &'a [String], named: Option<&str>) -> &'a str {
    shared_with.iter().find(|queue| Some(queue.as_str()) == named).map_or(own, String::as_str)
}

#[async_trait]
impl Shelves for RabbitMqShelves {
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError> {
        let queue = self.broker.plan.names.shelf(shelf)?;
        let live = self.broker.asking().await?;
        Ok(u64::from(topology::count(&live, queue).await?))
    }

    /// Goes along the shelf from its head on, past everything that was shown before: to turn all pages of a shelf takes the more
    /// time, the smaller the pages are. The cursor has about 33 characters for each entry shown so far.
    async fn browse(
        &self,
        shelf: Shelf,
        after: Option<&ShelfCursor>,
        limit: usize,
    ) -> Result<ShelfPage, TransportError> {
        if limit == 0 {
            return ShelfPage::empty(shelf, after);
        }
        let mut shown = Shown::before(shelf, after)?;
        let mut scan = self.scan(shelf).await?;
        let mut page = Vec::new();
        let mut outcome = Ok(());
        while page.len() < limit {
            match scan.next().await {
                Ok(Some(found)) => {
                    scan.keep(&found);
                    if shown.note(found.name) {
                        page.push(found.shelved);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        let has_more = scan.has_more();
        scan.end().await;
        outcome?;
        Ok(ShelfPage::new(page, has_more.then(|| shown.cursor(shelf))))
    }

    async fn redrive(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        Ok(self.work(shelf, which, &Deed::Redrive).await?.report)
    }

    async fn park(&self, which: &Selection) -> Result<ShelfReport, TransportError> {
        Ok(self.work(Shelf::DeadLetter, which, &Deed::Park).await?.report)
    }

    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        Ok(self.work(shelf, which, &Deed::Remove).await?.report)
    }

    async fn replace(
        &self,
        entry: &EntryHandle,
        message: Message,
    ) -> Result<Option<EntryHandle>, TransportError> {
        self.work_on(entry, Deed::Replace(message)).await
    }

    async fn redrive_as(&self, entry: &EntryHandle, message: Message) -> Result<(), TransportError> {
        self.work_on(entry, Deed::RedriveAs(message)).await.map(drop)
    }
}

/// A message that does not expire where it is put.
fn for_good(message: &Message) -> Message {
    let mut copy = message.clone();
    convert::expiration_as_header(&mut copy);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_chooses_among_the_queues_that_were_named() {
        let shared = ["bills".to_owned(), "mails".to_owned()];
        for (named, expected) in [
            (None, "orders"),
            (Some("orders"), "orders"),
            (Some("mails"), "mails"),
            (Some("wages"), "orders"),
        ] {
            assert_eq!(chosen("orders", &shared, named), expected);
        }
    }
}
