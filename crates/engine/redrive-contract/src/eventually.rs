//! Waiting for a state that no event announces.

use std::future::Future;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::{sleep, timeout};

use crate::case::ARRIVAL;

const POLL_EVERY: Duration = Duration::from_millis(10);

/// Polls `is_so` until it is true: for what a broker reports of its queues and connections with a delay.
///
/// # Panics
/// If it is not true within four minutes, with `what` in the message.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    found(what, || is_so().map(|is_so| is_so.then_some(()))).await;
}

/// Polls `look` until it returns a value, and returns that.
///
/// # Panics
/// If there is none within four minutes, with `what` in the message.
pub async fn found<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let polled = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            sleep(POLL_EVERY).await;
        }
    };
    timeout(ARRIVAL, polled).await.unwrap_or_else(|_| panic!("not within {ARRIVAL:?}: {what}"))
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_value_is_returned() {
        let mut polls = 0..;
        let third = found("the third poll", || ready(polls.next().filter(|poll| *poll == 2))).await;
        assert_eq!((third, polls.start), (2, 3));
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "not within 240s: it rains")]
    async fn a_state_that_never_comes_fails() {
        eventually("it rains", async || false).await;
    }
}
