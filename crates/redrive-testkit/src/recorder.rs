//! Records what a consumer did.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use redrive_consumer::{Event, Observer};
use redrive_core::{Delivery, Disposition};
use tokio::sync::Notify;

use crate::record::AttemptRecord;

/// Tells the virtual time since the start of the first run.
pub(crate) type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Observes a consumer. Clones share the records.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    started: AtomicBool,
    attempts: Mutex<Vec<Entry>>,
    changed: Notify,
}

/// One delivery.
struct Entry {
    /// Number of the delivered copy: two copies of one message have different numbers.
    number: Option<u64>,
    attempt: AttemptRecord,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Recorder {
    pub(crate) fn new(clock: Clock) -> Self {
        let shared = Shared {
            clock,
            started: AtomicBool::new(false),
            attempts: Mutex::default(),
            changed: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the signal that every event notifies.
    pub(crate) fn changed(&self) -> &Notify {
        &self.shared.changed
    }

    /// Returns true once the transport has accepted the consumer's configuration.
    pub(crate) fn has_started(&self) -> bool {
        self.shared.started.load(Ordering::Relaxed)
    }

    /// Returns the number of deliveries.
    pub(crate) fn deliveries(&self) -> usize {
        self.attempts().len()
    }

    /// Returns the result of every delivery, in the order of their arrival.
    pub(crate) fn records(&self) -> Vec<AttemptRecord> {
        self.attempts().iter().map(|entry| entry.attempt.clone()).collect()
    }

    fn received(&self, delivery: &Delivery) {
        let attempt = AttemptRecord::new(delivery, (self.shared.clock)());
        self.attempts().push(Entry { number: delivery.broker_number(), attempt });
    }

    fn decided(&self, delivery: &Delivery, disposition: &Disposition) {
        let now = (self.shared.clock)();
        self.update(delivery, |entry| {
            entry.attempt.disposition = Some(disposition.clone());
            entry.attempt.took = now.saturating_sub(entry.attempt.at);
        });
    }

    fn settled(&self, delivery: &Delivery, disposition: &Disposition) {
        self.update(delivery, |entry| {
            // The settlement may do less than was decided.
            entry.attempt.disposition = Some(disposition.clone());
            entry.attempt.not_settled = None;
        });
    }

    fn update(&self, delivery: &Delivery, change: impl FnOnce(&mut Entry)) {
        let mut attempts = self.attempts();
        let is_meant = |entry: &&mut Entry| {
            entry.number == delivery.broker_number() && entry.attempt.id() == delivery.id()
        };
        // Searches from the end: a delivery that was given back is redelivered as the same copy.
        if let Some(entry) = attempts.iter_mut().rev().find(is_meant) {
            change(entry);
        }
    }

    fn attempts(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.shared.attempts.lock()
    }
}

impl Observer for Recorder {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Started { .. } => self.shared.started.store(true, Ordering::Relaxed),
            Event::Received { delivery } => self.received(delivery),
            Event::Decided { delivery, disposition, .. } => self.decided(delivery, disposition),
            Event::Settled { delivery, disposition, .. } => self.settled(delivery, disposition),
            Event::NotSettled { delivery, error, .. } => {
                self.update(delivery, |entry| entry.attempt.not_settled = Some(error.to_string()));
            }
            _ => {}
        }
        self.shared.changed.notify_waiters();
    }
}
