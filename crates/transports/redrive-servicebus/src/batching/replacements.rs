//! Stores copies and completes their originals, several in one transaction if the namespace has transactions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_transport::{BatchLimits, BatchWorker, Batcher};
use tracing::warn;

use crate::connection::ReconnectingConnection;
use crate::error::{Refusal, WireError};
use crate::wire::{ReplaceOp, SettleAs};

/// The limits of the batches: 20 messages in one transaction, and 4 transactions at the same time. Service Bus allows 100
/// operations in one, but smaller ones finish sooner. A transaction for one message costs four round trips.
const LIMITS: BatchLimits = BatchLimits { lanes: 4, beside: 1, items: 20, bytes: usize::MAX };

/// Stores copies and completes their originals.
#[derive(Debug)]
pub(crate) struct TransactionBatcher {
    connection: Arc<ReconnectingConnection>,
    transactions: Batcher<Worker>,
    without_transactions: AtomicBool,
    /// True once a transaction was committed: the namespace has transactions, whatever the coordinator answers later.
    committed: AtomicBool,
}

/// The error of replacing a message.
#[derive(Debug)]
pub(crate) struct ReplaceError {
    pub(crate) error: WireError,
    /// True if the copy is stored, so that only its original may still exist.
    pub(crate) copy_stored: bool,
}

impl TransactionBatcher {
    pub(crate) fn new(connection: Arc<ReconnectingConnection>, has_transactions: bool) -> Self {
        let transactions = Batcher::new(Worker(Arc::clone(&connection)));
        let without_transactions = AtomicBool::new(!has_transactions);
        Self { connection, transactions, without_transactions, committed: AtomicBool::new(false) }
    }

    /// Stores a copy and completes its original, in a transaction if the namespace has them. The transaction runs to its end even
    /// if the caller stops waiting.
    pub(crate) async fn replace(&self, op: ReplaceOp) -> Result<(), ReplaceError> {
        let not_stored = |error| ReplaceError { error, copy_stored: false };
        if !self.without_transactions.load(Ordering::Relaxed) {
            match self.in_transaction(op.clone()).await {
                Ok(()) => {
                    self.committed.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Err(error) if error.refusal != Refusal::NoTransactions => return Err(not_stored(error)),
                Err(error) if self.committed.load(Ordering::Relaxed) => {
                    return Err(not_stored(WireError::new(Refusal::Other, error.to_string())));
                }
                Err(error) => self.do_without(&op.entity, &error),
            }
        }
        let wire = self.connection.connection().await.map_err(not_stored)?;
        wire.send(&op.target, op.message).await.map_err(not_stored)?;
        fail_point(FailPoint::CopyConfirmed);
        fail_point(FailPoint::AckHandedOver);
        let completed = SettleAs::complete().within(op.session.as_ref());
        let completed = wire.settle(&op.entity, &[op.lock], &completed).await;
        fail_point(FailPoint::AckWritten);
        completed.map_err(|error| ReplaceError { error, copy_stored: true })
    }

    async fn in_transaction(&self, op: ReplaceOp) -> Result<(), WireError> {
        let key = Key::of(&op);
        let answer = self.transactions.request(&key, op).await;
        answer.unwrap_or_else(|| Err(WireError::interrupted("the transport ended")))
    }

    fn do_without(&self, entity: &str, error: &WireError) {
        if !self.without_transactions.swap(true, Ordering::Relaxed) {
            warn!(
                %entity, %error,
                "this namespace has no transactions (Basic tier): copies are stored first and their originals are completed \
                 afterwards; a crash in between leaves both"
            );
        }
    }
}

/// The messages of one transaction: from one entity to one target. A message of a session is alone, because no other has its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    entity: String,
    target: String,
    session_link: Option<Arc<str>>,
}

impl Key {
    fn of(op: &ReplaceOp) -> Self {
        let session_link = op.session.as_ref().map(|session| Arc::clone(&session.link));
        Self { entity: op.entity.clone(), target: op.target.clone(), session_link }
    }
}

struct Worker(Arc<ReconnectingConnection>);

impl BatchWorker for Worker {
    type Key = Key;
    type Item = ReplaceOp;
    type Answer = Result<(), WireError>;

    fn limits(&self) -> BatchLimits {
        LIMITS
    }

    async fn work(&self, _: &Key, ops: Vec<ReplaceOp>) -> Vec<Result<(), WireError>> {
        match self.replace(ops.clone()).await {
            // The broker rolled back all of it because of one message, and does not say which one: each is tried alone.
            Err(error) if ops.len() > 1 && may_be_of_one_message(&error) => {
                let mut answers = Vec::with_capacity(ops.len());
                for op in ops {
                    answers.push(self.replace(vec![op]).await);
                }
                answers
            }
            answer => vec![answer; ops.len()],
        }
    }
}

impl Worker {
    async fn replace(&self, ops: Vec<ReplaceOp>) -> Result<(), WireError> {
        self.0.connection().await?.replace(ops).await
    }
}

/// Returns true if one message may have caused the error, and not the connection or the namespace.
fn may_be_of_one_message(error: &WireError) -> bool {
    let concerns_all =
        [Refusal::Interrupted, Refusal::Disconnected, Refusal::LinkRefused, Refusal::NoTransactions];
    !concerns_all.contains(&error.refusal) && !error.is_about_sending()
}

#[cfg(test)]
mod tests {
    use fe2o3_amqp_types::messaging::{AmqpValue, Body};
    use serde_amqp::Value;
    use uuid::Uuid;

    use super::*;
    use crate::convert::WireMessage;
    use crate::wire::SessionRef;

    fn key(entity: &str, target: &str, session_link: Option<&str>) -> Key {
        Key::of(&ReplaceOp {
            target: target.to_owned(),
            message: WireMessage::from(Body::Value(AmqpValue(Value::Null))),
            entity: entity.to_owned(),
            lock: Uuid::nil(),
            session: session_link.map(|link| SessionRef { id: "s".into(), link: link.into() }),
        })
    }

    #[test]
    fn only_what_goes_the_same_way_goes_together() {
        assert_eq!(key("a", "park", None), key("a", "park", None));
        for other in [key("a", "a", None), key("b", "park", None), key("a", "park", Some("link-1"))] {
            assert_ne!(key("a", "park", None), other);
        }
        assert_ne!(key("a", "park", Some("link-1")), key("a", "park", Some("link-2")));
    }

    #[test]
    fn what_ended_with_the_connection_is_not_tried_one_by_one() {
        assert!(!may_be_of_one_message(&WireError::interrupted("gone")));
        for refusal in [Refusal::Disconnected, Refusal::LinkRefused, Refusal::Disabled] {
            assert!(!may_be_of_one_message(&WireError::new(refusal, "all of them")));
        }
        assert!(may_be_of_one_message(&WireError::new(Refusal::LockLost, "one of them")));
        assert!(may_be_of_one_message(&WireError::new(Refusal::Other, "too large")));
    }
}
