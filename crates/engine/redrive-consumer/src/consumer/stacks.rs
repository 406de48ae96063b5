//! The stacks of layers: finished ones are used again, and one that does not get ready is reported.

use std::sync::Arc;

use parking_lot::Mutex;
use redrive_core::{BoxError, Transport};
use tokio::time::sleep_until;

use super::Event;
use super::health::Change;
use super::readiness::{Call, Cause, Look, Readiness};
use super::shared::Shared;
use crate::readiness::WaitsFor;
use crate::service::ErasedService;

/// The stacks of one consumer.
pub(crate) struct Stacks<T: Transport> {
    shared: Arc<Shared<T>>,
    readiness: Readiness,
    /// The stack, and clones of it that have finished a call and are reused for the next one.
    idle: Mutex<Vec<ErasedService>>,
}

impl<T: Transport> Stacks<T> {
    pub(super) fn new(shared: Arc<Shared<T>>, stack: ErasedService) -> Self {
        Self { shared, readiness: Readiness::default(), idle: Mutex::new(vec![stack]) }
    }

    /// Returns a clone of the stack, not ready for a call; preferably one that was [put back](Self::put_back).
    pub(super) fn take(&self) -> ErasedService {
        let mut idle = self.idle.lock();
        if idle.len() > 1
            && let Some(spare) = idle.pop()
        {
            return spare;
        }
        idle[0].clone()
    }

    /// Takes back a stack that has finished a call. One that may still hold a reservation is dropped instead: a stage or a layer may
    /// have turned the delivery away before the layers inside of it, and what these have reserved would be lost to all others.
    pub(super) fn put_back(&self, stack: ErasedService) {
        if !self.shared.settings.reserves {
            self.idle.lock().push(stack);
        }
    }

    /// Counts a call, until the guard is dropped: its end may make a stack ready.
    pub(super) fn call(&self) -> Call<'_> {
        self.readiness.call()
    }

    /// Waits until the stack is ready for one call. Reports, once, if it is not ready for a minute while no call runs. Cancel safe.
    pub(super) async fn ready(&self, stack: &mut ErasedService) -> Result<(), BoxError> {
        loop {
            // A stack that is ready at once needs no timer: it is polled first.
            let next_look = async { sleep_until(self.readiness.next_look()).await };
            tokio::select! {
                biased;
                ready = stack.ready() => {
                    self.end_wait();
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
            *stack = self.take();
        }
    }

    /// Call when a stack is ready, or when none is waited for any more.
    pub(super) fn end_wait(&self) {
        if let Some(cause) = self.readiness.end() {
            self.report_end(cause);
        }
    }

    fn report(&self, Cause { waits_for, since }: Cause) {
        let queue = self.shared.queue();
        let after = since.elapsed();
        if waits_for == WaitsFor::RateLimit {
            tracing::info!(queue, ?after, "intake waits: the rate limit is used up");
            self.shared.note(&Change::RateLimited(since));
            return;
        }
        tracing::error!(
            queue,
            ?after,
            layer = %waits_for,
            "intake waits: this layer is not ready, and nothing is being handled whose end could make it ready. If others \
             share its limit, look at what they hold"
        );
        let layer = waits_for.to_string();
        self.shared.tell(&Event::NotReady { queue, layer: &layer });
        self.shared.note(&Change::NotReady { layer, since });
    }

    fn report_end(&self, Cause { waits_for, since }: Cause) {
        let queue = self.shared.queue();
        let after = since.elapsed();
        if waits_for == WaitsFor::RateLimit {
            self.shared.note(&Change::RateLimitEnded);
            return;
        }
        tracing::info!(queue, ?after, layer = %waits_for, "intake resumed: the layer is ready");
        self.shared.note(&Change::Ready);
        self.shared.tell(&Event::Ready { queue, after });
    }
}
