//! Lets an example message fail in the consumer's own stages and settlements, until it has ended. Pure.

use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use super::{Case, Course, Resting, RouteCourses, Span, Step};
use crate::classify::{ErrorClass, Simulated};
use crate::contract::{Outline, Rest};
use crate::delivery::by_consumer::with_delivery_limit;
use crate::delivery::{Delivery, DeliveryBuilder, Origin};
use crate::disposition::{BoxError, Disposition, Outcome};
use crate::header_names as names;
use crate::message::Message;
use crate::needs::Needs;
use crate::panic::{self, Panicked};
use crate::rejected::Rejected;
use crate::retry::Chance;
use crate::settlement::{Planning, Settlement, own_bytes};
use crate::stage::{Stage, admit_in_turn, resolve_in_turn};
use crate::stages::{Route, Stages};

/// Maximum number of hops of one wait to compute; the rest of the wait is then one more hop.
const MOST_HOPS: u32 = 100;
/// Maximum number of redrives and deliveries to try until one ends elsewhere.
const MOST_COUNTED: u32 = 200;

/// The parts of a consumer that decide about a failing message.
#[derive(Debug)]
pub struct Simulation<'a> {
    /// The queue that is consumed.
    pub queue: &'a str,
    /// The message that fails.
    pub message: &'a Message,
    /// The stages around the handler.
    pub stages: &'a Stages,
    /// What the transport would do.
    pub outline: &'a Outline,
    /// What the consumer needs.
    pub needs: &'a Needs,
    /// The longest time from a delivery to its settlement, if it is known.
    pub longest_hold: Option<Duration>,
    /// How many bytes redrive's own headers may take on a copy.
    pub header_budget: usize,
}

/// The course of one message, with jitter at one end.
struct Run {
    steps: Vec<RunStep>,
    ends: bool,
}

struct RunStep {
    attempt: u32,
    begins_after: Duration,
    disposition: Disposition,
    wait: Option<Duration>,
    /// Size of redrive's own headers on the copy, if there is one.
    header_bytes: Option<usize>,
    rests: Vec<Resting>,
    operations: Vec<&'static str>,
}

/// A message between two attempts, with the counts of its broker.
struct OnItsWay {
    message: Message,
    now: SystemTime,
    deliveries: u32,
    failures_in_place: u32,
}

/// The same time in every plan: a plan does not depend on when it is made.
fn beginning() -> SystemTime {
    // 2001-09-09: an earlier time is not believed.
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

impl Simulation<'_> {
    /// Returns the courses of all kinds of failure, for each route.
    pub(super) fn routes(&self) -> Vec<RouteCourses> {
        let courses = |route: &Route| RouteCourses {
            route: route.name.clone(),
            courses: self.courses(&route.stages()),
        };
        self.stages.routes().iter().map(courses).collect()
    }

    /// Returns the maximum number of bytes of redrive's own headers on a copy; `None` if nothing is copied.
    pub(super) fn largest_headers(&self) -> Option<usize> {
        let mut largest = None;
        for route in self.stages.routes() {
            let longest = || Simulated::of_the_longest(ErrorClass::Transient).into();
            let run = self.run(&route.stages(), (Case::Transient, Chance::Most), Course::MOST_STEPS, longest);
            largest = run.steps.iter().map(|step| step.header_bytes).fold(largest, Option::max);
        }
        largest
    }

    fn courses(&self, stages: &[&dyn Stage]) -> Vec<Course> {
        let mut courses: Vec<Course> = Vec::new();
        let mut add = |case| {
            let course = self.course(stages, case);
            match courses.iter_mut().find(|other| (&other.steps, other.ends) == (&course.steps, course.ends))
            {
                Some(same) => same.cases.push(case),
                None => courses.push(course),
            }
        };
        for case in
            [Case::Transient, Case::Throttled, Case::Panic, Case::Permanent, Case::Rejected, Case::Expired]
        {
            add(case);
        }
        let end = |case| {
            let first = self.run(stages, (case, Chance::Most), 1, || error(case)).steps.pop();
            first.map(|step| step.disposition.name())
        };
        let permanent = end(Case::Permanent);
        let mut redriven = (1..=MOST_COUNTED).map(Case::Redriven);
        redriven.find(|&case| end(case) != permanent).into_iter().for_each(&mut add);
        let turned_away = |&case: &Case| {
            let delivery = self.delivery(&self.begin(case), Chance::Most);
            panic::caught(|| admit_in_turn(stages, &delivery).is_break()).unwrap_or(true)
        };
        // A message rejected at its first delivery was rejected for another reason.
        let poison =
            (1..=MOST_COUNTED).map(Case::Poison).find(turned_away).filter(|case| *case != Case::Poison(1));
        poison.into_iter().for_each(&mut add);
        courses
    }

    fn course(&self, stages: &[&dyn Stage], case: Case) -> Course {
        let [least, most] = [Chance::Least, Chance::Most]
            .map(|chance| self.run(stages, (case, chance), Course::MOST_STEPS, || error(case)));
        let ends = least.ends && most.ends;
        let count = least.steps.len().max(most.steps.len());
        let (mut least, mut most) = (least.steps.into_iter(), most.steps.into_iter());
        let steps = (0..count).filter_map(|_| Step::between(least.next(), most.next())).collect();
        Course { cases: vec![case], steps, ends }
    }

    /// Runs the first attempts, at most this many; each fails with such an error.
    fn run(
        &self,
        stages: &[&dyn Stage],
        (case, chance): (Case, Chance),
        most_steps: u32,
        error: impl Fn() -> BoxError,
    ) -> Run {
        let mut steps = Vec::new();
        let mut on_its_way = self.begin(case);
        for _ in 0..most_steps {
            let delivery = self.delivery(&on_its_way, chance);
            let outcome = outcome(stages, &delivery, &error);
            let disposition = outcome.unwrap_or_else(|error| Disposition::undecided(&error));
            let settlement = Settlement::planned(&delivery, &disposition, &self.planning(on_its_way.now));
            let header_bytes = match &settlement {
                Settlement::Reschedule { copy, .. } | Settlement::Shelve { copy, .. } => {
                    Some(own_bytes(copy.headers()))
                }
                _ => None,
            };
            let wait = disposition.wait();
            let begins_after = on_its_way.now.duration_since(beginning()).unwrap_or_default();
            let mut step = RunStep {
                attempt: delivery.attempt(),
                begins_after,
                disposition,
                wait,
                header_bytes,
                rests: Vec::new(),
                operations: Vec::new(),
            };
            let next = self.settle(&mut step, on_its_way, settlement, chance);
            steps.push(step);
            match next {
                Some(next) => on_its_way = next,
                None => return Run { steps, ends: true },
            }
        }
        Run { steps, ends: false }
    }

    /// Returns the next delivery of the message; `None` if it is not delivered again.
    fn settle(
        &self,
        step: &mut RunStep,
        at: OnItsWay,
        settlement: Settlement,
        chance: Chance,
    ) -> Option<OnItsWay> {
        let rest = self.outline.rest(&settlement);
        match settlement {
            Settlement::Complete => {
                step.operations.extend(rest.operations);
                None
            }
            Settlement::Shelve { .. } | Settlement::NativeDeadLetter => {
                step.rest(rest);
                None
            }
            Settlement::Release => {
                step.rest(rest);
                Some(OnItsWay { deliveries: at.deliveries.saturating_add(1), ..at })
            }
            Settlement::RetryInPlace { wait } => {
                step.rest(rest);
                let failures_in_place = at.failures_in_place.saturating_add(1);
                let in_place = self.outline.facts.delays.in_place;
                let held = in_place.map_or(wait, |in_place| in_place.held_for(wait, failures_in_place));
                let deliveries = at.deliveries.saturating_add(1);
                Some(OnItsWay { now: at.now.checked_add(held)?, deliveries, failures_in_place, ..at })
            }
            Settlement::Reschedule { .. } => self.reschedule(step, at.now, settlement, chance),
        }
    }

    /// Returns all hops of a wait.
    fn reschedule(
        &self,
        step: &mut RunStep,
        mut now: SystemTime,
        mut settlement: Settlement,
        chance: Chance,
    ) -> Option<OnItsWay> {
        for hop in 0.. {
            let rest = self.outline.rest(&settlement);
            let Settlement::Reschedule { wait, copy } = settlement else {
                // Only if a copy has become too large.
                step.rest(rest);
                return None;
            };
            now = now.checked_add(rest.held_for.unwrap_or(wait).max(wait))?;
            step.rest(rest);
            let next = OnItsWay { message: copy, now, deliveries: 1, failures_in_place: 0 };
            let delivery = self.delivery(&next, chance);
            match Settlement::wait_on(&delivery, &self.planning(now)) {
                None => return Some(next),
                Some(_) if hop == MOST_HOPS => {
                    let due = delivery.history().not_before.unwrap_or(now);
                    return Some(OnItsWay { now: due.max(now), ..next });
                }
                Some(on) => settlement = on,
            }
        }
        None
    }

    fn begin(&self, case: Case) -> OnItsWay {
        let mut message = self.message.clone();
        let (mut deliveries, mut failures_in_place) = (1, 0);
        match case {
            Case::Expired => message.properties_mut().expiration = Some(Duration::ZERO),
            Case::Redriven(times) => {
                message.headers_mut().insert_own(names::REDRIVES, i64::from(times));
            }
            Case::Poison(times) => {
                deliveries = times;
                // Such a broker counts the death of a process as a failure.
                if self.outline.facts.delays.in_place.is_some() {
                    failures_in_place = times - 1;
                }
            }
            _ => {}
        }
        OnItsWay { message, now: beginning(), deliveries, failures_in_place }
    }

    fn delivery(&self, at: &OnItsWay, chance: Chance) -> Delivery {
        let origin = Origin::new(self.queue, "", "");
        let arrived = DeliveryBuilder::new(at.message.clone(), origin, at.now)
            .broker_delivery_count(at.deliveries)
            .failures_in_place(at.failures_in_place)
            .build();
        let mut delivery = with_delivery_limit(arrived, self.outline.facts.limits.deliveries);
        delivery.extensions_mut().insert(chance);
        delivery
    }

    fn planning(&self, now: SystemTime) -> Planning<'_> {
        let mut planning = Planning::new(now, &self.outline.facts);
        planning.header_budget = self.header_budget;
        planning
    }
}

/// Runs the stages on this failure, in the same way as around a handler.
fn outcome(stages: &[&dyn Stage], delivery: &Delivery, error: &dyn Fn() -> BoxError) -> Outcome {
    panic::caught(|| match admit_in_turn(stages, delivery) {
        ControlFlow::Break(disposition) => Ok(disposition),
        ControlFlow::Continue(()) => resolve_in_turn(stages, delivery, Err(error())),
    })?
}

fn error(case: Case) -> BoxError {
    let class = match case {
        Case::Panic => return Box::new(Panicked::new("as the plan wants it")),
        Case::Rejected => return Box::new(Rejected::new("the body", "as the plan wants it")),
        Case::Permanent | Case::Redriven(_) => ErrorClass::Permanent,
        Case::Throttled => ErrorClass::Throttled(Duration::ZERO),
        Case::Transient | Case::Expired | Case::Poison(_) => ErrorClass::Transient,
    };
    Box::new(Simulated::new(class))
}

impl Route {
    fn stages(&self) -> Vec<&dyn Stage> {
        self.stages.iter().map(|stage| &**stage).collect()
    }
}

impl RunStep {
    fn rest(&mut self, rest: Rest) {
        self.operations.extend(rest.operations);
        match self.rests.last_mut() {
            Some(same) if same.place == rest.place => same.times += 1,
            _ => self.rests.push(Resting { place: rest.place, times: 1 }),
        }
    }
}

impl Step {
    /// Merges the steps at both ends of jitter; the upper one decides if both exist.
    fn between(least: Option<RunStep>, most: Option<RunStep>) -> Option<Self> {
        let span = |of: fn(&RunStep) -> Option<Duration>| {
            let (least, most) = (least.as_ref().and_then(of), most.as_ref().and_then(of));
            Some(Span { least: least.or(most)?, most: most.or(least)? })
        };
        let begins_after = span(|step| Some(step.begins_after))?;
        let wait = span(|step| step.wait);
        let rests_at_least = match (&least, &most) {
            (Some(least), Some(most)) if least.rests != most.rests => Some(least.rests.clone()),
            _ => None,
        };
        let step = most.or(least)?;
        Some(Self {
            attempt: step.attempt,
            begins_after,
            decision: step.disposition.name(),
            // The reason of a retry only tells the class of the error, which is in the case.
            reason: step
                .disposition
                .failure()
                .filter(|_| wait.is_none())
                .map(|failure| failure.reason().as_str().to_owned()),
            wait,
            rests: step.rests,
            rests_at_least,
            operations: step.operations,
        })
    }
}
