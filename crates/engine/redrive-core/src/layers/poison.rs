//! Rejects messages that were handed out more often than allowed.

use std::ops::ControlFlow;

use crate::delivery::Delivery;
use crate::disposition::Disposition;
use crate::failure::{Failure, Reason};
use crate::needs::{Needs, below};
use crate::stage::Stage;
use crate::text::plural;

/// Rejects a message that was handed out more often than allowed without coming to an end: it may have killed the processes that
/// received it. The handler does not run; the message is dead-lettered as [`Reason::PoisonMessage`].
///
/// Uses the broker's count ([`Delivery::broker_delivery_count`]), which grows even if the process dies at once, without the
/// deliveries that this process lost with a connection ([`Delivery::interruptions`]): these are no evidence against the message.
/// On a queue that does not count (a classic queue of RabbitMQ) it knows only what the consumer counts itself: what its
/// ledger tells, and the messages that it handled and lost. The consumer says so at its start.
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
        let (times, allowed) =
            (delivery.deliveries_without_end(), self.allowed_on(delivery.delivery_limit()));
        if times <= allowed {
            return ControlFlow::Continue(());
        }
        let lost = delivery.times_lost_here();
        let text = if lost < allowed {
            format!(
                "handed out {times} times, {allowed} allowed: handling it never came to an end (did it kill its process?)"
            )
        } else {
            format!(
                "handled {}, {allowed} allowed, and each time the broker took it back before it could be settled (is \
                 the handler slower than the broker's limit for holding a message?)",
                plural(lost, "time")
            )
        };
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
    use crate::engine::{lost_here, with_delivery_limit, with_proven_deliveries};
    use crate::transport::{DeliveryBuilder, Origin};
    use std::time::UNIX_EPOCH;

    fn arrived() -> DeliveryBuilder {
        DeliveryBuilder::new(Message::new(""), Origin::new("q", "", ""), UNIX_EPOCH)
    }

    #[test]
    fn the_allowed_number_is_let_through_and_the_next_is_not() {
        let handed_out = |times| arrived().broker_delivery_count(times).build();
        let poison = Poison::after(3);
        assert!(poison.admit(&handed_out(3)).is_continue());
        let ControlFlow::Break(Disposition::DeadLetter(failure)) = poison.admit(&handed_out(4)) else {
            panic!("let through")
        };
        assert_eq!(failure.reason(), &Reason::PoisonMessage);
        assert!(failure.text().contains("4 times, 3 allowed"), "{failure}");
    }

    #[test]
    fn what_this_process_lost_with_a_connection_is_no_evidence() {
        let times = |times, interruptions| {
            arrived().broker_delivery_count(times).interruptions(interruptions).build()
        };
        let poison = Poison::after(3);
        assert!(poison.admit(&times(9, 6)).is_continue());
        assert!(poison.admit(&times(9, 5)).is_break(), "four of them are not explained");
        assert!(poison.admit(&times(2, 50)).is_continue());
        let deaths_in_the_ledger = with_proven_deliveries(times(1, 6), 4);
        assert!(poison.admit(&deaths_in_the_ledger).is_break(), "these were no lost connections");
    }

    #[test]
    fn what_is_too_slow_for_the_broker_is_told_from_what_kills() {
        let lost = |times| lost_here(arrived().broker_delivery_count(9).interruptions(8).build(), times);
        let poison = Poison::after(3);
        assert!(poison.admit(&lost(2)).is_continue());
        let ControlFlow::Break(Disposition::DeadLetter(failure)) = poison.admit(&lost(3)) else {
            panic!("let through")
        };
        assert_eq!(failure.reason(), &Reason::PoisonMessage);
        assert!(
            failure.text().starts_with("handled 3 times, 3 allowed, and each time the broker took it back"),
            "{failure}"
        );
    }

    #[test]
    fn the_default_stays_below_the_limit_of_the_broker_and_what_was_said_holds() {
        let turned_away_at = |poison: &Poison, limit| {
            let turned_away = |&times: &u32| {
                let delivery = arrived().broker_delivery_count(times).build();
                poison.admit(&with_delivery_limit(delivery, limit)).is_break()
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
