//! How many deliveries to have in hand, from how fast they are worked off. Pure.
//!
//! Too few, and handlers wait for the broker each time that they are done; too many, and they lie here while another
//! consumer has nothing to do. So: what is worked off in a twentieth of a second, which is longer than a round trip and the
//! wait for an acknowledgement that takes others along.

/// How often a second what is in hand should turn over.
const TURNS: usize = 20;
/// So many seconds in a row must ask for a quarter, or less, before fewer are held.
const PATIENCE: u32 = 10;

/// The size at the moment, between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizing {
    least: u16,
    most: u16,
    now: u16,
    slow: u32,
}

impl Sizing {
    /// Begins with the least.
    pub(crate) fn between(least: u16, most: u16) -> Self {
        Self { least, most: most.max(least), now: least, slow: 0 }
    }

    pub(crate) fn now(&self) -> u16 {
        self.now
    }

    /// Takes in how many were handed out within the last second. True when the size is another from now on.
    pub(crate) fn after_a_second(&mut self, handed_out: usize) -> bool {
        let wanted = (handed_out / TURNS).checked_next_power_of_two().unwrap_or(usize::MAX);
        let wanted = u16::try_from(wanted).unwrap_or(u16::MAX).clamp(self.least, self.most);
        self.slow = if wanted <= self.now / 4 { self.slow + 1 } else { 0 };
        let before = self.now;
        if wanted > self.now {
            self.now = wanted;
        } else if self.slow >= PATIENCE {
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
        let changes: Vec<_> = (0..PATIENCE).map(|_| sizing.after_a_second(0)).collect();
        assert_eq!((changes.iter().filter(|changed| **changed).count(), sizing.now()), (1, 64));
        assert!(!sizing.after_a_second(0), "and waits again");
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds(
            least in 1..2000_u16, most in 1..2000_u16, seconds in proptest::collection::vec(any::<usize>(), 0..50),
        ) {
            let mut sizing = Sizing::between(least, most);
            for handed_out in seconds {
                let before = sizing.now();
                prop_assert_eq!(sizing.after_a_second(handed_out), sizing.now() != before);
                prop_assert!((least..=most.max(least)).contains(&sizing.now()));
            }
        }
    }
}
