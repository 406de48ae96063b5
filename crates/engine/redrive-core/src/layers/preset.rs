//! The four stages in the right order, as one plain value.

use std::ops::ControlFlow;

use crate::classify::{ErrorClass, ErrorClassifier};
use crate::delivery::Delivery;
use crate::disposition::{Disposition, Outcome};
use crate::layers::{Backoff, Deadline, Expired, ParkingLot, Poison};
use crate::needs::Needs;
use crate::retry::RetryPolicy;
use crate::stage::{Stage, admit_in_turn, resolve_in_turn};

/// The stages that `with_dead_letter_backoff` puts around a handler: retry with backoff, then the dead-letter shelf; rejection of
/// poison messages; the publisher's expiration; parking of messages that keep coming back.
///
/// The fields are the stages, outermost first. The order matters: a message that `poison` rejects must still be parked if it
/// keeps coming back.
///
/// ```
/// use redrive_core::{DeadLetterBackoff, ErrorClass, secs};
///
/// let preset = DeadLetterBackoff::new([secs(1), secs(10)])
///     .poison_after(5)
///     .park_after_redrives(2)
///     .panics(ErrorClass::Permanent);
/// ```
///
/// For options without a shortcut here, replace the field:
///
/// ```
/// use redrive_core::{Backoff, DeadLetterBackoff, ErrorClass, ParkingLot, secs};
///
/// let mut preset = DeadLetterBackoff::new([secs(1)]);
/// preset.parking_lot = ParkingLot::after_redrives(0).and_exhausted();
/// preset.backoff = Backoff::new([secs(1), secs(60)]).panics(ErrorClass::Permanent);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetterBackoff {
    /// Parks messages that keep coming back.
    pub parking_lot: ParkingLot,
    /// Rejects messages that were delivered too often without coming to an end.
    pub poison: Poison,
    /// Ends the retries of expired messages.
    pub deadline: Deadline,
    /// Classifies errors, and schedules the next attempt.
    pub backoff: Backoff,
}

impl DeadLetterBackoff {
    /// Creates the preset with this retry policy.
    #[must_use]
    pub fn new(policy: impl RetryPolicy) -> Self {
        Self {
            parking_lot: ParkingLot::default(),
            poison: Poison::default(),
            deadline: Deadline::default(),
            backoff: Backoff::new(policy),
        }
    }

    /// Rejects a message after this many deliveries; see [`Poison`].
    #[must_use]
    pub fn poison_after(mut self, deliveries: u32) -> Self {
        self.poison = Poison::after(deliveries);
        self
    }

    /// Parks a message that fails after this many redrives; see [`ParkingLot`].
    #[must_use]
    pub fn park_after_redrives(mut self, redrives: u32) -> Self {
        self.parking_lot = self.parking_lot.redrives(redrives);
        self
    }

    /// Parks, instead of dead-letters, messages that exhausted their attempts.
    #[must_use]
    pub fn park_exhausted(mut self) -> Self {
        self.parking_lot = self.parking_lot.and_exhausted();
        self
    }

    /// Sets what happens to expired messages. Default: the dead-letter shelf; see [`Expired`].
    #[must_use]
    pub fn expired(mut self, expired: Expired) -> Self {
        self.deadline = Deadline::new(expired);
        self
    }

    /// Sets the classifier; see [`Backoff::classifier`].
    #[must_use]
    pub fn classifier(mut self, classifier: impl ErrorClassifier) -> Self {
        self.backoff = self.backoff.classifier(classifier);
        self
    }

    /// Sets a separate retry policy for throttled errors; see [`Backoff::throttled`].
    #[must_use]
    pub fn throttled(mut self, policy: impl RetryPolicy) -> Self {
        self.backoff = self.backoff.throttled(policy);
        self
    }

    /// Sets the class of a panic of the handler; see [`Backoff::panics`].
    #[must_use]
    pub fn panics(mut self, class: ErrorClass) -> Self {
        self.backoff = self.backoff.panics(class);
        self
    }

    /// Returns the stages, outermost first.
    fn stages(&self) -> [&dyn Stage; 4] {
        [&self.parking_lot, &self.poison, &self.deadline, &self.backoff]
    }
}

impl Stage for DeadLetterBackoff {
    fn admit(&self, delivery: &Delivery) -> ControlFlow<Disposition> {
        admit_in_turn(&self.stages(), delivery)
    }

    fn resolve(&self, delivery: &Delivery, outcome: Outcome) -> Outcome {
        // No stage changes a success, and most messages succeed.
        if let Ok(Disposition::Ack) = outcome {
            return outcome;
        }
        resolve_in_turn(&self.stages(), delivery, outcome)
    }

    fn needs(&self) -> Needs {
        self.stages().into_iter().fold(Needs::none(), |needs, stage| needs.and(stage.needs()))
    }
}

/// What `with_dead_letter_backoff` takes: a [`RetryPolicy`], or a [`DeadLetterBackoff`] for more options.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a `RetryPolicy` nor a `DeadLetterBackoff`",
    label = "does not say when to try again",
    note = "use `Exponential`, `Fixed`, `Linear`, `Fibonacci` or `NoRetry`; an array or `Vec` of `Duration`; or a closure from \
            the attempt that failed to the next wait: `|attempt: u32| -> Option<Duration>`",
    note = "options go into the preset: `DeadLetterBackoff::new(policy).poison_after(5)`"
)]
pub trait IntoDeadLetterBackoff {
    /// Converts into the preset.
    fn into_dead_letter_backoff(self) -> DeadLetterBackoff;
}

impl<P: RetryPolicy> IntoDeadLetterBackoff for P {
    fn into_dead_letter_backoff(self) -> DeadLetterBackoff {
        DeadLetterBackoff::new(self)
    }
}

impl IntoDeadLetterBackoff for DeadLetterBackoff {
    fn into_dead_letter_backoff(self) -> DeadLetterBackoff {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{millis, secs};

    #[test]
    fn policies_and_presets_go_into_the_same_method() {
        fn waits(preset: impl IntoDeadLetterBackoff) -> usize {
            preset.into_dead_letter_backoff().needs().waits.len()
        }
        assert_eq!(waits([secs(1), secs(2)]), 2);
        assert_eq!(waits(vec![secs(1)]), 1);
        assert_eq!(waits(crate::Exponential::from(secs(1)).attempts(3)), 2);
        assert_eq!(waits(|attempt: u32| (attempt < 3).then(|| millis(attempt.into()))), 2);
        assert_eq!(waits(DeadLetterBackoff::new([secs(1)]).poison_after(5)), 1);
    }

    #[test]
    fn a_part_is_replaced_by_its_name() {
        let mut preset = DeadLetterBackoff::new([secs(1)]);
        preset.poison = Poison::after(3);
        preset.backoff = Backoff::new([secs(5)]);
        let needs = preset.needs();
        assert_eq!((needs.deliveries, needs.waits.first()), (Some(3), Some(&secs(5))));
    }
}
