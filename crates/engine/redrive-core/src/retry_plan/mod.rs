//! The steps of a message that fails, as values.

#[cfg(feature = "json")]
mod json;
mod limits;
mod mermaid;
mod simulation;
mod text;

use std::time::Duration;

use limits::limits;
pub use limits::{Amount, Limit};
pub use simulation::Simulation;

use crate::contract::{Finding, Severity};

/// What a consumer does with a message that fails: each attempt, each wait and where the message rests meanwhile, the ends, the
/// limits of the broker, and what is wrong. Returned by `Runner::explain` and
/// `Runner::preflight`.
///
/// The consumer's own code computes it: an example message fails in the consumer's stages and in the plan of its settlements, until
/// it has ended. Times do not include the time that the handler takes.
///
/// `Display` prints a table of 100 columns. [`to_mermaid`](Self::to_mermaid) returns a diagram, and `to_json` (feature `json`) a
/// document.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RetryPlan {
    /// The queue (or subscription) that is consumed.
    pub queue: String,
    /// The broker's name as OpenTelemetry spells it.
    pub system: &'static str,
    /// True if the broker was asked; false if the plan contains only what is known without it.
    pub asked: bool,
    /// What happens to messages: one entry, or, if routes of a `Router` have stages of their own, one for each.
    pub routes: Vec<RouteCourses>,
    /// The settings of the consumer that concern all messages.
    pub settings: Vec<Setting>,
    /// The limits of the broker, and what is requested of them.
    pub limits: Vec<Limit>,
    /// What is wrong, what is doubtful, and what could not be found out, in this order.
    pub findings: Vec<Finding>,
}

/// A setting of the consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Setting {
    /// What is set.
    pub name: &'static str,
    /// The value in words, with its unit.
    pub value: String,
}

/// What happens to the messages of one route.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RouteCourses {
    /// Which messages; empty: all.
    pub route: String,
    /// What happens to them, for each kind of failure. The first is that of a transient error.
    pub courses: Vec<Course>,
}

/// What happens to a message that fails in the same way each time.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Course {
    /// The kinds of failure with this course.
    pub cases: Vec<Case>,
    /// The attempts. The message ends with the last one, unless [`ends`](Self::ends) is false.
    pub steps: Vec<Step>,
    /// False if the message is still retried after the last step: a plan has at most [`MOST_STEPS`](Self::MOST_STEPS) steps.
    pub ends: bool,
}

/// A kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "json", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Case {
    /// An error that another attempt may cure.
    Transient,
    /// As `Transient`, by an error that may ask for a wait. The plan assumes that it asks for none.
    Throttled,
    /// A panic of the handler.
    Panic,
    /// An error that no attempt can cure.
    Permanent,
    /// An argument of the handler that cannot be extracted.
    Rejected,
    /// A transient error of a message whose expiration has passed.
    Expired,
    /// A permanent error after this many redrives by operators: the smallest number with which the message ends elsewhere.
    Redriven(u32),
    /// The process died in this many deliveries, so the handler never ended.
    Poison(u32),
}

/// One attempt, and the result of its failure.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Step {
    /// The attempt: 1 the first time.
    pub attempt: u32,
    /// When it begins, measured from the first attempt.
    pub begins_after: Span,
    /// The decision: the name of the [`Disposition`](crate::Disposition).
    pub decision: &'static str,
    /// The reason with which the message ends; `None` if it is retried.
    pub reason: Option<String>,
    /// The requested wait; `None` if nothing waits.
    pub wait: Option<Span>,
    /// Where the message rests then; several places in turn if its wait takes several hops. Empty: it is removed.
    pub rests: Vec<Resting>,
    /// The same for the shortest wait that jitter allows, if that differs.
    pub rests_at_least: Option<Vec<Resting>>,
    /// The requests to the broker.
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

/// A time between two bounds; jitter decides where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The lower bound.
    pub least: Duration,
    /// The upper bound.
    pub most: Duration,
}

impl Setting {
    /// Creates the setting of this name.
    #[must_use]
    pub fn new(name: &'static str, value: String) -> Self {
        Self { name, value }
    }
}

impl Simulation<'_> {
    /// Lets the message fail in every way, and returns the plan with these settings and findings. `asked` is true if the broker was
    /// asked for the outline.
    #[must_use]
    pub fn plan(&self, settings: Vec<Setting>, mut findings: Vec<Finding>, asked: bool) -> RetryPlan {
        findings.sort_by_key(|finding| finding.severity);
        RetryPlan {
            queue: self.queue.to_owned(),
            system: self.outline.facts.system,
            asked,
            routes: self.routes(),
            settings,
            limits: limits(self),
            findings,
        }
    }
}

impl RetryPlan {
    /// Returns false if the consumer would refuse to start, as far as the plan can tell.
    #[must_use]
    pub fn starts(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Refused)
    }
}

impl Course {
    /// Maximum number of steps of a plan.
    pub const MOST_STEPS: u32 = 1000;

    /// Returns the latest time at which the last attempt begins, measured from the first one.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.steps.last().map_or(Duration::ZERO, |step| step.begins_after.most)
    }

    /// Returns the number of requests to the broker.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.steps.iter().map(|step| step.operations.len()).sum()
    }
}
