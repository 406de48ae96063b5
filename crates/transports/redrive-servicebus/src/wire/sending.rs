//! Passes messages to the client library.
//!
//! The client library waits until the broker grants credit, but can miss the notification: it checks for credit before it
//! registers the wait, and a notification in between is lost. On a new link the credit arrives at that moment, and the send would
//! wait forever. So each attempt has a short timeout, and is repeated: the next attempt checks for credit again.

use std::pin::pin;
use std::time::Duration;

use fe2o3_amqp::Sender;
use fe2o3_amqp::link::SendError;
use fe2o3_amqp::link::delivery::{DeliveryFut, Sendable};
use fe2o3_amqp::transaction::{
    Controller, PostError, Transaction, TransactionDischarge as _, TransactionPosting as _,
};
use fe2o3_amqp_types::messaging::{AmqpValue, Body, Data, Outcome};
use serde_amqp::Value;
use tokio::task::unconstrained;
use tokio::time::{Instant, timeout_at};

use super::read_error;
use super::waits::REPLY_WAIT;
use crate::error::WireError;

/// The wait before the first repetition of an attempt. It doubles with each repetition.
const FIRST_RETRY_WAIT: Duration = Duration::from_millis(20);
/// The longest wait between two repetitions.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(1);
/// The largest body whose message certainly fits into one frame, in bytes.
const IN_ONE_FRAME: usize = 8 * 1024;

/// Passes a message that goes in one frame to the link, and returns a future of its outcome. Cancel safe: it is sent or not. An
/// attempt that is dropped after it took credit, while the session is busy, costs that credit: a link that loses all of it is given
/// up like one that never had any. `waiting_since`: when the first message began to wait, if none was sent since.
pub(super) async fn send(
    sender: &mut Sender,
    waiting_since: &mut Option<Instant>,
    message: &Sendable<Body<Value>>,
) -> Result<DeliveryFut<Result<Outcome, SendError>>, WireError> {
    let mut credit_wait =
        CreditWait::since(*waiting_since.get_or_insert_with(Instant::now), FIRST_RETRY_WAIT);
    loop {
        let attempt = sender.send_batchable_ref(message);
        if let Some(sent) = credit_wait.with(attempt, || true).await? {
            *waiting_since = None;
            return sent.map_err(read_error::send);
        }
    }
}

/// Passes a message of any size to the link, as [`send`] does, within a transaction.
pub(super) async fn post(
    transaction: &Transaction<'_>,
    sender: &mut Sender,
    message: &Sendable<Body<Value>>,
) -> Result<DeliveryFut<Result<Outcome, PostError>>, WireError> {
    let mut credit_wait = CreditWait::new(FIRST_RETRY_WAIT);
    loop {
        let attempt = transaction.post_batchable_ref(sender, message);
        if let Some(posted) = credit_wait.with(attempt, || goes_in_one_frame(message)).await? {
            return posted.map_err(read_error::post);
        }
    }
}

/// Declares a first transaction and rolls it back: from then on the link has credit.
pub(super) async fn try_out(controller: &Controller) -> Result<(), WireError> {
    // A cancelled attempt may have declared a transaction, so attempts are rare.
    let mut credit_wait = CreditWait::new(MAX_RETRY_WAIT);
    loop {
        if let Some(declared) = credit_wait.with(Transaction::declare(controller, None), || true).await? {
            return declared.map_err(read_error::control)?.rollback().await.map_err(read_error::control);
        }
    }
}

/// The wait for credit: repeated attempts up to a timeout.
struct CreditWait {
    until: Instant,
    next_wait: Duration,
}

impl CreditWait {
    fn new(next_wait: Duration) -> Self {
        Self::since(Instant::now(), next_wait)
    }

    /// Continues a wait. If it is over, there is still one attempt.
    fn since(began: Instant, next_wait: Duration) -> Self {
        Self { until: began + REPLY_WAIT, next_wait }
    }

    /// Waits for an attempt. Returns `None` if it must be repeated. A message of several frames may be sent in part when the
    /// attempt is cancelled, which would corrupt the next one: such an attempt runs until the timeout, and then the link is given
    /// up.
    async fn with<T>(
        &mut self,
        attempt: impl Future<Output = T>,
        goes_in_one_frame: impl Fn() -> bool,
    ) -> Result<Option<T>, WireError> {
        // Unconstrained: a used-up task budget is no reason to repeat the attempt.
        let mut attempt = pin!(unconstrained(attempt));
        loop {
            let now = Instant::now();
            if let Ok(done) = timeout_at(self.until.min(now + self.next_wait), attempt.as_mut()).await {
                return Ok(Some(done));
            }
            if Instant::now() >= self.until {
                return Err(no_credit());
            }
            self.next_wait = (self.next_wait * 2).min(MAX_RETRY_WAIT.max(self.next_wait));
            if goes_in_one_frame() {
                return Ok(None);
            }
        }
    }
}

/// Returns the error for a broker that lets nothing be sent on a link.
pub(super) fn no_credit() -> WireError {
    WireError::interrupted(format!("the broker granted no credit within {REPLY_WAIT:?}"))
}

/// Returns true if the message certainly fits into one frame.
pub(super) fn goes_in_one_frame(message: &Sendable<Body<Value>>) -> bool {
    let bytes = match &message.message.body {
        Body::Data(sections) => sections.iter().map(|Data(bytes)| bytes.len()).sum(),
        Body::Value(AmqpValue(value)) => serde_amqp::serialized_size(value).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    bytes <= IN_ONE_FRAME
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_missed_the_credit_is_repeated() {
        let mut credit_wait = CreditWait::new(FIRST_RETRY_WAIT);
        assert_eq!(credit_wait.with(pending::<()>(), || true).await.ok(), Some(None));
        assert_eq!(credit_wait.with(ready(7), || true).await.ok(), Some(Some(7)));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_gets_no_credit_is_told_so_in_the_end() {
        let start = Instant::now();
        let mut credit_wait = CreditWait::new(FIRST_RETRY_WAIT);
        let error = loop {
            match credit_wait.with(pending::<()>(), || true).await {
                Ok(done) => assert_eq!(done, None),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("no credit"), "{error}");
        assert_eq!(start.elapsed(), REPLY_WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_continued_ends_as_if_nobody_had_stopped_waiting() {
        let start = Instant::now();
        tokio::time::advance(REPLY_WAIT - Duration::from_secs(1)).await;
        let mut credit_wait = CreditWait::since(start, MAX_RETRY_WAIT);
        assert!(credit_wait.with(pending::<()>(), || true).await.is_err());
        assert_eq!(start.elapsed(), REPLY_WAIT);
        let mut credit_wait = CreditWait::since(start, MAX_RETRY_WAIT);
        assert_eq!(credit_wait.with(ready(7), || true).await.ok(), Some(Some(7)), "there is credit again");
    }

    #[tokio::test(start_paused = true)]
    async fn what_goes_in_several_frames_is_handed_over_whole_or_its_link_is_given_up() {
        let mut credit_wait = CreditWait::new(FIRST_RETRY_WAIT);
        let slow = tokio::time::sleep(REPLY_WAIT / 2);
        assert_eq!(credit_wait.with(slow, || false).await.ok(), Some(Some(())));
        assert!(credit_wait.with(pending::<()>(), || false).await.is_err());
    }

    #[test]
    fn only_small_messages_are_known_to_go_in_one_frame() {
        let data = |bytes: usize| {
            let body = Body::Data(vec![Data(vec![0; bytes].into())].into());
            Sendable::builder().message(fe2o3_amqp_types::messaging::Message::from(body)).build()
        };
        assert!(goes_in_one_frame(&data(100)));
        assert!(!goes_in_one_frame(&data(IN_ONE_FRAME + 1)));
    }
}
