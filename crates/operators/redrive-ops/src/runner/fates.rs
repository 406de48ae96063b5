//! What became of messages that were redriven.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use async_trait::async_trait;
use redrive_core::shelves::{EntryHandle, Shelved};
use redrive_core::{Shelf, Shelves, TransportError};

use crate::group::{GroupId, Template};
use crate::plan::{ContentDigest, Plan, PlannedEntry};
use crate::run::{Fate, FateSource, SeenFate};

/// Tells what became of messages that were redriven. By default a [`Runner`](super::Runner) reads it from the
/// [shelves](ShelfFates).
#[async_trait]
pub trait Fates: Send {
    /// Tells an entry of the plan's shelf that is there before this process sends anything. Called for each, before the first look.
    fn was_there(&mut self, _entry: &Shelved) {}

    /// Returns the fates that are known by now, each once.
    ///
    /// # Errors
    ///
    /// If the broker cannot be used: the run stops, and can be resumed. [`Busy`](redrive_core::TransportErrorKind::Busy): the run looks
    /// again; no fate is lost.
    async fn look(&mut self, look: LookForFates<'_>) -> Result<Vec<SeenFate>, TransportError>;
}

/// What a run knows when it looks for fates.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LookForFates<'a> {
    /// The entries whose fate is not known.
    pub awaited: &'a [&'a PlannedEntry],
    /// How many entries of the plan have left the shelf in this run.
    pub left_shelf: u64,
    /// How many of those went to the parking shelf.
    pub parked: u64,
    /// How many entries of the shelf the run [holds](redrive_core::shelves::Lease::held): nobody sees or counts them.
    pub held: u64,
}

impl<'a> LookForFates<'a> {
    /// Creates what a run knows.
    #[must_use]
    pub fn new(awaited: &'a [&'a PlannedEntry], left_shelf: u64, parked: u64) -> Self {
        Self { awaited, left_shelf, parked, held: 0 }
    }

    /// Sets how many entries of the shelf the run holds. Default: 0.
    #[must_use]
    pub fn held(mut self, held: u64) -> Self {
        self.held = held;
        self
    }
}

/// Reads fates from the shelves: a message that is there again, redriven once more than before, has failed. What was handled is not
/// there, and neither is what waits for a retry: the shelves do not tell them apart.
///
/// A message is recognized by its body and its id. The shelves are scanned only if the number of their entries is not the one that
/// the run itself accounts for.
#[derive(Debug)]
pub struct ShelfFates<'a, S: ?Sized> {
    shelves: &'a S,
    shelf: Shelf,
    /// Entries that prove nothing: those of the plan, and those that were looked at.
    known: HashSet<EntryHandle>,
    /// What was on the plan's shelf before the first look; `None` if nothing was told.
    before: Option<Before>,
    /// What a look saw that was not its turn on both shelves: the next one judges it.
    unjudged: Vec<Seen>,
    /// What the last scan counted.
    counted: Option<Counted>,
    /// True if nothing was held at that scan.
    saw_all: bool,
}

/// The plan's shelf before the first look.
#[derive(Debug, Default)]
struct Before {
    entries: u64,
    /// Those that may tell the fate of what another process of this run sent.
    redriven: Vec<Seen>,
}

/// The sizes of the shelves, without what the run itself did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    dead_letter: u64,
    /// `None` if the broker has no such shelf.
    parking: Option<u64>,
}

impl Counted {
    fn of(&mut self, shelf: Shelf) -> &mut u64 {
        if shelf == Shelf::Parking { self.parking.get_or_insert_default() } else { &mut self.dead_letter }
    }
}

impl<'a, S: Shelves + ?Sized> ShelfFates<'a, S> {
    /// Creates a reader for the run of a plan.
    #[must_use]
    pub fn new(shelves: &'a S, plan: &Plan) -> Self {
        let known = plan.entries().iter().map(|entry| entry.handle.clone()).collect();
        Self {
            shelves,
            shelf: plan.shelf(),
            known,
            before: None,
            unjudged: Vec::new(),
            counted: None,
            saw_all: true,
        }
    }

    async fn count(&self, look: LookForFates<'_>) -> Result<Counted, TransportError> {
        let dead_letter = self.shelves.count(Shelf::DeadLetter).await?;
        let parking = match self.shelves.count(Shelf::Parking).await {
            Ok(count) => Some(count.saturating_sub(look.parked)),
            // Nothing can fail onto a shelf that is not there: of a service without redrive, for example.
            Err(error) if self.shelf != Shelf::Parking && error.is_missing_shelf() => None,
            Err(error) => return Err(error),
        };
        let mut counted = Counted { dead_letter, parking };
        *counted.of(self.shelf) += look.left_shelf + look.held;
        Ok(counted)
    }
}

#[async_trait]
impl<S: Shelves + ?Sized> Fates for ShelfFates<'_, S> {
    fn was_there(&mut self, entry: &Shelved) {
        let before = self.before.get_or_insert_default();
        before.entries += 1;
        if is_redriven(entry) && self.known.insert(entry.handle.clone()) {
            before.redriven.push(Seen::of(entry));
        }
    }

    async fn look(&mut self, look: LookForFates<'_>) -> Result<Vec<SeenFate>, TransportError> {
        // Counted before the scan: what comes in between is seen, and leads to one more scan.
        let mut counted = self.count(look).await?;
        // What the run held at the last scan was not seen: it may be one that came back.
        if self.counted == Some(counted) && (self.saw_all || look.held > 0) && self.unjudged.is_empty() {
            return Ok(Vec::new());
        }
        let mut shelves = vec![Shelf::DeadLetter];
        shelves.extend(counted.parking.map(|_| Shelf::Parking));
        if let Some(before) = self.before.take() {
            self.unjudged.extend(before.redriven);
            *counted.of(self.shelf) = before.entries + look.left_shelf;
            shelves.retain(|shelf| *shelf != self.shelf);
        }
        let mut saw_all = look.held == 0;
        for shelf in shelves {
            let (known, unjudged) = (&mut self.known, &mut self.unjudged);
            let mut each = |entry: Shelved| {
                if is_redriven(&entry) && known.insert(entry.handle.clone()) {
                    unjudged.push(Seen::of(&entry));
                }
                ControlFlow::Continue(())
            };
            // What others hold was not seen: it is looked for again.
            saw_all &= self.shelves.scan(shelf, &mut each).await?.is_none();
        }
        (self.counted, self.saw_all) = (Some(counted), saw_all);
        let mut returned = Returned::new(look.awaited);
        self.unjudged.drain(..).for_each(|seen| returned.add(&seen));
        Ok(returned.fates)
    }
}

fn is_redriven(entry: &Shelved) -> bool {
    entry.history.redrives.or_highest() > 0
}

/// What tells an entry of a shelf apart.
#[derive(Debug)]
struct Seen {
    identity: ContentDigest,
    /// A message without an id is given one when it is handled.
    without_id: ContentDigest,
    redrives: u32,
    group: GroupId,
}

impl Seen {
    fn of(entry: &Shelved) -> Self {
        let (id, body) = (entry.message.id(), entry.message.body());
        Self {
            identity: ContentDigest::of_identity(id, body),
            without_id: ContentDigest::of_identity(None, body),
            redrives: entry.history.redrives.or_highest(),
            group: Template::of(entry).id(),
        }
    }
}

/// Compares entries of a shelf with those that are awaited. Pure.
struct Returned<'a> {
    awaited: HashMap<ContentDigest, Vec<&'a PlannedEntry>>,
    fates: Vec<SeenFate>,
}

impl<'a> Returned<'a> {
    fn new(entries: &'a [&'a PlannedEntry]) -> Self {
        let mut awaited: HashMap<_, Vec<_>> = HashMap::new();
        for entry in entries {
            awaited.entry(entry.identity).or_default().push(*entry);
        }
        Self { awaited, fates: Vec::new() }
    }

    fn add(&mut self, seen: &Seen) {
        let found = self.take(seen.identity, seen.redrives, true);
        if let Some(awaited) = found.or_else(|| self.take(seen.without_id, seen.redrives, false)) {
            let fate = fate(awaited.group, seen.group);
            self.fates.push(SeenFate::new(awaited.handle.clone(), fate, FateSource::Shelf));
        }
    }

    fn take(&mut self, identity: ContentDigest, redrives: u32, has_id: bool) -> Option<&'a PlannedEntry> {
        let awaited = self.awaited.get_mut(&identity)?;
        let is_it = |awaited: &&PlannedEntry| awaited.has_id == has_id && redrives > awaited.redrives;
        let index = awaited.iter().position(is_it)?;
        Some(awaited.swap_remove(index))
    }
}

fn fate(before: GroupId, now: GroupId) -> Fate {
    if before == now { Fate::FailedSame } else { Fate::FailedOther }
}
