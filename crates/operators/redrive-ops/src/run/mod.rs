//! Runs: the steps of a plan, how fast they come, and when they stop. Pure.
//!
//! | module | contains |
//! |---|---|
//! | [`batch`] | how many entries a step has |
//! | [`options`] | how fast a run goes, and when it stops |
//! | [`step`] | what a run asks for, and what it is told |
//! | [`pace`] | how many messages may be sent now |
//! | [`queue`] | whether the work queue can take more |
//! | [`report`] | how far a run is |

mod batch;
mod options;
mod pace;
#[cfg(test)]
mod properties;
mod queue;
mod report;
mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redrive_core::shelves::EntryHandle;

use crate::plan::{Plan, PlanAction, PlannedEntry};

use self::batch::{Batch, MAX_BATCH};
pub use self::options::RunOptions;
use self::pace::Pace;
pub use self::queue::Hold;
use self::queue::QueueGuard;
pub use self::report::{FateCounts, RunReport};
pub use self::step::{EntryState, Event, Fate, FateSource, PauseReason, SeenFate, Step, StopReason, Waiting};

/// The run of a plan: a state machine without I/O and without a clock. It says what to do [next](Self::next), and is told what
/// [happened](Self::on). Times are those of one clock of the caller, which only goes forward.
///
/// A run that redrives sends a *canary* first, and waits for its fate. One message of the canary that fails as before stops the
/// run; one that fails in another way pauses it for a person. Then the rate grows: 1, 10, 100 a second and so on, up to the
/// [maximum](RunOptions::rate). Each failure halves it; failures at one message a second stop the run, and so does the same failure
/// if it [comes back](RunOptions::max_same_failures). It sends nothing while the work queue has no consumer, or grows by more than
/// five seconds of the run. What is parked or discarded needs none of that.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use redrive_core::{Message, Shelf};
/// use redrive_core::shelves::{EntryHandle, Shelved};
/// use redrive_ops::{EntryState, Event, Fate, Plan, PlanAction, PlanOptions, Run, RunOptions, Step};
///
/// let entries = ["1", "2", "3"].map(|number| Shelved::new(EntryHandle::new(Shelf::DeadLetter, number), Message::new("")));
/// let plan = Plan::new(PlanAction::Redrive, Shelf::DeadLetter, &entries, &PlanOptions::new("orders"), SystemTime::now());
/// let mut run = Run::new(plan, RunOptions::new().canary(1));
/// let now = Duration::ZERO;
///
/// assert_eq!(run.next(now), Step::Look);
/// run.on(Event::Looked, now);
/// let Step::Send { handles, .. } = run.next(now) else { panic!() };
/// assert_eq!(handles.len(), 1);
/// run.on(Event::Results(vec![(handles[0].clone(), EntryState::Done)]), now);
///
/// assert!(matches!(run.next(now), Step::Wait { .. }), "the others wait for the fate of the first");
/// run.on(Event::Fate(handles[0].clone(), Fate::FailedSame), now);
/// assert!(matches!(run.next(now), Step::Stopped(_)));
/// assert_eq!(run.report().left, 2);
/// ```
#[derive(Clone, Debug)]
pub struct Run {
    plan: Arc<Plan>,
    options: RunOptions,
    index: HashMap<EntryHandle, usize>,
    states: Vec<EntryState>,
    fates: HashMap<usize, Fate>,
    /// Entries to redrive, then those to park or discard.
    pending: VecDeque<usize>,
    in_flight: Vec<usize>,
    /// Entries that were redriven, and whose fate is not known.
    awaited: BTreeSet<usize>,
    phase: Phase,
    pace: Pace,
    batch: Batch,
    guard: QueueGuard,
    look: Look,
    same_failures: u32,
    paused: Option<PauseReason>,
    stopped: Option<StopReason>,
}

/// How far the messages that are redriven are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Number of canary messages still to be sent.
    Canary {
        left: u32,
    },
    /// The canary is sent. `since`: when the wait for its fate began.
    AwaitsCanary {
        since: Option<Duration>,
    },
    Ramp,
}

/// When the fates and the work queue are looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    next: Duration,
    /// When the current one began.
    began: Option<Duration>,
    /// True if something was sent since the last one began.
    is_stale: bool,
}

impl Run {
    /// Creates the run of a plan.
    #[must_use]
    pub fn new(plan: Plan, options: RunOptions) -> Self {
        Self::restored(plan, options, HashMap::new(), &HashMap::new())
    }

    /// Creates the rest of a run: entries that have a state other than [`NotTried`](EntryState::NotTried) are not sent.
    ///
    /// The ramp begins again. A canary that was not sent whole is completed; of one whose fate is not known, the rest waits for it.
    #[must_use]
    pub fn restored(
        plan: Plan,
        options: RunOptions,
        mut states: HashMap<EntryHandle, EntryState>,
        fates: &HashMap<EntryHandle, Fate>,
    ) -> Self {
        let entries = plan.entries();
        let index = entries.iter().enumerate().map(|(index, entry)| (entry.handle.clone(), index)).collect();
        let states: Vec<_> = entries
            .iter()
            .map(|entry| states.remove(&entry.handle).unwrap_or(EntryState::NotTried))
            .collect();
        let fates: HashMap<_, _> = entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| fates.get(&entry.handle).map(|fate| (index, *fate)))
            .collect();
        let is_redriven = |index: usize| entries[index].target.action() == PlanAction::Redrive;
        let sent = |index: &usize| is_redriven(*index) && states[*index].may_be_sent();
        let sent: Vec<usize> = (0..states.len()).filter(sent).collect();
        let pending = (0..states.len()).filter(|index| states[*index] == EntryState::NotTried).collect();
        let awaited: BTreeSet<usize> =
            sent.iter().copied().filter(|index| !fates.contains_key(index)).collect();

        let is_failure = |fate: &Fate| matches!(fate, Fate::FailedSame | Fate::FailedOther);
        let canary_left = options.canary.saturating_sub(u32::try_from(sent.len()).unwrap_or(u32::MAX));
        let phase = match canary_left {
            _ if options.canary == 0 => Phase::Ramp,
            // What failed before is to be tried with a few messages again.
            _ if fates.values().any(is_failure) => Phase::Canary { left: options.canary },
            0 if sent.len() > options.canary as usize || awaited.is_empty() => Phase::Ramp,
            left => Phase::Canary { left },
        };
        let rate = if phase == Phase::Ramp { 1 } else { options.canary };
        Self {
            plan: Arc::new(plan),
            index,
            states,
            fates,
            pending,
            in_flight: Vec::new(),
            awaited,
            phase,
            pace: Pace::new(options.rate, rate, options.ramp_step),
            batch: Batch::default(),
            guard: QueueGuard::new(options.ignore_work_queue),
            look: Look::default(),
            same_failures: 0,
            paused: None,
            stopped: None,
            options,
        }
    }

    /// Returns the plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns how far the run is.
    #[must_use]
    pub fn report(&self) -> RunReport {
        RunReport::of(self)
    }

    /// Returns the entries that may have been redriven and whose fate is not known.
    pub fn awaited(&self) -> impl Iterator<Item = &PlannedEntry> {
        self.awaited.iter().map(|index| &self.plan.entries()[*index])
    }

    /// Returns the entries that were not done, with their state. Those that have not had their turn are not among them.
    pub fn not_done(&self) -> impl Iterator<Item = (&PlannedEntry, &EntryState)> {
        let is_open =
            |state: &EntryState| matches!(state, EntryState::NotTried | EntryState::Done | EntryState::Gone);
        self.plan.entries().iter().zip(&self.states).filter(move |(_, state)| !is_open(state))
    }

    /// Takes entries out of the run that are not to be sent: they have vanished, or were changed. Returns those that it took out;
    /// the others have had their turn.
    pub fn skip(&mut self, skipped: Vec<(EntryHandle, EntryState)>) -> Vec<(EntryHandle, EntryState)> {
        let mut taken = Vec::new();
        for (handle, state) in skipped {
            if let Some(&index) = self.index.get(&handle)
                && self.states[index] == EntryState::NotTried
                && !self.in_flight.contains(&index)
            {
                self.states[index] = state.clone();
                taken.push((handle, state));
            }
        }
        let states = &self.states;
        self.pending.retain(|index| states[*index] == EntryState::NotTried);
        taken
    }

    /// Sends the rest in this order, in which the entries stand on the shelf now: a broker that reads it from its head reads it once.
    /// Entries that are redriven still come first.
    pub fn order(&mut self, on_shelf: &[EntryHandle]) {
        let places: HashMap<_, _> = on_shelf.iter().zip(0..).collect();
        let place = |entry: &PlannedEntry| places.get(&entry.handle).copied().unwrap_or(usize::MAX);
        let entries = self.plan.entries();
        self.pending.make_contiguous().sort_by_key(|index| {
            let entry = &entries[*index];
            (entry.target.action() != PlanAction::Redrive, place(entry))
        });
    }

    /// Returns how many entries have left the shelf, and how many of those went to the parking shelf.
    #[cfg(feature = "runner")]
    pub(crate) fn left_shelf(&self) -> (u64, u64) {
        let (mut left, mut parked) = (0, 0);
        for (entry, state) in self.plan.entries().iter().zip(&self.states) {
            if matches!(state, EntryState::Done | EntryState::Gone) {
                left += 1;
                parked += u64::from(entry.target.action() == PlanAction::Park);
            }
        }
        (left, parked)
    }

    /// Returns how many messages a second the run sends now, at most.
    #[must_use]
    pub fn rate(&self) -> u32 {
        self.pace.rate()
    }

    /// Returns true if the run has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let is_idle = self.pending.is_empty() && self.in_flight.is_empty();
        self.stopped.is_some() || (is_idle && !self.has_redrives() && !self.must_look_last())
    }

    /// Returns what to do now.
    pub fn next(&mut self, now: Duration) -> Step {
        if let Some(why) = &self.stopped {
            return Step::Stopped(why.clone());
        }
        if !self.in_flight.is_empty() {
            return Step::Wait { until: now, why: Waiting::Results };
        }
        if let Some(why) = self.paused {
            return Step::Paused(why);
        }
        if self.has_redrives() && now >= self.look.next && self.look.began.is_none() {
            self.look = Look { began: Some(now), is_stale: false, ..self.look };
            return Step::Look;
        }
        self.next_redrive(now).unwrap_or_else(|| self.next_other())
    }

    /// Returns the next step of what is redriven; `None` if nothing of that is left.
    fn next_redrive(&mut self, now: Duration) -> Option<Step> {
        if !self.has_redrives() {
            return None;
        }
        if let (Some(hold), true) = (self.guard.hold(), self.is_redrive_pending()) {
            self.pace.begin_step(now);
            return Some(Step::Wait { until: self.look.next, why: Waiting::Hold(hold) });
        }
        if let Phase::Canary { left } = self.phase
            && (left == 0 || !self.is_redrive_pending())
        {
            self.phase = Phase::AwaitsCanary { since: None };
        }
        if let Phase::AwaitsCanary { since } = self.phase {
            let since = since.unwrap_or(now);
            self.phase = Phase::AwaitsCanary { since: Some(since) };
            let until = since.saturating_add(self.options.canary_wait);
            if !self.awaited.is_empty() && now < until {
                return Some(Step::Wait { until: until.min(self.look.next), why: Waiting::Canary });
            }
            let unknown = std::mem::take(&mut self.awaited);
            self.fates.extend(unknown.into_iter().map(|index| (index, Fate::NotKnown)));
            self.phase = Phase::Ramp;
            self.pace.begin_ramp(now);
        }
        if !self.is_redrive_pending() {
            return None;
        }
        if self.phase == Phase::Ramp {
            self.pace.grow(now);
        }
        let room = match self.phase {
            Phase::Canary { left } => self.pace.room(now).min(left),
            _ => self.pace.room(now),
        };
        if room == 0 {
            let until = self.pace.next_room(now).min(self.look.next);
            return Some(Step::Wait { until, why: Waiting::Rate });
        }
        let most = self.batch.begin(now, self.pace.rate()).min(room as usize);
        Some(self.send(PlanAction::Redrive, most))
    }

    /// Returns the next step of what is parked or discarded, or the end.
    fn next_other(&mut self) -> Step {
        match self.next_action() {
            Some(action) => self.send(action, MAX_BATCH),
            None if self.must_look_last() => {
                self.look.is_stale = false;
                Step::Look
            }
            None => Step::Done,
        }
    }

    /// Tells the run what happened.
    pub fn on(&mut self, event: Event, now: Duration) {
        match event {
            Event::Results(results) => self.on_results(results, now),
            Event::Fate(handle, fate) => self.on_fate(&handle, fate, now),
            Event::WorkQueue(queue) => {
                let held = self.guard.hold().is_some();
                self.guard.saw(queue, self.pace.rate(), self.options.canary);
                // The canary could not be handled meanwhile.
                if held && let Phase::AwaitsCanary { since } = &mut self.phase {
                    *since = None;
                }
            }
            Event::Looked => {
                let took = self.look.began.take().map_or(Duration::ZERO, |began| now.saturating_sub(began));
                self.look.next = now.saturating_add(self.options.look_every.max(took));
            }
            Event::NotLooked => {
                self.look = Look { next: now, began: None, is_stale: true };
            }
            Event::Pause => self.paused = Some(PauseReason::Asked),
            Event::Resume => {
                self.paused = None;
                self.pace.begin_step(now);
                if let Phase::AwaitsCanary { since } = &mut self.phase {
                    *since = None;
                }
            }
            Event::Abort => self.stop(StopReason::Aborted),
            Event::Rate(rate) => self.pace.set_limit(rate),
            Event::Broken(error) => self.stop(StopReason::Broker(error)),
        }
    }

    fn on_results(&mut self, results: Vec<(EntryHandle, EntryState)>, now: Duration) {
        let mut results: HashMap<_, _> = results.into_iter().collect();
        let (mut sent, mut has_failed) = (0, false);
        for index in std::mem::take(&mut self.in_flight).into_iter().rev() {
            // Without a result nobody knows whether it was sent.
            let state = results
                .remove(&self.plan.entries()[index].handle)
                .unwrap_or_else(|| EntryState::Uncertain("its result is missing".to_owned()));
            if state == EntryState::NotTried {
                self.pending.push_front(index);
            } else if self.action(index) == PlanAction::Redrive {
                has_failed |= matches!(state, EntryState::Failed(_) | EntryState::Uncertain(_));
                if state.may_be_sent() {
                    sent += 1;
                    self.awaited.insert(index);
                }
            }
            self.states[index] = state;
        }
        if let Phase::Canary { left } = &mut self.phase {
            *left = left.saturating_sub(sent);
        }
        self.batch.end(now);
        self.look.is_stale |= sent > 0;
        self.pace.sent(sent, now);
        if has_failed {
            self.slow_down(now);
        }
    }

    fn on_fate(&mut self, handle: &EntryHandle, fate: Fate, now: Duration) {
        let Some(&index) = self.index.get(handle) else { return };
        if !self.awaited.remove(&index) {
            return;
        }
        self.fates.insert(index, fate);
        match fate {
            Fate::Done | Fate::NotKnown => {}
            Fate::FailedSame => {
                self.same_failures += 1;
                if self.is_canary() || self.same_failures >= self.options.max_same_failures {
                    self.stop(StopReason::SameFailure);
                } else {
                    self.slow_down(now);
                }
            }
            Fate::FailedOther if self.is_canary() => self.paused = Some(PauseReason::CanaryFailedOtherwise),
            Fate::FailedOther => self.slow_down(now),
        }
    }

    fn slow_down(&mut self, now: Duration) {
        if !self.pace.failed(now) {
            self.stop(StopReason::TooManyFailures);
        }
    }

    /// The first reason stays.
    fn stop(&mut self, why: StopReason) {
        self.stopped.get_or_insert(why);
    }

    fn send(&mut self, action: PlanAction, most: usize) -> Step {
        let plan = Arc::clone(&self.plan);
        let entries = plan.entries();
        let has_it = |index: &&usize| entries[**index].target.action() == action;
        let count = self.pending.iter().take(most).take_while(has_it).count();
        self.in_flight.extend(self.pending.drain(..count));
        let handles = self.in_flight.iter().map(|index| entries[*index].handle.clone()).collect();
        Step::Send { action, handles }
    }

    fn action(&self, index: usize) -> PlanAction {
        self.plan.entries()[index].target.action()
    }

    fn next_action(&self) -> Option<PlanAction> {
        self.pending.front().map(|index| self.action(*index))
    }

    fn is_redrive_pending(&self) -> bool {
        self.next_action() == Some(PlanAction::Redrive)
    }

    fn is_canary(&self) -> bool {
        matches!(self.phase, Phase::Canary { .. } | Phase::AwaitsCanary { .. })
    }

    /// Returns true if messages are still to be redriven, or a canary is awaited.
    fn has_redrives(&self) -> bool {
        self.is_redrive_pending() || (self.is_canary() && !self.awaited.is_empty())
    }

    /// Returns true if a last look may tell the fate of messages.
    fn must_look_last(&self) -> bool {
        self.look.is_stale && !self.awaited.is_empty()
    }
}
