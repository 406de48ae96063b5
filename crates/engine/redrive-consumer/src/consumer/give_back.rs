//! Stops what the broker hands out, and gives back what no handler has begun with.

use std::time::Duration;

use redrive_core::Transport;
use redrive_core::transport::{ReceiptOf, Received, Receiver};
use tokio::time::timeout;

use super::phases::Phases;

/// Time limit for the broker to stop handing out, to take back what it had handed out, and to close.
pub(super) const BROKER_TIMEOUT: Duration = Duration::from_secs(10);

/// Stops the intake, and gives back the deliveries that no handler has begun with. Returns how many of these the broker had
/// handed out before.
pub(crate) async fn give_back_unstarted<T: Transport>(phases: &Phases<T>) -> u32 {
    let mut redelivered = 0_u32;
    let parting = async {
        if let Err(error) = phases.shared.receiver.set_limit(0).await {
            // Without a connection the broker hands out nothing.
            tracing::warn!(%error, "the broker did not confirm that the intake stopped");
        }
        // Take them out one at a time: a delivery taken out but not released before the timeout is charged by the broker.
        while let Ok(Some(received)) = phases.shared.receiver.receive().await {
            redelivered += u32::from(received.delivery.broker_delivery_count() > 1);
            phases.attempts.release(received).await;
        }
    };
    if timeout(BROKER_TIMEOUT, parting).await.is_err() {
        tracing::warn!(
            "some messages could not be given back in time: the broker redelivers them when the connection ends"
        );
    }
    redelivered
}

/// Gives back one delivery that no handler has begun with.
pub(super) async fn give_back_one<T: Transport>(phases: &Phases<T>, received: Received<ReceiptOf<T>>) {
    // A release that stores a copy may wait for a broker alarm to end. On timeout, the dropped receipt gives it back unchanged.
    let _ = timeout(BROKER_TIMEOUT, phases.attempts.release(received)).await;
}
