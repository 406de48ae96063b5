//! How long to wait for the broker's answer.

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;

use super::channel::Channel;

/// How often a waiting caller polls whether the broker can still answer.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Maximum wait between two attempts to connect, to subscribe or to renew credentials.
pub(crate) const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// Waits for the broker's answer to a request on a channel: up to 30 s, and while the channel is open. The client library drops some
/// requests without an answer if the connection ends at that moment.
pub(crate) async fn with_timeout<T>(
    channel: &Channel,
    request: impl Future<Output = lapin::Result<T>>,
) -> lapin::Result<T> {
    within_limit(while_open(channel, request)).await
}

/// If the answer is an error that closes the channel, the client library reports the end first. It returns the answer after it has
/// written its own reply, which may take a while on a busy machine.
const ANSWER_AFTER_END: Duration = Duration::from_secs(2);

/// Waits for the broker's answer while the channel is open, and two seconds longer.
pub(crate) async fn while_open<T>(
    channel: &Channel,
    request: impl Future<Output = lapin::Result<T>>,
) -> lapin::Result<T> {
    let answer = poll_while(|| channel.status().connected(), ANSWER_AFTER_END, request).await;
    answer.map_err(|error| channel.answer(error))
}

pub(super) async fn poll_while<T>(
    open: impl Fn() -> bool,
    longer: Duration,
    request: impl Future<Output = lapin::Result<T>>,
) -> lapin::Result<T> {
    tokio::pin!(request);
    // Counts polls, not wall time: while a machine was suspended the library wrote nothing either.
    let mut left = longer;
    loop {
        if let Ok(answer) = timeout(POLL_EVERY, &mut request).await {
            return answer;
        }
        if open() {
            continue;
        }
        if left.is_zero() {
            let ended = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "the channel ended");
            return Err(ended.into());
        }
        left = left.saturating_sub(POLL_EVERY);
    }
}

/// Returns the output of `coming`, or `None` after this time. Time in which the broker is `blocked` does not count: it answers
/// afterwards.
pub(crate) async fn within_unblocked<T>(
    limit: Duration,
    blocked: impl Fn() -> bool,
    coming: impl Future<Output = T>,
) -> Option<T> {
    tokio::pin!(coming);
    let mut left = limit;
    loop {
        let step = left.min(POLL_EVERY);
        if let Ok(come) = timeout(step, &mut coming).await {
            return Some(come);
        }
        if !blocked() {
            left -= step;
        }
        if left.is_zero() {
            return None;
        }
    }
}

/// Returns the output of `coming`, or `None` once the broker is `blocked`: it does not answer then on a publishing connection.
pub(crate) async fn unless_blocked<T>(
    blocked: impl Fn() -> bool,
    coming: impl Future<Output = T>,
) -> Option<T> {
    tokio::pin!(coming);
    loop {
        if let Ok(come) = timeout(POLL_EVERY, &mut coming).await {
            return Some(come);
        }
        if blocked() {
            return None;
        }
    }
}

pub(super) async fn within_limit<T>(request: impl Future<Output = lapin::Result<T>>) -> lapin::Result<T> {
    const LIMIT: Duration = Duration::from_secs(30);
    let answer = timeout(LIMIT, request).await;
    answer.unwrap_or_else(|_| Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer").into()))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::Poll;

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_ends_the_channel_is_heard_before_its_end() {
        let late = async {
            tokio::time::sleep(ANSWER_AFTER_END - POLL_EVERY).await;
            Ok(())
        };
        assert!(poll_while(|| false, ANSWER_AFTER_END, late).await.is_ok());
        let never = std::future::pending::<lapin::Result<()>>();
        assert!(poll_while(|| false, ANSWER_AFTER_END, never).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_stands_still_does_not_use_up_the_time_for_an_answer() {
        let polls = Cell::new(0);
        let ended = || {
            // Not in the first one: the time would be counted from there.
            if polls.replace(polls.get() + 1) == 1 {
                // Advanced with the first poll.
                let _ = tokio::time::advance(10 * ANSWER_AFTER_END).now_or_never();
            }
            false
        };
        let answered = std::future::poll_fn(|_| match polls.get() {
            0..3 => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        });
        assert!(poll_while(ended, ANSWER_AFTER_END, answered).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_an_alarm_does_not_count() {
        let began = tokio::time::Instant::now();
        let alarm = || (1..60).contains(&began.elapsed().as_secs());
        let never = within_unblocked(Duration::from_secs(3), alarm, std::future::pending::<()>());
        assert_eq!(never.await, None);
        let waited = began.elapsed().as_secs();
        assert!((61..=63).contains(&waited), "{waited} s");
        let late = tokio::time::sleep(Duration::from_secs(100));
        assert_eq!(within_unblocked(Duration::from_secs(3), || true, late).await, Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_not_answered_during_an_alarm_does_not_wait_for_its_end() {
        let began = tokio::time::Instant::now();
        let alarm = || began.elapsed() >= Duration::from_secs(5);
        let soon = tokio::time::sleep(Duration::from_secs(3));
        assert_eq!(unless_blocked(alarm, soon).await, Some(()));
        assert_eq!(unless_blocked(alarm, std::future::pending::<()>()).await, None);
        assert!(began.elapsed() < Duration::from_secs(6));
    }
}
