//! Stops, pauses and resumes a consumer from elsewhere.

use tokio::sync::watch;
use tokio::time::Instant;

use super::health::{Health, HealthState};

/// Request to the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Run,
    Pause,
    Stop,
}

/// The consumer's side of its handles.
pub(crate) struct Control {
    asked: watch::Sender<Asked>,
    health: watch::Sender<HealthState>,
}

impl Control {
    pub(crate) fn new() -> Self {
        Self { asked: watch::Sender::new(Asked::Run), health: watch::Sender::new(HealthState::new()) }
    }

    pub(crate) fn handle(&self) -> ConsumerHandle {
        ConsumerHandle { asked: self.asked.clone(), health: self.health.subscribe() }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Asked> {
        self.asked.subscribe()
    }

    /// Resolves once a handle asks the consumer to stop.
    pub(crate) async fn stop_asked(&self) {
        // `self` owns the sender: it cannot be gone.
        let _ = self.asked.subscribe().wait_for(|asked| *asked == Asked::Stop).await;
    }

    pub(crate) fn health(&self) -> &watch::Sender<HealthState> {
        &self.health
    }
}

/// Watches a consumer, and stops, pauses and resumes it. It may be cloned, and each clone may outlive the consumer.
#[derive(Clone, Debug)]
pub struct ConsumerHandle {
    asked: watch::Sender<Asked>,
    health: watch::Receiver<HealthState>,
}

impl ConsumerHandle {
    /// Makes the consumer take no more messages and give back those that no handler has begun with. Running handlers go on.
    pub fn pause(&self) {
        self.ask(Asked::Pause);
    }

    /// Makes the consumer take messages again.
    pub fn resume(&self) {
        self.ask(Asked::Run);
    }

    /// Ends the consumer in the same way as its shutdown. A stopped consumer cannot be resumed.
    pub fn stop(&self) {
        self.asked.send_replace(Asked::Stop);
    }

    /// Returns the current health of the consumer. Cheap: a health page may call it for every request.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health.borrow().at(Instant::now())
    }

    /// Waits until the health differs from what it was at the first poll, and returns the new one. Cancel safe. Waits forever once
    /// the consumer has ended. It misses a change between a call of [`health`](Self::health) and this one: to wait for a certain
    /// health, use [`wait_for_health`](Self::wait_for_health).
    pub async fn health_changed(&self) -> Health {
        let mut health = self.health.clone();
        health.mark_unchanged();
        if health.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.health()
    }

    /// Waits until the health is `wanted`, and returns it: at once if it already is. Cancel safe. Waits forever if the consumer ends
    /// in another way.
    ///
    /// ```
    /// # async fn example(consumer: redrive_consumer::ConsumerHandle) {
    /// consumer.wait_for_health(|health| health.is_ready()).await;
    /// # }
    /// ```
    pub async fn wait_for_health(&self, mut wanted: impl FnMut(&Health) -> bool) -> Health {
        let mut health = self.health.clone();
        loop {
            let now = health.borrow_and_update().at(Instant::now());
            if wanted(&now) {
                return now;
            }
            if health.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn ask(&self, wanted: Asked) {
        self.asked.send_if_modified(|asked| {
            let changes = *asked != Asked::Stop && *asked != wanted;
            if changes {
                *asked = wanted;
            }
            changes
        });
    }
}
