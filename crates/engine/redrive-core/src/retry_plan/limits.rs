//! The limits of the broker, and what a consumer requests of them.

use std::fmt;
use std::time::Duration;

use super::Simulation;

/// A limit, and the amount requested. The [findings](super::RetryPlan::findings) tell whether it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Limit {
    /// What is limited.
    pub name: &'static str,
    /// The amount that the consumer requests; `None`: nothing, or not known.
    pub asked: Option<Amount>,
    /// The amount that is allowed; `None`: there is no limit, or it is not known.
    pub allowed: Option<Amount>,
}

/// A number with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Amount {
    /// A number of times.
    Times(u32),
    /// A number of bytes.
    Bytes(usize),
    /// A time.
    #[cfg_attr(feature = "json", serde(rename = "ms", serialize_with = "super::json::millis"))]
    Time(Duration),
    /// Unlimited.
    WithoutEnd,
}

/// The limits that a failing message meets.
pub(super) fn limits(simulation: &Simulation<'_>) -> Vec<Limit> {
    let facts = &simulation.outline.facts;
    let needs = simulation.needs;
    let limit = |name, asked, allowed| Limit { name, asked, allowed };
    let times = |times| if times == u32::MAX { Amount::WithoutEnd } else { Amount::Times(times) };
    let mut limits = vec![limit(
        "deliveries of one copy",
        needs.deliveries_on(facts).map(times),
        facts.limits.deliveries.map(times),
    )];
    if facts.delays.in_place.is_some() {
        limits.push(limit(
            "attempts of one copy",
            needs.attempts.map(times),
            facts.limits.deliveries.map(times),
        ));
    }
    let longest_wait = needs.waits.last().copied();
    limits.extend([
        limit("longest wait", longest_wait.map(Amount::Time), facts.delays.longest.map(Amount::Time)),
        limit(
            "time until settled",
            simulation.longest_hold.map(Amount::Time),
            facts.limits.hold.map(Amount::Time),
        ),
        limit(
            "redrive's headers",
            simulation.largest_headers().map(Amount::Bytes),
            Some(Amount::Bytes(simulation.header_budget)),
        ),
        limit("all headers", None, facts.limits.headers.map(|headers| Amount::Bytes(headers.bytes()))),
    ]);
    limits
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(times) => write!(f, "{times}"),
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Self::Time(time) => write!(f, "{}", humantime::format_duration(*time)),
            Self::WithoutEnd => f.write_str("without end"),
        }
    }
}
