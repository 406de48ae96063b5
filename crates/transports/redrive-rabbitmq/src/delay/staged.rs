//! Delay queues that the user names and another team owns. Pure.

use std::sync::Arc;
use std::time::Duration;

use lapin::ExchangeKind;
use redrive_core::Message;
use redrive_core::transport::{Facts, Origin};

use super::{DelayStrategy, ladder};
use crate::broker::QueueType;
use crate::topology::{self, Binding, Exchange, Lifetime, Part, Plan, Route};

/// A chain of delay queues with growing times to live that you name, for topologies that another team owns. They are verified;
/// [`declared`](Self::declared) declares them instead.
///
/// Each stage is an exchange and the queue behind it. A copy is published to the exchange with the routing key that the message
/// was first published with. When its time is over, the broker sends it to your main exchange with that key: **to all queues
/// that are bound there, not to this one alone.**
///
/// ```
/// use std::time::Duration;
/// use redrive_rabbitmq::Staged;
///
/// let delay = Staged::back_to("shop")
///     .stage("orders.wait.30s", Duration::from_secs(30))
///     .stage("orders.wait.10m", Duration::from_secs(600))
///     .through("orders.retry.10m");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    main_exchange: String,
    other_key: Option<String>,
    stages: Vec<Stage>,
    declared: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stage {
    exchange: String,
    queue: String,
    wait: Duration,
}

impl Staged {
    /// Creates a chain without stages. The delay queues have `main_exchange`, to which messages were first published, as their
    /// dead-letter exchange, without a dead-letter routing key. It must not be the default exchange.
    #[must_use]
    pub fn back_to(main_exchange: impl Into<String>) -> Self {
        Self { main_exchange: main_exchange.into(), other_key: None, stages: Vec::new(), declared: false }
    }

    /// Adds a stage: this queue, with this time to live, behind an exchange of the same name that routes everything to it.
    #[must_use]
    pub fn stage(mut self, queue: impl Into<String>, wait: Duration) -> Self {
        let queue = queue.into();
        self.stages.push(Stage { exchange: queue.clone(), queue, wait });
        self
    }

    /// Sets the exchange of the last stage, if its name differs from the queue's.
    #[must_use]
    pub fn through(mut self, exchange: impl Into<String>) -> Self {
        if let Some(stage) = self.stages.last_mut() {
            stage.exchange = exchange.into();
        }
        self
    }

    /// Sets the routing key from the main exchange into the work queue, for messages that did not come through the main exchange
    /// (published directly into the queue). Default: the name of the work queue.
    #[must_use]
    pub fn other_key(mut self, routing_key: impl Into<String>) -> Self {
        self.other_key = Some(routing_key.into());
        self
    }

    /// Sets whether redrive declares the exchanges and queues of the stages, and binds the work queue to the main exchange with
    /// [`other_key`](Self::other_key). It never declares the main exchange itself.
    #[must_use]
    pub fn declared(mut self, declared: bool) -> Self {
        self.declared = declared;
        self
    }

    pub(super) fn is_declared(&self) -> bool {
        self.declared
    }

    pub(super) fn contradiction(&self, plan: &Plan) -> Option<String> {
        if self.main_exchange.is_empty() {
            return Some(
                "Delay::Staged needs the exchange that leads back to the work queue, and it has no name: the default exchange \
                 would take the original routing key for the name of a queue"
                    .to_owned(),
            );
        }
        if self.stages.is_empty() {
            return Some("Delay::Staged has no stage: name at least one delay queue with `stage`".to_owned());
        }
        if let Some(pair) = self.stages.windows(2).find(|pair| pair[0].wait >= pair[1].wait) {
            return Some(format!(
                "the stages of Delay::Staged must grow, and `{}` waits no longer than `{}`",
                pair[1].queue, pair[0].queue
            ));
        }
        let ours = [&plan.names.work, &plan.names.dead_letters, &plan.names.parking];
        if let Some(stage) = self.stages.iter().find(|stage| ours.contains(&&stage.queue)) {
            return Some(format!("`{}` cannot be a stage: it is the work queue or a shelf", stage.queue));
        }
        let first = self.stages.first().map_or(Duration::ZERO, |stage| stage.wait);
        let last = self.stages.last().map_or(Duration::ZERO, |stage| stage.wait);
        if first < Duration::from_millis(1) || last > ladder::MAX_WAIT {
            return Some("a stage of Delay::Staged waits at least 1 ms and at most ten years".to_owned());
        }
        if let Some(stage) = self.stages.iter().find(|stage| stage.exchange == self.main_exchange) {
            return Some(format!(
                "`{}` is the main exchange and cannot lead into the delay queue `{}`: everything would wait",
                stage.exchange, stage.queue
            ));
        }
        None
    }
}

/// The strategy of [`Delay::Staged`](super::Delay::Staged).
#[derive(Debug)]
pub(super) struct StagedStrategy {
    plan: Arc<Plan>,
    staged: Staged,
}

impl StagedStrategy {
    pub(super) fn new(staged: &Staged, plan: &Arc<Plan>) -> Self {
        Self { plan: Arc::clone(plan), staged: staged.clone() }
    }

    fn queue(&self, stage: &Stage) -> topology::Queue {
        let mut queue = topology::plain(&stage.queue, self.plan.retry_queue_type);
        queue.set("x-message-ttl", i64::try_from(stage.wait.as_millis()).unwrap_or(i64::MAX));
        queue.set("x-dead-letter-exchange", self.staged.main_exchange.as_str());
        queue.dead_letter_at_least_once();
        queue
    }

    fn stage(&self, wait: Duration) -> Option<&Stage> {
        self.staged.stages.iter().find(|stage| stage.wait >= wait)
    }

    fn route_with(&self, routing_key: &str, wait: Duration) -> Option<Route> {
        let stage = self.stage(wait)?;
        Some(Route { exchange: stage.exchange.as_str().into(), routing_key: routing_key.into() })
    }

    fn other_key(&self) -> &str {
        self.staged.other_key.as_deref().unwrap_or(&self.plan.names.work)
    }
}

impl DelayStrategy for StagedStrategy {
    fn hops(&self) -> Vec<Duration> {
        self.staged.stages.iter().map(|stage| stage.wait).collect()
    }

    fn route(&self, wait: Duration, _: &mut Message) -> Option<Route> {
        self.route_with(self.other_key(), wait)
    }

    /// Keeps the key with which the message came through the main exchange; each stage keeps it too. A key of another exchange, or one
    /// that only a header names, may lead nowhere from the main exchange, and the message would be lost.
    fn route_from(&self, origin: &Origin, wait: Duration, _: &mut Message) -> Option<Route> {
        let came_through_main = origin.exchange() == self.staged.main_exchange;
        self.route_with(if came_through_main { origin.routing_key() } else { self.other_key() }, wait)
    }

    fn held_for(&self, wait: Duration) -> Option<Duration> {
        self.stage(wait).map(|stage| stage.wait)
    }

    fn parts(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        if self.staged.declared {
            parts.push(Part::Binding(Binding {
                queue: self.plan.names.work.clone(),
                exchange: self.staged.main_exchange.clone(),
                routing_key: self.other_key().to_owned(),
            }));
        }
        for stage in &self.staged.stages {
            parts.extend([
                Part::Queue(self.queue(stage)),
                Part::Exchange(Exchange {
                    name: stage.exchange.clone(),
                    kind: ExchangeKind::Fanout,
                    lifetime: Lifetime::DURABLE,
                }),
                Part::Binding(Binding {
                    queue: stage.queue.clone(),
                    exchange: stage.exchange.clone(),
                    routing_key: String::new(),
                }),
            ]);
        }
        parts
    }

    fn describe(&self, facts: &mut Facts) {
        facts.delays.survive_crashes &= self.plan.retry_queue_type == QueueType::Quorum;
    }

    fn caveats(&self) -> Vec<String> {
        let (work, main) = (&self.plan.names.work, &self.staged.main_exchange);
        let mut caveats = vec![format!(
            "retries come back through the exchange `{main}` with their original routing key: every queue that is bound there \
             for that key gets them, not `{work}` alone; and one whose key leads nowhere is lost by the broker"
        )];
        if !self.staged.declared {
            let key = self.other_key();
            caveats.push(format!(
                "bind `{work}` to `{main}` with the key `{key}`: with it comes back what is retried and did not come through \
                 `{main}`, such as what was redriven; without the binding it does not come back, or is lost"
            ));
        }
        caveats
    }
}
