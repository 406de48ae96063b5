//! Completes and abandons messages, many in one request.

use std::sync::Arc;

use redrive_transport::{BatchLimits, BatchWorker, Batcher};
use uuid::Uuid;

use crate::connection::ReconnectingConnection;
use crate::error::{Refusal, WireError};
use crate::wire::{SettleAs, SettleKind};

/// The limits of the batches: 100 messages in one request, and 4 requests at the same time.
const LIMITS: BatchLimits = BatchLimits { lanes: 4, beside: 1, items: 100, bytes: usize::MAX };

/// Completes and abandons messages without changing their properties.
#[derive(Clone, Debug)]
pub(crate) struct CompletionBatcher(Batcher<Worker>);

/// The messages of one request: of one entity, with one action.
type Key = (Arc<str>, SettleAction);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SettleAction {
    Complete,
    Abandon,
}

struct Worker(Arc<ReconnectingConnection>);

impl CompletionBatcher {
    pub(crate) fn new(connection: Arc<ReconnectingConnection>) -> Self {
        Self(Batcher::new(Worker(connection)))
    }

    /// Completes a message, and waits for the broker's answer.
    pub(crate) async fn complete(&self, entity: &Arc<str>, lock: Uuid) -> Result<(), WireError> {
        self.ask((Arc::clone(entity), SettleAction::Complete), lock).await
    }

    /// Abandons a message, which counts a delivery, and waits for the broker's answer.
    pub(crate) async fn abandon(&self, entity: &Arc<str>, lock: Uuid) -> Result<(), WireError> {
        self.ask((Arc::clone(entity), SettleAction::Abandon), lock).await
    }

    /// Abandons a message without waiting: if that fails, the lock expires. May be called in any thread.
    pub(crate) fn abandon_later(&self, entity: &Arc<str>, lock: Uuid) {
        self.0.submit(&(Arc::clone(entity), SettleAction::Abandon), lock);
    }

    async fn ask(&self, key: Key, lock: Uuid) -> Result<(), WireError> {
        let answer = self.0.request(&key, lock).await;
        answer.unwrap_or_else(|| Err(WireError::interrupted("the transport ended")))
    }
}

impl BatchWorker for Worker {
    type Key = Key;
    type Item = Uuid;
    type Answer = Result<(), WireError>;

    fn limits(&self) -> BatchLimits {
        LIMITS
    }

    async fn work(&self, key: &Key, locks: Vec<Uuid>) -> Vec<Result<(), WireError>> {
        match self.settle(key, &locks).await {
            // The answer does not say which lock is lost, so each is settled alone. A message that the first request settled is
            // then reported as lost too, which is harmless: nobody settles it again.
            Err(error) if error.refusal == Refusal::LockLost && locks.len() > 1 => {
                let mut answers = Vec::with_capacity(locks.len());
                for lock in locks {
                    answers.push(self.settle(key, &[lock]).await);
                }
                answers
            }
            answer => vec![answer; locks.len()],
        }
    }
}

impl Worker {
    async fn settle(&self, (entity, action): &Key, locks: &[Uuid]) -> Result<(), WireError> {
        let kind = match action {
            SettleAction::Complete => SettleKind::Complete,
            SettleAction::Abandon => SettleKind::Abandon,
        };
        self.0.connection().await?.settle(entity, locks, &SettleAs::new(kind)).await
    }
}
