//! What the consumer is told beside the deliveries.

use std::sync::{Arc, MutexGuard, PoisonError};

use redrive_core::{Delivery, Facts, Signal, Signals};
use tokio::sync::watch;

use super::Broker;
use crate::consume::Wanted;

/// Who is told, and what is known there.
#[derive(Debug)]
pub(super) struct Listener {
    signals: Signals,
    facts: Facts,
}

impl Broker {
    /// From now on what happens is told there. Answers what is known now: changes after that are told.
    pub(crate) fn tell_to(&self, signals: Signals) -> Facts {
        let mut listener = self.listener();
        let facts = self.facts();
        *listener = Some(Listener { signals, facts: facts.clone() });
        facts
    }

    /// Nobody is told any more.
    pub(crate) fn tell_nobody(&self) {
        *self.listener() = None;
    }

    /// Tells the facts where they are others than before: the broker may be another version after each restart.
    pub(super) fn tell_facts(&self) {
        // Locked until they are told: of two changes the later one is told last.
        let mut listener = self.listener();
        let Some(listener) = &mut *listener else { return };
        let facts = self.facts();
        if listener.facts != facts {
            listener.facts = facts.clone();
            listener.signals.send(Signal::FactsChanged(facts));
        }
    }

    /// What was in hand when a subscription was cut comes again from now on.
    pub(crate) fn tell_interruption(&self, unreceived: Vec<Delivery>) {
        self.tell(Signal::Interrupted { unreceived });
    }

    fn tell(&self, signal: Signal) {
        let signals = self.listener().as_ref().map(|listener| listener.signals.clone());
        if let Some(signals) = signals {
            signals.send(signal);
        }
    }

    fn listener(&self) -> MutexGuard<'_, Option<Listener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells each time when the broker takes messages again, until the transport is closed or gone.
pub(crate) async fn tell_recoveries(broker: Arc<Broker>, mut wanted: watch::Receiver<Wanted>) {
    let mut recoveries = broker.recoveries();
    loop {
        tokio::select! {
            Ok(()) = recoveries.changed() => broker.tell(Signal::Recovered),
            changed = wanted.changed() => if changed.is_err() || *wanted.borrow() == Wanted::Close { return },
        }
    }
}
