//! A queue that only one client can have: an exclusive queue with an exclusive consumer, so that no other connection, and no other channel
//! of the same one, gets it. It ends with its connection.

use std::sync::Arc;
use std::time::Duration;

use lapin::Consumer;
use lapin::options::{BasicConsumeOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{FieldTable, ShortString};
use redrive_core::TransportError;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::connection::{Channel, Connection, uninterrupted, with_timeout};
use crate::convert::short;
use crate::error;

/// How the names of the queues begin that are leases.
pub(super) const LEASE_QUEUE_PREFIX: &str = "redrive-lease.";

/// The first pause before a lock that another client has is tried again; each is twice as long as the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The lock, as long as it is not [ended](Self::end) or dropped.
pub(super) struct Lock {
    queue: ShortString,
    channel: Channel,
    /// Its drop cancels it, and the broker deletes the queue with it.
    _consumer: Consumer,
    connection: Arc<Connection>,
}

impl Lock {
    /// Takes the lock, and tries for `patience` if another client has it. `None`: it has it still.
    ///
    /// Cancel safe.
    pub(super) async fn take<C>(
        connect: impl Fn() -> C,
        queue: &str,
        patience: Duration,
    ) -> Result<Option<Self>, TransportError>
    where
        C: Future<Output = Result<Arc<Connection>, TransportError>> + Send + 'static,
    {
        let declare = || {
            let (connecting, name) = (connect(), queue.to_owned());
            uninterrupted(async move { Self::declare(connecting.await?, &name).await })
        };
        until_taken(patience, declare).await
    }

    async fn declare(connection: Arc<Connection>, queue: &str) -> Result<Option<Self>, TransportError> {
        let (channel, name) = (connection.channel_to_ask().await?, short(queue, "the name of a queue")?);
        // Deleted with its consumer, so with this channel.
        let options =
            QueueDeclareOptions { exclusive: true, auto_delete: true, ..QueueDeclareOptions::default() };
        let declaring = channel.queue_declare(name.clone(), options, FieldTable::default());
        if let Err(failed) = with_timeout(&channel, declaring).await {
            return match error::refusal(&failed) {
                Some((405, _)) => Ok(None),
                _ => Err(error::declaring(queue, failed)),
            };
        }
        let options = BasicConsumeOptions { exclusive: true, ..BasicConsumeOptions::default() };
        let consuming = channel.basic_consume(name.clone(), "".into(), options, FieldTable::default());
        match with_timeout(&channel, consuming).await {
            Ok(consumer) => Ok(Some(Self { queue: name, channel, _consumer: consumer, connection })),
            Err(failed) => match error::refusal(&failed) {
                // Another channel of this connection has it, or has just deleted it.
                Some((403, text)) if text.contains("in exclusive use") => Ok(None),
                Some((404, _)) => Ok(None),
                _ => {
                    // Nobody consumed it: it would stay as long as the connection, and keep everybody out.
                    let channel = connection.channel_to_ask().await?;
                    let deleting = channel.queue_delete(name, QueueDeleteOptions::default());
                    let _ = with_timeout(&channel, deleting).await;
                    Err(error::verifying(queue, failed))
                }
            },
        }
    }

    /// Returns true if the connection was lost, and the lock with it.
    pub(super) fn is_lost(&self) -> bool {
        !self.channel.status().connected() || !self.connection.is_up()
    }

    pub(super) async fn end(self) {
        let ending = async move {
            // Its channel would delete it too, but a moment later.
            let deleting = self.channel.queue_delete(self.queue, QueueDeleteOptions::default());
            let _ = with_timeout(&self.channel, deleting).await;
            let _ = with_timeout(&self.channel, self.channel.close(200, "OK".into())).await;
            Ok(())
        };
        let _ = uninterrupted(ending).await;
    }
}

/// Tries until something is taken, for `patience`.
async fn until_taken<T, F>(patience: Duration, attempt: impl Fn() -> F) -> Result<Option<T>, TransportError>
where
    F: Future<Output = Result<Option<T>, TransportError>>,
{
    let began = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let taken = attempt().await?;
        if taken.is_some() || began.elapsed() >= patience {
            return Ok(taken);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns true if somebody has this lock: another connection, or another channel of this one. `None`: the user may not know.
pub(super) async fn is_taken(connection: &Connection, queue: &str) -> Result<Option<bool>, TransportError> {
    let channel = connection.channel_to_ask().await?;
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let asking = channel.queue_declare(short(queue, "the name of a queue")?, options, FieldTable::default());
    match with_timeout(&channel, asking).await {
        Ok(_) => Ok(Some(true)),
        Err(failed) => match error::refusal(&failed) {
            Some((403, _)) => Ok(None),
            Some((code, _)) => Ok(Some(code == 405)),
            None => Err(error::verifying(queue, failed)),
        },
    }
}

/// Returns the name of the queue that is the lock of this kind of a shelf.
pub(super) fn queue_name(prefix: &str, shelf: &str) -> String {
    const MOST: usize = 255;
    let name = format!("{prefix}{shelf}");
    if name.len() <= MOST {
        return name;
    }
    Sha256::digest(shelf).iter().fold(prefix.to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use redrive_core::TransportErrorKind;

    use super::*;

    /// As that of a process that was just killed: the broker sees its death only after another one has asked.
    #[tokio::test(start_paused = true)]
    async fn a_lock_that_another_client_has_is_waited_for() {
        let (began, tries) = (Instant::now(), Cell::new(0));
        let patience = Duration::from_secs(2);
        let free_after = |after: Duration| {
            let (began, tries) = (&began, &tries);
            move || {
                tries.set(tries.get() + 1);
                std::future::ready(Ok((began.elapsed() >= after).then_some(())))
            }
        };
        let taken = until_taken(patience, free_after(Duration::from_millis(300))).await;
        assert_eq!((taken.unwrap(), tries.get()), (Some(()), 4), "after 0, 50, 150 and 350 ms");
        assert_eq!(until_taken(patience, free_after(Duration::MAX)).await.unwrap(), None);
        let waited = began.elapsed() - Duration::from_millis(350);
        assert!((patience..patience + LONGEST_PAUSE).contains(&waited), "{waited:?}");
        let refused = || std::future::ready(Err(TransportError::new(TransportErrorKind::Unauthorized, "no")));
        assert!(until_taken::<(), _>(patience, refused).await.is_err(), "an error is no lock of others");
    }

    #[test]
    fn the_name_of_a_lock_is_short_enough_and_each_shelf_has_its_own() {
        assert_eq!(
            queue_name("redrive-lease.", "orders--dead-letters"),
            "redrive-lease.orders--dead-letters"
        );
        let [one, other] = ["a", "b"].map(|end| queue_name("redrive-lease.", &("x".repeat(250) + end)));
        assert_ne!(one, other);
        assert_eq!(one.len(), "redrive-lease.".len() + 64);
    }
}
