//! What became of messages that were redriven.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use async_trait::async_trait;
use redrive_core::{EntryHandle, Shelf, Shelved, Shelves, TransportError};

use crate::group::{GroupId, Template};
use crate::plan::{ContentDigest, Plan, PlannedEntry};
use crate::run::{Fate, FateSource, SeenFate};

/// Tells what became of messages that were redriven. By default a [`Runner`](super::Runner) reads it from the
/// [shelves](ShelfFates).
#[async_trait]
pub trait Fates: Send {
    /// Tells an entry of the plan's shelf that is there before anything is sent. Called for each, before the first look of a run that
    /// begins; a run that goes on after another process sent something does not call it.
    fn was_there(&mut self, _entry: &Shelved) {}

    /// Returns the fates that are known by now, each once.
    ///
    /// # Errors
    ///
    /// If the broker cannot be used: the run stops, and can be resumed.
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
    /// How many entries of the shelf the run [holds](redrive_core::Lease::held): nobody sees or counts them.
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
    /// Entries that prove nothing: those of the plan, those that were there before, and those that told a fate.
    known: HashSet<EntryHandle>,
    /// What the last scan counted.
    counted: Option<Counted>,
    /// True if nothing was held at that scan.
    saw_all: bool,
    /// True if nothing was sent before the first look, and what was on the plan's shelf is known.
    begins: bool,
}

/// The sizes of the shelves, without what the run itself did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    dead_letter: u64,
    parking: u64,
}

impl<'a, S: Shelves + ?Sized> ShelfFates<'a, S> {
    /// Creates a reader for the run of a plan.
    #[must_use]
    pub fn new(shelves: &'a S, plan: &Plan) -> Self {
        let known = plan.entries().iter().map(|entry| entry.handle.clone()).collect();
        Self { shelves, shelf: plan.shelf(), known, counted: None, saw_all: true, begins: false }
    }

    async fn count(&self, look: LookForFates<'_>) -> Result<Counted, TransportError> {
        let mut dead_letter = self.shelves.count(Shelf::DeadLetter).await?;
        let mut parking = self.shelves.count(Shelf::Parking).await?.saturating_sub(look.parked);
        *(if self.shelf == Shelf::Parking { &mut parking } else { &mut dead_letter }) +=
            look.left_shelf + look.held;
        Ok(Counted { dead_letter, parking })
    }
}

#[async_trait]
impl<S: Shelves + ?Sized> Fates for ShelfFates<'_, S> {
    fn was_there(&mut self, entry: &Shelved) {
        self.begins = true;
        if entry.history.redrives.or_highest() > 0 {
            self.known.insert(entry.handle.clone());
        }
    }

    async fn look(&mut self, look: LookForFates<'_>) -> Result<Vec<SeenFate>, TransportError> {
        // Counted before the scan: what comes in between is seen, and leads to one more scan.
        let counted = self.count(look).await?;
        // What the run held at the last scan was not seen: it may be one that came back.
        if self.counted == Some(counted) && (self.saw_all || look.held > 0) {
            return Ok(Vec::new());
        }
        let mut returned = Returned::new(look.awaited);
        let is_known = |shelf| shelf == self.shelf && self.counted.is_none() && self.begins;
        for shelf in [Shelf::DeadLetter, Shelf::Parking].into_iter().filter(|shelf| !is_known(*shelf)) {
            let known = &mut self.known;
            let mut each = |entry: Shelved| {
                if entry.history.redrives.or_highest() > 0 && known.insert(entry.handle.clone()) {
                    returned.add(&entry);
                }
                ControlFlow::Continue(())
            };
            self.shelves.scan(shelf, &mut each).await?;
        }
        (self.counted, self.saw_all) = (Some(counted), look.held == 0);
        Ok(returned.fates)
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

    fn add(&mut self, entry: &Shelved) {
        let (id, body) = (entry.message.id(), entry.message.body());
        let found = self.take(entry, ContentDigest::of_identity(id, body), true);
        // A message without an id is given one when it is handled.
        let found = found.or_else(|| self.take(entry, ContentDigest::of_identity(None, body), false));
        if let Some(awaited) = found {
            let fate = fate(awaited.group, Template::of(entry).id());
            self.fates.push(SeenFate::new(awaited.handle.clone(), fate, FateSource::Shelf));
        }
    }

    fn take(&mut self, entry: &Shelved, identity: ContentDigest, has_id: bool) -> Option<&'a PlannedEntry> {
        let awaited = self.awaited.get_mut(&identity)?;
        let redrives = entry.history.redrives.or_highest();
        let is_it = |awaited: &&PlannedEntry| awaited.has_id == has_id && redrives > awaited.redrives;
        let index = awaited.iter().position(is_it)?;
        Some(awaited.swap_remove(index))
    }
}

fn fate(before: GroupId, now: GroupId) -> Fate {
    if before == now { Fate::FailedSame } else { Fate::FailedOther }
}
