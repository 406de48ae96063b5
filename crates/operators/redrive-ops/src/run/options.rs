//! How fast a run goes, and when it stops.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::pace::FASTER;
use crate::as_text;
use crate::plan::{Plan, PlanAction};

/// How fast a run goes, and when it stops. It only concerns entries that are redriven.
///
/// ```
/// use redrive_ops::RunOptions;
///
/// let options = RunOptions::new().rate(50).canary(10);
/// # let _ = options;
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "options do nothing until a run is made with them"]
pub struct RunOptions {
    pub(super) rate: u32,
    pub(super) canary: u32,
    #[serde(with = "as_text::millis")]
    pub(super) canary_wait: Duration,
    #[serde(with = "as_text::millis")]
    pub(super) look_every: Duration,
    #[serde(with = "as_text::millis")]
    pub(super) ramp_step: Duration,
    pub(super) max_same_failures: u32,
    pub(super) ignore_work_queue: bool,
}

impl RunOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        Self {
            rate: 10,
            canary: 5,
            canary_wait: Duration::from_secs(30),
            look_every: Duration::from_secs(2),
            ramp_step: Duration::from_secs(10),
            max_same_failures: 3,
            ignore_work_queue: false,
        }
    }

    /// Sets the maximum number of messages in any second; 0 counts as 1. There is always a maximum. Default: 10.
    pub fn rate(mut self, per_second: u32) -> Self {
        self.rate = per_second.max(1);
        self
    }

    /// Sets how many messages are sent first. The others wait for their fate. 0: none. Default: 5.
    pub fn canary(mut self, messages: u32) -> Self {
        self.canary = messages;
        self
    }

    /// Sets how long the run waits for the fate of the canary. A message that is not seen on a shelf again by then counts as not
    /// failed, and is reported as not known: choose a time longer than all retries together. Default: 30 seconds.
    pub fn canary_wait(mut self, wait: Duration) -> Self {
        self.canary_wait = wait;
        self
    }

    /// Sets the time between two looks at the fates and the work queue. A look that takes longer than that is followed by a pause
    /// of the same length. Default: 2 seconds.
    pub fn look_every(mut self, time: Duration) -> Self {
        self.look_every = time;
        self
    }

    /// Sets how long each rate of the ramp lasts: 1, 10, 100 a second and so on, up to the maximum. Default: 10 seconds.
    pub fn ramp_step(mut self, time: Duration) -> Self {
        self.ramp_step = time;
        self
    }

    /// Sets how many messages may fail the same way again after the canary; that many stop the run, 0 counts as 1. Of the canary,
    /// one stops it. Default: 3.
    pub fn max_same_failures(mut self, messages: u32) -> Self {
        self.max_same_failures = messages.max(1);
        self
    }

    /// Sets whether the run sends messages however long the work queue gets, and also if nobody consumes it; the canary proves
    /// nothing then. Default: false, it waits.
    pub fn ignore_work_queue(mut self, ignore: bool) -> Self {
        self.ignore_work_queue = ignore;
        self
    }

    /// Estimates how long a run of this plan takes that nothing delays: with the longest wait for the canary, and without the time
    /// that the broker takes.
    #[must_use]
    pub fn duration(&self, plan: &Plan) -> Duration {
        self.duration_of(plan.count(PlanAction::Redrive))
    }

    /// Estimates how long this many messages take.
    pub(super) fn duration_of(&self, messages: usize) -> Duration {
        let mut left = u64::try_from(messages).unwrap_or(u64::MAX);
        let canary = left.min(self.canary.into());
        let mut time = if canary > 0 { self.canary_wait } else { Duration::ZERO };
        left -= canary;
        let mut rate = 1_u32;
        while left > 0 {
            rate = rate.min(self.rate);
            let in_step = u64::from(rate).saturating_mul(self.ramp_step.as_secs());
            if rate == self.rate || left <= in_step {
                return time.saturating_add(Duration::from_secs(left.div_ceil(rate.into())));
            }
            left -= in_step;
            time = time.saturating_add(self.ramp_step);
            rate = rate.saturating_mul(FASTER);
        }
        time
    }
}

impl Default for RunOptions {
    fn default() -> Self {
        Self::new()
    }
}
