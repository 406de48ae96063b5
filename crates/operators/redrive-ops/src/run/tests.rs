use std::time::UNIX_EPOCH;

use redrive_core::shelves::{Shelved, WorkQueue};
use redrive_core::{Message, Shelf, header_names as names};

use super::*;
use crate::plan::PlanOptions;

pub(super) fn plan(action: PlanAction, redrives: &[i64]) -> Plan {
    let entry = |(number, redrives): (usize, &i64)| {
        let message = Message::new("").with_header(names::REDRIVES, *redrives);
        Shelved::new(EntryHandle::new(Shelf::DeadLetter, number.to_string()), message)
    };
    let entries: Vec<_> = redrives.iter().enumerate().map(entry).collect();
    Plan::new(action, Shelf::DeadLetter, &entries, &PlanOptions::new("orders"), UNIX_EPOCH)
}

pub(super) fn handle(number: usize) -> EntryHandle {
    EntryHandle::new(Shelf::DeadLetter, number.to_string())
}

fn run_of(entries: usize, options: RunOptions) -> Run {
    Run::new(plan(PlanAction::Redrive, &vec![0; entries]), options)
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Answers looks with nothing new until another step comes.
fn next(run: &mut Run, now: Duration) -> Step {
    loop {
        match run.next(now) {
            Step::Look => run.on(Event::Looked, now),
            step => return step,
        }
    }
}

/// Takes a step that sends, answers that all are done, and returns which they were.
fn send(run: &mut Run, now: Duration) -> Vec<usize> {
    let Step::Send { handles, .. } = next(run, now) else { panic!("{run:?}") };
    run.on(Event::Results(handles.iter().map(|handle| (handle.clone(), EntryState::Done)).collect()), now);
    handles.iter().map(|handle| handle.entry().parse().unwrap()).collect()
}

/// Takes all steps that send at this time, and returns how many were sent.
fn send_all(run: &mut Run, now: Duration) -> usize {
    let mut sent = 0;
    while let Step::Send { handles, .. } = next(run, now) {
        sent += handles.len();
        run.on(Event::Results(handles.into_iter().map(|handle| (handle, EntryState::Done)).collect()), now);
    }
    sent
}

fn fate(run: &mut Run, numbers: impl IntoIterator<Item = usize>, fate: Fate, now: Duration) {
    for number in numbers {
        run.on(Event::Fate(handle(number), fate), now);
    }
}

fn is_waiting(run: &mut Run, now: Duration, why: Waiting) {
    let step = next(run, now);
    assert!(matches!(&step, Step::Wait { why: it, until } if *it == why && *until > now), "{step:?}");
}

/// A run whose canary of five is handled.
fn after_canary(entries: usize, options: RunOptions) -> Run {
    let mut run = run_of(entries, options);
    assert_eq!(send(&mut run, at(0)), [0, 1, 2, 3, 4]);
    fate(&mut run, 0..5, Fate::Done, at(1));
    run
}

#[test]
fn nothing_beyond_the_canary_is_sent_before_its_fate() {
    let mut run = run_of(100, RunOptions::new());
    assert_eq!(send(&mut run, at(0)), [0, 1, 2, 3, 4]);
    is_waiting(&mut run, at(3), Waiting::Canary);
    fate(&mut run, 0..4, Fate::Done, at(4));
    is_waiting(&mut run, at(29), Waiting::Canary);
    fate(&mut run, [4], Fate::Done, at(29));
    assert_eq!(send(&mut run, at(29)), [5]);
}

#[test]
fn a_canary_that_is_not_seen_again_in_time_is_not_known_and_counts_as_not_failed() {
    let mut run = run_of(100, RunOptions::new());
    send(&mut run, at(0));
    is_waiting(&mut run, at(1), Waiting::Canary);
    assert_eq!(send(&mut run, at(31)), [5]);
    assert_eq!(run.report().fates, FateCounts { not_known: 6, ..FateCounts::default() });
}

#[test]
fn the_longest_times_overflow_nothing() {
    let longest = Duration::MAX;
    let options = || RunOptions::new().canary_wait(longest).look_every(longest).ramp_step(longest);
    let mut run = run_of(100, options());
    assert_eq!(send(&mut run, at(1)), [0, 1, 2, 3, 4]);
    is_waiting(&mut run, at(2), Waiting::Canary);
    run.on(Event::Looked, at(3));
    fate(&mut run, 0..5, Fate::Done, at(4));
    assert_eq!(send(&mut run, at(4)), [5]);
    assert_eq!(options().duration_of(100), longest);
}

#[test]
fn one_same_failure_of_the_canary_stops_the_run() {
    let mut run = run_of(100, RunOptions::new());
    send(&mut run, at(0));
    fate(&mut run, [2], Fate::FailedSame, at(3));
    assert_eq!(run.next(at(3)), Step::Stopped(StopReason::SameFailure));
    assert_eq!((run.report().done, run.report().left), (5, 95));
}

#[test]
fn another_failure_of_the_canary_pauses_the_run_for_a_person() {
    let mut run = run_of(100, RunOptions::new());
    send(&mut run, at(0));
    fate(&mut run, [2], Fate::FailedOther, at(3));
    fate(&mut run, [0, 1, 3, 4], Fate::Done, at(3));
    assert_eq!(run.next(at(99)), Step::Paused(PauseReason::CanaryFailedOtherwise));
    run.on(Event::Resume, at(100));
    assert_eq!(send(&mut run, at(100)), [5]);
}

#[test]
fn the_ramp_is_1_10_100_a_second_up_to_the_rate() {
    let mut run = after_canary(10_000, RunOptions::new().rate(200).canary(5));
    let mut sent = Vec::new();
    let mut now = at(1);
    while now < at(42) {
        sent.push(send_all(&mut run, now));
        now += at(1);
    }
    assert_eq!(
        (sent[0], sent[9], sent[10], sent[19], sent[20], sent[30], sent[40]),
        (1, 1, 10, 10, 100, 200, 200)
    );
}

#[test]
fn a_failure_halves_the_rate_and_the_same_failure_stops_the_run_the_third_time() {
    let mut run = after_canary(1000, RunOptions::new().ramp_step(at(1)));
    send(&mut run, at(2));
    assert_eq!(send(&mut run, at(3)).len(), 10);
    for (number, rate) in [(6, 5), (7, 2)] {
        fate(&mut run, [number], Fate::FailedSame, at(number as u64));
        assert_eq!(run.rate(), rate);
    }
    assert!(matches!(next(&mut run, at(7)), Step::Send { .. }));
    fate(&mut run, [8], Fate::FailedSame, at(8));
    assert_eq!(run.next(at(8)), Step::Stopped(StopReason::SameFailure));
}

#[test]
fn other_failures_stop_the_run_once_the_slowest_rate_fails_too() {
    let mut run = after_canary(1000, RunOptions::new().ramp_step(at(1)));
    send(&mut run, at(2));
    send(&mut run, at(3));
    let rates = [5, 2, 1, 1, 1, 1];
    for (number, rate) in (5..11).zip(rates) {
        fate(&mut run, [number], Fate::FailedOther, at(number as u64));
        assert_eq!(run.rate(), rate, "{number}");
    }
    assert_eq!(run.next(at(11)), Step::Stopped(StopReason::TooManyFailures));
}

#[test]
fn an_entry_that_cannot_be_sent_halves_the_rate_and_is_not_tried_again() {
    let mut run = after_canary(20, RunOptions::new().ramp_step(at(1)));
    send(&mut run, at(2));
    let Step::Send { handles, .. } = next(&mut run, at(3)) else { panic!() };
    let failed = |handle: &EntryHandle| (handle.clone(), EntryState::Failed("too large".into()));
    run.on(Event::Results(handles.iter().map(failed).collect()), at(3));
    assert_eq!(run.rate(), 5);
    assert_eq!(send(&mut run, at(4)), [16, 17, 18, 19]);
    assert_eq!((run.report().failed, run.not_done().count()), (10, 10));
}

#[test]
fn what_was_not_tried_has_its_turn_again_in_its_place() {
    let mut run = run_of(8, RunOptions::new());
    let Step::Send { handles, .. } = next(&mut run, at(0)) else { panic!() };
    let state = |number: usize| if number < 2 { EntryState::Done } else { EntryState::NotTried };
    run.on(
        Event::Results(handles.into_iter().enumerate().map(|(n, handle)| (handle, state(n))).collect()),
        at(0),
    );
    assert_eq!(send(&mut run, at(1)), [2, 3, 4]);
}

#[test]
fn an_entry_without_a_result_is_uncertain_and_counts_as_sent() {
    let mut run = run_of(8, RunOptions::new());
    let Step::Send { .. } = next(&mut run, at(0)) else { panic!() };
    assert!(matches!(run.next(at(0)), Step::Wait { why: Waiting::Results, .. }));
    run.on(Event::Results(vec![(handle(0), EntryState::Done)]), at(0));
    assert_eq!((run.report().uncertain, run.awaited().count()), (4, 5));
    is_waiting(&mut run, at(1), Waiting::Canary);
}

#[test]
fn nothing_is_sent_while_the_work_queue_has_no_consumer() {
    let mut run = run_of(8, RunOptions::new());
    let none = Event::WorkQueue(WorkQueue::new(Some(0), Some(0)));
    run.on(none.clone(), at(0));
    is_waiting(&mut run, at(0), Waiting::Hold(Hold::NoConsumer));
    run.on(Event::WorkQueue(WorkQueue::new(Some(0), Some(1))), at(1));
    assert_eq!(send(&mut run, at(1)), [0, 1, 2, 3, 4]);
    // The wait for the canary begins when somebody can handle it.
    is_waiting(&mut run, at(1), Waiting::Canary);
    run.on(none, at(2));
    is_waiting(&mut run, at(29), Waiting::Hold(Hold::NoConsumer));
    run.on(Event::WorkQueue(WorkQueue::new(Some(0), Some(1))), at(40));
    is_waiting(&mut run, at(40), Waiting::Canary);
    assert_eq!(send(&mut run, at(70)), [5]);
}

#[test]
fn nothing_is_sent_while_the_work_queue_grows() {
    let mut run = run_of(100, RunOptions::new());
    run.on(Event::WorkQueue(WorkQueue::new(Some(10), None)), at(0));
    send(&mut run, at(0));
    fate(&mut run, 0..5, Fate::Done, at(1));
    run.on(Event::WorkQueue(WorkQueue::new(Some(36), None)), at(1));
    is_waiting(&mut run, at(1), Waiting::Hold(Hold::QueueGrows));
    run.on(Event::WorkQueue(WorkQueue::new(Some(10), None)), at(2));
    assert_eq!(send(&mut run, at(2)), [5]);
}

#[test]
fn a_person_pauses_resumes_aborts_and_sets_the_rate() {
    let mut run = after_canary(100, RunOptions::new().ramp_step(at(1)));
    run.on(Event::Pause, at(1));
    assert_eq!(run.next(at(50)), Step::Paused(PauseReason::Asked));
    run.on(Event::Resume, at(50));
    assert_eq!(send(&mut run, at(50)).len(), 1, "the pause is no step of the ramp");
    run.on(Event::Rate(3), at(50));
    assert_eq!(send(&mut run, at(51)).len(), 3);
    run.on(Event::Abort, at(51));
    assert_eq!(run.next(at(60)), Step::Stopped(StopReason::Aborted));
    run.on(Event::Broken("gone".into()), at(61));
    assert_eq!(run.next(at(61)), Step::Stopped(StopReason::Aborted), "the first reason stays");
    assert!(run.has_ended());
}

#[test]
fn parking_and_discarding_need_no_canary_and_no_rate() {
    for action in [PlanAction::Park, PlanAction::Discard] {
        let mut run = Run::new(plan(action, &[0; 700]), RunOptions::new());
        let Step::Send { action: it, handles } = run.next(at(0)) else { panic!() };
        assert_eq!((it, handles.len()), (action, MAX_BATCH));
        run.on(Event::Results(handles.into_iter().map(|handle| (handle, EntryState::Done)).collect()), at(0));
        assert_eq!(send(&mut run, at(0)).len(), 200);
        assert_eq!(run.next(at(0)), Step::Done);
    }
}

#[test]
fn what_goes_to_parking_instead_is_parked_after_the_others() {
    let mut run = Run::new(plan(PlanAction::Redrive, &[9, 0, 9]), RunOptions::new());
    assert_eq!(send(&mut run, at(0)), [1]);
    is_waiting(&mut run, at(0), Waiting::Canary);
    fate(&mut run, [1], Fate::Done, at(1));
    let Step::Send { action, handles } = next(&mut run, at(1)) else { panic!() };
    assert_eq!((action, handles), (PlanAction::Park, vec![handle(0), handle(2)]));
}

#[test]
fn a_look_that_takes_long_is_followed_by_a_pause_of_that_length() {
    let mut run = run_of(100, RunOptions::new());
    assert_eq!(run.next(at(0)), Step::Look);
    run.on(Event::Looked, at(10));
    assert!(matches!(run.next(at(19)), Step::Send { .. }));
    run.on(Event::Results(vec![]), at(19));
    assert_eq!(run.next(at(20)), Step::Look);
}

#[test]
fn the_last_messages_are_looked_for_once_before_the_end() {
    let mut run = after_canary(6, RunOptions::new());
    assert_eq!(send(&mut run, at(1)), [5]);
    assert!(!run.has_ended());
    assert_eq!(run.next(at(1)), Step::Look);
    run.on(Event::Looked, at(1));
    assert_eq!(run.next(at(1)), Step::Done);
    assert!(run.has_ended());
}

#[test]
fn an_empty_plan_is_done() {
    let mut run = run_of(0, RunOptions::new());
    assert!(run.has_ended());
    assert_eq!(run.next(at(0)), Step::Done);
}

#[test]
fn what_vanished_or_changed_is_skipped() {
    let mut run = run_of(3, RunOptions::new());
    let skipped = [(handle(0), EntryState::NotFound), (handle(2), EntryState::Changed)];
    assert_eq!(run.skip(skipped.into()).len(), 2);
    assert_eq!(send(&mut run, at(0)), [1]);
    assert_eq!(run.skip(vec![(handle(1), EntryState::NotFound)]), [], "it had its turn");
    assert_eq!((run.report().not_found, run.report().changed), (1, 1));
}

#[test]
fn the_rest_is_sent_in_the_order_of_the_shelf() {
    let mut run = run_of(4, RunOptions::new().canary(0).rate(1));
    assert_eq!(send(&mut run, at(0)), [0]);
    run.order(&[3, 7, 0, 1].map(handle));
    assert_eq!([1, 2, 3].map(|second| send(&mut run, at(second))), [[3], [1], [2]]);
}

#[test]
fn a_restored_run_sends_only_the_rest_and_completes_its_canary() {
    let restored = |done: std::ops::Range<usize>, fates: &[(usize, Fate)]| {
        let states = done.map(|number| (handle(number), EntryState::Done)).collect();
        let fates = fates.iter().map(|(number, fate)| (handle(*number), *fate)).collect();
        Run::restored(plan(PlanAction::Redrive, &[0; 40]), RunOptions::new(), states, &fates)
    };
    assert_eq!(send(&mut restored(0..3, &[]), at(9)), [3, 4]);
    is_waiting(&mut restored(0..5, &[]), at(9), Waiting::Canary);
    let known = [0, 1, 2, 3, 4].map(|number| (number, Fate::Done));
    assert_eq!(send(&mut restored(0..5, &known), at(9)), [5]);
    assert_eq!(send(&mut restored(0..20, &[]), at(9)), [20], "the ramp begins again");
    assert_eq!(
        send(&mut restored(0..20, &[(17, Fate::FailedSame)]), at(9)),
        [20, 21, 22, 23, 24],
        "a canary again"
    );
}

#[test]
fn a_duration_is_that_of_canary_and_ramp() {
    let options = RunOptions::new().rate(100);
    assert_eq!(options.duration_of(0), at(0));
    assert_eq!(options.duration_of(5), at(30));
    assert_eq!(options.duration_of(5 + 10), at(40));
    assert_eq!(options.duration_of(5 + 10 + 100), at(50));
    assert_eq!(options.duration_of(5 + 10 + 100 + 1000), at(60));
    assert_eq!(options.clone().canary(0).rate(1).duration_of(77), at(77));
}
