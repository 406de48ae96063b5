//! Acting: a plan, the questions before it, and its run.

use std::sync::Arc;

use redrive::ops::{Activity, FinishedRun, PlanAction, RunOptions, RunProgress, require_reason};

use super::text::lines_of;
use crate::act::apply::{activity, not_simply_done};
use crate::act::plan;
use crate::desk::SavedPlan;
use crate::desk::outcome::{advice, resume_command};
use crate::desk::plan::needs_count;

/// Messages a second, from which `+` and `-` choose.
const RATES: [u32; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

/// A line that a person types.
pub(super) enum Prompt {
    /// The filter.
    Filter(String),
    /// Why, for the audit log.
    Reason(String),
    /// The number of messages.
    Count(String),
    /// Yes or no.
    Confirm,
}

/// A plan on the page, with the answers given so far.
pub(super) struct PlanView {
    pub(super) saved: Arc<SavedPlan>,
    pub(super) rate: u32,
    pub(super) reason: Option<String>,
    has_agreed: bool,
}

impl PlanView {
    pub(super) fn new(saved: Arc<SavedPlan>) -> Self {
        Self { saved, rate: 10, reason: None, has_agreed: false }
    }

    /// Returns the number of messages.
    pub(super) fn count(&self) -> usize {
        self.saved.plan.entries().len()
    }

    /// Returns the next question; none if everything is answered.
    pub(super) fn question(&self) -> Option<Prompt> {
        if require_reason(self.count() as u64, self.reason.as_deref()).is_err() {
            return Some(Prompt::Reason(String::new()));
        }
        match (self.has_agreed, needs_count(&self.saved.plan)) {
            (true, _) => None,
            (false, true) => Some(Prompt::Count(String::new())),
            (false, false) => Some(Prompt::Confirm),
        }
    }

    /// Takes the count that was typed; false if it is another number.
    pub(super) fn agree_by_count(&mut self, typed: &str) -> bool {
        self.has_agreed = typed.trim().parse() == Ok(self.count());
        self.has_agreed
    }

    pub(super) fn agree(&mut self) {
        self.has_agreed = true;
    }

    /// Forgets the answers: the person has turned back.
    pub(super) fn forget(&mut self) {
        (self.has_agreed, self.reason) = (false, None);
    }

    /// Returns the lines of the plan.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = plan::lines(&self.saved, &RunOptions::new().rate(self.rate));
        lines.push(String::new());
        lines.push(match self.saved.plan.action() {
            PlanAction::Redrive => format!(
                "Five go first, the others wait 30s for their fate; then at most {} a second.",
                self.rate
            ),
            PlanAction::Discard if !self.saved.is_final => {
                "They are exported before; `redrive undo RUN` brings them back.".to_owned()
            }
            _ => "They are exported before.".to_owned(),
        });
        lines_of(&lines)
    }
}

/// A run on the page.
pub(super) struct RunView {
    pub(super) action: PlanAction,
    /// None until it has begun.
    pub(super) id: Option<String>,
    pub(super) originals: Option<String>,
    pub(super) progress: Option<RunProgress>,
    pub(super) ended: Option<Result<FinishedRun, String>>,
    /// The maximum rate that was asked for.
    pub(super) rate: u32,
    /// True after the first Ctrl-C.
    pub(super) is_interrupted: bool,
}

impl RunView {
    pub(super) fn new(action: PlanAction, rate: u32) -> Self {
        let (id, originals, progress, ended) = (None, None, None, None);
        Self { action, id, originals, progress, ended, rate, is_interrupted: false }
    }

    /// Returns true until it is over.
    pub(super) fn goes_on(&self) -> bool {
        self.ended.is_none()
    }

    /// Returns how much of it is over, from 0 to 1.
    pub(super) fn ratio(&self) -> f64 {
        match self.progress.as_ref().map(|progress| progress.report) {
            Some(report) if report.entries > 0 => {
                (report.entries.saturating_sub(report.left)) as f64 / report.entries as f64
            }
            _ => 0.0,
        }
    }

    /// Returns in a few words what it does, for the status bar.
    pub(super) fn short(&self) -> String {
        match (&self.ended, &self.progress) {
            (Some(Ok(run)), _) => match &run.stopped {
                Some(reason) => format!("{}: {reason}", self.action),
                None => format!("{}: {} of {} done", self.action, run.report.done, run.report.entries),
            },
            (Some(Err(error)), _) => format!("{}: {error}", self.action),
            (None, Some(progress)) => {
                format!(
                    "{} {} of {}: {}",
                    self.action,
                    progress.report.done,
                    progress.report.entries,
                    activity(progress)
                )
            }
            (None, None) => format!("{}: begins", self.action),
        }
    }

    /// Returns the lines of the run, below its progress bar.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(progress) = &self.progress {
            let (report, fates) = (&progress.report, &progress.report.fates);
            lines.push(format!("now       {}", self.now(progress)));
            lines.push(format!("rate      {} a second, at most {}", progress.rate, self.rate));
            lines.push(format!("done      {} of {}", report.done, report.entries));
            if self.action == PlanAction::Redrive {
                lines.push(format!(
                    "fates     {} handled, {} failed the same way, {} failed in another way, {} not seen again",
                    fates.done, fates.failed_same, fates.failed_other, fates.not_known
                ));
            }
            lines.extend(not_simply_done(report).map(|(count, what)| format!("{count:>9}  {what}")));
        }
        match &self.ended {
            Some(Ok(run)) => {
                lines.push(match &run.stopped {
                    Some(reason) => advice(reason, &resume_command(&run.id), &run.report),
                    None => "the run is over".to_owned(),
                });
            }
            Some(Err(error)) => lines.push(error.clone()),
            None => {}
        }
        if let Some(id) = &self.id {
            lines.push(format!("run       {id}"));
        }
        if let Some(originals) = &self.originals {
            lines.push(format!("originals {originals}"));
        }
        lines_of(&lines)
    }

    fn now(&self, progress: &RunProgress) -> String {
        match &progress.activity {
            Activity::Done => "done".to_owned(),
            Activity::WaitingForCanary => {
                format!("canary: {}", activity(progress))
            }
            _ => activity(progress),
        }
    }
}

/// Returns the next rate above or below this one.
pub(super) fn next_rate(rate: u32, is_faster: bool) -> u32 {
    let next = match is_faster {
        true => RATES.iter().find(|next| **next > rate),
        false => RATES.iter().rev().find(|next| **next < rate),
    };
    next.copied().unwrap_or(rate)
}

#[cfg(test)]
mod tests {
    use super::next_rate;

    #[test]
    fn rates_have_steps_and_ends() {
        assert_eq!([next_rate(10, true), next_rate(10, false), next_rate(30, true)], [20, 5, 50]);
        assert_eq!([next_rate(1000, true), next_rate(1, false)], [1000, 1]);
    }
}
