//! The shelves: browsing and processing dead-lettered and parked messages, for operators.
//!
//! `place` describes the queues that hold messages of a shelf, and `entry` the view of one message. `work` processes the selected
//! messages, `receiver` locks them meanwhile, and `progress` tracks their failures.

mod entry;
mod place;
mod progress;
mod receiver;
mod work;

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use redrive_core::shelves::{EntryHandle, Holder, Selection, ShelfCursor, ShelfPage, ShelfReport};
use redrive_core::{Message, Shelf, Shelves, TransportError, TransportErrorKind, plausible};
use tracing::debug;

use crate::convert::{self, Incoming, marked};
use crate::error::{self, Refusal};
use crate::publish::EntityPublisher;
use crate::shared::Shared;
use crate::wire::{Arrived, Handle, SettleAs, Wire};
use entry::SeenEntry;
use place::{Marks, Place};
use work::{Work, only};

/// The most messages that one request peeks.
const PEEK_BATCH: i32 = 100;
/// The place of the partition in a sequence number.
const PARTITION_SHIFT: u32 = 48;
/// The most messages that are locked at the same time by a protocol that can read messages only by locking them.
const MAX_LOCKED: usize = 1000;

/// The shelves of one queue or subscription: its dead-letter queue (and that of its retry queue), and the queue of parked
/// messages. Browsing locks nothing.
///
/// A [handle](EntryHandle) is the sequence number of a message in its queue, with the time when it came there.
///
/// # Cancel safety
///
/// If a future of it is dropped, the copy of the message that is being processed may be stored; with transactions its original is
/// then removed too. Other messages that were received stay locked until their locks expire.
/// Nobody else on the connection is harmed.
#[derive(Clone, Debug)]
pub struct ServiceBusShelves {
    shared: Arc<Shared>,
    /// True for the transfer dead-letter queue instead of the dead-letter queue.
    transfer: bool,
}

impl ServiceBusShelves {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, transfer: false }
    }

    /// Selects the messages that the broker could not forward (`$Transfer/$DeadLetterQueue`) instead of the dead-letter queue.
    #[must_use]
    pub fn of_transfers(mut self) -> Self {
        self.transfer = true;
        self
    }

    /// Returns the queues that may hold messages of this shelf.
    fn places(&self, shelf: Shelf) -> Vec<Place> {
        if let (Shelf::Parking, Some(queue)) = (shelf, &self.shared.options.parking_queue) {
            return vec![Place { path: queue.clone(), marks: Marks::Unused, shelf, shows_reason: false }];
        }
        let sources = self.shared.options.sources();
        let own = self.shared.options.dead_letter_target().filter(|_| !self.transfer);
        let own = own.map(|queue| Place {
            path: queue.to_owned(),
            marks: Marks::Trusted,
            shelf,
            shows_reason: false,
        });
        let shows_reason = own.is_some();
        let of_source = |source: &crate::Entity| {
            let path =
                if self.transfer { source.transfer_dead_letter_path() } else { source.dead_letter_path() };
            Place { path, marks: Marks::Unverified, shelf, shows_reason }
        };
        own.into_iter().chain(sources.iter().map(of_source)).collect()
    }

    /// Returns the queue for copies that stay on the shelf, or `None` for a dead-letter queue, to which nobody can send.
    fn shelf_target(&self, shelf: Shelf) -> Option<(&str, Marks)> {
        let options = &self.shared.options;
        let parking = options.parking_queue.as_deref().filter(|_| shelf == Shelf::Parking);
        let own =
            options.dead_letter_target().filter(|_| !self.transfer).map(|queue| (queue, Marks::Trusted));
        parking.map(|queue| (queue, Marks::Unused)).or(own)
    }

    /// Returns the queue through which messages reach only the consumer that failed.
    fn retry_target(&self) -> Result<&str, TransportError> {
        self.shared.options.retry_target().ok_or_else(|| {
            let message = format!(
                "a message that is sent back to the subscription `{}` by its topic would reach every other subscription: \
                 name a queue with `Options::retry_queue`",
                self.shared.entity()
            );
            TransportError::new(TransportErrorKind::Unsupported, message)
        })
    }

    async fn wire(&self) -> Result<Arc<dyn Wire>, TransportError> {
        let live = self.shared.connection.connection().await;
        live.map_err(|error| {
            error.into_error(&format!("connecting for the shelves of `{}`", self.shared.entity()))
        })
    }

    /// Returns all entries of one place, or an error if not all of them can be read.
    async fn scan_all(&self, place: &Place) -> Result<Vec<SeenEntry>, TransportError> {
        let ScanResult { entries, more } = self.scan(place, 1, usize::MAX).await?;
        if more { Err(error::too_many_to_lock(&place.path, MAX_LOCKED)) } else { Ok(entries) }
    }

    /// Returns the entries from this sequence number on, up to a limit.
    async fn scan(&self, place: &Place, mut from: i64, limit: usize) -> Result<ScanResult, TransportError> {
        let wire = self.wire().await?;
        let path = &*place.path;
        if let Some(LockedMessages { arrived, more, .. }) = lock_all(&*wire, path).await? {
            let seen = arrived.iter().filter_map(|arrived| arrived.message.as_deref().ok());
            let found = seen.filter(|incoming| incoming.sequence_number >= from && place.has(incoming));
            let entries = found.take(limit).map(|incoming| SeenEntry::new(incoming, place)).collect();
            unlock(&*wire, path, &arrived).await;
            return Ok(ScanResult { entries, more });
        }
        let mut found = Vec::new();
        let begins_at = from;
        while found.len() < limit {
            let peeked = peek(&*wire, path, from).await?;
            if peeked.is_empty() && from == begins_at {
                forwards(&*wire, path).await?;
            }
            let Some(last) = peeked.iter().map(|incoming| incoming.sequence_number).max() else { break };
            from = last.saturating_add(1);
            let here = peeked.iter().filter(|incoming| place.has(incoming));
            found.extend(here.map(|incoming| SeenEntry::new(incoming, place)));
        }
        found.truncate(limit);
        Ok(ScanResult { entries: found, more: false })
    }
}

/// The entries that were read from one place.
struct ScanResult {
    entries: Vec<SeenEntry>,
    /// True if the place holds more messages than can be read, whatever the limit.
    more: bool,
}

/// The messages that were locked to be read.
struct LockedMessages {
    arrived: Vec<Arrived>,
    /// Gives the messages back.
    handle: Arc<dyn Handle>,
    /// True if the place holds more messages, which were not locked.
    more: bool,
}

/// Peeks the next messages from this sequence number on.
async fn peek(wire: &dyn Wire, path: &str, from: i64) -> Result<Vec<Incoming>, TransportError> {
    let peeked = wire.peek(path, from, PEEK_BATCH).await;
    let peeked =
        peeked.map_err(|error| error.into_error_without_lock(&format!("peeking messages of `{path}`")))?;
    let peeked: Vec<_> = peeked.into_iter().map(|wire| convert::incoming(wire).read_from(path)).collect();
    if numbers_ascend(from, peeked.iter().map(|incoming| incoming.sequence_number)) {
        Ok(peeked)
    } else {
        Err(error::is_partitioned(path))
    }
}

/// Refuses a queue that forwards its messages, and so looks empty. The broker says so to whoever attaches to it, if at all. It is
/// asked once a minute: an empty shelf that is read every few seconds must not cost a link each time.
async fn forwards(wire: &dyn Wire, path: &str) -> Result<(), TransportError> {
    match wire.requires_sessions(path).await {
        Err(error) if error.refusal == Refusal::Forwards => {
            Err(error.into_error(&format!("reading the shelf `{path}`")))
        }
        _ => Ok(()),
    }
}

/// Returns true if these numbers of peeked messages ascend, and are of one partition: whoever asks for the next ones misses none. A
/// partitioned entity has its partition in the highest 16 bits of each number.
fn numbers_ascend(from: i64, numbers: impl IntoIterator<Item = i64>) -> bool {
    let mut last = from.saturating_sub(1);
    numbers
        .into_iter()
        .all(|number| number > std::mem::replace(&mut last, number) && number >> PARTITION_SHIFT == 0)
}

/// Locks all messages of a place, up to a limit, if the protocol can read messages only by locking them. Otherwise returns
/// `None`: peek instead.
async fn lock_all(wire: &dyn Wire, place: &str) -> Result<Option<LockedMessages>, TransportError> {
    // One message more shows if there are more.
    let held = wire.lock_all(place, MAX_LOCKED + 1).await;
    let held = held.map_err(|error| error.into_error(&format!("locking messages of `{place}`")))?;
    let Some((mut arrived, handle)) = held else { return Ok(None) };
    let beyond = arrived.split_off(arrived.len().min(MAX_LOCKED));
    unlock(wire, place, &beyond).await;
    Ok(Some(LockedMessages { arrived, handle, more: !beyond.is_empty() }))
}

/// Gives back messages that were locked to be read.
async fn unlock(wire: &dyn Wire, place: &str, held: &[Arrived]) {
    let locks: Vec<_> = held.iter().map(|arrived| arrived.lock).collect();
    if let Err(error) = wire.settle(place, &locks, &SettleAs::abandon()).await {
        debug!(%place, %error, "some messages that were locked to be read were not given back; their locks expire");
    }
}

#[async_trait]
impl Shelves for ServiceBusShelves {
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError> {
        let mut count = 0;
        for place in self.places(shelf) {
            count += self.scan_all(&place).await?.len();
        }
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// Nobody: a look peeks, and sees what others have locked. By REST a look locks what it reads, and what others have locked is neither
    /// seen nor counted.
    async fn holder(&self, _shelf: Shelf) -> Result<Option<Holder>, TransportError> {
        Ok(None)
    }

    /// Reads the whole shelf. The broker does not report when it dead-lettered a message by itself; such messages are ignored.
    async fn oldest(&self, shelf: Shelf) -> Result<Option<SystemTime>, TransportError> {
        let (mut oldest, now) = (None, SystemTime::now());
        for place in self.places(shelf) {
            // Messages that could not be read came later.
            let seen = self.scan(&place, 1, usize::MAX).await?.entries;
            let times = seen.iter().filter_map(|seen| plausible(seen.shelved.shelved_at?, now));
            oldest = times.chain(oldest).min();
        }
        Ok(oldest)
    }

    /// Pages by sequence number. A message that is dead-lettered while browsing, and that came into its queue before the ones on
    /// the returned pages, has a lower number and is missed.
    async fn browse(
        &self,
        shelf: Shelf,
        after: Option<&ShelfCursor>,
        limit: usize,
    ) -> Result<ShelfPage, TransportError> {
        if limit == 0 {
            return ShelfPage::empty(shelf, after);
        }
        let mut places = self.places(shelf);
        let mut from = 1;
        if let Some(cursor) = after.map(|cursor| cursor.on(shelf)).transpose()?.flatten() {
            let begins = places
                .iter()
                .enumerate()
                .find_map(|(index, place)| place.after(cursor).map(|number| (index, number)));
            let (index, number) = begins.ok_or_else(TransportError::foreign_cursor)?;
            places.drain(..index);
            from = number.saturating_add(1);
        }
        let (mut entries, mut next) = (Vec::new(), after.cloned());
        for place in places {
            let seen = self.scan(&place, std::mem::replace(&mut from, 1), limit - entries.len());
            let seen = seen.await?;
            if let Some(last) = seen.entries.last() {
                next = Some(place.cursor(last.sequence_number));
            }
            entries.extend(seen.entries.into_iter().map(|seen| seen.shelved));
            if seen.more && entries.len() < limit {
                // The messages that can be read are a page. Reading beyond it is an error, not the end of the shelf.
                return match entries.is_empty() {
                    true => Err(error::too_many_to_lock(&place.path, MAX_LOCKED)),
                    false => Ok(ShelfPage::new(entries, next)),
                };
            }
        }
        let is_full = entries.len() == limit;
        Ok(ShelfPage::new(entries, next.filter(|_| is_full)))
    }

    async fn redrive(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        self.process(shelf, which, Work::SendTo(self.retry_target()?)).await
    }

    async fn park(&self, which: &Selection) -> Result<ShelfReport, TransportError> {
        self.process(Shelf::DeadLetter, which, Work::Park).await
    }

    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        self.process(shelf, which, Work::Discard).await
    }

    /// Replaces an entry. Fails on a dead-letter queue of the broker, to which nobody can send. Works if the shelf has a separate
    /// queue: [`Options::parking_queue`](crate::Options::parking_queue), or the queue for dead letters that REST needs.
    async fn replace(
        &self,
        entry: &EntryHandle,
        message: Message,
    ) -> Result<Option<EntryHandle>, TransportError> {
        let report = self.process(entry.shelf(), &entry.clone().into(), Work::Replace(&message)).await?;
        only(report, entry).map(|()| None)
    }

    async fn redrive_as(&self, entry: &EntryHandle, message: Message) -> Result<(), TransportError> {
        let work = Work::SendEdited(self.retry_target()?, &message);
        only(self.process(entry.shelf(), &entry.clone().into(), work).await?, entry)
    }

    /// Stores a message on a shelf. Works for the same queues as [`replace`](Self::replace).
    async fn restore(&self, shelf: Shelf, message: Message) -> Result<(), TransportError> {
        let Some((queue, marks)) = self.shelf_target(shelf) else {
            let message = format!(
                "Service Bus lets nobody send to the dead-letter queue of `{}`: publish the message to its work queue instead, \
                 as a redrive does",
                self.shared.entity()
            );
            return Err(TransportError::new(TransportErrorKind::Unsupported, message));
        };
        let message = if matches!(marks, Marks::Trusted) { marked(message, shelf) } else { message };
        EntityPublisher::new(&self.shared.connection, queue).send(&message, None).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_that_ascend_in_one_partition_miss_nothing() {
        assert!(numbers_ascend(1, []) && numbers_ascend(1, [1, 2, 9]));
        assert!(numbers_ascend(i64::MAX, []));
        for numbers in [vec![2, 1], vec![3, 3], vec![1, (1 << 48) + 1], vec![(5 << 48) + 7], vec![-1]] {
            assert!(!numbers_ascend(1, numbers.clone()), "{numbers:?}");
        }
    }
}
