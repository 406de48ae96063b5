//! Makes a scenario that differs smaller, as long as it differs.

use crate::scenario::{Dress, Publish, Scenario, Step};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the smallest scenario found for which `differs` holds. Asks for `at_once` candidates at a time: on a real broker they
/// mostly wait.
pub fn shrink(scenario: &Scenario, at_once: usize, differs: impl Fn(&Scenario) -> bool + Sync) -> Scenario {
    let mut smallest = scenario.clone();
    loop {
        let candidates = candidates(&smallest);
        let found = first(&candidates, at_once, &differs);
        match found {
            Some(place) => smallest = candidates[place].clone(),
            None => return smallest,
        }
    }
}

/// The first candidate, of those that were asked for, that differs. The smaller ones come first.
fn first(
    candidates: &[Scenario],
    at_once: usize,
    differs: &(impl Fn(&Scenario) -> bool + Sync),
) -> Option<usize> {
    for (round, some) in candidates.chunks(at_once).enumerate() {
        let next = AtomicUsize::new(0);
        let best = Mutex::new(None);
        std::thread::scope(|threads| {
            for _ in some {
                threads.spawn(|| {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if differs(&some[place]) {
                        let mut best = best.lock().unwrap_or_else(PoisonError::into_inner);
                        *best = Some(best.map_or(place, |best: usize| best.min(place)));
                    }
                });
            }
        });
        if let Some(place) = best.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Some(round * at_once + place);
        }
    }
    None
}

/// Scenarios with a part less, the largest parts first.
fn candidates(scenario: &Scenario) -> Vec<Scenario> {
    let mut all = Vec::new();
    let with = |change: &dyn Fn(&mut Scenario)| {
        let mut smaller = scenario.clone();
        change(&mut smaller);
        smaller
    };
    let steps = scenario.steps.len();
    let mut piece = steps.div_ceil(2);
    while piece > 0 {
        for from in (0..steps).step_by(piece) {
            all.push(with(&|smaller| {
                smaller.steps.drain(from..steps.min(from + piece));
            }));
        }
        piece /= 2;
    }
    for place in 0..scenario.policies.len() {
        all.push(with(&|smaller| {
            smaller.policies.remove(place);
        }));
    }
    for place in 0..scenario.bindings.len() {
        all.push(with(&|smaller| {
            smaller.bindings.remove(place);
        }));
    }
    for (queue, it) in scenario.queues.iter().enumerate() {
        for place in 0..it.arguments.len() {
            all.push(with(&|smaller| {
                smaller.queues[queue].arguments.remove(place);
            }));
        }
    }
    for (place, step) in scenario.steps.iter().enumerate() {
        if let Step::Publish(publish) = step {
            all.extend(
                plainer(publish)
                    .into_iter()
                    .map(|publish| with(&|smaller| smaller.steps[place] = Step::Publish(publish.clone()))),
            );
        }
        if let Step::Wait { ticks: 2.. } = step {
            all.push(with(&|smaller| smaller.steps[place] = Step::Wait { ticks: 1 }));
        }
    }
    all
}

/// The same with one property less.
fn plainer(publish: &Publish) -> Vec<Publish> {
    let mut all = Vec::new();
    let mut try_one = |is_set: bool, change: &dyn Fn(&mut Publish)| {
        if is_set {
            let mut plainer = publish.clone();
            change(&mut plainer);
            all.push(plainer);
        }
    };
    try_one(publish.dress != Dress::Plain, &|it| it.dress = Dress::Plain);
    try_one(publish.priority.is_some(), &|it| it.priority = None);
    try_one(publish.expiration.is_some(), &|it| it.expiration = None);
    try_one(!publish.cc.is_empty(), &|it| it.cc.clear());
    try_one(!publish.bcc.is_empty(), &|it| it.bcc.clear());
    try_one(publish.death.is_some(), &|it| it.death = None);
    try_one(publish.mandatory, &|it| it.mandatory = false);
    try_one(publish.size > 0, &|it| it.size = 0);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Combination, scenario};
    use crate::scenario::Kind;
    use redrive_brokers::Version;

    #[test]
    fn what_does_not_matter_goes() {
        let combination = Combination { version: Version::V3_10, kind: Kind::Classic };
        let differs =
            |scenario: &Scenario| scenario.steps.iter().any(|step| matches!(step, Step::Wait { .. }));
        let smallest = shrink(&scenario(combination, 1), 8, differs);
        assert_eq!(smallest.steps, [Step::Wait { ticks: 1 }]);
        assert_eq!(smallest.policies, []);
        assert_eq!(smallest.bindings, []);
        assert!(smallest.queues.iter().all(|queue| queue.arguments.is_empty()));
    }
}
