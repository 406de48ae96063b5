//! Rejects messages that were handed out more often than allowed.

use std::ops::ControlFlow;

use crate::delivery::Delivery;
use crate::disposition::Disposition;
use crate::failure::{Failure, Reason};
use crate::needs::{Needs, below};
use crate::stage::Stage;

/// Rejects a message that was handed out more often than allowed without coming to an end: it may have killed the processes that
/// received it. The handler does not run; the message is dead-lettered as [`Reason::PoisonMessage`].
///
/// Uses the broker's count ([`Delivery::broker_delivery_count`]), which grows even if the process dies at once. It has no effect
/// on a queue that does not count (a classic queue of RabbitMQ); the consumer says so at its start.
///
/// A broker that removes messages by itself after this many deliveries ([`Delivery::delivery_limit`]) does so without a history.
/// [`Poison::default`] stays one below that limit, so that the last delivery can still be rejected here. A number given to
/// [`Poison::after`] never changes; if the broker's limit is too low for it, the consumer does not start.
#[derive(Clone, Debug)]
pub struct Poison {
    allowed: u32,
    /// True for the default, which adapts to the broker's limit.
    gives_way: bool,
}

impl Poison {
    /// Default number of allowed deliveries. Every restart of broker or consumer costs each message in flight one of them.
    pub const DEFAULT: u32 = 10;

    /// Allows this many deliveries (at least 1), and rejects the next.
    #[must_use]
    pub fn after(deliveries: u32) -> Self {
        Self { allowed: deliveries.max(1), gives_way: false }
    }

    fn allowed_on(&self, limit: Option<u32>) -> u32 {
        match limit {
            Some(limit) if self.gives_way => below(limit, self.allowed),
            _ => self.allowed,
        }
    }
}

impl Default for Poison {
    fn default() -> Self {
        Self { gives_way: true, ..Self::after(Self::DEFAULT) }
    }
}

impl Stage for Poison {
    fn admit(&self, delivery: &Delivery) -> ControlFlow<Disposition> {
        let (times, allowed) = (delivery.broker_delivery_count(), self.allowed_on(delivery.delivery_limit()));
        if times <= allowed {
            return ControlFlow::Continue(());
        }
        let text = format!(
            "handed out {times} times, {allowed} allowed: handling it never came to an end (did it kill its process?)"
        );
        ControlFlow::Break(Disposition::DeadLetter(Failure::new(Reason::PoisonMessage, text)))
    }

    fn needs(&self) -> Needs {
        let mut needs = Needs::none();
        needs.deliveries = Some(self.allowed);
        needs.deliveries_give_way = self.gives_way;
        needs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;
    use std::time::UNIX_EPOCH;

    #[test]
    fn the_allowed_number_is_let_through_and_the_next_is_not() {
        let handed_out =
            |times| Delivery::new(Message::new(""), "q", UNIX_EPOCH).with_broker_delivery_count(times);
        let poison = Poison::after(3);
        assert!(poison.admit(&handed_out(3)).is_continue());
        let ControlFlow::Break(Disposition::DeadLetter(failure)) = poison.admit(&handed_out(4)) else {
            panic!("let through")
        };
        assert_eq!(failure.reason(), &Reason::PoisonMessage);
        assert!(failure.text().contains("4 times, 3 allowed"), "{failure}");
    }

    #[test]
    fn the_default_stays_below_the_limit_of_the_broker_and_what_was_said_holds() {
        let delivery = Delivery::new(Message::new(""), "q", UNIX_EPOCH);
        let turned_away_at = |poison: &Poison, limit| {
            let turned_away = |&times: &u32| {
                let delivery = delivery.clone().with_delivery_limit(limit).with_broker_delivery_count(times);
                poison.admit(&delivery).is_break()
            };
            (1..).find(turned_away)
        };
        assert_eq!(turned_away_at(&Poison::default(), None), Some(11));
        assert_eq!(turned_away_at(&Poison::default(), Some(20)), Some(11));
        assert_eq!(turned_away_at(&Poison::default(), Some(10)), Some(10), "its last delivery");
        assert_eq!(turned_away_at(&Poison::default(), Some(2)), Some(2));
        assert_eq!(turned_away_at(&Poison::default(), Some(1)), Some(2), "too late: the start is refused");
        assert_eq!(turned_away_at(&Poison::after(10), Some(10)), Some(11));
    }
}
