//! One synchronous step of deciding.

use std::ops::ControlFlow;

use crate::delivery::Delivery;
use crate::disposition::{Disposition, Outcome};
use crate::needs::Needs;

/// One step of deciding, on the way in and on the way out. No I/O, no clock, no randomness: what it needs to
/// know stands on the delivery. redrive's own layers are stages; [`StageLayer`](crate::StageLayer) makes a tower
/// layer of any of them.
///
/// A tuple of stages is a stage: the first is the outermost.
///
/// ```
/// use std::ops::ControlFlow;
/// use redrive_core::{Delivery, Disposition, Failure, Stage};
///
/// /// Turns away what other tenants published.
/// struct OnlyTenant(&'static str);
///
/// impl Stage for OnlyTenant {
///     fn admit(&self, delivery: &Delivery) -> ControlFlow<Disposition> {
///         match delivery.message().headers().get("tenant").and_then(|tenant| tenant.as_str()) {
///             Some(tenant) if tenant == self.0 => ControlFlow::Continue(()),
///             _ => ControlFlow::Break(Disposition::DeadLetter(Failure::custom("WrongTenant", "not ours"))),
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Stage`",
    note = "redrive's own stages are `Poison`, `Backoff` and `ParkingLot`; a tuple of stages is a stage; a tower \
            layer goes in with `.layer(..)` instead"
)]
pub trait Stage: Send + Sync + 'static {
    /// On the way in: `Break` decides at once, and the handler does not run. What was decided still passes
    /// through the stages further out.
    fn admit(&self, delivery: &Delivery) -> ControlFlow<Disposition> {
        let _ = delivery;
        ControlFlow::Continue(())
    }

    /// On the way out: passes the outcome on, or turns it into another.
    fn resolve(&self, delivery: &Delivery, outcome: Outcome) -> Outcome {
        let _ = delivery;
        outcome
    }

    /// What this stage will ask of the transport.
    fn needs(&self) -> Needs {
        Needs::none()
    }
}

macro_rules! stage_for_tuple {
    ($($stage:ident)+) => {
        #[allow(non_snake_case)]
        impl<$($stage: Stage),+> Stage for ($($stage,)+) {
            fn admit(&self, delivery: &Delivery) -> ControlFlow<Disposition> {
                let ($($stage,)+) = self;
                admit_in_turn(&[$($stage as &dyn Stage),+], delivery)
            }

            fn resolve(&self, delivery: &Delivery, outcome: Outcome) -> Outcome {
                let ($($stage,)+) = self;
                resolve_in_turn(&[$($stage as &dyn Stage),+], delivery, outcome)
            }

            fn needs(&self) -> Needs {
                let ($($stage,)+) = self;
                Needs::none()$(.and($stage.needs()))+
            }
        }
    };
}

stage_for_tuple!(A);
stage_for_tuple!(A B);
stage_for_tuple!(A B C);
stage_for_tuple!(A B C D);
stage_for_tuple!(A B C D E);
stage_for_tuple!(A B C D E F);

/// Outermost first. What one stage turns away passes through the stages outside of it.
fn admit_in_turn(stages: &[&dyn Stage], delivery: &Delivery) -> ControlFlow<Disposition> {
    for (index, stage) in stages.iter().enumerate() {
        if let ControlFlow::Break(disposition) = stage.admit(delivery) {
            let outcome = resolve_in_turn(&stages[..index], delivery, Ok(disposition.clone()));
            return ControlFlow::Break(outcome.unwrap_or(disposition));
        }
    }
    ControlFlow::Continue(())
}

/// Innermost first.
fn resolve_in_turn(stages: &[&dyn Stage], delivery: &Delivery, outcome: Outcome) -> Outcome {
    stages.iter().rev().fold(outcome, |outcome, stage| stage.resolve(delivery, outcome))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Failure, Message};
    use std::time::UNIX_EPOCH;

    struct TurnsAway;
    impl Stage for TurnsAway {
        fn admit(&self, _: &Delivery) -> ControlFlow<Disposition> {
            ControlFlow::Break(Disposition::DeadLetter(Failure::custom("No", "no")))
        }
    }

    struct Parks;
    impl Stage for Parks {
        fn resolve(&self, _: &Delivery, outcome: Outcome) -> Outcome {
            match outcome {
                Ok(Disposition::DeadLetter(failure)) => Ok(Disposition::Park(failure)),
                other => other,
            }
        }
    }

    #[test]
    fn what_is_turned_away_passes_the_stages_outside() {
        let delivery = Delivery::new(Message::new("x"), "orders", UNIX_EPOCH);
        let name = |flow| match flow {
            ControlFlow::Break(disposition) => Disposition::name(&disposition),
            ControlFlow::Continue(()) => "continue",
        };
        assert_eq!(name((Parks, TurnsAway).admit(&delivery)), "park");
        assert_eq!(name((TurnsAway, Parks).admit(&delivery)), "dead-letter");
    }
}
