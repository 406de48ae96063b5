//! Probes an open connection. It can be dead in one direction: the broker's empty frames arrive and keep it alive, while nothing
//! reaches the broker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// The interval between two probes.
pub(super) const PROBE_EVERY: Duration = Duration::from_secs(15);
/// The longest silence while an answer is due, in seconds. Only seconds in which this process ran count: it may have been
/// suspended.
const MAX_SILENT_SECONDS: u32 = 60;
/// The most bytes that arrive in a second in which the broker sends only empty frames, of eight bytes each.
const EMPTY_FRAMES: u64 = 64;

/// Waits for `answer`. Returns `None` if it does not arrive and nothing else arrives either: an answer may be late behind a large
/// message on a slow line.
pub(super) async fn unless_silent<T>(answer: impl Future<Output = T>, received: &AtomicU64) -> Option<T> {
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut silent = 0;
    let mut before = received.load(Ordering::Relaxed);
    tokio::pin!(answer);
    loop {
        tokio::select! {
            biased;
            answered = &mut answer => return Some(answered),
            _ = second.tick() => {}
        }
        let now = received.load(Ordering::Relaxed);
        silent = if now - before > EMPTY_FRAMES { 0 } else { silent + 1 };
        before = now;
        if silent > MAX_SILENT_SECONDS {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, advance, sleep};

    use super::*;

    /// Returns the time after which the connection is given up if `bytes` arrive in each second for `seconds`.
    async fn given_up_after(bytes: u64, seconds: u64) -> u64 {
        let received = AtomicU64::new(0);
        let began = Instant::now();
        let line = async {
            for _ in 0..seconds {
                received.fetch_add(bytes, Ordering::Relaxed);
                sleep(Duration::from_secs(1)).await;
            }
            pending::<()>().await;
        };
        tokio::select! {
            answered = unless_silent(pending::<()>(), &received) => assert_eq!(answered, None),
            () = line => {}
        }
        began.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_given_up_and_a_slow_one_is_not() {
        assert_eq!(given_up_after(0, 0).await, 60);
        assert_eq!(given_up_after(8, 1000).await, 60, "empty frames are no answer");
        assert!(given_up_after(10_000, 1000).await > 1000, "what comes on a slow line is before the answer");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_taken_whenever_it_comes() {
        let late = sleep(Duration::from_secs(59));
        assert_eq!(unless_silent(late, &AtomicU64::new(0)).await, Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_in_which_this_process_was_stopped_does_not_count() {
        let received = AtomicU64::new(0);
        let began = Instant::now();
        tokio::select! {
            biased;
            () = async { advance(Duration::from_secs(3600)).await; pending::<()>().await } => {}
            _ = unless_silent(pending::<()>(), &received) => {}
        }
        assert!(began.elapsed() >= Duration::from_secs(3600 + 59));
    }
}
