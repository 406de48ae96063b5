//! Numbers identical entries: the first is 1, the next one 2. It does not matter which of them a number means, but each is acted on
//! once: an entry that this process removed from a shelf keeps its number.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;

use parking_lot::Mutex;
use redrive_core::Shelf;
use redrive_core::shelves::EntryHandle;

use super::fingerprint::Fingerprint;

/// Number of names that are remembered; the oldest are forgotten first.
const REMEMBERED: usize = 100_000;

/// The name of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) fingerprint: Fingerprint,
    pub(super) number: u32,
}

impl Name {
    pub(super) fn handle(self, shelf: Shelf) -> EntryHandle {
        EntryHandle::new(shelf, self.to_string())
    }

    /// Parses the form that [`Display`](fmt::Display) writes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (fingerprint, number) = match text.split_once('-') {
            None => (text, 1),
            Some((fingerprint, number)) => (fingerprint, number.parse().ok().filter(|number| *number > 1)?),
        };
        let fingerprint = Fingerprint(u128::from_str_radix(fingerprint, 16).ok()?);
        let name = Self { fingerprint, number };
        // Accepts only the written form: no other digits, no sign.
        (name.to_string() == text).then_some(name)
    }
}

/// The name of the first of identical entries has no number.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fingerprint: Fingerprint(fingerprint), number } = self;
        match number {
            1 => write!(f, "{fingerprint:032x}"),
            number => write!(f, "{fingerprint:032x}-{number}"),
        }
    }
}

/// The entries that were removed from the shelves.
#[derive(Debug, Default)]
pub(crate) struct TakenNumbers(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    numbers: HashMap<(Shelf, Fingerprint), BTreeSet<u32>>,
    order: VecDeque<(Shelf, Name)>,
}

impl TakenNumbers {
    pub(super) fn note(&self, shelf: Shelf, name: Name) {
        let mut remembered = self.0.lock();
        remembered.numbers.entry((shelf, name.fingerprint)).or_default().insert(name.number);
        remembered.order.push_back((shelf, name));
        if remembered.order.len() > REMEMBERED
            && let Some((shelf, name)) = remembered.order.pop_front()
            && let Some(numbers) = remembered.numbers.get_mut(&(shelf, name.fingerprint))
        {
            numbers.remove(&name.number);
            if numbers.is_empty() {
                remembered.numbers.remove(&(shelf, name.fingerprint));
            }
        }
    }

    /// Returns the first number after this one that was not removed.
    fn next(&self, shelf: Shelf, fingerprint: Fingerprint, last: u32) -> u32 {
        let remembered = self.0.lock();
        let taken = remembered.numbers.get(&(shelf, fingerprint));
        let mut free = (last + 1..).filter(|number| taken.is_none_or(|taken| !taken.contains(number)));
        free.next().unwrap_or(u32::MAX)
    }
}

/// The numbers assigned in one scan of a shelf, from its head.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    last: HashMap<Fingerprint, u32>,
}

impl Numbers {
    /// Returns the name of the next entry with this fingerprint.
    pub(super) fn next(&mut self, taken: &TakenNumbers, shelf: Shelf, fingerprint: Fingerprint) -> Name {
        let last = self.last.entry(fingerprint).or_default();
        *last = taken.next(shelf, fingerprint, *last);
        Name { fingerprint, number: *last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHELF: Shelf = Shelf::DeadLetter;
    const SAME: Fingerprint = Fingerprint(7 << 64);

    /// Returns the numbers of `rest` identical entries.
    fn numbers(taken: &TakenNumbers, rest: usize) -> Vec<u32> {
        let mut numbers = Numbers::default();
        (0..rest).map(|_| numbers.next(taken, SHELF, SAME).number).collect()
    }

    #[test]
    fn the_others_keep_their_numbers_whichever_was_taken() {
        let taken = TakenNumbers::default();
        assert_eq!(numbers(&taken, 4), [1, 2, 3, 4]);
        for (number, left) in [(2, vec![1, 3, 4]), (1, vec![3, 4]), (4, vec![3])] {
            taken.note(SHELF, Name { fingerprint: SAME, number });
            assert_eq!(numbers(&taken, left.len()), left);
        }
        assert_eq!(numbers(&taken, 2), [3, 5], "one more came");
    }

    #[test]
    fn a_bounded_number_is_remembered() {
        let taken = TakenNumbers::default();
        for entry in 0..=REMEMBERED {
            taken.note(SHELF, Name { fingerprint: Fingerprint(entry as u128), number: 1 });
        }
        let remembered = taken.0.lock();
        assert_eq!((remembered.numbers.len(), remembered.order.len()), (REMEMBERED, REMEMBERED));
    }

    #[test]
    fn handles_tell_those_that_are_alike_apart() {
        let [one, two] = [1, 2].map(|number| Name { fingerprint: SAME, number });
        assert_eq!(one.handle(SHELF).to_string(), "dead-letter/00000000000000070000000000000000");
        assert_eq!(two.handle(SHELF).entry(), "00000000000000070000000000000000-2");
    }
}
