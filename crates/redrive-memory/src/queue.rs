//! One queue and its shelves: a state machine without clock, lock or I/O.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use redrive_core::{Message, Settlement, Shelf};
use tokio::time::Instant;

use crate::error::Refusal;
use crate::options::MemoryOptions;

#[cfg(test)]
mod tests;

/// The name of one delivery in flight. Never used twice, so that a receipt from before a crash finds nothing.
pub(crate) type Tag = u64;
/// Who holds a delivery: one transport.
pub(crate) type Owner = u64;

/// A queue with everything that belongs to it. Every message is in exactly one of its places.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    options: MemoryOptions,
    /// By place in line: what is given back takes its old place again, ahead of what came later.
    ready: BTreeMap<u64, Resting>,
    /// By due time, then by the order of arrival.
    waiting: BTreeMap<(Instant, u64), Resting>,
    held: BTreeMap<Tag, Held>,
    /// How many of these each owner holds: counted along, since it is asked for every message.
    in_flight: HashMap<Owner, usize>,
    dead_letters: Rest,
    parking: Rest,
    next_number: u64,
}

#[derive(Debug)]
struct Resting {
    message: Message,
    /// How often it was handed out before and came back counted.
    handed_out: u32,
}

#[derive(Debug)]
struct Held {
    owner: Owner,
    place: u64,
    resting: Resting,
}

/// A message on a shelf.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// No other entry of the queue ever has it.
    pub(crate) number: u64,
    pub(crate) shelved_at: Instant,
    pub(crate) message: Message,
}

/// A shelf: its entries, oldest first, hence ordered by number.
#[derive(Debug, Default)]
struct Rest {
    entries: VecDeque<Entry>,
    refuses: bool,
}

/// What asking for a delivery came to.
#[derive(Debug)]
pub(crate) enum HandOut {
    /// This one is in flight now.
    Message {
        tag: Tag,
        /// Its place in line: no other message ever has it.
        place: u64,
        message: Message,
        handed_out: u32,
    },
    /// None is ready; the next one is due then.
    Nothing { next_due: Option<Instant> },
}

impl Queue {
    pub(crate) fn new(options: MemoryOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Takes a message at the end of the line.
    pub(crate) fn publish(&mut self, message: Message) -> Result<(), Refusal> {
        self.has_room()?;
        self.enqueue(Resting { message, handed_out: 0 });
        Ok(())
    }

    /// Takes a message at the end of the line when its wait is over.
    pub(crate) fn publish_after(
        &mut self,
        message: Message,
        wait: Duration,
        now: Instant,
    ) -> Result<(), Refusal> {
        self.has_room()?;
        self.store_for_later(message, wait, now);
        Ok(())
    }

    /// Puts the next message into this owner's hand. An owner holds at most `prefetch`; 0 is any number.
    pub(crate) fn hand_out(&mut self, owner: Owner, prefetch: u32, now: Instant) -> HandOut {
        self.wake_due(now);
        let in_flight = self.in_flight.entry(owner).or_default();
        if prefetch != 0 && *in_flight >= prefetch as usize {
            return HandOut::Nothing { next_due: None };
        }
        let Some((place, mut resting)) = self.ready.pop_first() else {
            return HandOut::Nothing { next_due: self.next_due() };
        };
        *in_flight += 1;
        resting.handed_out = resting.handed_out.saturating_add(1);
        let tag = self.number();
        let (message, handed_out) = (resting.message.clone(), resting.handed_out);
        self.held.insert(tag, Held { owner, place, resting });
        HandOut::Message { tag, place, message, handed_out }
    }

    /// Carries a settlement out. Where it is refused nothing has changed.
    pub(crate) fn settle(&mut self, tag: Tag, settlement: Settlement, now: Instant) -> Result<(), Refusal> {
        let Some(held) = self.held.get(&tag) else { return Err(Refusal::Lost) };
        match settlement {
            Settlement::Complete => {}
            Settlement::Reschedule { wait, copy } => self.store_for_later(copy, wait, now),
            Settlement::Shelve { shelf, copy } => self.store_on_shelf(shelf, copy, now)?,
            Settlement::NativeDeadLetter => {
                let original = held.resting.message.clone();
                self.store_on_shelf(Shelf::DeadLetter, original, now)?;
            }
            Settlement::Release => self.release(tag),
            Settlement::RetryInPlace { .. } => return Err(Refusal::CannotHoldBack),
        }
        self.take(tag);
        Ok(())
    }

    /// A delivery comes back without having been settled: that counts. At the limit it goes to the shelf.
    pub(crate) fn give_back(&mut self, tag: Tag, now: Instant) {
        let Some(held) = self.take(tag) else { return };
        let at_limit = self.options.delivery_limit.is_some_and(|limit| held.resting.handed_out >= limit);
        // A shelf that cannot take it must not make it disappear: it stays in line, and is tried again.
        if at_limit && self.store_on_shelf(Shelf::DeadLetter, held.resting.message.clone(), now).is_ok() {
            return;
        }
        self.ready.insert(held.place, held.resting);
    }

    /// A delivery comes back as if it had never been handed out.
    pub(crate) fn release(&mut self, tag: Tag) {
        let Some(mut held) = self.take(tag) else { return };
        held.resting.handed_out = held.resting.handed_out.saturating_sub(1);
        self.ready.insert(held.place, held.resting);
    }

    /// Everything in this owner's hand.
    pub(crate) fn held_by(&self, owner: Owner) -> Vec<Tag> {
        self.held.iter().filter(|(_, held)| held.owner == owner).map(|(&tag, _)| tag).collect()
    }

    /// Stores a message on a shelf, unless that is full.
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

    /// Stores a message on a shelf that takes the place of one of its entries. Answers the number of the new entry.
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
        if self.rest_mut(shelf).refuses {
            return Err(Refusal::ShelfUnwritable(shelf));
        }
        let number = self.number();
        self.rest_mut(shelf).entries.push_back(Entry { number, shelved_at: now, message });
        Ok(number)
    }

    /// Takes the entry at this place off a shelf.
    pub(crate) fn take_from_shelf(&mut self, shelf: Shelf, index: usize) {
        self.rest_mut(shelf).entries.remove(index);
    }

    pub(crate) fn set_shelf_writable(&mut self, shelf: Shelf, writable: bool) {
        self.rest_mut(shelf).refuses = !writable;
    }

    /// What rests on a shelf, oldest first.
    pub(crate) fn shelf(&self, shelf: Shelf) -> &VecDeque<Entry> {
        match shelf {
            Shelf::Parking => &self.parking.entries,
            _ => &self.dead_letters.entries,
        }
    }

    /// Ready, waiting and held ones together.
    pub(crate) fn depth(&self) -> usize {
        self.ready.len() + self.waiting.len() + self.held.len()
    }

    /// All messages but those on the shelves, in the order of delivery: when each is due if it waits, as of `now`, and whether it is
    /// in flight.
    pub(crate) fn queued(&mut self, now: Instant) -> Vec<(Message, Option<Instant>, bool)> {
        self.wake_due(now);
        let held = self.held.values().map(|held| (held.place, (held.resting.message.clone(), None, true)));
        let ready =
            self.ready.iter().map(|(&place, resting)| (place, (resting.message.clone(), None, false)));
        let mut in_line: Vec<_> = held.chain(ready).collect();
        in_line.sort_by_key(|&(place, _)| place);
        let waiting =
            self.waiting.iter().map(|(&(due, _), resting)| (resting.message.clone(), Some(due), false));
        in_line.into_iter().map(|(_, queued)| queued).chain(waiting).collect()
    }

    /// How many wait for their time, as of `now`.
    pub(crate) fn waiting(&mut self, now: Instant) -> usize {
        self.wake_due(now);
        self.waiting.len()
    }

    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    fn has_room(&self) -> Result<(), Refusal> {
        match self.options.queue_capacity {
            Some(capacity) if self.depth() >= capacity => Err(Refusal::QueueFull(capacity)),
            _ => Ok(()),
        }
    }

    /// Takes a delivery out of its owner's hand.
    fn take(&mut self, tag: Tag) -> Option<Held> {
        let held = self.held.remove(&tag)?;
        if let Some(in_flight) = self.in_flight.get_mut(&held.owner) {
            *in_flight -= 1;
            if *in_flight == 0 && self.in_flight.len() > 1 {
                // Owners come and go.
                self.in_flight.remove(&held.owner);
            }
        }
        Some(held)
    }

    fn store_for_later(&mut self, copy: Message, wait: Duration, now: Instant) {
        let copy = Resting { message: copy, handed_out: 0 };
        if wait.is_zero() {
            return self.enqueue(copy);
        }
        // A time that the clock cannot say is as good as never; a hundred years is a time that it can say.
        const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);
        let due = now.checked_add(wait).unwrap_or(now + NEVER);
        let number = self.number();
        self.waiting.insert((due, number), copy);
    }

    fn wake_due(&mut self, now: Instant) {
        while let Some(entry) = self.waiting.first_entry()
            && entry.key().0 <= now
        {
            let resting = entry.remove();
            self.enqueue(resting);
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.waiting.keys().next().map(|&(due, _)| due)
    }

    fn enqueue(&mut self, resting: Resting) {
        let place = self.number();
        self.ready.insert(place, resting);
    }

    fn rest_mut(&mut self, shelf: Shelf) -> &mut Rest {
        match shelf {
            Shelf::Parking => &mut self.parking,
            _ => &mut self.dead_letters,
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}
