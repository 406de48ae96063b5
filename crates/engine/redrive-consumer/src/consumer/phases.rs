//! The phases of a consumer, put together once its transport is open.

use std::sync::Arc;

use redrive_core::Transport;
use redrive_core::transport::Received;

use super::Settings;
use super::attempt::Attempts;
use super::in_flight::Alone;
use super::reception::Reception;
use super::settling::Settling;
use super::shared::Shared;
use super::stacks::Stacks;
use crate::redelivery::{InFlightLog, Redelivery, Rule};
use crate::service::ErasedService;
use crate::signal_state::SignalState;

/// A delivery, a stack that is ready for it, and the guard held while it is handled alone.
pub(crate) type Job<R> = (ErasedService, Received<R>, Alone);

/// The phases of one consumer. The intake takes deliveries, an attempt handles one, and settling ends it.
pub(crate) struct Phases<T: Transport> {
    pub(super) shared: Arc<Shared<T>>,
    pub(super) redelivery: Arc<Redelivery>,
    pub(super) stacks: Arc<Stacks<T>>,
    pub(super) settling: Arc<Settling<T>>,
    pub(super) attempts: Arc<Attempts<T>>,
}

impl<T: Transport> Phases<T> {
    pub(super) fn new(
        transport: Arc<T>,
        (receiver, signals): (T::Receiver, Arc<SignalState>),
        service: ErasedService,
        settings: Settings,
        rule: Rule,
        ledger: Option<InFlightLog>,
        reception: Arc<Reception>,
    ) -> Self {
        let limit = signals.facts().limits.in_flight.unwrap_or(0);
        let max_in_flight = limit.max(settings.needs.prefetch) as usize;
        let redelivery =
            Redelivery::new(rule, ledger, settings.remembered(), max_in_flight, Arc::clone(&signals));
        let redelivery = Arc::new(redelivery);
        let shared = Arc::new(Shared::new(transport, (receiver, signals), settings, reception));
        let stacks = Arc::new(Stacks::new(Arc::clone(&shared), service));
        let settling = Arc::new(Settling::new(Arc::clone(&shared), Arc::clone(&redelivery)));
        let attempts = Attempts::new(
            Arc::clone(&shared),
            Arc::clone(&redelivery),
            Arc::clone(&stacks),
            Arc::clone(&settling),
        );
        Self { shared, redelivery, stacks, settling, attempts: Arc::new(attempts) }
    }

    /// Returns how many deliveries the broker may hand out at first. If suspects are possible, that is one: it shows whether
    /// a process died before, and nothing else is in flight until then.
    pub(super) fn limit_at_first(&self) -> u32 {
        if self.redelivery.rule().is_off() { self.shared.settings.needs.prefetch } else { 1 }
    }
}
