//! Decides which deliveries may have killed a process, and when to handle them alone. Pure.
//!
//! A broker that counts deliveries charges every delivery that a dead process had in flight, even those that no handler saw. One
//! killer would thus send all of its neighbours to the shelf. Therefore messages that were handed out before are handled with
//! nothing else in flight: an innocent message comes to an end, and the killer dies alone until it was handed out too often.

use redrive_core::Delivery;
use redrive_core::transport::{Facts, Needs};

/// Decides which deliveries the consumer suspects of having killed a process. It handles these alone: one at a time, with nothing
/// else in flight at the consumer. Default: [`Suspects::by_count`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspects {
    /// First delivery count that is suspect; `None`: chosen to fit the broker's way of counting.
    from: Option<u32>,
    by_mark: bool,
    off: bool,
}

impl Suspects {
    /// Suspects deliveries that the broker counted as handed out before without coming to an end.
    ///
    /// Where the broker also counts a delivery that is given back (RabbitMQ before 4.3, Service Bus by REST), the threshold is
    /// one delivery higher, because an orderly first return is counted there. A message that was handed out once before is then
    /// only doubtful: it is handled alone by a consumer that started, or met a suspect, less than ten seconds ago. On a queue
    /// that does not count, and where the broker's count includes failures (it retries [in place](redrive_core::transport::InPlace)), only the
    /// messages that the [ledger](crate::Consumer::ledger) names are suspects.
    #[must_use]
    pub fn by_count() -> Self {
        Self { from: None, by_mark: false, off: false }
    }

    /// Suspects only deliveries that are handed out for this time or more (at least 2). Choose a value below the limit of
    /// [`poison_after`](redrive_core::DeadLetterBackoff::poison_after): otherwise isolation comes too late.
    #[must_use]
    pub fn from_delivery(times: u32) -> Self {
        Self { from: Some(times.max(2)), by_mark: false, off: false }
    }

    /// On a queue that does not count, also suspects every delivery that is marked as redelivered. Every message that was ever
    /// given back carries that mark, and the mark sets no limit: a killer is then handled first, alone and without end, unless a
    /// [ledger](crate::Consumer::ledger) counts.
    #[must_use]
    pub fn also_by_mark(mut self) -> Self {
        self.by_mark = true;
        self
    }

    /// Suspects nothing: all deliveries are handled side by side, and a killer takes down those in flight beside it.
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

/// [`Suspects`] applied to one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// First delivery count, as the broker counts, that is suspect.
    from: u32,
    /// First delivery count that is doubtful.
    doubtful_from: u32,
    /// True if the ledger also names suspects.
    ledger: bool,
    marked: bool,
}

impl Rule {
    pub(crate) fn of(suspects: Suspects, needs: &Needs, facts: &Facts, has_ledger: bool) -> Self {
        let counts = facts.counting.deliveries;
        let from = match suspects {
            Suspects { off: true, .. } => u32::MAX,
            Suspects { from: Some(from), .. } if counts => from,
            // The broker counts failures and deaths together: its count is no evidence of a death.
            _ if facts.delays.in_place.is_some() => u32::MAX,
            // An orderly first return looks like a delivery that a dead process held. The ledger names exactly the messages whose
            // handlers had begun; the count covers deaths on other machines.
            _ if counts => {
                let first_evidence = 2 + u32::from(facts.counting.releases) + u32::from(has_ledger);
                // At the latest with the delivery at which the layers turn it away.
                needs
                    .deliveries_on(facts)
                    .map_or(first_evidence, |allowed| first_evidence.min(allowed.max(2)))
            }
            _ => u32::MAX,
        };
        // A number that the user chose is taken literally.
        let returns_look_alike = facts.counting.releases && suspects.from.is_none() && from < u32::MAX;
        Self {
            from,
            doubtful_from: if returns_look_alike { (from - 1).max(2) } else { from },
            ledger: has_ledger && !suspects.off,
            marked: suspects.by_mark && !counts && !suspects.off,
        }
    }

    /// Returns true if no delivery can ever be a suspect.
    pub(crate) fn is_off(&self) -> bool {
        self.from == u32::MAX && !self.marked && !self.ledger
    }

    /// Returns true for almost every delivery: not suspect by a quick check, which costs a comparison.
    pub(crate) fn ordinary(&self, delivery: &Delivery) -> bool {
        delivery.broker_delivery_count() < self.from && !(self.marked && delivery.redelivered())
    }

    /// Judges a delivery that failed the quick check. `pardoned`: this process lost a connection a moment ago, which raised the
    /// count of its deliveries by one. `deaths`: how often the ledger saw the message begin and never end.
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

/// Whether a delivery may have killed a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspicion {
    None,
    /// It may have, or it was given back in order. It starts no isolation, but a consumer that already handles one delivery at a
    /// time continues to do so.
    Doubtful,
    Suspect,
}

/// How deliveries are handled now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// No delivery has arrived since the start. The first one shows whether a process died before.
    Probing,
    /// Side by side, up to the configured concurrency.
    Together,
    /// One at a time, with nothing else in flight.
    Alone {
        /// Number of suspects handled so far.
        suspects: u64,
        /// Number of further deliveries to handle alone although they are not suspects: suspects given back as copies are behind
        /// them.
        copies_behind: u32,
    },
}

/// What to do with a delivery that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Handle it.
    Handle,
    /// Keep it until nothing else is in flight, then handle it.
    Isolate,
    /// Handle it, and take the configured number of deliveries from now on: this many suspects came to an end.
    Widen {
        /// Number of suspects that were handled alone.
        suspects: u64,
    },
}

/// Decides from arrival to arrival how to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    mode: Mode,
}

impl Watch {
    /// Creates the state at the start. `probes`: the consumer starts with one delivery in flight.
    pub(crate) fn new(probes: bool) -> Self {
        Self { mode: if probes { Mode::Probing } else { Mode::Together } }
    }

    /// Returns true while deliveries are handled side by side.
    pub(crate) fn together(&self) -> bool {
        self.mode == Mode::Together
    }

    /// Returns true from the first suspect until all have come to an end.
    pub(crate) fn isolates(&self) -> bool {
        matches!(self.mode, Mode::Alone { .. })
    }

    /// Decides what to do with a delivery that arrived.
    pub(crate) fn arrived(&mut self, suspicion: Suspicion) -> Step {
        match (&mut self.mode, suspicion) {
            (Mode::Together, Suspicion::Suspect) => {
                self.mode = Mode::Alone { suspects: 0, copies_behind: 0 };
                Step::Isolate
            }
            (Mode::Probing, Suspicion::Suspect) => {
                self.mode = Mode::Alone { suspects: 1, copies_behind: 0 };
                Step::Handle
            }
            (Mode::Alone { suspects, .. }, Suspicion::Suspect) => {
                *suspects += 1;
                Step::Handle
            }
            (Mode::Together, _) | (Mode::Probing | Mode::Alone { .. }, Suspicion::Doubtful) => Step::Handle,
            (Mode::Alone { copies_behind, .. }, Suspicion::None) if *copies_behind > 0 => {
                *copies_behind -= 1;
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

    /// Stops waiting for the last suspect. Returns how many were handled alone.
    pub(crate) fn end(&mut self) -> u64 {
        match std::mem::replace(&mut self.mode, Mode::Together) {
            Mode::Alone { suspects, .. } => suspects,
            Mode::Probing | Mode::Together => 0,
        }
    }

    /// Records that suspects were given back as copies, to the back of the queue: this many more deliveries are handled alone,
    /// since the copies may follow soon.
    pub(crate) fn gave_back_copies(&mut self, copies: u32) {
        if let Mode::Alone { copies_behind, .. } = &mut self.mode {
            *copies_behind = copies_behind.saturating_add(copies);
        }
    }
}

#[cfg(test)]
#[path = "suspects_tests.rs"]
mod tests;
