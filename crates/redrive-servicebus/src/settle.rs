//! Carrying settlements out.

use std::time::{Duration, SystemTime};

use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::{
    Message, SettleError, Settlement, Shelf, Story, TransportError, TransportErrorKind, header_names as names,
};
use tracing::debug;

use crate::broker::NotReplaced;
use crate::convert::{self, Outgoing, PARKED, SHELF};
use crate::copy_id::copy_id;
use crate::dead_letter::{self, Words};
use crate::error::{self, Refusal, WireError};
use crate::later::enqueue_time;
use crate::receipt::Receipt;
use crate::session::is_loss;
use crate::wire::{Disposal, Swap};

/// How many characters reason and description of a dead letter may have, each.
const MAX_CHARS: usize = 4096;
const REJECTED: &str = "Rejected";

type Settled = Result<(), SettleError<Receipt>>;

/// Carries a settlement out.
pub(crate) async fn settle(receipt: Receipt, settlement: Settlement) -> Settled {
    if receipt.is_lost() {
        return Err(SettleError::lost(lost(&receipt)));
    }
    match settlement {
        Settlement::Complete => complete(receipt).await,
        Settlement::Release => release(receipt).await,
        Settlement::Reject => {
            let description = "redrive had it dead-lettered as it is: what belongs on it would not fit";
            let mut words = Words::new(REJECTED, description);
            words.properties.extend(receipt.marked.then(convert::unmarked));
            dead_letter(receipt, words).await
        }
        Settlement::HoldBack { wait } if receipt.broker.options.holds_locks() => {
            hold_back(receipt, wait);
            Ok(())
        }
        Settlement::HoldBack { .. } => {
            let message = "locks are not held for a wait here: say `Options::hold_lock_up_to`";
            Err(SettleError::held(TransportError::new(TransportErrorKind::Unsupported, message), receipt))
        }
        Settlement::Reschedule { wait, copy } if receipt.session.is_some() => {
            write_down(receipt, wait, &copy).await
        }
        Settlement::Reschedule { wait, copy } => {
            let Some(target) = receipt.broker.options.retry_target().map(str::to_owned) else {
                let entity = receipt.broker.entity();
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
        Settlement::Move { shelf, copy } => match (shelf, receipt.broker.options.parking_queue.clone()) {
            (Shelf::Parking, Some(queue)) => replace(receipt, queue, &copy, None).await,
            (shelf, _) => match receipt.broker.options.dead_letter_target().map(str::to_owned) {
                Some(queue) => replace(receipt, queue, &marked(copy, shelf), None).await,
                None => shelve(receipt, shelf, &copy).await,
            },
        },
    }
}

async fn complete(receipt: Receipt) -> Settled {
    fail_point(FailPoint::AckHandedOver);
    let completed = match receipt.session {
        Some(_) => dispose(&receipt, Disposal::complete()).await,
        None => receipt.broker.settler.complete(&receipt.entity, receipt.lock).await,
    };
    fail_point(FailPoint::AckWritten);
    done(receipt, completed).await
}

/// Uncounted, by the link that it came on. Where that is gone only giving back that counts is left.
async fn release(receipt: Receipt) -> Settled {
    // It may be back at once: then it is not lost.
    receipt.broker.locks.leave(&receipt.lock);
    if receipt.handle.release(&receipt.tag).await {
        fail_point(FailPoint::NackHandedOver);
        receipt.settled();
    } else if receipt.session.is_some() {
        // What is locked in a session is locked no longer than its link lives.
        return done(receipt, Err(WireError::new(Refusal::SessionLockLost, "its link is gone"))).await;
    } else {
        drop(receipt);
    }
    Ok(())
}

/// In a session a copy would come behind what it was before. The message itself is given back, with everything written on it
/// that would be on the copy, and comes first again once its session has rested for the wait.
async fn write_down(receipt: Receipt, wait: Duration, copy: &Message) -> Settled {
    let mut changes = convert::changes(&receipt.delivered, copy);
    changes.push(convert::counted(receipt.sequence_number, receipt.delivery_count.saturating_add(1)));
    fail_point(FailPoint::NackHandedOver);
    let settled = dispose(&receipt, Disposal::abandon().with_properties(changes)).await;
    fail_point(FailPoint::NackWritten);
    match settled {
        Ok(()) => {
            if let Some(session) = &receipt.session {
                session.rest(wait);
            }
            // Not forgotten on its link: whatever was said there of this delivery could be heard of the one that comes next.
            receipt.settled();
            Ok(())
        }
        Err(error) if is_loss(&error.refusal) => done(receipt, Err(error)).await,
        Err(error) => {
            let target = receipt.entity.to_string();
            Err(SettleError::held(not_stored(error, &target), receipt))
        }
    }
}

/// Keeps the lock until the wait is over, and gives the message back then, counted.
fn hold_back(receipt: Receipt, wait: Duration) {
    tokio::spawn(async move {
        tokio::time::sleep(wait).await;
        receipt.broker.locks.leave(&receipt.lock);
        // Only once it is back is there room for another one: it keeps its place.
        if !receipt.is_lost() && receipt.broker.settler.give_back(&receipt.entity, receipt.lock).await.is_ok()
        {
            receipt.settled();
        }
    });
}

async fn shelve(receipt: Receipt, shelf: Shelf, copy: &Message) -> Settled {
    let text = |name| copy.headers().get(name).and_then(|value| value.as_str()).unwrap_or_default();
    let mut words = Words::new(text(names::REASON), text(names::ERROR));
    words.properties = convert::changes(&receipt.delivered, copy);
    match shelf {
        Shelf::Parking => words.properties.extend(convert::parked(receipt.sequence_number)),
        _ => words.properties.extend(receipt.marked.then(convert::unmarked)),
    }
    dead_letter(receipt, words).await
}

/// As it rests in the queue for dead letters, where there is one: parked messages may rest there too.
pub(crate) fn marked(mut copy: Message, shelf: Shelf) -> Message {
    match shelf {
        Shelf::Parking => copy.headers_mut().insert(SHELF, PARKED),
        _ => copy.headers_mut().remove(SHELF),
    };
    copy
}

async fn dead_letter(receipt: Receipt, words: Words) -> Settled {
    fail_point(FailPoint::NackHandedOver);
    let Receipt { broker, entity, lock, .. } = &receipt;
    let settled = dead_letter::dead_letter(broker, entity, *lock, receipt.in_session(), words).await;
    fail_point(FailPoint::NackWritten);
    done(receipt, settled).await
}

async fn dispose(receipt: &Receipt, how: Disposal) -> Result<(), WireError> {
    let how = how.within(receipt.in_session());
    receipt.broker.link.live().await?.settle(&receipt.entity, &[receipt.lock], &how).await
}

/// Stores a copy and removes the original.
async fn replace(
    receipt: Receipt,
    target: String,
    copy: &Message,
    enqueue_at: Option<SystemTime>,
) -> Settled {
    let hop = Story::read(copy).hop;
    let copy_id = copy.id().map(|id| copy_id(id, hop, &receipt.source()));
    let swap = Swap {
        message: convert::outgoing(copy, Outgoing { copy_id, enqueue_at }),
        target: target.clone(),
        entity: receipt.entity.to_string(),
        lock: receipt.lock,
        session: receipt.in_session().cloned(),
    };
    match receipt.broker.replace(swap).await {
        Ok(()) => done(receipt, Ok(())).await,
        Err(NotReplaced { error, copy_stored: true }) => {
            let said = error.into_error(&format!("completing what was copied from `{}`", receipt.entity));
            receipt.settled();
            Err(SettleError::lost_after_copy(said))
        }
        Err(NotReplaced { error, copy_stored: false }) => {
            debug!(entity = %receipt.entity, %error, "a copy was not stored");
            if is_loss(&error.refusal) {
                return done(receipt, Err(error)).await;
            }
            Err(SettleError::held(not_stored(error, &target), receipt))
        }
    }
}

/// After the broker's word.
async fn done(receipt: Receipt, settled: Result<(), WireError>) -> Settled {
    match settled {
        Ok(()) => {
            receipt.handle.forget(&receipt.tag).await;
            receipt.settled();
            Ok(())
        }
        Err(error) if is_loss(&error.refusal) => {
            match &receipt.session {
                // It takes along what is in hand of it.
                Some(session) => session.lose(),
                // Off the link's books, and not as accepted: where its lock is held all the same, that would remove it.
                None => {
                    receipt.handle.release(&receipt.tag).await;
                }
            }
            let said = lost(&receipt);
            receipt.settled();
            Err(SettleError::lost(said))
        }
        // Perhaps it was done: a second try is then answered with a lost lock.
        Err(error) => {
            let said = error.into_error(&format!("settling a message of `{}`", receipt.entity));
            Err(SettleError::held(said, receipt))
        }
    }
}

fn not_stored(error: WireError, target: &str) -> TransportError {
    let kind = match error.refusal {
        Refusal::TooLarge => TransportErrorKind::TooLarge,
        Refusal::Unauthorized => TransportErrorKind::Unauthorized,
        Refusal::QuotaExceeded => TransportErrorKind::Full,
        _ => TransportErrorKind::NotStored,
    };
    let said = error.into_error(&format!("storing a copy in `{target}`")).to_string();
    TransportError::new(kind, said)
}

fn lost(receipt: &Receipt) -> TransportError {
    let why = match receipt.session {
        Some(_) => "the lock of its session is lost, or the transport was closed",
        None => "its lock ran out, or the transport was closed",
    };
    error::lost(&receipt.entity, why)
}

/// As much of a text as reason or description may be. The broker counts as .NET does, in UTF-16.
pub(crate) fn cut(text: &str) -> String {
    let mut units = 0;
    text.chars()
        .take_while(|c| {
            units += c.len_utf16();
            units <= MAX_CHARS
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_as_dotnet_counts() {
        assert_eq!(cut("short"), "short");
        let long = "👋".repeat(5000);
        assert_eq!(cut(&long).encode_utf16().count(), MAX_CHARS);
        assert_eq!(cut(&format!("x{long}")).encode_utf16().count(), MAX_CHARS - 1);
    }
}
