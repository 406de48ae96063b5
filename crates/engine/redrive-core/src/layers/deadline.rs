//! Ends the retries of messages whose expiration has passed.

use std::ops::ControlFlow;
use std::time::SystemTime;

use crate::delivery::Delivery;
use crate::disposition::{Disposition, Outcome};
use crate::failure::{Failure, Reason};
use crate::history::write_time;
use crate::stage::Stage;

/// What happens to a message whose expiration passed while it was retried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expired {
    /// Move to the dead-letter shelf, as [`Reason::Expired`].
    #[default]
    DeadLetter,
    /// Remove, with a warning in the log, instead of the first retry: the message itself still carries the publisher's expiration.
    /// After a retry, only a header shows the expiration. Anybody can write a header, so no header removes a message: it goes to
    /// the dead-letter shelf.
    Discard,
    /// Retry as if there were no expiration.
    RetryAnyway,
}

/// Applies the publisher's expiration across all copies: a message whose [deadline](Delivery::deadline) has passed is not retried,
/// and neither is one whose next attempt would come after the deadline.
///
/// A first delivery always reaches its handler: the broker has checked its expiration, and knows how long the message was in the
/// queue.
#[derive(Clone, Debug, Default)]
pub struct Deadline {
    expired: Expired,
}

impl Deadline {
    /// Creates the layer.
    #[must_use]
    pub fn new(expired: Expired) -> Self {
        Self { expired }
    }
}

impl Stage for Deadline {
    fn admit(&self, delivery: &Delivery) -> ControlFlow<Disposition> {
        match delivery.history().deadline {
            Some(deadline) if delivery.received_at() >= deadline && self.expired != Expired::RetryAnyway => {
                let when = write_time(deadline);
                let when = when.as_str().unwrap_or_default();
                let text = format!("its expiration passed at {when}, before its next attempt");
                ControlFlow::Break(Disposition::DeadLetter(Failure::new(Reason::Expired, text)))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn resolve(&self, delivery: &Delivery, outcome: Outcome) -> Outcome {
        let Ok(Disposition::Retry(wait, failure)) = outcome else { return outcome };
        // It comes back even later: the handler took time too.
        let back = delivery.received_at().checked_add(wait);
        let is_too_late = |deadline: Option<SystemTime>| {
            deadline.is_some_and(|deadline| back.is_none_or(|back| back >= deadline))
        };
        Ok(match self.expired {
            Expired::RetryAnyway => Disposition::Retry(wait, failure),
            _ if !is_too_late(delivery.deadline()) => Disposition::Retry(wait, failure),
            Expired::Discard if is_too_late(delivery.own_deadline()) => {
                Disposition::Discard(failure.because(Reason::Expired))
            }
            Expired::Discard | Expired::DeadLetter => {
                Disposition::DeadLetter(failure.because(Reason::Expired))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::delivery::DeliveryBuilder;
    use crate::{Message, Timestamp, header_names};

    const NOW: Duration = Duration::from_secs(1_800_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn delivery(message: Message) -> Delivery {
        Delivery::new(message, "q", UNIX_EPOCH + NOW)
    }

    fn enqueued_at(time: Option<SystemTime>, message: Message) -> Delivery {
        DeliveryBuilder::from(delivery(message)).enqueued_at(time).build()
    }

    fn expiring_in(wait: Duration) -> Message {
        let mut message = Message::new("");
        message.properties_mut().expiration = Some(wait);
        message
    }

    fn with_deadline(at: Duration) -> Message {
        Message::new("").with_header(header_names::DEADLINE, write_time(UNIX_EPOCH + at))
    }

    fn retried(stage: &Deadline, message: Message, wait: Duration) -> Disposition {
        let failed = Failure::new(Reason::RetryableError, "no answer");
        stage.resolve(&delivery(message), Ok(Disposition::Retry(wait, failed))).unwrap()
    }

    #[test]
    fn a_retry_that_would_come_back_in_time_passes() {
        let stage = Deadline::default();
        assert_eq!(retried(&stage, expiring_in(SECOND * 3), SECOND * 2).name(), "retry");
        assert_eq!(retried(&stage, with_deadline(NOW + SECOND * 3), SECOND * 2).name(), "retry");
        assert_eq!(retried(&stage, Message::new(""), Duration::MAX).name(), "retry");
    }

    #[test]
    fn a_retry_that_would_come_back_too_late_is_not_waited_for() {
        for message in [expiring_in(SECOND * 2), with_deadline(NOW + SECOND * 2)] {
            let Disposition::DeadLetter(failure) = retried(&Deadline::default(), message, SECOND * 2) else {
                panic!("not dead-lettered")
            };
            assert_eq!((failure.reason(), failure.text()), (&Reason::Expired, "no answer"));
        }
    }

    #[test]
    fn an_expiration_counts_from_when_the_broker_says_and_not_from_when_the_message_was_made() {
        let mut message = expiring_in(SECOND * 10);
        message.properties_mut().timestamp = Some(Timestamp::from_unix_seconds(1_700_000_000));
        let failed = || Failure::new(Reason::RetryableError, "no answer");
        let retried = |enqueued: Option<Duration>| {
            let delivery = enqueued_at(enqueued.map(|at| UNIX_EPOCH + at), message.clone());
            let resolved =
                Deadline::default().resolve(&delivery, Ok(Disposition::Retry(SECOND * 5, failed())));
            resolved.unwrap().name()
        };
        assert_eq!(retried(Some(NOW - SECOND)), "retry");
        assert_eq!(retried(Some(NOW - SECOND * 9)), "dead-letter");
        assert_eq!(retried(Some(NOW + SECOND * 60)), "retry", "its clock is ahead of ours");
        assert_eq!(retried(None), "dead-letter");
    }

    #[test]
    fn what_comes_back_after_its_deadline_is_turned_away() {
        let admitted = |at| Deadline::default().admit(&delivery(with_deadline(at)));
        assert!(admitted(NOW + SECOND).is_continue());
        let ControlFlow::Break(Disposition::DeadLetter(failure)) = admitted(NOW) else {
            panic!("let through")
        };
        assert_eq!(failure.reason(), &Reason::Expired);
        assert!(failure.text().contains("2027-01-15T08:00:00.000Z"), "{failure}");
    }

    #[test]
    fn a_time_beyond_reason_decides_nothing() {
        let stage = Deadline::default();
        for absurd in [Duration::ZERO, NOW / 1000, NOW * 1000] {
            let message = with_deadline(absurd);
            assert!(stage.admit(&delivery(message.clone())).is_continue(), "{absurd:?}");
            assert_eq!(retried(&stage, message, SECOND).name(), "retry", "{absurd:?}");
            let mut expiring = expiring_in(SECOND * 10);
            expiring.properties_mut().timestamp = Some(Timestamp::from_unix_seconds(absurd.as_secs()));
            assert_eq!(retried(&stage, expiring.clone(), SECOND).name(), "retry", "{absurd:?}");
            let enqueued = enqueued_at(Some(UNIX_EPOCH + absurd), expiring);
            assert_eq!(enqueued.deadline(), Some(UNIX_EPOCH + NOW + SECOND * 10), "{absurd:?}");
            assert_eq!(enqueued.age(UNIX_EPOCH + NOW + SECOND), SECOND, "{absurd:?}");
        }
        let nanoseconds =
            Message::new("").with_header(header_names::NOT_BEFORE, 1_800_000_000_000_000_000_i64);
        assert_eq!(delivery(nanoseconds).history().not_before, None);
    }

    #[test]
    fn a_first_delivery_is_the_brokers_to_judge() {
        assert!(Deadline::default().admit(&delivery(expiring_in(Duration::ZERO))).is_continue());
    }

    #[test]
    fn no_header_removes_a_message() {
        let discard = Deadline::new(Expired::Discard);
        let over = with_deadline(NOW - SECOND);
        let expiration = Message::new("").with_header(header_names::EXPIRATION, 0_i64);
        let mut in_an_hour = with_deadline(NOW);
        in_an_hour.properties_mut().expiration = Some(SECOND * 3600);
        for message in [over.clone(), expiration, in_an_hour] {
            assert_eq!(retried(&discard, message, SECOND).name(), "dead-letter");
        }
        // Nor before a first attempt that it would have without the header.
        let mut expired = over;
        expired.properties_mut().timestamp = Some(Timestamp::from_unix_seconds(1_700_000_000));
        expired.properties_mut().expiration = Some(SECOND);
        let ControlFlow::Break(turned_away) = discard.admit(&delivery(expired)) else {
            panic!("let through")
        };
        assert_eq!(turned_away.name(), "dead-letter");
    }

    #[test]
    fn it_goes_where_the_user_says() {
        let discard = Deadline::new(Expired::Discard);
        assert_eq!(retried(&discard, expiring_in(SECOND), SECOND).name(), "discard");
        let anyway = Deadline::new(Expired::RetryAnyway);
        assert_eq!(retried(&anyway, expiring_in(SECOND), SECOND).name(), "retry");
        assert!(anyway.admit(&delivery(with_deadline(NOW))).is_continue());
    }
}
