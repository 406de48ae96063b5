//! The queues where messages wait under a topology.

use std::collections::BTreeMap;
use std::time::Duration;

use lapin::types::AMQPValue;
use redrive_core::Message;

use crate::delay::DelayStrategy;
use crate::topology::Part;

/// A queue to be emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) name: String,
    /// How long it holds a message.
    pub(super) ttl: Option<Duration>,
}

/// Returns the queues where messages wait, including those that are declared on demand.
pub(super) fn delay_queues(strategy: &dyn DelayStrategy) -> Vec<Source> {
    let mut sources = BTreeMap::new();
    for part in strategy.parts() {
        if let Part::Queue(queue) = part {
            let ttl = match queue.arguments.get("x-message-ttl") {
                Some(AMQPValue::LongLongInt(millis)) => {
                    u64::try_from(*millis).ok().map(Duration::from_millis)
                }
                _ => None,
            };
            sources.insert(queue.name, ttl);
        }
    }
    for hop in strategy.hops() {
        // The route leads to an exchange: its queue is among the parts.
        let route = strategy.route(hop, &mut Message::default());
        if let Some(route) = route.filter(|route| route.exchange.is_empty()) {
            sources.entry(route.routing_key.as_ref().to_owned()).or_insert(Some(hop));
        }
    }
    sources.into_iter().map(|(name, ttl)| Source { name, ttl }).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use redrive_core::transport::Needs;

    use super::*;
    use crate::{Options, SingleQueue};

    fn queues(options: &Options, waits: &[u64]) -> Vec<(String, Option<u64>)> {
        let mut needs = Needs::none();
        needs.waits = waits.iter().copied().map(Duration::from_secs).collect();
        let plan = Arc::new(options.plan().unwrap());
        let strategy = options.delay.strategy(&plan, &needs, &options.more_waits);
        let seconds = |source: Source| (source.name, source.ttl.map(|ttl| ttl.as_secs()));
        delay_queues(&*strategy).into_iter().map(seconds).collect()
    }

    #[test]
    fn spare_queues_are_emptied_too() {
        let found = queues(&Options::new("orders"), &[1, 70]);
        for seconds in [1, 70, 600, 3600] {
            assert!(
                found.contains(&(format!("orders--retry-{}ms", seconds * 1000), Some(seconds))),
                "{found:?}"
            );
        }
        assert_eq!(found.len(), 21);
    }

    #[test]
    fn one_queue_for_all_waits_has_no_time_of_its_own() {
        let options = Options::new("orders").delay(SingleQueue::durable());
        assert_eq!(queues(&options, &[1]), [("orders--dead-letters".to_owned(), None)]);
    }
}
