//! Turns away messages that were handed out more often than allowed.

use std::ops::ControlFlow;

use crate::delivery::Delivery;
use crate::disposition::Disposition;
use crate::failure::{Failure, Reason};
use crate::needs::Needs;
use crate::stage::Stage;

/// Turns away what was handed out more often than allowed without coming to an end: it may have killed the
/// processes that it was handed to. The handler does not run; the message is dead-lettered as
/// [`Reason::PoisonMessage`].
///
/// It goes by the broker's count ([`Delivery::handed_out`]), which grows even when the process dies at once. On a
/// queue that does not count (a classic queue of RabbitMQ) it can do nothing; the consumer says so at its start.
#[derive(Clone, Debug)]
pub struct Poison {
    allowed: u32,
}

impl Poison {
    /// How many hand-outs are allowed when nothing else is said. Every restart of broker or consumer costs the
    /// messages in hand one of them.
    pub const DEFAULT: u32 = 10;

    /// Allows this many hand-outs (at least 1), and turns away the next.
    #[must_use]
    pub fn after(hand_outs: u32) -> Self {
        Self { allowed: hand_outs.max(1) }
    }
}

impl Default for Poison {
    fn default() -> Self {
        Self::after(Self::DEFAULT)
    }
}

impl Stage for Poison {
    fn admit(&self, delivery: &Delivery) -> ControlFlow<Disposition> {
        let times = delivery.handed_out();
        if times <= self.allowed {
            return ControlFlow::Continue(());
        }
        let text = format!(
            "handed out {times} times, {} allowed: handling it never came to an end (did it kill its process?)",
            self.allowed
        );
        ControlFlow::Break(Disposition::DeadLetter(Failure::new(Reason::PoisonMessage, text)))
    }

    fn needs(&self) -> Needs {
        let mut needs = Needs::none();
        needs.hand_outs = Some(self.allowed);
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
        let handed_out = |times| Delivery::new(Message::new(""), "q", UNIX_EPOCH).handed_out_times(times);
        let poison = Poison::after(3);
        assert!(poison.admit(&handed_out(3)).is_continue());
        let ControlFlow::Break(Disposition::DeadLetter(failure)) = poison.admit(&handed_out(4)) else {
            panic!("let through")
        };
        assert_eq!(failure.reason(), &Reason::PoisonMessage);
        assert!(failure.text().contains("4 times, 3 allowed"), "{failure}");
    }
}
