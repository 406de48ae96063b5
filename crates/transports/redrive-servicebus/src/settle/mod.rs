//! Settles deliveries.
//!
//! `dead_letter` lets the broker dead-letter a message.

pub(crate) mod dead_letter;

use std::time::{Duration, SystemTime};

use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::transport::{SettleError, Settlement};
use redrive_core::{
    FailureHistory, Message, Shelf, TransportError, TransportErrorKind, header_names as names,
};
use tracing::debug;

use self::dead_letter::{DeadLetterText, DeadLettered};
use crate::batching::ReplaceError;
use crate::convert::copy_id::copy_id;
use crate::convert::later::enqueue_time;
use crate::convert::{self, Outgoing, marked};
use crate::error::{self, Refusal, WireError};
use crate::receipt::{Locked, Receipt};
use crate::wire::{ReplaceOp, SettleAs};

/// The dead-letter reason of a message that is dead-lettered unchanged.
const REJECTED: &str = "Rejected";

type Settled = Result<(), SettleError<Receipt>>;

/// Carries out a settlement.
pub(crate) async fn settle(receipt: Receipt, settlement: Settlement) -> Settled {
    if receipt.is_lost() {
        return Err(SettleError::lost(lost(&receipt)));
    }
    match settlement {
        Settlement::Complete => complete(receipt).await,
        Settlement::Release => release(receipt).await,
        Settlement::NativeDeadLetter => {
            let description = "dead-lettered unchanged by redrive: its failure history could not be stored";
            let mut text = DeadLetterText::new(REJECTED, description);
            text.properties.extend(receipt.locked.marked.then(convert::unmarked));
            dead_letter(receipt, text).await
        }
        Settlement::RetryInPlace { wait } if receipt.locked.shared.options.holds_locks() => {
            retry_in_place(receipt, wait);
            Ok(())
        }
        Settlement::RetryInPlace { .. } => {
            let message = "this transport holds no locks for a wait: set `Options::hold_lock_up_to`";
            Err(SettleError::held(TransportError::new(TransportErrorKind::Unsupported, message), receipt))
        }
        Settlement::Reschedule { wait, copy } if receipt.locked.session.is_some() => {
            retry_in_session(receipt, wait, &copy).await
        }
        Settlement::Reschedule { wait, copy } => {
            let Some(target) = receipt.locked.shared.options.retry_target().map(str::to_owned) else {
                let entity = receipt.locked.shared.entity();
                let message = format!(
                    "a copy for the subscription `{entity}` would reach every other subscription of its topic: name a queue \
                     with `Options::retry_queue`"
                );
                return Err(SettleError::held(
                    TransportError::new(TransportErrorKind::Unsupported, message),
                    receipt,
                ));
            };
            let enqueue_at = (!wait.is_zero()).then(|| enqueue_time(SystemTime::now(), wait));
            replace(receipt, target, &copy, enqueue_at).await
        }
        Settlement::Shelve { shelf, copy } => {
            match (shelf, receipt.locked.shared.options.parking_queue.clone()) {
                (Shelf::Parking, Some(queue)) => replace(receipt, queue, &copy, None).await,
                (shelf, _) => match receipt.locked.shared.options.dead_letter_target().map(str::to_owned) {
                    Some(queue) => replace(receipt, queue, &marked(copy, shelf), None).await,
                    None => shelve(receipt, shelf, &copy).await,
                },
            }
        }
    }
}

async fn complete(receipt: Receipt) -> Settled {
    fail_point(FailPoint::AckHandedOver);
    let completed = match receipt.locked.session {
        Some(_) => settle_locked(&receipt, SettleAs::complete()).await,
        None => receipt.locked.shared.completions.complete(&receipt.locked.entity, receipt.locked.lock).await,
    };
    fail_point(FailPoint::AckWritten);
    done(receipt, completed).await
}

/// Releases a message on its link, which counts no delivery. If the link is gone, the message is abandoned, which counts one.
async fn release(receipt: Receipt) -> Settled {
    // Before the release: the message may be redelivered at once, and that must not mark this delivery as lost.
    receipt.locked.shared.locks.leave(&receipt.locked.lock);
    if receipt.locked.handle.release(&receipt.locked.tag).await {
        fail_point(FailPoint::NackHandedOver);
        receipt.settled();
    } else if receipt.locked.session.is_some() {
        // A message of a session is locked only while the link of the session lives.
        return done(receipt, Err(WireError::new(Refusal::SessionLockLost, "its link is gone"))).await;
    } else {
        receipt.locked.shared.locks.record_loss();
        drop(receipt);
    }
    Ok(())
}

/// Retries a message of a session in place: a copy would come after the messages behind it. The message is abandoned with the
/// headers of the copy, and comes first again when its session has paused for the wait.
async fn retry_in_session(receipt: Receipt, wait: Duration, copy: &Message) -> Settled {
    let mut changes = convert::changes(&receipt.locked.delivered, copy);
    changes.push(convert::counted(
        receipt.locked.sequence_number,
        receipt.locked.delivery_count.saturating_add(1),
        wait,
    ));
    fail_point(FailPoint::NackHandedOver);
    let settled = settle_locked(&receipt, SettleAs::abandon().with_properties(changes)).await;
    fail_point(FailPoint::NackWritten);
    match settled {
        Ok(()) => {
            if let Some(session) = &receipt.locked.session {
                session.rest(wait);
            }
            // Not accepted on its link: the broker could apply that to the next delivery of the message.
            receipt.settled();
            Ok(())
        }
        Err(error) if error.is_lock_lost() => done(receipt, Err(error)).await,
        Err(error) => {
            let target = receipt.locked.entity.to_string();
            Err(SettleError::held(not_stored(error, &target), receipt))
        }
    }
}

/// Keeps the lock until the wait is over, and then abandons the message, which counts a delivery.
fn retry_in_place(receipt: Receipt, wait: Duration) {
    // `max_lock_renewal` counts from the arrival, and the handler may have used it up.
    receipt.locked.shared.locks.renew_beyond(&receipt.locked.lock, wait);
    tokio::spawn(async move {
        tokio::time::sleep(wait).await;
        receipt.locked.shared.locks.leave(&receipt.locked.lock);
        // The delivery counts as in flight until it is given back.
        if receipt.is_lost() {
            return;
        }
        fail_point(FailPoint::NackHandedOver);
        let Locked { shared, entity, lock, .. } = &*receipt.locked;
        let abandoned = shared.completions.abandon(entity, *lock).await;
        fail_point(FailPoint::NackWritten);
        if abandoned.is_ok() {
            receipt.settled();
        }
    });
}

async fn shelve(receipt: Receipt, shelf: Shelf, copy: &Message) -> Settled {
    let header = |name| copy.headers().get(name).and_then(|value| value.as_str()).unwrap_or_default();
    let mut text = DeadLetterText::new(header(names::REASON), header(names::ERROR));
    text.properties = convert::changes(&receipt.locked.delivered, copy);
    match shelf {
        Shelf::Parking => text.properties.extend(convert::parked(receipt.locked.sequence_number)),
        _ => text.properties.extend(receipt.locked.marked.then(convert::unmarked)),
    }
    dead_letter(receipt, text).await
}

async fn dead_letter(receipt: Receipt, text: DeadLetterText) -> Settled {
    fail_point(FailPoint::NackHandedOver);
    let Locked { shared, entity, lock, delivered, .. } = &*receipt.locked;
    let message = DeadLettered {
        entity,
        lock: *lock,
        session: receipt.locked.in_session(),
        properties_size: delivered.encoded_len(),
    };
    let settled = dead_letter::dead_letter(&shared.connection, message, text).await;
    fail_point(FailPoint::NackWritten);
    done(receipt, settled).await
}

async fn settle_locked(receipt: &Receipt, how: SettleAs) -> Result<(), WireError> {
    let how = how.within(receipt.locked.in_session());
    let Locked { shared, entity, lock, .. } = &*receipt.locked;
    shared.connection.connection().await?.settle(entity, &[*lock], &how).await
}

/// Stores a copy and completes the original.
async fn replace(
    receipt: Receipt,
    target: String,
    copy: &Message,
    enqueue_at: Option<SystemTime>,
) -> Settled {
    let hop = FailureHistory::read(copy).copy_number;
    let copy_id = copy.id().map(|id| copy_id(id, hop, &receipt.locked.copy_source()));
    let op = ReplaceOp {
        message: convert::outgoing(copy, Outgoing { copy_id, enqueue_at }),
        target: target.clone(),
        entity: receipt.locked.entity.to_string(),
        lock: receipt.locked.lock,
        session: receipt.locked.in_session().cloned(),
    };
    match receipt.locked.shared.replacements.replace(op).await {
        Ok(()) => done(receipt, Ok(())).await,
        Err(ReplaceError { error, copy_stored: true }) => {
            let error =
                error.into_error(&format!("completing a copied message of `{}`", receipt.locked.entity));
            receipt.settled();
            Err(SettleError::lost_after_copy(error))
        }
        Err(ReplaceError { error, copy_stored: false }) => {
            debug!(entity = %receipt.locked.entity, %error, "a copy was not stored");
            if error.is_lock_lost() {
                return done(receipt, Err(error)).await;
            }
            Err(SettleError::held(not_stored(error, &target), receipt))
        }
    }
}

/// Ends a settlement with the answer of the broker.
async fn done(receipt: Receipt, settled: Result<(), WireError>) -> Settled {
    match settled {
        Ok(()) => {
            receipt.locked.handle.forget(&receipt.locked.tag).await;
            receipt.settled();
            Ok(())
        }
        Err(error) if error.is_lock_lost() => {
            match &receipt.locked.session {
                // The message in flight is lost with its session.
                Some(session) => session.lose(),
                // Released on its link, not accepted: if the lock is still valid, accepting would remove the message.
                None => {
                    receipt.locked.handle.release(&receipt.locked.tag).await;
                }
            }
            let error = lost(&receipt);
            receipt.settled();
            Err(SettleError::lost(error))
        }
        // The settlement may have been carried out: a second attempt then fails with a lost lock.
        Err(error) => {
            let error = error.into_error(&format!("settling a message of `{}`", receipt.locked.entity));
            Err(SettleError::held(error, receipt))
        }
    }
}

fn not_stored(error: WireError, target: &str) -> TransportError {
    let kind = match error.refusal {
        Refusal::TooLarge => TransportErrorKind::TooLarge,
        Refusal::Unauthorized => TransportErrorKind::Unauthorized,
        Refusal::QuotaExceeded => TransportErrorKind::Full,
        // Messages that need no copy go on: the queue may be closed for sending to be drained.
        _ if error.is_about_sending() => TransportErrorKind::Full,
        Refusal::NotFound => TransportErrorKind::Unroutable,
        _ => TransportErrorKind::Unconfirmed,
    };
    error.into_error(&format!("storing a copy in `{target}`")).with_kind(kind)
}

fn lost(receipt: &Receipt) -> TransportError {
    let why = match receipt.locked.session {
        Some(_) => "the lock of its session is lost, or the transport was closed",
        None => "its lock expired, or the transport was closed",
    };
    error::lost(&receipt.locked.entity, why)
}
