//! Where messages are on the emulator, seen from outside.

use std::fmt;

use redrive_servicebus_emulator::Emulator;

use super::setup::{DEAD_LETTER_QUEUE, NEIGHBOUR, PARKING_QUEUE, Setup};

/// The property that marks parked messages in the dead-letter queue.
const MARK: &str = "x-servicebus-shelf";

/// Where copies of the only message are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// In what the consumer reads, to be received or locked.
    pub work: u64,
    /// There, scheduled.
    pub waiting: u64,
    /// In its dead-letter queues, or in the queue for them.
    pub shelf: u64,
    /// There with the mark, or in the parking queue.
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
/// When the emulator has not the entities of the setup.
#[must_use]
pub fn look(emulator: &Emulator, setup: Setup) -> Left {
    let view = |path: &str| emulator.entity(path).expect("the entity is there");
    let sources = setup.sources();
    let dead = sources.iter().map(|source| format!("{source}/$DeadLetterQueue"));
    let dead: Vec<_> =
        dead.chain([DEAD_LETTER_QUEUE.to_owned()]).flat_map(|path| view(&path).messages()).collect();
    let marked = dead.iter().filter(|found| found.message.application_properties.get(MARK).is_some()).count();
    let mut left = Left {
        shelf: (dead.len() - marked) as u64,
        parked: (marked + view(PARKING_QUEUE).messages().len()) as u64,
        ..Left::default()
    };
    for source in sources {
        let counts = view(source).counts();
        left.work += counts.active + counts.locked;
        left.waiting += counts.scheduled;
    }
    left
}

/// How many messages another subscription of the topic has.
///
/// # Panics
/// When the emulator has none.
#[must_use]
pub fn at_the_neighbour(emulator: &Emulator) -> usize {
    emulator.entity(NEIGHBOUR).expect("the subscription is there").messages().len()
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
