//! Has the broker hand out no more, and gives back what no handler has begun with.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::timeout;

use super::context::Context;
use crate::transport::{Receiver, Transport};

/// How long the broker may take to stop handing out, to take back what it had handed out, and to part.
pub(super) const BROKER_TIMEOUT: Duration = Duration::from_secs(10);

/// Has the broker hand out no more, and gives back what it had handed out and no handler has begun with. Answers how many
/// of these it had handed out before.
pub(crate) async fn give_back_unstarted<T: Transport>(context: &Context<T>) -> u32 {
    let mut deliveries_before = 0_u32;
    let parting = async {
        if let Err(error) = context.receiver.set_limit(0).await {
            // Without a connection the broker hands out nothing either.
            tracing::warn!(%error, "the intake could not be stopped in order");
        }
        // One at a time: what is taken out and not released when the time is over is charged by the broker.
        let mut unstarted = VecDeque::new();
        while let Ok(1..) = context.receiver.receive(&mut unstarted, 1).await {
            while let Some(received) = unstarted.pop_front() {
                deliveries_before += u32::from(received.delivery.broker_delivery_count() > 1);
                context.release(received).await;
            }
        }
    };
    if timeout(BROKER_TIMEOUT, parting).await.is_err() {
        tracing::warn!(
            "not everything could be given back in time: the broker does it when the connection ends"
        );
    }
    deliveries_before
}
