//! Parks messages that keep coming back.

use crate::delivery::Delivery;
use crate::disposition::{Disposition, Outcome};
use crate::failure::Reason;
use crate::stage::Stage;

/// Moves a message that fails again after this many redrives to the parking shelf instead of the dead-letter shelf; if configured,
/// also a message that exhausted its attempts. Only people take messages from the parking shelf, so an automatic redrive of the
/// dead-letter shelf cannot loop.
#[derive(Clone, Debug)]
pub struct ParkingLot {
    redrives: u32,
    exhausted: bool,
}

impl ParkingLot {
    /// Default number of redrives after which a message is parked.
    pub const DEFAULT_REDRIVES: u32 = 3;

    /// Parks messages that fail after this many redrives. `0` parks every message that would be dead-lettered.
    #[must_use]
    pub fn after_redrives(redrives: u32) -> Self {
        Self { redrives, exhausted: false }
    }

    /// Changes the number of redrives.
    #[must_use]
    pub fn redrives(mut self, redrives: u32) -> Self {
        self.redrives = redrives;
        self
    }

    /// Also parks messages that exhausted their attempts, redriven or not.
    #[must_use]
    pub fn and_exhausted(mut self) -> Self {
        self.exhausted = true;
        self
    }
}

impl Default for ParkingLot {
    fn default() -> Self {
        Self::after_redrives(Self::DEFAULT_REDRIVES)
    }
}

impl Stage for ParkingLot {
    fn resolve(&self, delivery: &Delivery, outcome: Outcome) -> Outcome {
        match outcome {
            Ok(Disposition::DeadLetter(failure)) => {
                let returned = delivery.history().redrives.or_highest() >= self.redrives;
                let exhausted = self.exhausted && *failure.reason() == Reason::MaxDeliveryCountExceeded;
                Ok(if returned || exhausted {
                    Disposition::Park(failure)
                } else {
                    Disposition::DeadLetter(failure)
                })
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Failure, Message, header_names};
    use std::time::UNIX_EPOCH;

    fn resolve(stage: &ParkingLot, redrives: i64, reason: Reason) -> &'static str {
        let message = Message::new("").with_header(header_names::REDRIVES, redrives);
        let delivery = Delivery::new(message, "q", UNIX_EPOCH);
        stage.resolve(&delivery, Ok(Disposition::DeadLetter(Failure::new(reason, "x")))).unwrap().name()
    }

    #[test]
    fn what_keeps_coming_back_is_parked() {
        let stage = ParkingLot::after_redrives(2);
        assert_eq!(resolve(&stage, 1, Reason::NonRetryableError), "dead-letter");
        assert_eq!(resolve(&stage, 2, Reason::NonRetryableError), "park");
    }

    #[test]
    fn exhausted_messages_are_parked_when_so_configured() {
        let stage = ParkingLot::default().and_exhausted();
        assert_eq!(resolve(&stage, 0, Reason::MaxDeliveryCountExceeded), "park");
        assert_eq!(resolve(&stage, 0, Reason::NonRetryableError), "dead-letter");
        assert_eq!(resolve(&ParkingLot::default(), 0, Reason::MaxDeliveryCountExceeded), "dead-letter");
    }

    #[test]
    fn everything_else_passes() {
        let delivery = Delivery::new(Message::new(""), "q", UNIX_EPOCH);
        assert!(matches!(
            ParkingLot::after_redrives(0).resolve(&delivery, Ok(Disposition::Ack)),
            Ok(Disposition::Ack)
        ));
        assert!(ParkingLot::after_redrives(0).resolve(&delivery, Err("x".into())).is_err());
    }
}
