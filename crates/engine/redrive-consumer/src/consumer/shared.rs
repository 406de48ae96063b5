//! What all phases of a consumer share: the transport, and what is told of it.

use std::sync::Arc;

use redrive_core::transport::{Facts, Planning};
use redrive_core::{Delivery, Disposition, Publisher, Transport};
use tokio::sync::watch;

use super::health::{Change, note};
use super::in_flight::InFlight;
use super::reception::Reception;
use super::report::Counters;
use super::{Event, Settings};
use crate::signal_state::SignalState;

/// What all phases of one consumer share.
pub(crate) struct Shared<T: Transport> {
    pub(super) transport: Arc<T>,
    pub(super) receiver: T::Receiver,
    pub(super) publisher: Publisher,
    pub(super) signals: Arc<SignalState>,
    /// Name of the broker's system.
    pub(super) system: &'static str,
    pub(super) settings: Settings,
    pub(super) counters: Counters,
    /// Whether the transport can receive.
    pub(super) reception: Arc<Reception>,
    /// True once the grace period of the shutdown is over.
    pub(super) over: watch::Sender<bool>,
}

impl<T: Transport> Shared<T> {
    pub(super) fn new(
        transport: Arc<T>,
        (receiver, signals): (T::Receiver, Arc<SignalState>),
        settings: Settings,
        reception: Arc<Reception>,
    ) -> Self {
        Self {
            system: signals.facts().system,
            publisher: transport.publisher(),
            transport,
            receiver,
            signals,
            settings,
            counters: Counters::default(),
            reception,
            over: watch::Sender::new(false),
        }
    }

    /// Returns the name of the queue that is consumed.
    pub(super) fn queue(&self) -> &str {
        self.transport.queue()
    }

    pub(super) fn planning<'a>(&self, facts: &'a Facts) -> Planning<'a> {
        let mut planning = Planning::new(self.transport.now(), facts);
        planning.header_budget = self.settings.header_budget;
        planning
    }

    pub(super) fn tell(&self, event: &Event<'_>) {
        self.settings.observers.tell(event);
    }

    /// Applies a change to the consumer's health. Returns true if the health changed.
    pub(super) fn note(&self, change: &Change) -> bool {
        note(&self.reception.health, change)
    }

    pub(super) fn tell_settled(
        &self,
        delivery: &Delivery,
        in_flight: &mut InFlight,
        disposition: &Disposition,
    ) {
        self.counters.settled(disposition);
        if !self.settings.observers.is_empty() {
            let handled = std::mem::take(&mut in_flight.handled);
            self.tell(&Event::Settled { delivery, disposition, at: self.transport.now(), handled });
        }
    }

    pub(super) fn tell_lost(&self, delivery: &Delivery, in_flight: &mut InFlight) {
        self.counters.lost();
        let handled = std::mem::take(&mut in_flight.handled);
        self.tell(&Event::Lost { delivery, handled });
    }

    /// Resolves once the grace period of the shutdown is over.
    pub(super) async fn over(&self) {
        // `self` owns the sender: it cannot be gone.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }
}
