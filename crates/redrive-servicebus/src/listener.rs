//! Who is told what happens beside the deliveries.

use std::sync::OnceLock;

use redrive_core::{Signal, Signals};

/// The consumer, from the time when the transport is open.
#[derive(Debug, Default)]
pub(crate) struct Listener(OnceLock<Signals>);

impl Listener {
    /// From now on that one is told.
    pub(crate) fn listen(&self, signals: Signals) {
        // A transport is opened once.
        let _ = self.0.set(signals);
    }

    /// Deliveries in hand were lost, and come again. They have numbers of the broker: which of them were never received need
    /// not be told.
    pub(crate) fn tell_interruption(&self) {
        if let Some(signals) = self.0.get() {
            signals.send(Signal::Interrupted { unreceived: Vec::new() });
        }
    }
}
