//! Computes the wait before the next try to settle. Pure.

use std::time::Duration;

use redrive_core::Exponential;

/// The longest wait before the first try that follows another one.
pub(crate) const FIRST: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Returns the wait before try number `tries` (1 the first time) at settling: doubles from 100 ms to 30 s, minus up to a quarter,
/// so that deliveries that failed together do not retry together. `spread` is any number that differs between them.
pub(crate) fn wait(tries: u32, spread: u64) -> Duration {
    let whole = Exponential::from(FIRST).cap(MAX_WAIT).base_wait(tries);
    whole - whole.mul_f64((spread % 1024) as f64 / 4096.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_the_longest_wait() {
        assert_eq!(wait(1, 0), FIRST);
        assert_eq!(wait(3, 0), FIRST * 4);
        for tries in [20, 40, u32::MAX] {
            assert_eq!(wait(tries, 0), MAX_WAIT);
        }
    }

    #[test]
    fn it_is_less_by_a_quarter_at_most() {
        for spread in [1, 1023, 1024, u64::MAX] {
            let wait = wait(1, spread);
            assert!(wait <= FIRST && wait >= FIRST * 3 / 4, "{wait:?}");
        }
    }
}
