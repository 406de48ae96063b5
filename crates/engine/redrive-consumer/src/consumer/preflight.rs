//! Compares what a consumer needs with the facts of its broker: when the transport is opened, and when the facts change.

use std::time::Duration;

use redrive_core::transport::{Facts, Finding, Needs};

use super::Settings;

/// The needs of one consumer, and what its doubts depend on.
pub(super) struct Preflight {
    queue: String,
    needs: Needs,
    concurrency: usize,
    longest_handling: Option<Duration>,
    has_ledger: bool,
}

impl Preflight {
    pub(super) fn new(queue: &str, settings: &Settings, has_ledger: bool) -> Self {
        let Settings { needs, concurrency, longest_handling, .. } = settings;
        Self {
            queue: queue.to_owned(),
            needs: needs.clone(),
            concurrency: *concurrency,
            longest_handling: *longest_handling,
            has_ledger,
        }
    }

    /// Logs what a broker that changed does not honour any more, and the rest as [`log_doubts`](Self::log_doubts). The consumer goes on:
    /// stopping would help nobody.
    pub(super) fn log_change(&self, facts: &Facts) {
        let queue = &self.queue;
        for unmet in self.needs.unmet(queue, facts) {
            tracing::error!(queue, "the broker does not honour the configuration: {unmet}");
        }
        self.log_doubts(facts);
    }

    /// Logs what the broker may not honour, and what it has no use for. A transport refuses to open with needs that it cannot meet.
    pub(super) fn log_doubts(&self, facts: &Facts) {
        let queue = &self.queue;
        for doubt in self.doubtful(facts) {
            tracing::warn!(queue, "{doubt}");
        }
        if let Some(unused) = self.needs.unused(queue, facts) {
            tracing::info!(queue, "{unused}");
        }
    }

    /// What the broker does not honour, or may not honour.
    pub(super) fn findings(&self, facts: &Facts) -> Vec<Finding> {
        let unmet = self.needs.unmet(&self.queue, facts).into_iter().map(Finding::unmet);
        unmet.chain(self.doubtful(facts).into_iter().map(Finding::warning)).collect()
    }

    fn doubtful(&self, facts: &Facts) -> Vec<String> {
        let mut needs = self.needs.clone();
        // The broker need not count deliveries that the ledger counts.
        needs.deliveries = needs.deliveries.filter(|_| !self.has_ledger);
        needs.longest_hold = self.longest_hold(facts);
        needs.doubtful(&self.queue, facts)
    }

    /// The longest time from a delivery to its settlement.
    pub(super) fn longest_hold(&self, facts: &Facts) -> Option<Duration> {
        let in_flight = facts.limits.in_flight.unwrap_or(0).max(self.needs.prefetch);
        longest_hold(self.longest_handling, self.concurrency, in_flight)
    }
}

/// Returns how long a delivery is held at most: the one handed out last waits for all that were handed out before it.
pub(super) fn longest_hold(
    handling: Option<Duration>,
    concurrency: usize,
    in_flight: u32,
) -> Option<Duration> {
    let concurrency = u32::try_from(concurrency).unwrap_or(u32::MAX);
    Some(handling?.saturating_mul(in_flight.div_ceil(concurrency).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preflight(has_ledger: bool) -> Preflight {
        let mut needs = Needs::none();
        needs.deliveries = Some(5);
        needs.prefetch = 20;
        let handling = Some(Duration::from_secs(10));
        Preflight { queue: "orders".into(), needs, concurrency: 10, longest_handling: handling, has_ledger }
    }

    #[test]
    fn what_waits_in_hand_waits_for_those_before_it() {
        let handling = Some(Duration::from_secs(10));
        for (in_flight, seconds) in [(0, 10), (5, 10), (20, 20), (21, 30)] {
            assert_eq!(
                longest_hold(handling, 10, in_flight),
                Some(Duration::from_secs(seconds)),
                "{in_flight}"
            );
        }
        assert_eq!(longest_hold(None, 10, 20), None);
        let mut facts = Facts::new("test");
        facts.limits.hold = Some(Duration::from_secs(25));
        assert!(preflight(false).doubtful(&facts).is_empty());
        facts.limits.in_flight = Some(30);
        assert_eq!(preflight(false).doubtful(&facts).len(), 1, "the transport takes more than the prefetch");
    }

    #[test]
    fn a_ledger_counts_in_place_of_the_broker() {
        let mut facts = Facts::new("test");
        facts.counting.deliveries = false;
        assert_eq!(preflight(false).doubtful(&facts).len(), 1);
        assert!(preflight(true).doubtful(&facts).is_empty());
    }
}
