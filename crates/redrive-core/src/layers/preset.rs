//! The four layers in their right order, as one plain value.

use std::ops::ControlFlow;

use crate::classify::{ErrorClass, ErrorClassifier};
use crate::delivery::Delivery;
use crate::disposition::{Disposition, Outcome};
use crate::layers::{Backoff, Deadline, Expired, ParkingLot, Poison};
use crate::needs::Needs;
use crate::retry::RetryPolicy;
use crate::stage::Stage;

/// Retry with backoff, then dead-letter; poison messages turned away; the publisher's expiration held; what keeps coming
/// back parked. What
/// `with_dead_letter_backoff` puts around a handler.
///
/// From the outside in: [`ParkingLot`], [`Poison`], [`Deadline`], [`Backoff`]. The order matters: what `Poison` turns away
/// must still be parked when it keeps coming back.
///
/// ```
/// use std::time::Duration;
/// use redrive_core::{Consumer, DeadLetterBackoff, ErrorClass};
///
/// let preset = DeadLetterBackoff::new([Duration::from_secs(1), Duration::from_secs(10)])
///     .poison_after(5)
///     .park_after_redrives(2)
///     .panics(ErrorClass::Permanent);
/// ```
#[derive(Clone, Debug)]
pub struct DeadLetterBackoff {
    stages: (ParkingLot, Poison, Deadline, Backoff),
}

impl DeadLetterBackoff {
    /// The preset with this retry policy.
    #[must_use]
    pub fn new(policy: impl RetryPolicy) -> Self {
        let (parking_lot, poison, deadline) = Default::default();
        Self { stages: (parking_lot, poison, deadline, Backoff::new(policy)) }
    }

    /// Turns a message away after this many deliveries; see [`Poison`].
    #[must_use]
    pub fn poison_after(mut self, deliveries: u32) -> Self {
        self.stages.1 = Poison::after(deliveries);
        self
    }

    /// Parks what fails after this many redrives; see [`ParkingLot`].
    #[must_use]
    pub fn park_after_redrives(self, redrives: u32) -> Self {
        self.parking_lot(|parking_lot| parking_lot.redrives(redrives))
    }

    /// Parks, instead of dead-letters, what exhausted its attempts.
    #[must_use]
    pub fn park_exhausted(self) -> Self {
        self.parking_lot(ParkingLot::and_exhausted)
    }

    /// Where messages go whose expiration has passed. Default: the dead-letter shelf; see [`Expired`].
    #[must_use]
    pub fn expired(mut self, expired: Expired) -> Self {
        self.stages.2 = Deadline::new(expired);
        self
    }

    /// Classifies errors in this way; see [`Backoff::classifier`].
    #[must_use]
    pub fn classifier(self, classifier: impl ErrorClassifier) -> Self {
        self.backoff(|backoff| backoff.classifier(classifier))
    }

    /// Retries throttled errors by a policy of their own; see [`Backoff::throttled`].
    #[must_use]
    pub fn throttled(self, policy: impl RetryPolicy) -> Self {
        self.backoff(|backoff| backoff.throttled(policy))
    }

    /// What a panic of the handler counts as; see [`Backoff::panics`].
    #[must_use]
    pub fn panics(self, class: ErrorClass) -> Self {
        self.backoff(|backoff| backoff.panics(class))
    }

    fn parking_lot(mut self, change: impl FnOnce(ParkingLot) -> ParkingLot) -> Self {
        self.stages.0 = change(self.stages.0);
        self
    }

    fn backoff(mut self, change: impl FnOnce(Backoff) -> Backoff) -> Self {
        self.stages.3 = change(self.stages.3);
        self
    }
}

impl Stage for DeadLetterBackoff {
    fn admit(&self, delivery: &Delivery) -> ControlFlow<Disposition> {
        self.stages.admit(delivery)
    }

    fn resolve(&self, delivery: &Delivery, outcome: Outcome) -> Outcome {
        // Success is no matter for any of them, and is how most messages end.
        if let Ok(Disposition::Ack) = outcome {
            return outcome;
        }
        self.stages.resolve(delivery, outcome)
    }

    fn needs(&self) -> Needs {
        self.stages.needs()
    }
}

/// `with_dead_letter_backoff` on [`tower::ServiceBuilder`].
///
/// What is built there is opaque to the consumer: tell it the waits with
/// [`Consumer::needs`](crate::Consumer::needs), so that the transport can prepare them.
#[cfg(feature = "tower")]
pub trait ServiceBuilderExt<L>: Sized {
    /// Adds the preset with this retry policy.
    fn with_dead_letter_backoff(self, policy: impl RetryPolicy) -> WithPreset<L> {
        self.with_dead_letter_backoff_and(policy, |preset| preset)
    }

    /// Adds the preset with this retry policy and these options.
    fn with_dead_letter_backoff_and(
        self,
        policy: impl RetryPolicy,
        options: impl FnOnce(DeadLetterBackoff) -> DeadLetterBackoff,
    ) -> WithPreset<L>;
}

/// A [`tower::ServiceBuilder`] with the preset as its innermost layer so far.
#[cfg(feature = "tower")]
pub type WithPreset<L> = tower::ServiceBuilder<tower_layer::Stack<crate::StageLayer<DeadLetterBackoff>, L>>;

#[cfg(feature = "tower")]
impl<L> ServiceBuilderExt<L> for tower::ServiceBuilder<L> {
    fn with_dead_letter_backoff_and(
        self,
        policy: impl RetryPolicy,
        options: impl FnOnce(DeadLetterBackoff) -> DeadLetterBackoff,
    ) -> WithPreset<L> {
        self.layer(crate::StageLayer::new(options(DeadLetterBackoff::new(policy))))
    }
}
