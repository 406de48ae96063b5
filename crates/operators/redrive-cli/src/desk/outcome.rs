//! How a run ended, in words: the same in lists, on the terminal and on the page.

use redrive::ops::{Replay, RunReport, StopReason};

/// Returns how many messages are on a shelf again.
pub(crate) fn came_back(report: &RunReport) -> u64 {
    report.fates.failed_same + report.fates.failed_other
}

/// Returns true if every entry is done and none came back.
pub(crate) fn is_complete(report: &RunReport) -> bool {
    report.done + report.gone == report.entries && came_back(report) == 0
}

/// Returns true if the run has ended without success, and resuming it would send nothing. A run that lost its broker may still
/// learn what became of its messages.
pub(crate) fn has_nothing_left(replay: &Replay, report: &RunReport) -> bool {
    let has_ended = !matches!(replay.ended, None | Some(Some(StopReason::Broker(_))));
    has_ended && report.left == 0 && !is_complete(report)
}

/// Returns how a run ended, in a few words.
pub(crate) fn words(stopped: Option<&StopReason>, report: &RunReport) -> String {
    let counts = counts(report);
    match stopped {
        None if counts.is_empty() => "done".to_owned(),
        None => format!("over: {counts}"),
        Some(StopReason::Aborted) if counts.is_empty() => StopReason::Aborted.to_string(),
        Some(StopReason::Aborted) => format!("{}; {counts}", StopReason::Aborted),
        Some(reason) if counts.is_empty() => format!("stopped: {reason}"),
        Some(reason) => format!("stopped: {reason}; {counts}"),
    }
}

/// Returns why a run ended early, and what to do next. `resume` is what resumes it: a command or a button.
pub(crate) fn advice(stopped: &StopReason, resume: &str, report: &RunReport) -> String {
    match (stopped, report.left) {
        (StopReason::Aborted, _) => "aborted: make another plan for the rest".to_owned(),
        (StopReason::SameFailure, 0) => format!("stopped: {stopped}. Its cause is still there"),
        (StopReason::SameFailure, _) => {
            format!("stopped: {stopped}. Its cause is still there: repair it, then continue with {resume}")
        }
        (StopReason::TooManyFailures, 0) => format!("stopped: {stopped}"),
        (StopReason::TooManyFailures, _) => {
            format!("stopped: {stopped}. Repair the cause, then continue with {resume}")
        }
        _ => format!("stopped: {stopped}. Continue with {resume}"),
    }
}

/// Returns the command that resumes a run.
pub(crate) fn resume_command(run: &str) -> String {
    format!("`redrive runs resume {run}`")
}

fn counts(report: &RunReport) -> String {
    let counts = [
        (came_back(report), "came back"),
        (report.not_found, "not found"),
        (report.changed, "had changed"),
        (report.failed, "failed"),
        (report.uncertain, "uncertain"),
    ];
    let told = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::SystemTime;

    use redrive::ops::{EntryState, Fate, Plan, PlanAction, PlanOptions, Run, RunOptions};
    use redrive::shelves::{EntryHandle, Shelved};
    use redrive::{Message, Shelf};

    use super::*;

    fn report(states: &[EntryState], fate: Fate) -> RunReport {
        let handle = |number: usize| EntryHandle::new(Shelf::DeadLetter, number.to_string());
        let entries: Vec<_> =
            (0..states.len()).map(|number| Shelved::new(handle(number), Message::new(""))).collect();
        let options = PlanOptions::new("orders");
        let plan =
            Plan::new(PlanAction::Redrive, Shelf::DeadLetter, &entries, &options, SystemTime::UNIX_EPOCH);
        let fates = states.iter().enumerate().filter(|(_, state)| **state == EntryState::Done);
        let fates = fates.map(|(number, _)| (handle(number), fate)).collect();
        let states: HashMap<_, _> =
            states.iter().cloned().enumerate().map(|(number, state)| (handle(number), state)).collect();
        Run::restored(plan, RunOptions::new(), states, &fates).report()
    }

    #[test]
    fn what_came_back_or_vanished_is_not_simply_done() {
        let done = report(&[EntryState::Done, EntryState::Done], Fate::Done);
        assert_eq!(words(None, &done), "done");
        let back = report(&[EntryState::Done, EntryState::Done], Fate::FailedSame);
        assert_eq!(words(None, &back), "over: 2 came back");
        let stopped = words(Some(&StopReason::SameFailure), &back);
        assert_eq!(stopped, "stopped: the same failure came back; 2 came back");
        let gone = report(&[EntryState::NotFound, EntryState::NotFound, EntryState::Done], Fate::FailedOther);
        assert_eq!(words(None, &gone), "over: 1 came back, 2 not found");
        let aborted = report(&[EntryState::Done, EntryState::NotTried], Fate::Done);
        assert_eq!(words(Some(&StopReason::Aborted), &aborted), "aborted by an operator");
        let nothing_left = advice(&StopReason::SameFailure, &resume_command("r1"), &back);
        assert_eq!(nothing_left, "stopped: the same failure came back. Its cause is still there");
        let some_left = advice(&StopReason::SameFailure, &resume_command("r1"), &aborted);
        assert!(some_left.ends_with("repair it, then continue with `redrive runs resume r1`"), "{some_left}");
        assert!(is_complete(&done) && !is_complete(&back) && !is_complete(&gone) && !is_complete(&aborted));
    }
}
