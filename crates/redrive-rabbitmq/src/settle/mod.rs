//! Settles deliveries.
//!
//! | module | does |
//! |---|---|
//! | [`channel`] | sends the settlements of one channel |
//! | [`ack_window`] | decides which acknowledgements to send, and when |
//!
//! [`settle`] carries one settlement out.

mod ack_window;
pub(crate) mod channel;
pub(crate) mod channels;

use std::time::{Duration, SystemTime};

use redrive_core::{FailureHistory, Message, SettleError, Settlement, TransportError, TransportErrorKind};
use tracing::{Level, debug, enabled, info};

use crate::convert::Form;
use crate::error;
use crate::publish::Caller;
use crate::receipt::Receipt;
use crate::shared::Shared;
use crate::topology::Route;

/// Carries a settlement out. A copy is stored and confirmed before the original is removed.
pub(crate) async fn settle(
    shared: &Shared,
    receipt: Receipt,
    settlement: Settlement,
) -> Result<(), SettleError<Receipt>> {
    if settlement == Settlement::Complete {
        return receipt.ack().await.map_err(SettleError::lost);
    }
    // Nothing is copied for a delivery that is redelivered anyway.
    receipt.channel().check().map_err(SettleError::lost)?;
    if settlement.stores_copy() && !receipt.is_whole() {
        return Err(SettleError::held(error::read_in_part(), receipt));
    }
    let mut held_for = None;
    let (route, copy, form) = match settlement {
        Settlement::Complete => return receipt.ack().await.map_err(SettleError::lost),
        Settlement::Release => return receipt.release().await.map_err(SettleError::lost),
        Settlement::NativeDeadLetter if shared.options.broker_dead_letters() => {
            return receipt.dead_letter().await.map_err(SettleError::lost);
        }
        Settlement::NativeDeadLetter => {
            let message = "the work queue is not known to have a dead-letter exchange: rejected, the message would be gone; \
                           say `native_dead_letter(true)` if it has one";
            return Err(unsupported(message.to_owned(), receipt));
        }
        // An older broker would deliver it again immediately, in a loop.
        Settlement::RetryInPlace { wait } => match shared.options.delay.refused_by(receipt.version()) {
            None => {
                info!(rests_in = %shared.queue(), ?wait, "held back by the broker, at least as long as asked");
                return receipt.fail().await.map_err(SettleError::lost);
            }
            Some(refused) => return Err(unsupported(refused, receipt)),
        },
        Settlement::Reschedule { wait, mut copy } => {
            held_for = shared.facts.strategy().held_for(wait).filter(|_| !wait.is_zero());
            (shared.copies.delayed(wait, &mut copy, receipt.origin()), copy, Form::WaitingCopy)
        }
        Settlement::Shelve { shelf, copy } => {
            (shared.plan.names.shelf(shelf).map(Route::queue), copy, Form::Copy)
        }
    };
    // Boxed: most deliveries are completed, and their futures should not reserve room for this.
    Box::pin(settle_by_copy(shared, receipt, route, (copy, form), held_for)).await
}

async fn settle_by_copy(
    shared: &Shared,
    receipt: Receipt,
    route: Result<Route, TransportError>,
    (copy, form): (Message, Form),
    held_for: Option<Duration>,
) -> Result<(), SettleError<Receipt>> {
    let held = held_for.filter(|_| enabled!(Level::INFO)).map(|held_for| HeldBack::of(&copy, held_for));
    let stored = match route {
        Ok(route) => {
            let stored = shared.copies.store(&route, copy, form, Caller::Consumer).await;
            if let (Ok(()), Some(held)) = (&stored, held) {
                held.log(&route);
            }
            stored
        }
        Err(error) => Err(error),
    };
    match stored {
        // The copy is stored: if the original is redelivered, it must not be copied a second time.
        Ok(()) => receipt.ack().await.map_err(SettleError::lost_after_copy),
        Err(error) => {
            debug!(queue = %shared.queue(), %error, "a copy was not stored; the delivery stays in flight");
            Err(SettleError::held(error, receipt))
        }
    }
}

/// A waiting copy, for the log: its queue may hold it longer than requested, and may be new.
struct HeldBack {
    id: Option<String>,
    held_for: Duration,
    /// After further hops.
    not_before: Option<SystemTime>,
}

impl HeldBack {
    fn of(copy: &Message, held_for: Duration) -> Self {
        let not_before = FailureHistory::read(copy).not_before;
        Self { id: copy.id().map(str::to_owned), held_for, not_before }
    }

    fn log(self, route: &Route) {
        let due = (SystemTime::now() + self.held_for).max(self.not_before.unwrap_or(SystemTime::UNIX_EPOCH));
        let (due_at, held_for) =
            (humantime::format_rfc3339_millis(due), humantime::format_duration(self.held_for));
        info!(message_id = self.id, rests_in = route.target(), %held_for, %due_at, "the message waits");
    }
}

fn unsupported(message: String, receipt: Receipt) -> SettleError<Receipt> {
    SettleError::held(TransportError::new(TransportErrorKind::Unsupported, message), receipt)
}
