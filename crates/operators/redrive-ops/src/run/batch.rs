//! How many entries a step has. Pure.

use std::time::Duration;

/// Maximum number of entries of a step.
pub(super) const MAX_BATCH: usize = 500;

/// Number of entries of a step that is quick.
const SMALL: usize = 10;

/// The same at a high rate: a step has a fixed cost.
const LARGE: usize = 100;
const STEPS_IN_A_SECOND: usize = 4;

/// A step that takes longer is worth more entries.
const LONG: Duration = Duration::from_millis(500);

/// The number of entries of a step. If the process dies in a step, its entries are uncertain: there are few of them, unless the rate
/// is high, or each step takes long whatever its size, because the broker reads what comes before on the shelf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    size: usize,
    began: Option<Duration>,
    /// True if the rate makes the step large: its time says nothing about a fixed cost.
    is_large: bool,
}

impl Default for Batch {
    fn default() -> Self {
        Self { size: SMALL, began: None, is_large: false }
    }
}

impl Batch {
    /// Returns the number of entries of the step that begins, at this many entries a second.
    pub(super) fn begin(&mut self, now: Duration, rate: u32) -> usize {
        self.began = Some(now);
        let of_rate = (rate as usize / STEPS_IN_A_SECOND).min(LARGE);
        self.is_large = of_rate > self.size;
        self.size.max(of_rate)
    }

    /// The step has ended.
    pub(super) fn end(&mut self, now: Duration) {
        let Some(began) = self.began.take() else { return };
        let took = now.saturating_sub(began);
        if took > LONG && !self.is_large {
            self.size = (self.size * 2).min(MAX_BATCH);
        } else if took < LONG / 4 {
            self.size = (self.size / 2).max(SMALL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slow_steps_and_those_of_a_high_rate_are_large() {
        let mut batch = Batch::default();
        let mut step = |millis| {
            let size = batch.begin(Duration::ZERO, 1);
            batch.end(Duration::from_millis(millis));
            size
        };
        assert_eq!([10, 10, 600, 600, 300, 300, 100, 100].map(&mut step), [10, 10, 10, 20, 40, 40, 40, 20]);
        assert_eq!([10, 100, 1000].map(|rate| Batch::default().begin(Duration::ZERO, rate)), [10, 25, 100]);
        let mut fast = Batch::default();
        for _ in 0..5 {
            assert_eq!(fast.begin(Duration::ZERO, 1000), 100);
            fast.end(Duration::from_secs(2));
        }
        let last = std::iter::repeat_with(|| step(5000)).take(10).last();
        assert_eq!(last, Some(MAX_BATCH));
    }
}
