//! Delayed retry by the broker itself: RabbitMQ 4.3 and newer, quorum queues. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lapin::types::AMQPValue;
use redrive_core::Message;
use redrive_core::transport::{Facts, InPlace, Needs};

use super::DelayStrategy;
use super::ladder::{self, Ladder, LadderStrategy};
use crate::broker::{QueueType, Version};
use crate::topology::{Part, Plan, Route};

/// Delayed retry by the broker, without copies: RabbitMQ 4.3 and newer, quorum queues.
///
/// After its first failure the broker holds a message back for `min`, after its second for `2 * min`, and so on, up to `max`. A
/// retry that asks for a longer wait (a policy that grows faster, an error with a minimum wait, a snooze) uses a copy in a delay
/// queue, so that no retry comes early.
///
/// ```
/// use std::time::Duration;
/// use redrive_rabbitmq::{Delay, Native};
///
/// let delay: Delay = Native::between(Duration::from_secs(1), Duration::from_secs(60)).into();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Native {
    min: Duration,
    max: Duration,
}

impl Native {
    /// Holds a message back for `min` times its number of failures, at most for `max`. Whole milliseconds.
    #[must_use]
    pub fn between(min: Duration, max: Duration) -> Self {
        Self { min, max }
    }

    /// Returns the arguments of the work queue, always all three: without the shortest wait the broker silently delays nothing.
    pub(super) fn work_queue_arguments(self) -> BTreeMap<String, AMQPValue> {
        let millis =
            |wait: Duration| AMQPValue::LongLongInt(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
        let arguments = [
            ("type", AMQPValue::LongString("failed".into())),
            ("min", millis(self.min)),
            ("max", millis(self.max)),
        ];
        arguments.into_iter().map(|(name, value)| (format!("x-delayed-retry-{name}"), value)).collect()
    }

    pub(super) fn contradiction(self, plan: &Plan, more_waits: &[Duration]) -> Option<String> {
        if plan.queue_type != QueueType::Quorum {
            return Some(
                "Delay::Native needs a quorum queue: classic queues of RabbitMQ have no delayed retry; use \
                 QueueType::Quorum, or Delay::Ladder"
                    .to_owned(),
            );
        }
        if self.min < Duration::from_millis(1) || self.max < self.min || self.max > ladder::MAX_WAIT {
            return Some(format!(
                "Delay::Native holds a message back for at least 1 ms and at most ten years, and no shorter at most than at \
                 least; asked for were {} to {}",
                humantime::format_duration(self.min),
                humantime::format_duration(self.max)
            ));
        }
        if !plan.topology.declares_own() && more_waits.is_empty() {
            return Some(
                "with Delay::Native a snooze, and a wait longer than the broker's, go through a delay queue, and none may be \
                 declared: have at least one declared, and name its wait with `wait`"
                    .to_owned(),
            );
        }
        if let Some(argument) = plan.arguments.keys().find(|name| name.starts_with("x-delayed-retry-")) {
            return Some(format!(
                "redrive must know `{argument}`, and cannot when it is an argument: set it with Delay::Native"
            ));
        }
        None
    }
}

/// The broker accepts the arguments silently in every version: only the version tells whether it supports them.
pub(super) fn refused_by(version: Option<Version>) -> Option<String> {
    match version {
        Some(version) if version >= Version::V4_3 => None,
        Some(version) => Some(format!(
            "Delay::Native needs RabbitMQ 4.3 or newer, and this is {version}, which would hand a failed message out again at \
             once: use Delay::Ladder"
        )),
        None => Some(
            "Delay::Native needs RabbitMQ 4.3 or newer, and this broker does not tell its version: use Delay::Ladder"
                .to_owned(),
        ),
    }
}

/// The strategy of [`Delay::Native`](super::Delay::Native).
#[derive(Debug)]
pub(super) struct NativeStrategy {
    native: Native,
    /// For waits that the broker cannot make itself.
    copies: LadderStrategy,
    mismatch: Option<String>,
}

impl NativeStrategy {
    pub(super) fn new(native: Native, plan: &Arc<Plan>, needs: &Needs, more_waits: &[Duration]) -> Self {
        let copies = LadderStrategy::new(plan, Ladder::exactly(more_waits.iter().copied()));
        Self { native, copies, mismatch: mismatch(native, needs) }
    }

    fn in_place(&self) -> InPlace {
        InPlace::Linear { shortest: self.native.min, longest: self.native.max }
    }
}

impl DelayStrategy for NativeStrategy {
    fn hops(&self) -> Vec<Duration> {
        self.copies.hops()
    }

    fn route(&self, wait: Duration, copy: &mut Message) -> Option<Route> {
        self.copies.route(wait, copy)
    }

    fn held_for(&self, wait: Duration) -> Option<Duration> {
        self.copies.held_for(wait)
    }

    fn parts(&self) -> Vec<Part> {
        self.copies.parts()
    }

    fn spare(&self, route: &Route) -> Option<Part> {
        self.copies.spare(route)
    }

    fn without(&self, spare: &Route) -> Option<Arc<dyn DelayStrategy>> {
        let copies = self.copies.without_spare(spare)?;
        Some(Arc::new(Self { native: self.native, copies, mismatch: self.mismatch.clone() }))
    }

    fn describe(&self, facts: &mut Facts) {
        facts.delays.in_place = Some(self.in_place());
    }

    fn caveats(&self) -> Vec<String> {
        let kept = "retries are made by the broker, without a copy: what failed and when is not written on the message until \
                    it is shelved; a crash of the process, or a lost connection, costs the messages in flight an attempt";
        std::iter::once(kept.to_owned()).chain(self.mismatch.clone()).collect()
    }
}

/// Returns a sentence about waits of the policies that the broker does not hold exactly.
fn mismatch(native: Native, needs: &Needs) -> Option<String> {
    let longer = needs.waits.iter().filter(|&&wait| wait > native.max).count();
    let first = needs.waits.first().copied().filter(|&wait| wait > native.min);
    let (min, max) = (humantime::format_duration(native.min), humantime::format_duration(native.max));
    if longer > 0 {
        return Some(format!(
            "{longer} of the waits that the retry policy names are longer than the {max} that the queue holds a message back \
             for: those retries go by copies through delay queues"
        ));
    }
    first.map(|first| {
        format!(
            "the shortest wait of the retry policy is {}, and the queue holds a message back for {min} after its first \
             failure: that retry goes by a copy through a delay queue",
            humantime::format_duration(first)
        )
    })
}
