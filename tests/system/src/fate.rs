//! The fate of a message in the chaos test: determined by its id, the same in every process and every run.

use std::time::Duration;

use redrive::RetryPolicy;

/// The waits of the chaos test: short, because it does not test them.
pub const WAITS: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
];

/// The first attempt, and one after each wait.
pub const ATTEMPTS: u32 = WAITS.len() as u32 + 1;

/// The policy of the chaos.
#[must_use]
pub fn policy() -> impl RetryPolicy {
    WAITS
}

/// The names of the delay queues of a work queue under this policy.
pub fn rungs(queue: &str) -> impl Iterator<Item = String> {
    WAITS.into_iter().map(move |wait| format!("{queue}--retry-{}ms", wait.as_millis()))
}

/// What the handler does with one attempt of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Succeeds.
    Done,
    /// Fails, 30 % of all; another attempt may succeed.
    Transient,
    /// Fails, 2 % of all; no attempt succeeds.
    Permanent,
    /// Panics, 0.5 % of all.
    Panic,
}

impl Fate {
    /// Of this attempt (1 the first time) of this message.
    #[must_use]
    pub fn of(id: &str, attempt: u32) -> Self {
        match dice(id, attempt) % 1000 {
            0..300 => Self::Transient,
            300..320 => Self::Permanent,
            320..325 => Self::Panic,
            _ => Self::Done,
        }
    }
}

/// How long the handler takes for it: 5 to 40 ms, so that there is always something in flight to be lost.
#[must_use]
pub fn duration(id: &str, attempt: u32) -> Duration {
    Duration::from_millis(5 + (dice(id, attempt) >> 32) % 36)
}

/// Returns the reason with which a message must end on the dead-letter shelf; `None` if it must be acknowledged. Deaths of
/// processes cost no attempt, however many there are.
#[must_use]
pub fn end(id: &str) -> Option<&'static str> {
    for attempt in 1..=ATTEMPTS {
        match Fate::of(id, attempt) {
            Fate::Done => return None,
            Fate::Permanent => return Some("NonRetryableError"),
            Fate::Transient | Fate::Panic => {}
        }
    }
    Some("MaxDeliveryCountExceeded")
}

/// FNV-1a of both, then the finalizer of SplitMix64: ids that differ in one digit must have independent fates.
fn dice(id: &str, attempt: u32) -> u64 {
    let bytes = id.bytes().chain(attempt.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_as_said() {
        let share = |fate| {
            (0..20_000).filter(|number| Fate::of(&format!("m-{number}"), 1) == fate).count() as f64 / 20_000.0
        };
        for (fate, wanted) in [(Fate::Transient, 0.3), (Fate::Permanent, 0.02), (Fate::Panic, 0.005)] {
            let share = share(fate);
            assert!((share - wanted).abs() < wanted / 5.0, "{fate:?}: {share}");
        }
    }

    #[test]
    fn some_messages_end_in_each_way() {
        let ends: std::collections::HashSet<_> =
            (0..1000).map(|number| end(&format!("m-{number}"))).collect();
        assert_eq!(ends.len(), 3, "{ends:?}");
    }
}
