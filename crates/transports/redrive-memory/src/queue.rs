//! One queue and its shelves: a state machine without clock, lock or I/O.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use foldhash::HashMap;
use redrive_core::transport::Settlement;
use redrive_core::{Message, Shelf};
use tokio::time::Instant;

use crate::error::Refusal;
use crate::options::MemoryOptions;

#[cfg(test)]
mod tests;

/// Identifies one delivery in flight. Tags are never reused, so that a receipt from before a crash matches no delivery.
pub(crate) type Tag = u64;
/// Identifies the transport that has a delivery in flight.
pub(crate) type Owner = u64;

/// A queue and its shelves. Every message is in exactly one of the collections.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    options: MemoryOptions,
    /// By position in the queue: a message that is given back returns to its old position, ahead of later messages.
    ready: VecDeque<(u64, StoredMessage)>,
    /// By due time, then by the order of arrival.
    waiting: BTreeMap<(Instant, u64), StoredMessage>,
    in_flight: HashMap<Tag, InFlight>,
    /// The number of deliveries in flight per owner; cached, because every delivery checks it.
    in_flight_counts: BTreeMap<Owner, usize>,
    /// True if the queue refuses every message, also one that is to wait.
    unwritable: bool,
    dead_letter_shelf: ShelfState,
    parking_shelf: ShelfState,
    last_number: u64,
}

#[derive(Debug)]
struct StoredMessage {
    message: Message,
    /// The number of deliveries so far. A release subtracts its delivery.
    delivery_count: u32,
}

#[derive(Debug)]
struct InFlight {
    owner: Owner,
    /// The position in the queue to return to.
    position: u64,
    stored: StoredMessage,
}

/// A message on a shelf.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Unique among all entries that the queue ever has.
    pub(crate) number: u64,
    pub(crate) shelved_at: Instant,
    pub(crate) message: Message,
}

/// The entries of a shelf, oldest first and thus ordered by number; and whether the shelf accepts more.
#[derive(Debug, Default)]
struct ShelfState {
    entries: VecDeque<Entry>,
    unwritable: bool,
}

/// The result of [`Queue::deliver_next`].
#[derive(Debug)]
pub(crate) enum NextDelivery {
    /// This delivery is now in flight.
    Delivery {
        tag: Tag,
        /// The position in the queue, which no other message ever has.
        position: u64,
        message: Message,
        delivery_count: u32,
    },
    /// No message can be delivered; the next waiting one is due at this time.
    Nothing { next_due: Option<Instant> },
}

impl Queue {
    pub(crate) fn new(options: MemoryOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Adds a message at the end of the queue.
    pub(crate) fn publish(&mut self, message: Message) -> Result<(), Refusal> {
        self.check_room()?;
        self.enqueue(StoredMessage { message, delivery_count: 0 });
        Ok(())
    }

    /// Adds a message that joins the end of the queue when its wait is over.
    pub(crate) fn publish_after(
        &mut self,
        message: Message,
        wait: Duration,
        now: Instant,
    ) -> Result<(), Refusal> {
        self.check_room()?;
        self.store_waiting(message, wait, now);
        Ok(())
    }

    /// Delivers the next message to this owner, which may have up to `limit` deliveries in flight; 0 is no limit.
    pub(crate) fn deliver_next(&mut self, owner: Owner, limit: u32, now: Instant) -> NextDelivery {
        self.enqueue_due(now);
        let count = self.in_flight_counts.entry(owner).or_default();
        if limit != 0 && *count >= limit as usize {
            return NextDelivery::Nothing { next_due: None };
        }
        let Some((position, mut stored)) = self.ready.pop_front() else {
            return NextDelivery::Nothing { next_due: self.next_due() };
        };
        *count += 1;
        stored.delivery_count = stored.delivery_count.saturating_add(1);
        let tag = self.new_number();
        let (message, delivery_count) = (stored.message.clone(), stored.delivery_count);
        self.in_flight.insert(tag, InFlight { owner, position, stored });
        NextDelivery::Delivery { tag, position, message, delivery_count }
    }

    /// Carries out a settlement. A refused settlement changes nothing. Reads the clock only where it is needed: that takes longer
    /// than the rest.
    pub(crate) fn settle(
        &mut self,
        tag: Tag,
        settlement: Settlement,
        now: impl Fn() -> Instant,
    ) -> Result<(), Refusal> {
        let Some(delivery) = self.in_flight.get(&tag) else { return Err(Refusal::Lost) };
        match settlement {
            Settlement::Complete => {}
            Settlement::Reschedule { .. } if self.unwritable => return Err(Refusal::QueueUnwritable),
            Settlement::Reschedule { wait, copy } => self.store_waiting(copy, wait, now()),
            Settlement::Shelve { shelf, copy } => self.store_on_shelf(shelf, copy, now())?,
            Settlement::NativeDeadLetter => {
                let original = delivery.stored.message.clone();
                self.store_on_shelf(Shelf::DeadLetter, original, now())?;
            }
            Settlement::Release => self.release(tag),
            Settlement::RetryInPlace { .. } => return Err(Refusal::RetryInPlaceUnsupported),
        }
        self.remove_in_flight(tag);
        Ok(())
    }

    /// Gives back a delivery that was not settled; it counts as a delivery. At the delivery limit the message goes to the
    /// dead-letter shelf.
    pub(crate) fn give_back(&mut self, tag: Tag, now: Instant) {
        let Some(delivery) = self.remove_in_flight(tag) else { return };
        let at_limit =
            self.options.delivery_limit.is_some_and(|limit| delivery.stored.delivery_count >= limit);
        // If the shelf refuses the message, it returns to the queue and is delivered again: it must not be lost.
        if at_limit && self.store_on_shelf(Shelf::DeadLetter, delivery.stored.message.clone(), now).is_ok() {
            return;
        }
        self.make_ready(delivery.position, delivery.stored);
    }

    /// Gives back a delivery that does not count.
    pub(crate) fn release(&mut self, tag: Tag) {
        let Some(mut delivery) = self.remove_in_flight(tag) else { return };
        delivery.stored.delivery_count = delivery.stored.delivery_count.saturating_sub(1);
        self.make_ready(delivery.position, delivery.stored);
    }

    /// Returns the tags of all deliveries that this owner has in flight.
    pub(crate) fn tags_of(&self, owner: Owner) -> Vec<Tag> {
        let of_owner = self.in_flight.iter().filter(|(_, delivery)| delivery.owner == owner);
        let mut tags: Vec<_> = of_owner.map(|(&tag, _)| tag).collect();
        tags.sort_unstable();
        tags
    }

    /// Stores a message on a shelf. Fails if the shelf is full or unwritable.
    pub(crate) fn store_on_shelf(
        &mut self,
        shelf: Shelf,
        message: Message,
        now: Instant,
    ) -> Result<(), Refusal> {
        let capacity = self.options.shelf_capacity;
        if capacity.is_some_and(|capacity| self.shelf(shelf).len() >= capacity) {
            return Err(Refusal::ShelfFull(shelf));
        }
        self.shelve(shelf, message, now).map(|_| ())
    }

    /// Replaces an entry of a shelf by a new entry with this message. Returns the number of the new entry.
    pub(crate) fn replace_on_shelf(
        &mut self,
        shelf: Shelf,
        index: usize,
        message: Message,
        now: Instant,
    ) -> Result<u64, Refusal> {
        let number = self.shelve(shelf, message, now)?;
        self.take_from_shelf(shelf, index);
        Ok(number)
    }

    fn shelve(&mut self, shelf: Shelf, message: Message, now: Instant) -> Result<u64, Refusal> {
        if self.shelf_mut(shelf).unwritable {
            return Err(Refusal::ShelfUnwritable(shelf));
        }
        let number = self.new_number();
        self.shelf_mut(shelf).entries.push_back(Entry { number, shelved_at: now, message });
        Ok(number)
    }

    /// Removes the entry at this index from a shelf.
    pub(crate) fn take_from_shelf(&mut self, shelf: Shelf, index: usize) {
        self.shelf_mut(shelf).entries.remove(index);
    }

    pub(crate) fn set_writable(&mut self, writable: bool) {
        self.unwritable = !writable;
    }

    pub(crate) fn set_shelf_writable(&mut self, shelf: Shelf, writable: bool) {
        self.shelf_mut(shelf).unwritable = !writable;
    }

    /// Returns the entries of a shelf, oldest first.
    pub(crate) fn shelf(&self, shelf: Shelf) -> &VecDeque<Entry> {
        match shelf {
            Shelf::Parking => &self.parking_shelf.entries,
            _ => &self.dead_letter_shelf.entries,
        }
    }

    /// Returns the number of messages: ready, waiting and in flight.
    pub(crate) fn depth(&self) -> usize {
        self.ready.len() + self.waiting.len() + self.in_flight.len()
    }

    /// Returns all messages except those on the shelves, in the order of delivery: each with its due time if it waits at `now`,
    /// and with true if it is in flight.
    pub(crate) fn queued(&mut self, now: Instant) -> Vec<(Message, Option<Instant>, bool)> {
        self.enqueue_due(now);
        let in_flight = self
            .in_flight
            .values()
            .map(|delivery| (delivery.position, (delivery.stored.message.clone(), None, true)));
        let ready =
            self.ready.iter().map(|(position, stored)| (*position, (stored.message.clone(), None, false)));
        let mut queued_in_order: Vec<_> = in_flight.chain(ready).collect();
        queued_in_order.sort_by_key(|&(position, _)| position);
        let waiting =
            self.waiting.iter().map(|(&(due, _), stored)| (stored.message.clone(), Some(due), false));
        queued_in_order.into_iter().map(|(_, queued)| queued).chain(waiting).collect()
    }

    /// Returns the number of messages that wait at `now`.
    pub(crate) fn waiting(&mut self, now: Instant) -> usize {
        self.enqueue_due(now);
        self.waiting.len()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn check_room(&self) -> Result<(), Refusal> {
        if self.unwritable {
            return Err(Refusal::QueueUnwritable);
        }
        match self.options.queue_capacity {
            Some(capacity) if self.depth() >= capacity => Err(Refusal::QueueFull(capacity)),
            _ => Ok(()),
        }
    }

    /// Removes a delivery from those in flight.
    fn remove_in_flight(&mut self, tag: Tag) -> Option<InFlight> {
        let delivery = self.in_flight.remove(&tag)?;
        if let Some(count) = self.in_flight_counts.get_mut(&delivery.owner) {
            *count -= 1;
            if *count == 0 && self.in_flight_counts.len() > 1 {
                // Owners that are gone must not accumulate.
                self.in_flight_counts.remove(&delivery.owner);
            }
        }
        Some(delivery)
    }

    fn store_waiting(&mut self, copy: Message, wait: Duration, now: Instant) {
        let copy = StoredMessage { message: copy, delivery_count: 0 };
        if wait.is_zero() {
            return self.enqueue(copy);
        }
        // The clock cannot represent every due time. It can represent a hundred years, which is as good as never.
        const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);
        let due = now.checked_add(wait).unwrap_or(now + NEVER);
        let number = self.new_number();
        self.waiting.insert((due, number), copy);
    }

    fn enqueue_due(&mut self, now: Instant) {
        while let Some(entry) = self.waiting.first_entry()
            && entry.key().0 <= now
        {
            let stored = entry.remove();
            self.enqueue(stored);
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.waiting.keys().next().map(|&(due, _)| due)
    }

    fn enqueue(&mut self, stored: StoredMessage) {
        let position = self.new_number();
        self.make_ready(position, stored);
    }

    fn make_ready(&mut self, position: u64, stored: StoredMessage) {
        if self.ready.back().is_none_or(|&(last, _)| last < position) {
            return self.ready.push_back((position, stored));
        }
        let place = self.ready.partition_point(|&(other, _)| other < position);
        self.ready.insert(place, (position, stored));
    }

    fn shelf_mut(&mut self, shelf: Shelf) -> &mut ShelfState {
        match shelf {
            Shelf::Parking => &mut self.parking_shelf,
            _ => &mut self.dead_letter_shelf,
        }
    }

    fn new_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}
