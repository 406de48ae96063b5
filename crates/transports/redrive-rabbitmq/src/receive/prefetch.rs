//! Adapts the prefetch to the throughput. Pure.
//!
//! With too few deliveries in flight, handlers wait for the broker. With too many, deliveries wait here while another consumer has
//! none. So the prefetch is the number of deliveries in a twentieth of a second, which is longer than a round trip and than the wait
//! of an acknowledgement for others.

/// Number of times per second that the deliveries in flight are replaced.
const TURNS: usize = 20;
/// The prefetch shrinks after this many seconds in a row with a quarter of the deliveries or less.
const SLOW_SECONDS: u32 = 10;

/// The current size, between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizing {
    least: u16,
    most: u16,
    now: u16,
    slow: u32,
}

impl Sizing {
    /// Starts with `least`.
    pub(super) fn between(least: u16, most: u16) -> Self {
        Self { least, most: most.max(least), now: least, slow: 0 }
    }

    pub(super) fn now(&self) -> u16 {
        self.now
    }

    /// Records the number of deliveries of the last second. Returns true if the size changes.
    pub(super) fn after_a_second(&mut self, delivered: usize) -> bool {
        let wanted = (delivered / TURNS).checked_next_power_of_two().unwrap_or(usize::MAX);
        let wanted = u16::try_from(wanted).unwrap_or(u16::MAX).clamp(self.least, self.most);
        self.slow = if wanted <= self.now / 4 { self.slow + 1 } else { 0 };
        let before = self.now;
        if wanted > self.now {
            self.now = wanted;
        } else if self.slow >= SLOW_SECONDS {
            (self.now, self.slow) = (wanted.saturating_mul(2).clamp(self.least, self.most), 0);
        }
        self.now != before
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_grows_with_what_is_worked_off_and_no_further_than_it_may() {
        let mut sizing = Sizing::between(32, 1000);
        assert!(!sizing.after_a_second(600), "handlers that take a while need no more");
        assert!(sizing.after_a_second(16_000));
        assert_eq!(sizing.now(), 1000);
        assert!(!sizing.after_a_second(500_000));
    }

    #[test]
    fn it_shrinks_only_after_a_while() {
        let mut sizing = Sizing::between(32, 1000);
        sizing.after_a_second(10_000);
        assert_eq!(sizing.now(), 512);
        let changes: Vec<_> = (0..SLOW_SECONDS).map(|_| sizing.after_a_second(0)).collect();
        assert_eq!((changes.iter().filter(|changed| **changed).count(), sizing.now()), (1, 64));
        assert!(!sizing.after_a_second(0), "and waits again");
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds(
            least in 1..2000_u16, most in 1..2000_u16, seconds in proptest::collection::vec(any::<usize>(), 0..50),
        ) {
            let mut sizing = Sizing::between(least, most);
            for delivered in seconds {
                let before = sizing.now();
                prop_assert_eq!(sizing.after_a_second(delivered), sizing.now() != before);
                prop_assert!((least..=most.max(least)).contains(&sizing.now()));
            }
        }
    }
}
