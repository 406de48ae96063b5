//! Decides about an error: its class, the wait, and when to stop retrying.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::classify::{ByMarker, ErrorClass, ErrorClassifier, Simulated};
use crate::delivery::{Delivery, DeliveryBuilder};
use crate::disposition::{BoxError, Disposition, Outcome};
use crate::failure::{Failure, Reason};
use crate::needs::Needs;
use crate::panic::Panicked;
use crate::rejected::Rejected;
use crate::retry::RetryPolicy;
use crate::stage::Stage;

/// Turns an error into a decision.
///
/// | error | decision |
/// |---|---|
/// | permanent, or an argument of the handler could not be extracted | dead-letter, [`Reason::NonRetryableError`] |
/// | transient, attempts left | retry after the policy's wait |
/// | throttled, attempts left | the same, but not before the wait that the error asks for |
/// | transient or throttled, no attempts left | dead-letter, [`Reason::MaxDeliveryCountExceeded`] |
/// | panic | as a transient error; [`panics`](Self::panics) changes that |
///
/// Decisions of inner layers pass through. If the broker retries [in place](crate::transport::InPlace), a message without attempts left is
/// dead-lettered as [`Reason::MaxDeliveryCountExceeded`] before its handler runs.
#[derive(Clone)]
pub struct Backoff {
    policy: Arc<dyn RetryPolicy>,
    throttled_policy: Option<Arc<dyn RetryPolicy>>,
    classifier: Arc<dyn ErrorClassifier>,
    panics: ErrorClass,
}

impl Backoff {
    /// Retries by this policy; classifies errors [`ByMarker`].
    #[must_use]
    pub fn new(policy: impl RetryPolicy) -> Self {
        Self {
            policy: Arc::new(policy),
            throttled_policy: None,
            classifier: Arc::new(ByMarker),
            panics: ErrorClass::Transient,
        }
    }

    /// Sets a separate retry policy for throttled errors, for example with many more attempts.
    #[must_use]
    pub fn throttled(mut self, policy: impl RetryPolicy) -> Self {
        self.throttled_policy = Some(Arc::new(policy));
        self
    }

    /// Sets the classifier.
    #[must_use]
    pub fn classifier(mut self, classifier: impl ErrorClassifier) -> Self {
        self.classifier = Arc::new(classifier);
        self
    }

    /// Sets the class of a panic of the handler. Default: transient.
    #[must_use]
    pub fn panics(mut self, class: ErrorClass) -> Self {
        self.panics = class;
        self
    }

    fn classify(&self, error: &BoxError) -> ErrorClass {
        // No attempt can cure a body that cannot be read, whatever the classifier makes of the parser's error.
        if error.is::<Rejected>() {
            ErrorClass::Permanent
        } else if error.is::<Panicked>() {
            self.panics
        } else if let Some(Simulated { class, .. }) = error.downcast_ref() {
            *class
        } else {
            self.classifier.classify(&**error)
        }
    }

    fn decide(&self, delivery: &Delivery, error: &BoxError) -> Disposition {
        let failure = |reason| Failure::from_error(reason, &**error);
        let (policy, at_least, reason) = match self.classify(error) {
            ErrorClass::Permanent => return Disposition::DeadLetter(failure(Reason::NonRetryableError)),
            ErrorClass::Transient => (&self.policy, Duration::ZERO, Reason::RetryableError),
            ErrorClass::Throttled(wait) => {
                (self.throttled_policy.as_ref().unwrap_or(&self.policy), wait, Reason::ThrottledError)
            }
        };
        match policy.next_retry(delivery) {
            Some(wait) => Disposition::Retry(wait.max(at_least), failure(reason)),
            None => Disposition::DeadLetter(failure(Reason::MaxDeliveryCountExceeded)),
        }
    }
}

impl Stage for Backoff {
    /// A broker that counts failures itself also counts the death of a process. Nothing has checked yet whether that was the last
    /// attempt.
    fn admit(&self, delivery: &Delivery) -> ControlFlow<Disposition> {
        let Some(before) = delivery.failures_in_place().checked_sub(1) else {
            return ControlFlow::Continue(());
        };
        let failed = DeliveryBuilder::from(delivery.clone()).failures_in_place(before).build();
        let mut policies = std::iter::once(&self.policy).chain(&self.throttled_policy);
        if policies.any(|policy| policy.next_retry(&failed).is_some()) {
            return ControlFlow::Continue(());
        }
        let text = format!(
            "attempt {} was the last allowed, and did not come to an end (did its process die?)",
            failed.attempt()
        );
        ControlFlow::Break(Disposition::DeadLetter(Failure::new(Reason::MaxDeliveryCountExceeded, text)))
    }

    fn resolve(&self, delivery: &Delivery, outcome: Outcome) -> Outcome {
        match outcome {
            Ok(decided) => Ok(decided),
            Err(error) => Ok(self.decide(delivery, &error)),
        }
    }

    fn needs(&self) -> Needs {
        let mut needs = Needs::none();
        for policy in std::iter::once(&self.policy).chain(&self.throttled_policy) {
            needs.waits.extend(policy.waits());
            needs.attempts = needs.attempts.max(Some(policy.most_attempts().unwrap_or(u32::MAX)));
        }
        needs.policies.push(needs.waits.clone());
        needs
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backoff")
            .field("waits", &self.policy.waits())
            .field("panics", &self.panics)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, header_names};
    use std::error::Error;
    use std::time::UNIX_EPOCH;

    const SECOND: Duration = Duration::from_secs(1);

    fn delivery(failures: i64) -> Delivery {
        Delivery::new(Message::new("").with_header(header_names::ATTEMPT, failures), "q", UNIX_EPOCH)
    }

    #[test]
    fn a_failure_that_the_broker_counted_may_have_been_the_last_allowed() {
        let backoff = Backoff::new([SECOND, SECOND, SECOND]);
        let counted = |failures| DeliveryBuilder::from(delivery(0)).failures_in_place(failures).build();
        for failures in 0..=3 {
            assert!(backoff.admit(&counted(failures)).is_continue(), "attempt {}", failures + 1);
        }
        let ControlFlow::Break(turned_away) = backoff.admit(&counted(4)) else { panic!("a fifth attempt") };
        assert_eq!(reason(&turned_away), "MaxDeliveryCountExceeded");
        assert!(backoff.admit(&delivery(9)).is_continue(), "what was stored as a copy was allowed");
        assert!(backoff.clone().throttled([SECOND; 9]).admit(&counted(4)).is_continue());
    }

    fn always(class: ErrorClass) -> impl Fn(&(dyn Error + 'static)) -> ErrorClass {
        move |_| class
    }

    fn reason(disposition: &Disposition) -> &str {
        disposition.failure().map_or("", |failure| failure.reason().as_str())
    }

    #[test]
    fn a_permanent_error_is_dead_lettered_at_once() {
        let backoff = Backoff::new([SECOND]).classifier(always(ErrorClass::Permanent));
        let decided = backoff.decide(&delivery(0), &"x".into());
        assert_eq!((decided.name(), reason(&decided)), ("dead-letter", "NonRetryableError"));
    }

    #[test]
    fn a_transient_error_is_retried_until_the_policy_has_enough() {
        let backoff = Backoff::new([SECOND, SECOND * 2]);
        for (failures, wait) in [(0, SECOND), (1, SECOND * 2)] {
            assert!(
                matches!(backoff.decide(&delivery(failures), &"x".into()), Disposition::Retry(w, _) if w == wait)
            );
        }
        let decided = backoff.decide(&delivery(2), &"x".into());
        assert_eq!((decided.name(), reason(&decided)), ("dead-letter", "MaxDeliveryCountExceeded"));
    }

    #[test]
    fn a_throttled_error_waits_at_least_as_long_as_it_asks() {
        let backoff = Backoff::new([SECOND]).classifier(always(ErrorClass::Throttled(SECOND * 37)));
        assert!(
            matches!(backoff.decide(&delivery(0), &"x".into()), Disposition::Retry(w, _) if w == SECOND * 37)
        );
        assert_eq!(backoff.decide(&delivery(1), &"x".into()).name(), "dead-letter");
        let patient = backoff.throttled(|_attempt: u32| Some(SECOND * 60));
        assert!(
            matches!(patient.decide(&delivery(99), &"x".into()), Disposition::Retry(w, _) if w == SECOND * 60)
        );
    }

    #[test]
    fn a_panic_counts_as_configured() {
        let panicked = || -> BoxError { Box::new(Panicked::new("boom")) };
        assert_eq!(Backoff::new([SECOND]).decide(&delivery(0), &panicked()).name(), "retry");
        let strict = Backoff::new([SECOND]).panics(ErrorClass::Permanent);
        assert_eq!(strict.decide(&delivery(0), &panicked()).name(), "dead-letter");
    }

    #[test]
    fn a_rejected_argument_is_permanent_whatever_the_classifier_says() {
        let rejected: BoxError = Box::new(Rejected::new("the body is not JSON", "expected value"));
        let backoff = Backoff::new([SECOND]).classifier(always(ErrorClass::Transient));
        let decided = backoff.decide(&delivery(0), &rejected);
        assert_eq!((decided.name(), reason(&decided)), ("dead-letter", "NonRetryableError"));
    }

    #[test]
    fn what_is_decided_passes() {
        let outcome = Backoff::new([SECOND]).resolve(&delivery(0), Ok(Disposition::Release));
        assert!(matches!(outcome, Ok(Disposition::Release)));
    }
}
