//! Takes turns: a message that one client holds is seen by no other, so two looks at once would each see a part of the shelf.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::{Holder, Shelf, TransportError, TransportErrorKind};
use tracing::warn;

use super::RabbitMqShelves;
use super::lock::{self, LEASE_QUEUE_PREFIX, Lock};
use super::refusal;
use crate::connection::Connection;

/// How the names of the queues begin that are turns.
pub(crate) const TURN_QUEUE_PREFIX: &str = "redrive-look.";

/// For how long a look waits for the turn of another one. Then it goes on, and says so.
pub(super) const LOOK_WAITS: Duration = Duration::from_secs(15);
/// For how long an action waits. It stops then: what it does not find would count as gone.
pub(super) const ACTION_WAITS: Duration = Duration::from_secs(60);

/// The right of a scan to fetch messages of a shelf. It is an exclusive queue on the connection of the scan: if that dies, the broker takes
/// back both.
#[derive(Default)]
pub(super) struct Turn {
    lock: Option<Lock>,
    /// Who may hold messages although it is the turn of this scan.
    holder: Option<Holder>,
}

impl Turn {
    /// Returns who may hold messages of the shelf, as far as it was known when the turn began.
    pub(super) fn holder(&self) -> Option<Holder> {
        self.holder
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
    /// Waits for the turn. Without it, the turn of the scan says who has it; a user who may not declare the queue reads without turns.
    ///
    /// Cancel safe.
    pub(super) async fn turn(
        &self,
        connection: &Arc<Connection>,
        shelf: Shelf,
        patience: Duration,
    ) -> Result<Turn, TransportError> {
        let name = self.shared.plan.names.shelf(shelf)?;
        let connect = || std::future::ready(Ok(Arc::clone(connection)));
        let lock = match Lock::take(connect, &lock::queue_name(TURN_QUEUE_PREFIX, name), patience).await {
            Ok(Some(lock)) => Some(lock),
            Ok(None) => return Ok(Turn { lock: None, holder: Some(Holder::Look) }),
            Err(error) if error.kind() == TransportErrorKind::Unauthorized => {
                warn!(%shelf, queue = self.shared.queue(), %error, "looks at this shelf cannot take turns: one beside another sees a part");
                None
            }
            Err(error) => return Err(error),
        };
        // Whoever has a lease fetches in turns as well, and holds what it passed from one step to the next.
        let has_lease = self.lease.as_ref().is_some_and(|lease| lease.shelf == shelf);
        let lease = lock::queue_name(LEASE_QUEUE_PREFIX, name);
        let is_leased = if has_lease { Some(false) } else { lock::is_taken(connection, &lease).await? };
        let holder = match is_leased {
            Some(true) => Some(Holder::Lease),
            Some(false) if lock.is_some() => None,
            _ => Some(Holder::Unknown),
        };
        Ok(Turn { lock, holder })
    }

    /// Waits for the turn of an action.
    pub(super) async fn turn_to_act(
        &self,
        connection: &Arc<Connection>,
        shelf: Shelf,
    ) -> Result<Turn, TransportError> {
        let turn = self.turn(connection, shelf, ACTION_WAITS).await?;
        match turn.holder() {
            Some(Holder::Look) => Err(refusal::is_read(self.shared.queue(), shelf)),
            _ => Ok(turn),
        }
    }
}
