//! Questions to the broker, and how long an answer is waited for.

use std::future::Future;
use std::time::Duration;

use lapin::Channel;
use tokio::time::timeout;

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
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    tokio::pin!(question);
    loop {
        if let Ok(answer) = timeout(LOOK_EVERY, &mut question).await {
            return answer;
        }
        if !open() {
            let ended = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "the channel ended");
            return Err(ended.into());
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
