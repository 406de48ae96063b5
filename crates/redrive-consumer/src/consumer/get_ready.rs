//! Waits until a stack is ready, and reports one that does not get ready.

use redrive_core::{BoxError, Transport};
use tokio::time::sleep_until;

use super::Event;
use super::context::Context;
use super::health::Change;
use super::readiness::{Cause, Look};
use crate::readiness::WaitsFor;
use crate::service::ErasedService;

impl<T: Transport> Context<T> {
    /// Waits until the stack is ready for one call. Reports, once, if it is not ready for a minute while no call runs. Cancel safe.
    pub(crate) async fn ready(&self, stack: &mut ErasedService) -> Result<(), BoxError> {
        loop {
            // A stack that is ready at once needs no timer: it is polled first.
            let next_look = async { sleep_until(self.readiness.next_look()).await };
            tokio::select! {
                biased;
                ready = stack.ready() => {
                    self.end_wait_for_readiness();
                    return ready;
                }
                () = next_look => {}
            }
            let Some(look) = stack.waits_for().and_then(|waits_for| self.readiness.look(waits_for)) else {
                continue;
            };
            if let Look::Found { cause, instead_of } = look {
                instead_of.into_iter().for_each(|earlier| self.report_end(earlier));
                self.report(cause);
            }
            // Gives back what the stack has reserved in part: two consumers may hold what the other one waits for.
            *stack = self.stack();
        }
    }

    /// Call when a stack is ready, or when none is waited for any more.
    pub(crate) fn end_wait_for_readiness(&self) {
        if let Some(cause) = self.readiness.end() {
            self.report_end(cause);
        }
    }

    fn report(&self, Cause { waits_for, since }: Cause) {
        let queue = self.queue();
        let after = since.elapsed();
        if waits_for == WaitsFor::RateLimit {
            tracing::info!(queue, ?after, "takes no messages for now: the rate limit allows none yet");
            self.note(&Change::RateLimited(since));
            return;
        }
        tracing::error!(
            queue,
            ?after,
            layer = %waits_for,
            "takes no messages: this layer is not ready, and nothing is being handled whose end could make it ready. If others \
             share its limit, look at what they hold"
        );
        let layer = waits_for.to_string();
        self.tell(&Event::NotReady { queue, layer: &layer });
        self.note(&Change::NotReady { layer, since });
    }

    fn report_end(&self, Cause { waits_for, since }: Cause) {
        let queue = self.queue();
        let after = since.elapsed();
        if waits_for == WaitsFor::RateLimit {
            self.note(&Change::RateLimitEnded);
            return;
        }
        tracing::info!(queue, ?after, layer = %waits_for, "takes messages again: the layer is ready");
        self.note(&Change::Ready);
        self.tell(&Event::Ready { queue, after });
    }
}
