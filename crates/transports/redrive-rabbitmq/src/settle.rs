//! Settles deliveries: [`settle`] carries one settlement out.

use std::time::Duration;

use redrive_core::transport::{SettleError, Settlement};
use redrive_core::{Message, TransportError, TransportErrorKind};
use tracing::{debug, info};

use crate::convert::Form;
use crate::copy_store::Waiting;
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
    let copied = match settlement {
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
                info!(rests_in = %shared.queue(), ?wait, "retry delayed by the broker, for at least the requested wait");
                return receipt.fail().await.map_err(SettleError::lost);
            }
            Some(refused) => return Err(unsupported(refused, receipt)),
        },
        Settlement::Reschedule { wait, copy } if wait.is_zero() => {
            Copied::At(Ok(Route::queue(shared.queue())), copy, Form::WaitingCopy)
        }
        Settlement::Reschedule { wait, copy } => Copied::Waiting(wait, copy),
        Settlement::Shelve { shelf, copy } => {
            Copied::At(shared.plan.names.shelf(shelf).map(Route::queue), copy, Form::Shelved)
        }
    };
    // Boxed: most deliveries are completed, and their futures should not reserve room for this.
    Box::pin(settle_by_copy(shared, receipt, copied)).await
}

/// The copy of a delivery, and where it goes.
enum Copied {
    At(Result<Route, TransportError>, Message, Form),
    Waiting(Duration, Message),
}

async fn settle_by_copy(
    shared: &Shared,
    receipt: Receipt,
    copied: Copied,
) -> Result<(), SettleError<Receipt>> {
    let (copies, caller) = (&shared.copies, Caller::Consumer);
    let stored = match copied {
        Copied::At(Ok(route), copy, form) => copies.store(&route, copy, form, caller).await,
        Copied::At(Err(error), ..) => Err(error),
        Copied::Waiting(wait, message) => {
            let (origin, form) = (receipt.origin(), Form::WaitingCopy);
            copies.store_waiting(Waiting { wait, message, origin, form, caller }).await
        }
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

fn unsupported(message: String, receipt: Receipt) -> SettleError<Receipt> {
    SettleError::held(TransportError::new(TransportErrorKind::Unsupported, message), receipt)
}
