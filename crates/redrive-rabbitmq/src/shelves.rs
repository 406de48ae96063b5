//! The shelves of a queue, for operators.

use std::sync::Arc;

use async_trait::async_trait;
use lapin::options::BasicGetOptions;
use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::{
    Message, Selection, Shelf, Shelved, Shelves, TransportError, TransportErrorKind, header_names, redriven,
};
use tracing::{info, warn};

use crate::broker::Broker;
use crate::connection::answered_on;
use crate::convert::{self, short};
use crate::delay::Way;
use crate::error;
use crate::publish::AlarmTime;
use crate::session::{Receipt, Session};
use crate::stayed::Stayed;
use crate::topology;

/// The dead-letter queue and the parking queue of one work queue; made by
/// [`RabbitMq::shelves`](crate::RabbitMq::shelves).
///
/// Messages are looked at one by one with `basic.get`, each held until the work is done and then given back in order.
/// Only messages that are there when the work begins are touched. While somebody else consumes or browses the shelf,
/// what they hold is not seen.
#[derive(Debug, Clone)]
pub struct RabbitMqShelves {
    broker: Arc<Broker>,
}

/// What is done with a message that is meant.
enum Deed {
    Redrive,
    StoreIn(String),
    Remove,
}

impl RabbitMqShelves {
    pub(crate) fn new(broker: Arc<Broker>) -> Self {
        Self { broker }
    }

    async fn visit(&self, shelf: Shelf) -> Result<Visit, TransportError> {
        let queue = self.broker.plan.names.shelf(shelf)?.to_owned();
        let live = self.broker.live().await?;
        let session = Session::at_once(live.channel().await?, live);
        Ok(Visit { session, queue, left: None, held: Vec::new() })
    }

    /// Does the deed to every message that is meant. Whatever happens, all others are given back. One that cannot be copied
    /// does not keep those behind it.
    async fn work(&self, shelf: Shelf, which: &Selection, deed: &Deed) -> Result<u64, TransportError> {
        let mut visit = self.visit(shelf).await?;
        let mut stayed = Stayed::default();
        let done = self.work_through(&mut visit, which, deed, &mut stayed).await;
        let queue = visit.queue.clone();
        visit.end().await;
        let done = done?;
        info!(shelf = %queue, messages = done, stayed = stayed.count, "worked through a shelf");
        stayed.said_of(done, &queue)
    }

    async fn work_through(
        &self,
        visit: &mut Visit,
        which: &Selection,
        deed: &Deed,
        stayed: &mut Stayed,
    ) -> Result<u64, TransportError> {
        let mut done = 0;
        while let Some(found) = visit.next().await? {
            fail_point(FailPoint::Taken);
            if !which.includes(&found.shelved) {
                visit.held.push(found.tag);
                continue;
            }
            if let Err(error) = self.store(deed, &found).await {
                visit.held.push(found.tag);
                if !error::is_about_one_message(&error) {
                    return Err(error);
                }
                stayed.note(&found.shelved.message, &error);
                continue;
            }
            Receipt::new(found.tag, Arc::clone(&visit.session)).ack().await?;
            done += 1;
        }
        Ok(done)
    }

    /// Stores a copy where the deed says, if it says so.
    async fn store(&self, deed: &Deed, found: &Found) -> Result<(), TransportError> {
        let message = &found.shelved.message;
        let (queue, copy) = match deed {
            Deed::Remove => return Ok(()),
            _ if !found.whole => return Err(error::read_in_part()),
            Deed::Redrive => (self.way_back(&found.shelved).to_owned(), self.redriven(message)),
            Deed::StoreIn(queue) => (queue.clone(), for_good(message)),
        };
        self.broker.store(&Way::queue(queue), copy, AlarmTime::Counts).await
    }
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

    async fn browse(&self, shelf: Shelf, limit: usize) -> Result<Vec<Shelved>, TransportError> {
        let mut visit = self.visit(shelf).await?;
        let mut seen = Vec::new();
        let mut outcome = Ok(());
        while seen.len() < limit {
            match visit.next().await {
                Ok(Some(found)) => {
                    visit.held.push(found.tag);
                    seen.push(found.shelved);
                }
                Ok(None) => break,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        visit.end().await;
        outcome.map(|()| seen)
    }

    async fn redrive(&self, shelf: Shelf, which: &Selection) -> Result<u64, TransportError> {
        self.work(shelf, which, &Deed::Redrive).await
    }

    async fn park(&self, which: &Selection) -> Result<u64, TransportError> {
        let parking = self.broker.plan.names.parking.clone();
        self.work(Shelf::DeadLetter, which, &Deed::StoreIn(parking)).await
    }

    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<u64, TransportError> {
        self.work(shelf, which, &Deed::Remove).await
    }
}

/// A message that does not expire where it is put.
fn for_good(message: &Message) -> Message {
    let mut copy = message.clone();
    if let Some(expiration) = copy.properties().expiration {
        copy.properties_mut().expiration = None;
        let millis = i64::try_from(expiration.as_millis()).unwrap_or(i64::MAX);
        copy.headers_mut().insert(header_names::EXPIRATION, millis);
    }
    copy
}

/// A message on the shelf, in hand.
struct Found {
    shelved: Shelved,
    tag: u64,
    /// False where it was read without some of its headers.
    whole: bool,
}

/// One way along a shelf, on a channel of its own.
struct Visit {
    session: Arc<Session>,
    queue: String,
    /// How many of those that were there at the beginning were not looked at yet; the first one tells. (What a
    /// passive declaration tells of a quorum queue is late: right after a confirmed publish it can still be 0.)
    left: Option<u32>,
    /// To be given back, in this order.
    held: Vec<u64>,
}

impl Visit {
    async fn next(&mut self) -> Result<Option<Found>, TransportError> {
        if self.left == Some(0) {
            return Ok(None);
        }
        let queue = short(&self.queue, "the name of a queue")?;
        let channel = self.session.channel();
        let found = answered_on(channel, channel.basic_get(queue, BasicGetOptions { no_ack: false })).await;
        let found = found.map_err(|error| match error::refusal(&error) {
            Some(_) => error::verifying(&self.queue, error),
            None => {
                TransportError::new(TransportErrorKind::Unreachable, error.to_string()).with_source(error)
            }
        })?;
        Ok(found.map(|found| {
            self.left = Some(self.left.map_or(found.message_count, |left| left - 1));
            let delivery = found.delivery;
            Found {
                whole: convert::left_out(&delivery.properties).is_none(),
                tag: delivery.delivery_tag,
                shelved: Shelved::new(convert::message(&delivery.properties, delivery.data)),
            }
        }))
    }

    /// Gives back what is held, and lets the broker take everything in before the channel closes.
    async fn end(self) {
        for tag in self.held {
            // Where that fails the channel is gone, and with it everything is back.
            let _ = Receipt::new(tag, Arc::clone(&self.session)).nack(true).await;
        }
        self.session.settle_down().await;
        // Answered, everything is back in its place: the next look at the shelf sees it.
        let _ = self.session.connection().answered(self.session.channel().close(200, "OK".into())).await;
    }
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
