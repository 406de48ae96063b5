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
        let (rung, _) = self.routes.iter().find(|(_, onto)| onto == route)?;
        self.ladder.spare.contains(rung).then(|| Part::Queue(self.plan.rung(*rung)))
    }
}

/// The longest time to live that RabbitMQ accepts: ten years.
pub(crate) const MAX_WAIT: Duration = Duration::from_millis(315_360_000_000);

/// If there are more waits than this, waits that are close to each other share a queue.
const MOST_WAITS: usize = 24;
/// Maximum difference of waits that share a queue: the queue's wait is at most this many percent longer.
const SHARED_WITHIN_PERCENT: u128 = 25;

/// The default ladder, if no waits are known: each rung is half as long again as the previous.
const DEFAULT_SHORTEST: Duration = Duration::from_millis(50);
const DEFAULT_LONGEST: Duration = Duration::from_secs(60);

/// For waits that nobody named before the transport was opened (a snooze, or the minimum wait of an error); each queue is declared
/// when it is first needed. Without them, a wait of an hour could take very many hops of the longest rung.
const SPARE: [Duration; 3] = [Duration::from_secs(60), Duration::from_secs(600), Duration::from_secs(3600)];

/// The waits with a queue; each list shortest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ladder {
    /// Declared or verified when the transport is opened.
    rungs: Vec<Duration>,
    /// Declared on demand.
    spare: Vec<Duration>,
}

impl Ladder {
    /// Creates a rung for each of these waits; the default ladder if there are none.
    pub(crate) fn for_waits(waits: impl IntoIterator<Item = Duration>) -> Self {
        let exact: BTreeSet<_> = waits.into_iter().filter(|wait| !wait.is_zero()).map(whole_millis).collect();
        let exact: Vec<_> = exact.into_iter().collect();
        let rungs = match exact.len() {
            0 => default_rungs(),
            1..=MOST_WAITS => exact,
            _ => thinned(&exact),
        };
        Self { rungs, spare: Vec::new() }
    }

    /// Adds spare rungs beyond the longest: for queues that may be declared at any time.
    pub(crate) fn with_spare_rungs(mut self) -> Self {
        let longest = self.rungs.last().copied().unwrap_or_default();
        self.spare = SPARE.into_iter().filter(|&spare| spare > longest).collect();
        self
    }

    /// Creates the default ladder and the rungs beyond it, each declared on demand; the rungs for `waits` are declared when the
    /// transport is opened.
    pub(crate) fn on_demand(waits: impl IntoIterator<Item = Duration>) -> Self {
        let rungs = Self::exactly(waits).rungs;
        let spare =
            default_rungs().into_iter().chain(SPARE.into_iter().filter(|&spare| spare > DEFAULT_LONGEST));
        Self { spare: spare.filter(|spare| !rungs.contains(spare)).collect(), rungs }
    }

    /// Creates a rung for each of these waits, without a default.
    pub(crate) fn exactly(waits: impl IntoIterator<Item = Duration>) -> Self {
        let mut waits = waits.into_iter().peekable();
        if waits.peek().is_some() { Self::for_waits(waits) } else { Self::default() }
    }

    /// Returns the shortest rung that is not shorter than `wait`; `None` if all are.
    pub(crate) fn rung_for(&self, wait: Duration) -> Option<Duration> {
        let shortest = |rungs: &[Duration]| rungs.get(rungs.partition_point(|&rung| rung < wait)).copied();
        [shortest(&self.rungs), shortest(&self.spare)].into_iter().flatten().min()
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

/// Thins out the waits, from the shortest up: one rung for all waits that it exceeds by at most the share.
fn thinned(waits: &[Duration]) -> Vec<Duration> {
    let mut rungs = Vec::new();
    let mut rest = waits;
    while let Some(&shortest) = rest.first() {
        let reach = shortest.as_millis() * (100 + SHARED_WITHIN_PERCENT) / 100;
        let sharing = rest.partition_point(|wait| wait.as_millis() <= reach);
        rungs.push(rest[sharing - 1]);
        rest = &rest[sharing..];
    }
    rungs
}

fn default_rungs() -> Vec<Duration> {
    let longer =
        |&rung: &Duration| (rung < DEFAULT_LONGEST).then(|| whole_millis(rung * 3 / 2).min(DEFAULT_LONGEST));
    std::iter::successors(Some(DEFAULT_SHORTEST), longer).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

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
        assert_eq!(ladder.rungs().last(), Some(&Duration::from_secs(60)));
        assert!(ladder.rungs().len() <= 20, "{ladder:?}");
        for pair in ladder.rungs().windows(2) {
            assert!(pair[0] < pair[1] && pair[1] <= pair[0] * 3 / 2 + millis(1), "{pair:?}");
        }
    }

    #[test]
    fn spare_rungs_are_beyond_the_longest_and_not_declared_at_the_start() {
        let ladder = Ladder::for_waits([Duration::from_secs(90)]).with_spare_rungs();
        assert_eq!(ladder.rungs(), [Duration::from_secs(90)]);
        assert_eq!(ladder.rung_for(Duration::from_secs(91)), Some(Duration::from_secs(600)));
        assert_eq!(ladder.all().last(), Some(Duration::from_secs(3600)));
    }

    #[test]
    fn nothing_is_longer_than_the_broker_can_hold() {
        assert_eq!(Ladder::for_waits([Duration::MAX]).rungs(), [MAX_WAIT]);
    }

    proptest! {
        #[test]
        fn no_known_wait_is_early_and_none_is_late_by_more_than_the_share(
            waits in proptest::collection::vec(1_u64..1_000_000_000, 1..200)
        ) {
            let ladder = Ladder::for_waits(waits.iter().copied().map(millis));
            for wait in waits {
                let rung = ladder.rung_for(millis(wait)).unwrap();
                prop_assert!(rung >= millis(wait));
                prop_assert!(rung.as_millis() * 100 <= u128::from(wait) * (100 + SHARED_WITHIN_PERCENT));
            }
        }

        #[test]
        fn however_many_waits_there_are_the_ladder_stays_short(
            waits in proptest::collection::vec(50_u64..60_000, 1..2000)
        ) {
            prop_assert!(Ladder::for_waits(waits.into_iter().map(millis)).rungs().len() <= 32);
        }
    }
}
