//! What handlers saw of each message, and the verdict on it. Pure.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

/// How often each message fails before it succeeds.
pub(super) const FAILURES: u32 = 3;
/// A wait that ends this much too soon is no rounding of milliseconds.
const EARLY: Duration = Duration::from_millis(5);

/// All messages of a run, by number.
pub(super) struct Observed {
    messages: Vec<Vec<Seen>>,
    wait: Duration,
    succeeded: usize,
    handled: usize,
    counted_above: usize,
    /// The numbers on the shelf.
    shelf: BTreeSet<u32>,
}

#[derive(Clone, Copy)]
struct Seen {
    attempt: u32,
    at: Instant,
}

impl Observed {
    pub(super) fn new(messages: usize, wait: Duration) -> Self {
        Self {
            messages: vec![Vec::new(); messages],
            wait,
            succeeded: 0,
            handled: 0,
            counted_above: 0,
            shelf: BTreeSet::new(),
        }
    }

    /// Records an attempt. Returns true if it succeeds.
    pub(super) fn saw(&mut self, id: u32, attempt: u32, broker_count: u32, at: Instant) -> bool {
        let seen = &mut self.messages[id as usize];
        let succeeds = attempt > FAILURES;
        self.succeeded += usize::from(succeeds && !seen.iter().any(|before| before.attempt > FAILURES));
        self.counted_above += usize::from(broker_count >= attempt);
        self.handled += 1;
        seen.push(Seen { attempt, at });
        succeeds
    }

    /// Records what is on the shelf at the end: nothing ought to be.
    pub(super) fn shelve(&mut self, ids: &[u32]) {
        self.shelf.extend(ids);
    }

    pub(super) fn succeeded(&self) -> usize {
        self.succeeded
    }

    pub(super) fn handled(&self) -> usize {
        self.handled
    }

    pub(super) fn verdict(&self) -> Verdict {
        let mut verdict = Verdict { counted_above: self.counted_above, ..Verdict::default() };
        let mut late = Vec::new();
        for (id, seen) in (0..).zip(&self.messages) {
            let successes = seen.iter().filter(|seen| seen.attempt > FAILURES).count();
            let shelved = self.shelf.contains(&id);
            verdict.shelved += usize::from(shelved && successes == 0);
            verdict.shelved_too += usize::from(shelved && successes > 0);
            verdict.lost += usize::from(successes == 0 && !shelved);
            verdict.doubled += usize::from(successes > 1);
            let mut highest = 0;
            for (index, now) in seen.iter().enumerate() {
                verdict.went_back += usize::from(now.attempt < highest);
                verdict.repeated += usize::from(now.attempt == highest);
                verdict.too_many += usize::from(now.attempt > FAILURES + 1);
                highest = highest.max(now.attempt);
                // The last time that the attempt before failed began this wait.
                let before = seen[..index].iter().rev().find(|before| before.attempt + 1 == now.attempt);
                let Some(before) = before else { continue };
                let waited = now.at - before.at;
                verdict.early += usize::from(waited + EARLY < self.wait);
                late.push(waited.saturating_sub(self.wait));
            }
        }
        late.sort_unstable();
        let share = |percent: usize| late.get((late.len() * percent / 100).min(late.len().saturating_sub(1)));
        verdict.late = [50, 99, 100].map(|percent| share(percent).copied().unwrap_or_default());
        verdict
    }
}

/// What became of all messages.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) lost: usize,
    pub(super) doubled: usize,
    /// On the shelf before their last attempt: crashes were charged as failures (G4).
    pub(super) shelved: usize,
    /// On the shelf though they succeeded.
    pub(super) shelved_too: usize,
    /// Attempts with a lower number than one before (G3).
    pub(super) went_back: usize,
    /// Attempts that were made again: their settlement was lost.
    pub(super) repeated: usize,
    /// Attempts beyond the last one: a crash was charged as a failure (G4).
    pub(super) too_many: usize,
    /// Arrivals at which the broker had counted more failures than there were.
    pub(super) counted_above: usize,
    pub(super) early: usize,
    /// Median, 99 % and all, after the wait.
    pub(super) late: [Duration; 3],
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, doubled, shelved, shelved_too, went_back, repeated, too_many, .. } = self;
        let Self { counted_above, early, late, .. } = self;
        write!(
            f,
            "lost {lost}, doubled {doubled}, shelved too early {shelved}, shelved after success {shelved_too}, attempts that went back {went_back}, made again {repeated}, too many {too_many}, counted \
             above {counted_above}, early {early}, late {:.2?} / {:.2?} / {:.2?}",
            late[0], late[1], late[2]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_fault_is_counted() {
        let (wait, begin) = (Duration::from_secs(2), Instant::now());
        let mut observed = Observed::new(3, wait);
        let mut saw = |id, attempt, secs| observed.saw(id, attempt, 0, begin + Duration::from_secs(secs));
        // The second attempt is made again after a crash, the third too early, and success comes twice.
        for (attempt, secs) in [(1, 0), (2, 2), (2, 5), (3, 6), (4, 9), (4, 10)] {
            saw(0, attempt, secs);
        }
        // Went back, and never ended.
        for (attempt, secs) in [(1, 0), (2, 3), (1, 4)] {
            saw(1, attempt, secs);
        }
        saw(2, 5, 0);
        observed.shelve(&[0]);
        let verdict = observed.verdict();
        assert_eq!((verdict.lost, verdict.doubled, verdict.too_many), (1, 1, 1));
        assert_eq!((verdict.shelved, verdict.shelved_too), (0, 1));
        observed.shelve(&[1]);
        let verdict = observed.verdict();
        assert_eq!((verdict.lost, verdict.shelved), (0, 1));
        assert_eq!((verdict.went_back, verdict.repeated, verdict.early), (1, 2, 1));
        assert_eq!(verdict.late[2], Duration::from_secs(3));
        assert_eq!((observed.succeeded(), observed.handled()), (2, 10));
    }
}
