//! What happens to a message that fails, step by step, as values.

#[cfg(feature = "json")]
mod json;
mod limits;
mod mermaid;
mod simulation;
mod text;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub(crate) use limits::limits;
pub use limits::{Amount, Limit};
pub(crate) use simulation::Simulation;

use crate::transport::{Finding, Severity};

/// What a consumer does with a message that fails: each attempt, each wait and where the message rests meanwhile, the ends, the
/// limits of the broker, and what is wrong. The answer of [`Runner::explain`](crate::Runner::explain) and
/// [`Runner::preflight`](crate::Runner::preflight).
///
/// Its numbers are those that the consumer acts on: an example message fails in the consumer's own stages and in the plan of its
/// settlements, until it has ended. Times do not include the time that the handler takes.
///
/// Displayed, it is a table for 100 columns; [`to_mermaid`](Self::to_mermaid) makes a diagram of it, and `to_json` (feature `json`)
/// a document.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RetryPlan {
    /// The queue (or subscription) that is consumed.
    pub queue: String,
    /// The broker's name as OpenTelemetry spells it.
    pub system: &'static str,
    /// True if the broker was asked; else the plan says what is known without it.
    pub asked: bool,
    /// What becomes of messages: one entry, or, if routes of a [`Router`](crate::Router) have stages of their own, one for each.
    pub routes: Vec<RouteCourses>,
    /// The limits of the broker, and what is asked of them.
    pub limits: Vec<Limit>,
    /// What is wrong, what is doubtful, and what could not be found out, in this order.
    pub findings: Vec<Finding>,
}

/// What becomes of the messages of one route.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RouteCourses {
    /// Which messages; empty: all.
    pub route: String,
    /// What becomes of them, for each way to fail. The first is that of a transient error.
    pub courses: Vec<Course>,
}

/// What becomes of a message that fails in the same way each time.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Course {
    /// The ways to fail that go like this.
    pub cases: Vec<Case>,
    /// The attempts. The last one ends it, unless [`ends`](Self::ends) is false.
    pub steps: Vec<Step>,
    /// False if the message was still retried after the last step: the plan looks at no more than
    /// [`MOST_STEPS`](Self::MOST_STEPS) of them.
    pub ends: bool,
}

/// A way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "json", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Case {
    /// An error that another attempt may mend.
    Transient,
    /// The same, by an error that asks for a time to wait. The plan takes it to ask for none.
    Throttled,
    /// A panic of the handler.
    Panic,
    /// An error that no attempt can mend.
    Permanent,
    /// An argument of the handler that cannot be extracted.
    Rejected,
    /// A transient error of a message whose expiration has passed.
    Expired,
    /// A permanent error after this many redrives by operators: the fewest with which the message ends elsewhere.
    Redriven(u32),
    /// No end of the handler at all: this many deliveries in which the process died.
    Poison(u32),
}

/// One attempt, and what follows from its failure.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Step {
    /// The attempt: 1 the first time.
    pub attempt: u32,
    /// When it begins, counted from the first attempt.
    pub begins_after: Span,
    /// What is decided: the name of the [`Disposition`](crate::Disposition).
    pub decision: &'static str,
    /// The reason that the message ends with; `None` where it is retried.
    pub reason: Option<String>,
    /// The wait that is asked for; `None` where nothing waits.
    pub wait: Option<Span>,
    /// Where the message rests then, one after the other if its wait takes several hops. Empty: nowhere, it is removed.
    pub rests: Vec<Resting>,
    /// The same for the least wait that chance makes, where that differs.
    pub rests_at_least: Option<Vec<Resting>>,
    /// The requests to the broker that it takes.
    pub operations: Vec<&'static str>,
}

/// A place in which a message rests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Resting {
    /// The place, such as the name of a queue.
    pub place: String,
    /// How many times in a row.
    pub times: u32,
}

/// A time between two bounds: chance (jitter) decides where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The least.
    pub least: Duration,
    /// The most.
    pub most: Duration,
}

impl RetryPlan {
    pub(crate) fn new(
        simulation: &Simulation<'_>,
        limits: Vec<Limit>,
        findings: Vec<Finding>,
        asked: bool,
    ) -> Self {
        let mut plan = Self {
            queue: simulation.queue.to_owned(),
            system: simulation.outline.facts.system,
            asked,
            routes: simulation.routes(),
            limits,
            findings,
        };
        plan.findings.sort_by_key(|finding| finding.severity);
        plan
    }

    /// Returns false if the consumer would refuse to start, as far as was looked at.
    #[must_use]
    pub fn starts(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Refused)
    }
}

impl Course {
    /// The most steps that a plan looks at.
    pub const MOST_STEPS: u32 = 1000;

    /// Returns when the last attempt begins, counted from the first one: at the most.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.steps.last().map_or(Duration::ZERO, |step| step.begins_after.most)
    }

    /// Returns how many requests to the broker it takes.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.steps.iter().map(|step| step.operations.len()).sum()
    }
}
