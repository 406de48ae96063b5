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

/// The broker's answer, waited for only as long as the channel that it comes on is open.
pub(crate) async fn answered_on<T>(
    channel: &Channel,
    question: impl Future<Output = lapin::Result<T>>,
) -> lapin::Result<T> {
    answered_while(|| channel.status().connected(), question).await
}

pub(super) async fn answered_while<T>(
    open: impl Fn() -> bool,
    question: impl Future<Output = lapin::Result<T>>,
) -> lapin::Result<T> {
    tokio::pin!(question);
    let mut ended_before = false;
    loop {
        if let Ok(answer) = timeout(LOOK_EVERY, &mut question).await {
            return answer;
        }
        let ended = !open();
        // The answer itself may be what ended it, and be on its way to here still.
        if ended && std::mem::replace(&mut ended_before, ended) {
            let ended = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "the channel ended");
            return Err(ended.into());
        }
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

pub(super) async fn answered_within_reason<T>(
    question: impl Future<Output = lapin::Result<T>>,
) -> lapin::Result<T> {
    const LIMIT: Duration = Duration::from_secs(30);
    let answer = timeout(LIMIT, question).await;
    answer.unwrap_or_else(|_| Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer").into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_ends_the_channel_is_heard_before_its_end() {
        let late = async {
            tokio::time::sleep(LOOK_EVERY * 3 / 2).await;
            Ok(())
        };
        assert!(answered_while(|| false, late).await.is_ok());
        assert!(answered_while(|| false, std::future::pending::<lapin::Result<()>>()).await.is_err());
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
}
