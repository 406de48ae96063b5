//! Questions to the broker, and how long an answer is waited for.

use std::future::Future;
use std::time::Duration;

use lapin::Channel;
use tokio::time::timeout;

/// How often whoever waits for the broker looks whether it still can answer.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The broker's answer. The client library forgets some questions when the connection ends just then: they would be waited
/// for for ever.
pub(crate) async fn answered<T>(
    channel: &Channel,
    question: impl Future<Output = lapin::Result<T>>,
) -> lapin::Result<T> {
    answered_within_reason(answered_on(channel, question)).await
}

/// When the answer is an error that ends the channel, the client library shows the end first, and hands out the answer only
/// once it has written its own word on that: on a busy machine that takes a while.
const ANSWER_AFTER_THE_END: Duration = Duration::from_secs(2);

/// The broker's answer, waited for only as long as the channel that it comes on is open, and a little longer.
pub(crate) async fn answered_on<T>(
    channel: &Channel,
    question: impl Future<Output = lapin::Result<T>>,
) -> lapin::Result<T> {
    answered_while(|| channel.status().connected(), ANSWER_AFTER_THE_END, question).await
}

pub(super) async fn answered_while<T>(
    open: impl Fn() -> bool,
    longer: Duration,
    question: impl Future<Output = lapin::Result<T>>,
) -> lapin::Result<T> {
    tokio::pin!(question);
    // Counted in looks: in the time that a machine stands still the library has written nothing either.
    let mut left = longer;
    loop {
        if let Ok(answer) = timeout(LOOK_EVERY, &mut question).await {
            return answer;
        }
        if open() {
            continue;
        }
        if left.is_zero() {
            let ended = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "the channel ended");
            return Err(ended.into());
        }
        left = left.saturating_sub(LOOK_EVERY);
    }
}

/// What comes within this time, or `None`. The time in which the broker is `blocked` does not count: it answers after that.
pub(crate) async fn within_unblocked<T>(
    limit: Duration,
    blocked: impl Fn() -> bool,
    coming: impl Future<Output = T>,
) -> Option<T> {
    tokio::pin!(coming);
    let mut left = limit;
    loop {
        let step = left.min(LOOK_EVERY);
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

/// What comes before the broker is `blocked`, or `None`: on a connection that publishes it answers nothing until it is over.
pub(crate) async fn unless_blocked<T>(
    blocked: impl Fn() -> bool,
    coming: impl Future<Output = T>,
) -> Option<T> {
    tokio::pin!(coming);
    loop {
        if let Ok(come) = timeout(LOOK_EVERY, &mut coming).await {
            return Some(come);
        }
        if blocked() {
            return None;
        }
    }
}

pub(super) async fn answered_within_reason<T>(
    question: impl Future<Output = lapin::Result<T>>,
) -> lapin::Result<T> {
    const LIMIT: Duration = Duration::from_secs(30);
    let answer = timeout(LIMIT, question).await;
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
            tokio::time::sleep(ANSWER_AFTER_THE_END - LOOK_EVERY).await;
            Ok(())
        };
        assert!(answered_while(|| false, ANSWER_AFTER_THE_END, late).await.is_ok());
        let never = std::future::pending::<lapin::Result<()>>();
        assert!(answered_while(|| false, ANSWER_AFTER_THE_END, never).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_stands_still_does_not_use_up_the_time_for_an_answer() {
        let looks = Cell::new(0);
        let ended = || {
            // Not in the first one: the time would be counted from there.
            if looks.replace(looks.get() + 1) == 1 {
                // Advanced with the first poll.
                let _ = tokio::time::advance(10 * ANSWER_AFTER_THE_END).now_or_never();
            }
            false
        };
        let answered = std::future::poll_fn(|_| match looks.get() {
            0..3 => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        });
        assert!(answered_while(ended, ANSWER_AFTER_THE_END, answered).await.is_ok());
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
