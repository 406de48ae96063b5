//! Lock tokens: unique, and the same on every run with the same seed.

use uuid::Uuid;

/// Generates numbers with SplitMix64, which returns each number once in 2^64 steps.
#[derive(Debug)]
pub(super) struct Tokens(u64);

impl Tokens {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> Uuid {
        let (high, low) = (self.number(), self.number());
        Uuid::from_u64_pair(high, low)
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_token_comes_twice_and_another_seed_gives_others() {
        let (mut one, mut other) = (Tokens::new(1), Tokens::new(2));
        let tokens: HashSet<Uuid> = (0..1000).flat_map(|_| [one.next(), other.next()]).collect();
        assert_eq!(tokens.len(), 2000);
    }
}
