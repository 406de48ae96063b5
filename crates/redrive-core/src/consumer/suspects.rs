//! Which deliveries may be the reason why a process died, and when to handle them alone. Pure.
//!
//! A broker that counts charges every delivery that a dead process had in flight, also those that no handler saw. One
//! killer would so drag all of its neighbours to the shelf. Hence what was handed out before is handled with nothing
//! else in flight: the innocent come to an end, and the killer dies by itself until it was handed out too often.

use crate::delivery::Delivery;
use crate::needs::Needs;
use crate::transport::Facts;

/// Which deliveries the consumer takes for a possible reason of a process's death, and handles alone: one at a time,
/// with nothing else in flight at the consumer. Default: [`Suspects::by_count`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspects {
    /// From this delivery on; `None`: what the broker's way of counting suggests.
    from: Option<u32>,
    by_mark: bool,
    off: bool,
}

impl Suspects {
    /// What the broker counted as handed out before without coming to an end. Where giving back is counted too
    /// (RabbitMQ before 4.3, Service Bus by REST), one delivery more than that, since a first return in order is counted
    /// there: what was handed out once before is only doubtful, and handled alone by a consumer that began, or met a
    /// suspect, less than ten seconds ago. On a queue that does not count, and where the broker counts failures with it (it
    /// retries [in place](crate::InPlace)): only what the [ledger](crate::Consumer::ledger) names.
    #[must_use]
    pub fn by_count() -> Self {
        Self { from: None, by_mark: false, off: false }
    }

    /// Only what is handed out for this time or more (at least 2). Lower than what
    /// [`poison_after`](crate::DeadLetterBackoff::poison_after) allows, or it comes too late.
    #[must_use]
    pub fn from_delivery(times: u32) -> Self {
        Self { from: Some(times.max(2)), by_mark: false, off: false }
    }

    /// On a queue that does not count, also whatever is marked as redelivered. Everything that was ever given back
    /// carries that mark, and it bounds nothing: a killer is then handled first, alone and without end, unless a
    /// [ledger](crate::Consumer::ledger) counts.
    #[must_use]
    pub fn also_by_mark(mut self) -> Self {
        self.by_mark = true;
        self
    }

    /// None: everything is handled side by side, and a killer drags along what is in flight beside it.
    #[must_use]
    pub fn none() -> Self {
        Self { from: None, by_mark: false, off: true }
    }
}

impl Default for Suspects {
    fn default() -> Self {
        Self::by_count()
    }
}

/// [`Suspects`], made concrete for one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Suspect from this delivery on, by the broker's count.
    from: u32,
    /// Doubtful from this delivery on.
    doubtful_from: u32,
    /// The ledger has a say.
    ledger: bool,
    marked: bool,
}

impl Rule {
    pub(crate) fn of(suspects: Suspects, needs: &Needs, facts: &Facts, has_ledger: bool) -> Self {
        let counts = facts.counting.deliveries;
        let from = match suspects {
            Suspects { off: true, .. } => u32::MAX,
            Suspects { from: Some(from), .. } if counts => from,
            // One count for failures and deaths alike: no evidence of a death.
            _ if facts.delays.in_place.is_some() => u32::MAX,
            // In order given back for the first time, it looks like one that was in the hand of a dead process. A ledger
            // names those exactly whose handlers had begun; the count is there for deaths on other machines.
            _ if counts => {
                let first_evidence = 2 + u32::from(facts.counting.releases) + u32::from(has_ledger);
                // Not later than the layers turn it away.
                needs
                    .deliveries_on(facts)
                    .map_or(first_evidence, |allowed| first_evidence.min(allowed.max(2)))
            }
            _ => u32::MAX,
        };
        // Whoever chose a number meant that one.
        let returns_look_alike = facts.counting.releases && suspects.from.is_none() && from < u32::MAX;
        Self {
            from,
            doubtful_from: if returns_look_alike { (from - 1).max(2) } else { from },
            ledger: has_ledger && !suspects.off,
            marked: suspects.by_mark && !counts && !suspects.off,
        }
    }

    /// True when there will never be a suspect.
    pub(crate) fn is_off(&self) -> bool {
        self.from == u32::MAX && !self.marked && !self.ledger
    }

    /// What almost every delivery is: no suspect at the first look, which costs a comparison.
    pub(crate) fn ordinary(&self, delivery: &Delivery) -> bool {
        delivery.broker_delivery_count() < self.from && !(self.marked && delivery.redelivered())
    }

    /// At the second look. `pardoned`: a connection of this process was lost a moment ago; what it had in flight is
    /// counted once more for that. `deaths`: how often the ledger saw it begin and never end.
    pub(crate) fn suspicion(&self, delivery: &Delivery, pardoned: bool, deaths: u32) -> Suspicion {
        let counted = delivery.broker_delivery_count().saturating_sub(u32::from(pardoned));
        let marked = self.marked && delivery.redelivered() && !pardoned;
        if (self.ledger && deaths > 0) || counted >= self.from || marked {
            Suspicion::Suspect
        } else if counted >= self.doubtful_from {
            Suspicion::Doubtful
        } else {
            Suspicion::None
        }
    }
}

/// Whether a delivery may be the reason of a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspicion {
    None,
    /// It may be, or it was given back in order: nobody is isolated for it, but who handles one at a time anyway goes on
    /// doing so.
    Doubtful,
    Suspect,
}

/// How deliveries are handled at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Nothing has arrived yet since the start: with the first delivery it shows whether a process died before.
    Probing,
    /// Side by side, as many as configured.
    Together,
    /// One at a time, with nothing else in flight.
    Alone {
        /// How many suspects were handled so far.
        suspects: u64,
        /// How many more deliveries that are none to handle alone: what was given back as a copy is behind them.
        patience: u32,
    },
}

/// What to do with a delivery that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Handle it.
    Handle,
    /// Keep it, have nothing else in flight any more, then handle it.
    Isolate,
    /// Handle it, and take as many as configured from now on: this many suspects came to an end.
    Widen {
        /// How many suspects were handled alone.
        suspects: u64,
    },
}

/// Decides how to go on from arrival to arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    mode: Mode,
}

impl Watch {
    /// `narrowed`: one delivery is in flight at the beginning.
    pub(crate) fn new(narrowed: bool) -> Self {
        Self { mode: if narrowed { Mode::Probing } else { Mode::Together } }
    }

    /// True while deliveries are handled side by side.
    pub(crate) fn together(&self) -> bool {
        self.mode == Mode::Together
    }

    /// True from the first suspect on, until all have come to an end.
    pub(crate) fn isolates(&self) -> bool {
        matches!(self.mode, Mode::Alone { .. })
    }

    /// A delivery arrived.
    pub(crate) fn arrived(&mut self, suspicion: Suspicion) -> Step {
        match (&mut self.mode, suspicion) {
            (Mode::Together, Suspicion::Suspect) => {
                self.mode = Mode::Alone { suspects: 0, patience: 0 };
                Step::Isolate
            }
            (Mode::Probing, Suspicion::Suspect) => {
                self.mode = Mode::Alone { suspects: 1, patience: 0 };
                Step::Handle
            }
            (Mode::Alone { suspects, .. }, Suspicion::Suspect) => {
                *suspects += 1;
                Step::Handle
            }
            (Mode::Together, _) | (Mode::Probing | Mode::Alone { .. }, Suspicion::Doubtful) => Step::Handle,
            (Mode::Alone { patience, .. }, Suspicion::None) if *patience > 0 => {
                *patience -= 1;
                Step::Handle
            }
            (&mut Mode::Alone { suspects, .. }, Suspicion::None) => {
                self.mode = Mode::Together;
                Step::Widen { suspects }
            }
            (Mode::Probing, Suspicion::None) => {
                self.mode = Mode::Together;
                Step::Widen { suspects: 0 }
            }
        }
    }

    /// The last suspect is not waited for any longer; answers how many were handled alone.
    pub(crate) fn end(&mut self) -> u64 {
        match std::mem::replace(&mut self.mode, Mode::Together) {
            Mode::Alone { suspects, .. } => suspects,
            Mode::Probing | Mode::Together => 0,
        }
    }

    /// Suspects were given back as copies, to the back of the queue: worth handling this many more alone, since they
    /// may come by at once.
    pub(crate) fn gave_back_copies(&mut self, copies: u32) {
        if let Mode::Alone { patience, .. } = &mut self.mode {
            *patience = patience.saturating_add(copies);
        }
    }
}

#[cfg(test)]
#[path = "suspects_tests.rs"]
mod tests;
