//! Takes turns: a message that one client holds is seen by no other, so two looks at once would each see a part of the shelf.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::shelves::Holder;
use redrive_core::{Shelf, TransportError, TransportErrorKind};
use tokio::time::Instant;
use tracing::warn;

use super::RabbitMqShelves;
use super::lock::{self, LEASE_QUEUE_PREFIX, Lock};
use super::refusal;
use crate::connection::Connection;
use crate::topology::{self, QueueState};

/// How the names of the queues begin that are turns.
pub(crate) const TURN_QUEUE_PREFIX: &str = "redrive-look.";

/// Time limit for a quorum queue to forget the consumers of a scan that has ended.
const CONSUMERS_END_WITHIN: Duration = Duration::from_secs(2);

/// An action waits this many times as long as a look.
const ACTION_WAITS: u32 = 4;
/// A count does not wait longer, and neither does whoever has the lease: it can say meanwhile that it waits, and hear that it is to end.
const LONGEST_SHORT_WAIT: Duration = Duration::from_secs(1);

/// The right of a scan to fetch messages of a shelf. It is an exclusive queue on the connection of the scan: if that dies, the broker takes
/// back both.
#[derive(Default)]
pub(super) struct Turn {
    lock: Option<Lock>,
    /// Who may hold messages although it is the turn of this scan, as far as it was known when it began.
    holder: Option<Holder>,
}

impl Turn {
    /// Returns the number of messages that nobody holds, and who may hold more. Both are of one moment: what a dead process held is in
    /// neither of two answers.
    pub(super) async fn count(
        &self,
        connection: &Connection,
        queue: &str,
    ) -> Result<(u32, Option<Holder>), TransportError> {
        let asked = Instant::now();
        loop {
            let QueueState { messages, consumers } = topology::queue_state(connection, queue).await?;
            if self.holder.is_some() || consumers == 0 {
                return Ok((messages, self.holder));
            }
            // No other scan of redrive has the turn. A quorum queue counts the cancelled consumers of a scan until it has back what they
            // held.
            if asked.elapsed() > CONSUMERS_END_WITHIN {
                return Ok((messages, Some(Holder::Consumers(consumers))));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Lets the next one have it.
    pub(super) async fn end(self) {
        if let Some(lock) = self.lock {
            lock.end().await;
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("holder", &self.holder).finish_non_exhaustive()
    }
}

impl RabbitMqShelves {
    /// Returns for how long an action waits for its turn.
    pub(super) fn action_waits(&self) -> Duration {
        self.shared.options.turn_within.saturating_mul(ACTION_WAITS)
    }

    /// Returns for how long a count waits for its turn.
    pub(super) fn count_waits(&self) -> Duration {
        self.shared.options.turn_within.min(LONGEST_SHORT_WAIT)
    }

    /// Waits for the turn. A user who may not declare the queue reads without turns.
    ///
    /// # Errors
    ///
    /// [`Busy`](TransportErrorKind::Busy) if another look or action had it all the time.
    ///
    /// Cancel safe.
    pub(super) async fn turn(
        &self,
        connection: &Arc<Connection>,
        shelf: Shelf,
        patience: Duration,
    ) -> Result<Turn, TransportError> {
        let name = self.shared.plan.names.shelf(shelf)?;
        let has_lease = self.lease.as_ref().is_some_and(|lease| lease.shelf == shelf);
        let patience = if has_lease { patience.min(LONGEST_SHORT_WAIT) } else { patience };
        let queue = lock::queue_name(TURN_QUEUE_PREFIX, name);
        let connect = || std::future::ready(Ok(Arc::clone(connection)));
        let lock = match Lock::take(connect, &queue, patience).await {
            Ok(Some(lock)) => Some(lock),
            Ok(None) => return Err(refusal::no_turn(self.shared.queue(), shelf, &queue, patience)),
            Err(error) if error.kind() == TransportErrorKind::Unauthorized => {
                warn!(%shelf, queue = self.shared.queue(), %error, "readers of this shelf cannot take turns: two that read at the same time each see only a part");
                None
            }
            Err(error) => return Err(error),
        };
        // Whoever has a lease fetches in turns as well, and holds what it passed from one step to the next.
        let lease = lock::queue_name(LEASE_QUEUE_PREFIX, name);
        let is_leased = if has_lease { Some(false) } else { lock::is_taken(connection, &lease).await? };
        let holder = match is_leased {
            Some(true) => Some(Holder::Lease),
            Some(false) if lock.is_some() => None,
            _ => Some(Holder::Unknown),
        };
        Ok(Turn { lock, holder })
    }
}
