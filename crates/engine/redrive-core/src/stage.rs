//! One synchronous step of a decision.

use std::fmt;
use std::ops::ControlFlow;

use crate::delivery::Delivery;
use crate::disposition::{Disposition, Outcome};
use crate::needs::Needs;

/// One step of a decision, before and after the handler. It has no I/O, no clock and no randomness: everything that it needs is in
/// the delivery. redrive's own layers are stages; `StageLayer` of `redrive-consumer` makes a tower layer from any stage.
///
/// A tuple of stages is a stage: the first is the outermost. [`admit`] and [`resolve`] make a stage from a closure.
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
    note = "redrive's own stages are `ParkingLot`, `Poison`, `Deadline` and `Backoff`; a tuple of stages is a stage; a tower \
            layer goes in with `.layer(..)` instead"
)]
pub trait Stage: Send + Sync + 'static {
    /// Runs before the handler. `Break` decides at once, and the handler does not run; the decision still passes through the
    /// outer stages.
    fn admit(&self, delivery: &Delivery) -> ControlFlow<Disposition> {
        let _ = delivery;
        ControlFlow::Continue(())
    }

    /// Runs after the handler. Returns the outcome unchanged, or another one.
    fn resolve(&self, delivery: &Delivery, outcome: Outcome) -> Outcome {
        let _ = delivery;
        outcome
    }

    /// Returns what this stage needs from the transport.
    fn needs(&self) -> Needs {
        Needs::none()
    }
}

/// Makes a stage from a function that runs before the handler, as [`Stage::admit`].
///
/// ```
/// use std::ops::ControlFlow;
/// use std::time::SystemTime;
/// use redrive_core::{Delivery, Disposition, Message, Stage, stage};
///
/// let only_european = stage::admit(|delivery: &Delivery| match delivery.routing_key() {
///     "eu.orders" => ControlFlow::Continue(()),
///     _ => ControlFlow::Break(Disposition::Ack),
/// });
/// let elsewhere = Delivery::new(Message::new("a lamp"), "orders", SystemTime::now());
/// assert!(only_european.admit(&elsewhere).is_break());
/// ```
pub fn admit<F>(decide: F) -> Admit<F>
where
    F: Fn(&Delivery) -> ControlFlow<Disposition> + Send + Sync + 'static,
{
    Admit(decide)
}

/// Makes a stage from a function that runs after the handler, as [`Stage::resolve`].
///
/// ```
/// use std::time::SystemTime;
/// use redrive_core::{Delivery, Disposition, Failure, Message, Outcome, Reason, Stage, stage};
///
/// // Nobody looks at what failed without a tenant.
/// let drop_strays = stage::resolve(|delivery: &Delivery, outcome: Outcome| match outcome {
///     Ok(Disposition::DeadLetter(_)) if delivery.message().headers().get("tenant").is_none() => Ok(Disposition::Ack),
///     other => other,
/// });
/// let stray = Delivery::new(Message::new("a lamp"), "orders", SystemTime::now());
/// let failed = Ok(Disposition::DeadLetter(Failure::new(Reason::NonRetryableError, "no tenant")));
/// assert!(matches!(drop_strays.resolve(&stray, failed), Ok(Disposition::Ack)));
/// ```
pub fn resolve<F>(decide: F) -> Resolve<F>
where
    F: Fn(&Delivery, Outcome) -> Outcome + Send + Sync + 'static,
{
    Resolve(decide)
}

/// A function as a [`Stage`]; made by [`admit`].
#[derive(Clone, Copy)]
pub struct Admit<F>(F);

impl<F> Stage for Admit<F>
where
    F: Fn(&Delivery) -> ControlFlow<Disposition> + Send + Sync + 'static,
{
    fn admit(&self, delivery: &Delivery) -> ControlFlow<Disposition> {
        (self.0)(delivery)
    }
}

/// A function as a [`Stage`]; made by [`resolve`].
#[derive(Clone, Copy)]
pub struct Resolve<F>(F);

impl<F> Stage for Resolve<F>
where
    F: Fn(&Delivery, Outcome) -> Outcome + Send + Sync + 'static,
{
    fn resolve(&self, delivery: &Delivery, outcome: Outcome) -> Outcome {
        (self.0)(delivery, outcome)
    }
}

impl<F> fmt::Debug for Admit<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admit")
    }
}

impl<F> fmt::Debug for Resolve<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolve")
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

/// Admits through the stages, outermost first. A rejection passes through the outer stages.
pub(crate) fn admit_in_turn(stages: &[&dyn Stage], delivery: &Delivery) -> ControlFlow<Disposition> {
    for (index, stage) in stages.iter().enumerate() {
        if let ControlFlow::Break(disposition) = stage.admit(delivery) {
            let outcome = resolve_in_turn(&stages[..index], delivery, Ok(disposition.clone()));
            return ControlFlow::Break(outcome.unwrap_or(disposition));
        }
    }
    ControlFlow::Continue(())
}

/// Resolves through the stages, innermost first.
pub(crate) fn resolve_in_turn(stages: &[&dyn Stage], delivery: &Delivery, outcome: Outcome) -> Outcome {
    stages.iter().rev().fold(outcome, |outcome, stage| stage.resolve(delivery, outcome))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Failure, Message};
    use std::time::UNIX_EPOCH;

    fn turns_away() -> impl Stage {
        admit(|_| ControlFlow::Break(Disposition::DeadLetter(Failure::custom("No", "no"))))
    }

    fn parks() -> impl Stage {
        resolve(|_, outcome| match outcome {
            Ok(Disposition::DeadLetter(failure)) => Ok(Disposition::Park(failure)),
            other => other,
        })
    }

    #[test]
    fn what_is_turned_away_passes_the_stages_outside() {
        let delivery = Delivery::new(Message::new("x"), "orders", UNIX_EPOCH);
        let name = |flow| match flow {
            ControlFlow::Break(disposition) => Disposition::name(&disposition),
            ControlFlow::Continue(()) => "continue",
        };
        assert_eq!(name((parks(), turns_away()).admit(&delivery)), "park");
        assert_eq!(name((turns_away(), parks()).admit(&delivery)), "dead-letter");
    }

    #[test]
    fn the_innermost_stage_sees_an_outcome_first() {
        let shelves = || {
            resolve(|_, outcome| {
                outcome.or_else(|_| Ok(Disposition::DeadLetter(Failure::custom("No", "no"))))
            })
        };
        let delivery = Delivery::new(Message::new("x"), "orders", UNIX_EPOCH);
        let name = |stage: &dyn Stage| stage.resolve(&delivery, Err("no".into())).unwrap().name();
        assert_eq!(name(&(parks(), shelves())), "park");
        assert_eq!(name(&(shelves(), parks())), "dead-letter");
    }
}
