//! The ladder of delay queues: its waits, and the queue for a given wait. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::Message;

use super::DelayStrategy;
use crate::topology::{Part, Plan, Route};

/// The strategy of [`Delay::Ladder`](super::Delay::Ladder).
#[derive(Debug)]
pub(super) struct LadderStrategy {
    plan: Arc<Plan>,
    ladder: Ladder,
    /// All rungs, shortest first, with their routes, which every retry uses.
    routes: Vec<(Duration, Route)>,
}

impl LadderStrategy {
    /// Creates the strategy. If redrive declares the queues, rungs can be added later.
    pub(super) fn new(plan: &Arc<Plan>, ladder: Ladder) -> Self {
        let ladder = if plan.topology.declares_own() { ladder.with_spare_rungs() } else { ladder };
        Self::with(plan, ladder)
    }

    pub(super) fn with(plan: &Arc<Plan>, ladder: Ladder) -> Self {
        let routes = ladder.all().map(|rung| (rung, Route::queue(plan.names.rung(rung)))).collect();
        Self { plan: Arc::clone(plan), ladder, routes }
    }

    /// Returns the same without a spare rung; `None` if the route leads to none.
    pub(super) fn without_spare(&self, spare: &Route) -> Option<Self> {
        let ladder = self.ladder.without(self.rung_of(spare)?)?;
        Some(Self::with(&self.plan, ladder))
    }

    fn rung_of(&self, route: &Route) -> Option<Duration> {
        self.routes.iter().find(|(_, onto)| onto == route).map(|(rung, _)| *rung)
    }
}

impl DelayStrategy for LadderStrategy {
    fn hops(&self) -> Vec<Duration> {
        self.routes.iter().map(|(rung, _)| *rung).collect()
    }

    fn route(&self, wait: Duration, _: &mut Message) -> Option<Route> {
        let rung = self.ladder.rung_for(wait)?;
        let index = self.routes.binary_search_by_key(&rung, |(rung, _)| *rung).ok()?;
        Some(self.routes[index].1.clone())
    }

    fn held_for(&self, wait: Duration) -> Option<Duration> {
        self.ladder.rung_for(wait)
    }

    fn parts(&self) -> Vec<Part> {
        self.ladder.rungs().iter().map(|&wait| Part::Queue(self.plan.rung(wait))).collect()
    }

    fn spare(&self, route: &Route) -> Option<Part> {
        let rung = self.rung_of(route)?;
        self.ladder.spare.contains(&rung).then(|| Part::Queue(self.plan.rung(rung)))
    }

    fn without(&self, spare: &Route) -> Option<Arc<dyn DelayStrategy>> {
        Some(Arc::new(self.without_spare(spare)?))
    }
}

/// The longest time to live that RabbitMQ accepts: ten years.
pub(crate) const MAX_WAIT: Duration = Duration::from_millis(315_360_000_000);

/// The most waits that have a queue of their own. If there are more, all are put together from [`FIXED`].
const MOST_WAITS: usize = 24;

/// The waits that others are put together from, each with one or a few hops: late by a tenth at most. Where redrive declares queues,
/// those that the policies do not name are declared when they are first needed.
pub(crate) const FIXED: [Duration; 20] = [
    millis(50),
    millis(100),
    millis(200),
    millis(500),
    secs(1),
    secs(2),
    secs(5),
    secs(10),
    secs(30),
    secs(MINUTE),
    secs(2 * MINUTE),
    secs(5 * MINUTE),
    secs(10 * MINUTE),
    secs(30 * MINUTE),
    secs(HOUR),
    secs(2 * HOUR),
    secs(6 * HOUR),
    secs(12 * HOUR),
    secs(24 * HOUR),
    secs(7 * 24 * HOUR),
];
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

/// Maximum number of delay queues of one consumer, whatever waits are asked for.
pub(crate) const MOST_QUEUES: usize = MOST_WAITS + FIXED.len();

/// The longest wait with a queue from the start, if no waits are known.
const DEFAULT_LONGEST: Duration = secs(MINUTE);

/// A queue that is there is used for a wait that is shorter by this part, rather than one that is still to be declared.
const LATE_BY: u32 = 10;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The waits with a queue; each list shortest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ladder {
    /// Declared or verified when the transport is opened.
    rungs: Vec<Duration>,
    /// Declared on demand.
    spare: Vec<Duration>,
}

impl Ladder {
    /// Creates a rung for each of these waits. If there are none, or too many, the fixed rungs between the shortest and the longest.
    pub(crate) fn for_waits(waits: impl IntoIterator<Item = Duration>) -> Self {
        let exact: BTreeSet<_> = waits.into_iter().filter(|wait| !wait.is_zero()).map(whole_millis).collect();
        let between =
            |shortest, longest| FIXED.into_iter().filter(move |rung| (shortest..=longest).contains(rung));
        let rungs = match (exact.first().copied(), exact.last().copied()) {
            (Some(shortest), Some(longest)) if exact.len() > MOST_WAITS => {
                let ends = [shortest, longest];
                between(shortest, longest).chain(ends).collect::<BTreeSet<_>>().into_iter().collect()
            }
            (Some(_), Some(_)) => exact.into_iter().collect(),
            _ => between(Duration::ZERO, DEFAULT_LONGEST).collect(),
        };
        Self { rungs, spare: Vec::new() }
    }

    /// Adds the other fixed rungs: for queues that may be declared at any time.
    pub(crate) fn with_spare_rungs(mut self) -> Self {
        self.spare = FIXED.into_iter().filter(|spare| !self.rungs.contains(spare)).collect();
        debug_assert!(self.all().count() <= MOST_QUEUES);
        self
    }

    /// Creates a rung for each of these waits, without a default.
    pub(crate) fn exactly(waits: impl IntoIterator<Item = Duration>) -> Self {
        let mut waits = waits.into_iter().peekable();
        if waits.peek().is_some() { Self::for_waits(waits) } else { Self::default() }
    }

    /// Removes a spare rung, whose queue the broker does not let redrive declare. Returns `None` if it is not spare.
    pub(crate) fn without(&self, rung: Duration) -> Option<Self> {
        let spare: Vec<_> = self.spare.iter().copied().filter(|spare| *spare != rung).collect();
        (spare.len() < self.spare.len()).then(|| Self { rungs: self.rungs.clone(), spare })
    }

    /// Returns the shortest rung that is not shorter than `wait`, or one a little longer that is not spare; `None` if all are shorter.
    pub(crate) fn rung_for(&self, wait: Duration) -> Option<Duration> {
        let shortest = |rungs: &[Duration]| rungs.get(rungs.partition_point(|&rung| rung < wait)).copied();
        let declared = shortest(&self.rungs);
        let close = declared.filter(|&rung| rung - wait <= wait / LATE_BY);
        close.or_else(|| declared.into_iter().chain(shortest(&self.spare)).min())
    }

    /// Returns all rungs, shortest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = Duration> {
        let all: BTreeSet<_> = self.rungs.iter().chain(&self.spare).copied().collect();
        all.into_iter()
    }

    pub(crate) fn rungs(&self) -> &[Duration] {
        &self.rungs
    }
}

/// Rounds up to milliseconds, RabbitMQ's unit, so that no wait is cut short.
pub(crate) fn whole_millis(wait: Duration) -> Duration {
    let millis = wait.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)).clamp(Duration::from_millis(1), MAX_WAIT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_known_wait_has_its_rung() {
        let ladder = Ladder::for_waits([millis(1000), millis(10), Duration::from_micros(1), Duration::ZERO]);
        assert_eq!(ladder.rungs(), [millis(1), millis(10), millis(1000)]);
        assert_eq!(ladder.rung_for(millis(10)), Some(millis(10)));
        assert_eq!(ladder.rung_for(Duration::from_micros(10_001)), Some(millis(1000)));
        assert_eq!(ladder.rung_for(millis(1001)), None);
    }

    #[test]
    fn the_default_ladder_goes_from_50_ms_to_a_minute() {
        let ladder = Ladder::for_waits([]);
        assert_eq!(ladder.rungs().first(), Some(&millis(50)));
        assert_eq!(ladder.rungs().last(), Some(&secs(60)));
        assert!(ladder.rungs().iter().all(|rung| FIXED.contains(rung)));
    }

    #[test]
    fn spare_rungs_are_the_others_and_not_declared_at_the_start() {
        let ladder = Ladder::for_waits([secs(90)]).with_spare_rungs();
        assert_eq!(ladder.rungs(), [secs(90)]);
        assert_eq!(ladder.rung_for(secs(91)), Some(secs(120)));
        assert_eq!(ladder.rung_for(secs(30)), Some(secs(30)));
        assert_eq!(ladder.rung_for(secs(82)), Some(secs(90)), "rather one that is there");
        assert_eq!(Ladder::for_waits([secs(65)]).with_spare_rungs().rung_for(secs(60)), Some(secs(65)));
        assert_eq!(ladder.all().count(), 21);
    }

    #[test]
    fn a_spare_rung_that_cannot_be_declared_is_left_out() {
        let ladder = Ladder::for_waits([secs(90)]).with_spare_rungs();
        let without = ladder.without(secs(120)).unwrap();
        assert_eq!(without.rung_for(secs(91)), Some(secs(300)));
        assert_eq!(without.without(secs(120)), None);
        assert_eq!(ladder.without(secs(90)), None, "it is declared at the start");
    }

    #[test]
    fn nothing_is_longer_than_the_broker_can_hold() {
        assert_eq!(Ladder::for_waits([Duration::MAX]).rungs(), [MAX_WAIT]);
    }

    proptest! {
        #[test]
        fn few_waits_have_their_rungs_and_many_those_between(
            waits in proptest::collection::vec(1_u64..1_000_000_000, 1..200)
        ) {
            let ladder = Ladder::for_waits(waits.iter().copied().map(millis));
            let exact: BTreeSet<_> = waits.iter().copied().map(millis).collect();
            prop_assert_eq!(ladder.rungs().first(), exact.first());
            prop_assert_eq!(ladder.rungs().last(), exact.last());
            if exact.len() <= MOST_WAITS {
                prop_assert!(ladder.rungs().iter().eq(&exact));
            }
            prop_assert!(ladder.with_spare_rungs().all().count() <= MOST_QUEUES);
        }
    }
}
