//! The time that is passed to the broker.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::sleep;

use crate::time::Timestamp;

/// 9999-12-31T23:59:59.999Z: texts and HTTP have no later time.
const LAST: i64 = 253_402_300_799_999;
/// The clock may be changed, and a deadline may be centuries away.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// The time that is passed to the broker: the machine's clock, or a clock that moves only when advanced. Either can be
/// advanced.
#[derive(Debug)]
pub struct Clock {
    stands_at: Option<i64>,
    put_forward: AtomicI64,
}

/// A step that would pass the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the clock was not moved: the step would pass the year 9999. Take a shorter one.")]
pub struct TooFar;

impl Clock {
    /// Creates a clock at the machine's time; a virtual one moves only when advanced.
    pub fn new(is_virtual: bool) -> Self {
        Self { stands_at: is_virtual.then(machine_millis), put_forward: AtomicI64::new(0) }
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.at(self.put_forward.load(Ordering::SeqCst)))
    }

    /// Moves the clock. A step that would pass the year 9999 is not made at all: at the end of time, no later step could be seen.
    ///
    /// # Errors
    /// If the step would pass it.
    pub fn advance(&self, by: Duration) -> Result<(), TooFar> {
        let by = i64::try_from(by.as_millis()).map_err(|_| TooFar)?;
        let moved = |now: i64| now.checked_add(by).filter(|moved| self.at(*moved) <= LAST);
        self.put_forward.fetch_update(Ordering::SeqCst, Ordering::SeqCst, moved).map_err(|_| TooFar)?;
        Ok(())
    }

    /// Returns true if time passes by itself.
    pub fn runs(&self) -> bool {
        self.stands_at.is_none()
    }

    fn at(&self, put_forward: i64) -> i64 {
        self.stands_at.unwrap_or_else(machine_millis).saturating_add(put_forward)
    }
}

/// Calls `advance` whenever time alone causes a change, until it is dropped. `advance` returns the time until the next change, if there
/// is one; `moved` resolves when that has changed, or the clock was advanced.
pub async fn pass_time<M: Future<Output = ()>>(
    clock: &Clock,
    mut advance: impl FnMut() -> Option<Duration>,
    mut moved: impl FnMut() -> M,
) {
    loop {
        let wait = match advance() {
            Some(wait) if clock.runs() => wait.clamp(Duration::from_millis(1), MAX_SLEEP),
            _ => MAX_SLEEP,
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = moved() => {}
        }
    }
}

fn machine_millis() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: Duration = Duration::from_secs(365 * 86_400);

    #[test]
    fn a_virtual_clock_moves_only_when_it_is_told() {
        let clock = Clock::new(true);
        let start = clock.now();
        clock.advance(Duration::from_secs(30)).unwrap();
        assert_eq!(clock.now().since(start), Duration::from_secs(30));
        assert_eq!(clock.now(), clock.now());
    }

    #[test]
    fn a_step_beyond_the_last_time_is_not_made_and_the_next_one_is() {
        for is_virtual in [true, false] {
            let clock = Clock::new(is_virtual);
            clock.advance(1000 * YEAR).unwrap();
            for by in [Duration::MAX, Duration::from_millis(u64::MAX), 8000 * YEAR] {
                let before = clock.now();
                assert_eq!(clock.advance(by), Err(TooFar));
                assert!(clock.now().since(before) < YEAR, "{by:?}");
            }
            let before = clock.now();
            clock.advance(YEAR).unwrap();
            assert!(clock.now().since(before) >= YEAR);
        }
    }
}
