//! What holds for every run, whatever happens to it.

use std::collections::HashSet;

use proptest::prelude::*;
use redrive_core::shelves::WorkQueue;

use super::tests::plan;
use super::*;

/// What the world does at a step of the run.
#[derive(Clone, Debug)]
struct Chance {
    /// How long a step takes, and how much longer than asked a wait takes.
    millis: u64,
    outcome: u8,
    fate: u8,
    depth: u64,
    consumers: u64,
    person: u8,
}

fn chance() -> impl Strategy<Value = Chance> {
    (0..3000_u64, 0..12_u8, 0..12_u8, 0..40_u64, 0..6_u64, 0..40_u8).prop_map(
        |(millis, outcome, fate, depth, consumers, person)| Chance {
            millis,
            outcome,
            fate,
            depth,
            consumers,
            person,
        },
    )
}

fn outcome(chance: u8, number: usize) -> EntryState {
    match chance.wrapping_add(number as u8) % 12 {
        0 => EntryState::Failed("too large".into()),
        1 => EntryState::Uncertain("no answer".into()),
        2 => EntryState::NotFound,
        3 => EntryState::NotTried,
        _ => EntryState::Done,
    }
}

proptest! {
    #[test]
    fn no_entry_is_sent_twice_none_too_fast_and_it_ends(
        redrives in proptest::collection::vec(0..5_i64, 0..120),
        rate in 1..40_u32,
        canary in 0..8_u32,
        chances in proptest::collection::vec(chance(), 1..60),
        late in any::<bool>(),
    ) {
        let options = RunOptions::new().rate(rate).canary(canary).ramp_step(Duration::from_secs(2));
        let mut run = Run::new(plan(PlanAction::Redrive, &redrives), options);
        let mut now = Duration::from_secs(1000);
        let mut highest = rate;
        let mut sent = HashSet::new();
        // When each message was sent: at the beginning of its step, or at its end.
        let mut times: Vec<Duration> = Vec::new();
        let mut fateless: HashSet<EntryHandle> = HashSet::new();
        let mut last_sent = now;
        let mut canary_is_over = canary == 0;
        let mut round = 0;
        loop {
            round += 1;
            prop_assert!(round < 20_000, "it does not end: {:?}", run);
            // Chances end: after them everything goes well.
            let chance = chances.get(round).cloned();
            if let Some(chance) = &chance {
                match chance.person {
                    0 => run.on(Event::Pause, now),
                    1 => run.on(Event::Resume, now),
                    2 => { highest = highest.max(60); run.on(Event::Rate(60), now); }
                    3 => run.on(Event::Rate(0), now),
                    _ => {}
                }
            }
            let took = Duration::from_millis(chance.as_ref().map_or(7, |chance| chance.millis));
            match run.next(now) {
                Step::Send { action, handles } => {
                    prop_assert!(!handles.is_empty());
                    let end = now + took;
                    let of = chance.as_ref().map_or(4, |chance| chance.outcome);
                    let mut results = Vec::new();
                    for (number, handle) in handles.into_iter().enumerate() {
                        let state = if chance.is_some() { outcome(of, number) } else { EntryState::Done };
                        if state != EntryState::NotTried {
                            prop_assert!(sent.insert(handle.clone()), "twice: {}", handle);
                        }
                        if action == PlanAction::Redrive && state.may_be_sent() {
                            times.push(if late { end } else { now });
                            fateless.insert(handle.clone());
                            if !canary_is_over {
                                prop_assert!(fateless.len() <= canary as usize, "beyond the canary");
                            }
                        }
                        results.push((handle, state));
                    }
                    now = end;
                    last_sent = now;
                    run.on(Event::Results(results), now);
                }
                Step::Look => {
                    now += took;
                    let awaited: Vec<_> = run.awaited().map(|entry| entry.handle.clone()).collect();
                    for (number, handle) in awaited.into_iter().enumerate() {
                        let fate = match chance.as_ref().map_or(4, |chance| chance.fate) as usize + number {
                            0 => Fate::FailedSame,
                            1 => Fate::FailedOther,
                            2 | 3 => continue,
                            _ => Fate::Done,
                        };
                        fateless.remove(&handle);
                        run.on(Event::Fate(handle, fate), now);
                    }
                    let queue = chance.as_ref().map_or(WorkQueue::default(), |chance| {
                        WorkQueue::new(Some(chance.depth), Some(chance.consumers))
                    });
                    run.on(Event::WorkQueue(queue), now);
                    run.on(Event::Looked, now);
                    canary_is_over |= sent.len() >= canary as usize && fateless.is_empty();
                }
                Step::Wait { until, .. } => {
                    prop_assert!(until > now, "a wait that is no wait");
                    // A canary whose fate was waited for long enough is over.
                    now = until + took;
                    canary_is_over |= run.options.canary_wait <= now.saturating_sub(last_sent);
                }
                Step::Paused(_) => run.on(Event::Resume, now),
                Step::Done => break,
                Step::Stopped(_) => break,
            }
        }
        prop_assert!(run.has_ended());
        for (index, begin) in times.iter().enumerate() {
            let in_second = times[index..].iter().take_while(|at| **at < *begin + Duration::from_secs(1)).count();
            prop_assert!(in_second <= highest as usize, "{} in a second, of {}", in_second, highest);
        }
        let report = run.report();
        let sum = report.done + report.gone + report.not_found + report.changed + report.failed + report.uncertain + report.left;
        prop_assert_eq!(sum, redrives.len() as u64);
        if run.next(now) == Step::Done {
            prop_assert_eq!(report.left, 0);
        }
    }
}
