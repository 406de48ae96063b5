//! A consumer that is complete.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use redrive_core::Transport;
use redrive_core::engine::Stages;

use super::control::Control;
use super::preflight::longest_hold;
use super::{ConsumerError, ConsumerHandle, Observer, Report, Settings, run};
use crate::service::ErasedService;

/// A consumer with its handler, ready to run.
#[must_use = "a consumer does nothing until it is run"]
pub struct Runner<T> {
    pub(super) transport: Arc<T>,
    pub(super) service: ErasedService,
    pub(super) settings: Settings,
    pub(super) control: Control,
}

impl<T: Transport> Runner<T> {
    pub(super) fn new(transport: T, service: ErasedService, mut settings: Settings) -> Self {
        settings.concurrency = settings.concurrency.max(settings.needs.concurrency);
        let derived = u32::try_from(settings.concurrency.saturating_mul(2)).unwrap_or(u32::MAX);
        // With a prefetch below the concurrency, some handlers would never get a message.
        settings.needs.prefetch = settings.prefetch.unwrap_or(derived);
        let around = settings.around.iter().rev();
        settings.stages = around.fold(settings.stages.clone(), Stages::inside);
        let Settings { needs, concurrency, longest_handling, .. } = &mut settings;
        needs.longest_hold = longest_hold(*longest_handling, *concurrency, needs.prefetch);
        Self { transport: Arc::new(transport), service, settings, control: Control::new() }
    }

    /// Returns a handle that watches, stops, pauses and resumes the consumer from elsewhere.
    #[must_use]
    pub fn handle(&self) -> ConsumerHandle {
        self.control.handle()
    }

    /// Returns the name of the queue (or subscription) that it consumes.
    #[must_use]
    pub fn queue(&self) -> &str {
        self.transport.queue()
    }

    /// Reports every event to this observer too, like [`Consumer::observer`](super::Consumer::observer), for callers that did not build the consumer.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.settings.observers.add(observer);
        self
    }

    /// Runs until the [`handle`](Self::handle) stops it.
    ///
    /// # Errors
    ///
    /// The same as [`run_until`](Self::run_until).
    pub async fn run(self) -> Result<Report, ConsumerError> {
        self.run_until(std::future::pending()).await
    }

    /// Runs until `shutdown` resolves or the [`handle`](Self::handle) stops it. Then the consumer takes no more messages, gives
    /// back those that no handler has begun with, lets handlers finish within the grace period, gives back what they did not
    /// finish, and closes the transport.
    ///
    /// Not cancel safe in the sense of an orderly end: dropping the future drops the handlers, and the broker delivers their
    /// messages again. No message is lost.
    ///
    /// # Errors
    ///
    /// Before the first message: if the broker cannot honour the configuration, or the transport cannot start. Later: only
    /// if the transport was closed or a layer is broken, and after the time that
    /// [`give_up_after`](super::Consumer::give_up_after) allows. What the broker refuses for a while is not an error.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<Report, ConsumerError> {
        run::run(self.transport, self.service, self.settings, self.control, shutdown).await
    }
}

impl<T> fmt::Debug for Runner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("needs", &self.settings.needs).finish_non_exhaustive()
    }
}
