//! Where messages are on the emulator, seen from outside.

use std::fmt;

use redrive_servicebus_emulator::Emulator;

use super::setup::{PARKING_QUEUE, QUEUE};

/// The property that marks parked messages in the dead-letter queue.
const MARK: &str = "x-servicebus-shelf";

/// Where copies of the only message are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// In the queue, to be received or locked.
    pub work: u64,
    /// In the queue, scheduled.
    pub waiting: u64,
    /// In the dead-letter queue.
    pub shelf: u64,
    /// In the dead-letter queue with the mark, or in the parking queue.
    pub parked: u64,
}

impl Left {
    /// How many there are.
    #[must_use]
    pub fn total(self) -> usize {
        usize::try_from(self.work + self.waiting + self.shelf + self.parked).unwrap_or(usize::MAX)
    }
}

/// Looks without a client.
///
/// # Panics
/// When the emulator has not the queues of a [`Setup`](super::Setup).
#[must_use]
pub fn look(emulator: &Emulator) -> Left {
    let view = |path: &str| emulator.entity(path).expect("the entity is there");
    let work = view(QUEUE).counts();
    let dead = view(&format!("{QUEUE}/$DeadLetterQueue")).messages();
    let marked = dead.iter().filter(|found| found.message.application_properties.get(MARK).is_some()).count();
    Left {
        work: work.active + work.locked,
        waiting: work.scheduled,
        shelf: (dead.len() - marked) as u64,
        parked: (marked + view(PARKING_QUEUE).messages().len()) as u64,
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = [
            (self.work, "in the queue"),
            (self.waiting, "scheduled"),
            (self.shelf, "dead-lettered"),
            (self.parked, "parked"),
        ];
        let places = places.into_iter().filter(|(copies, _)| *copies > 0);
        let places: Vec<_> = places.map(|(copies, place)| format!("{copies} {place}")).collect();
        f.write_str(if places.is_empty() { "nothing".to_owned() } else { places.join(" + ") }.as_str())
    }
}
