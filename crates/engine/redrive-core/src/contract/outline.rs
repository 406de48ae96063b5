//! What a transport does with failed messages, as a value that exists without a broker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::facts::Facts;
use crate::settlement::Settlement;
use crate::unmet_need::UnmetNeed;

/// What a transport would do with messages that fail: the facts, and the place where each settlement leaves its message.
/// [`Transport::outline`](super::Transport::outline) returns it without asking the broker, and
/// [`Transport::preflight`](super::Transport::preflight) after asking it.
///
/// ```
/// use redrive_core::transport::{Facts, Finding, Outline, Rest, Settlement};
///
/// let outline = Outline::new(Facts::new("nats"))
///     .resting(|settlement| match settlement {
///         Settlement::Reschedule { wait, .. } => Rest::at("stream `waiting`").held_for(*wait).by(["publish", "ack"]),
///         _ => Rest::at("stream `dead`").by(["publish", "ack"]),
///     })
///     .with(Finding::unchecked("the stream's limits were not read: give the user the right to see them"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct Outline {
    /// The facts, as far as they are known.
    pub facts: Facts,
    /// What is wrong or doubtful, in addition to what [`Needs`](crate::transport::Needs) derives from the facts.
    pub findings: Vec<Finding>,
    rest: Arc<RestOf>,
}

type RestOf = dyn Fn(&Settlement) -> Rest + Send + Sync;

/// Where a settlement leaves its message, for how long, and what it costs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Rest {
    pub(crate) place: String,
    pub(crate) held_for: Option<Duration>,
    pub(crate) operations: Vec<&'static str>,
}

/// A reason why a consumer cannot start, or something to know before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// Its consequence.
    pub severity: Severity,
    /// One sentence, with what to do.
    pub text: String,
    /// The need that the broker cannot honour, if it is one. Not part of the JSON, which has its sentence.
    #[cfg_attr(feature = "json", serde(skip))]
    pub unmet: Option<UnmetNeed>,
}

/// The consequence of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "json", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Severity {
    /// The consumer would not start.
    Refused,
    /// The consumer would start, with a warning in the log.
    Warning,
    /// This could not be checked.
    Unchecked,
    /// None: for information.
    Note,
}

impl Outline {
    /// Creates the outline of a broker of which only these facts are known.
    pub fn new(facts: Facts) -> Self {
        let system = facts.system;
        let rest = move |settlement: &Settlement| match settlement {
            Settlement::Shelve { shelf, .. } => Rest::at(format!("the {shelf} shelf of {system}")),
            Settlement::NativeDeadLetter => Rest::at(format!("the dead-letter shelf of {system}")),
            _ => Rest::at(system),
        };
        Self { facts, findings: Vec::new(), rest: Arc::new(rest) }
    }

    /// Sets the function that returns where a settlement leaves its message. It must be pure: it is called any number of times.
    pub fn resting(mut self, rest: impl Fn(&Settlement) -> Rest + Send + Sync + 'static) -> Self {
        self.rest = Arc::new(rest);
        self
    }

    /// Adds a finding.
    pub fn with(mut self, finding: Finding) -> Self {
        self.findings.push(finding);
        self
    }

    pub(crate) fn rest(&self, settlement: &Settlement) -> Rest {
        (self.rest)(settlement)
    }
}

impl Rest {
    /// Creates a rest at this place, such as the name of a queue.
    pub fn at(place: impl Into<String>) -> Self {
        Self { place: place.into(), held_for: None, operations: Vec::new() }
    }

    /// Sets how long the place holds the message, if that differs from the wait of the settlement.
    pub fn held_for(mut self, time: Duration) -> Self {
        self.held_for = Some(time);
        self
    }

    /// Sets the requests to the broker that carry the settlement out, in the broker's terms.
    pub fn by(mut self, operations: impl IntoIterator<Item = &'static str>) -> Self {
        self.operations = operations.into_iter().collect();
        self
    }
}

impl Finding {
    /// Creates a finding with which the consumer cannot start.
    #[must_use]
    pub fn refused(text: impl Into<String>) -> Self {
        Self::new(Severity::Refused, text)
    }

    /// Creates a finding about a need that the broker cannot honour: the consumer cannot start.
    #[must_use]
    pub fn unmet(need: UnmetNeed) -> Self {
        Self { text: need.to_string(), unmet: Some(need), severity: Severity::Refused }
    }

    /// Creates a finding that the consumer only logs.
    #[must_use]
    pub fn warning(text: impl Into<String>) -> Self {
        Self::new(Severity::Warning, text)
    }

    /// Creates a finding about something that could not be checked.
    #[must_use]
    pub fn unchecked(text: impl Into<String>) -> Self {
        Self::new(Severity::Unchecked, text)
    }

    /// Creates a finding for information.
    #[must_use]
    pub fn note(text: impl Into<String>) -> Self {
        Self::new(Severity::Note, text)
    }

    fn new(severity: Severity, text: impl Into<String>) -> Self {
        Self { severity, text: text.into(), unmet: None }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "refused",
            Self::Warning => "warning",
            Self::Unchecked => "unchecked",
            Self::Note => "note",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.text)
    }
}

impl fmt::Debug for Outline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { facts, findings, .. } = self;
        f.debug_struct("Outline").field("facts", facts).field("findings", findings).finish_non_exhaustive()
    }
}
