//! Injected faults: what fails, where, and how often.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::amqp::state::AmqpError;

/// Where a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// A token is put.
    Cbs,
    /// A link to an entity is attached.
    Attach,
    /// A message, or a batch, is sent.
    Send,
    /// A message is asked for by HTTP.
    Receive,
    /// A delivery is settled on its link, or by HTTP.
    Settle,
    /// A request to `$management`; by HTTP: a lock is renewed.
    Request,
    /// A transaction is committed.
    Commit,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// Done, and the client is not told.
    LoseReply,
    /// Done, and the client is told later.
    DelayReply(Duration),
    /// Done, and the connection ends without a word.
    DropConnection,
    /// Not done, and the client is told so by this AMQP condition.
    Refuse {
        /// Such as `com.microsoft:server-busy`.
        condition: String,
    },
}

impl Effect {
    /// Not done: the service has too much to do. Clients wait before they try again.
    pub fn server_busy() -> Self {
        Self::Refuse { condition: "com.microsoft:server-busy".to_owned() }
    }

    /// Not done: the client may not.
    pub fn unauthorized() -> Self {
        Self::Refuse { condition: "amqp:unauthorized-access".to_owned() }
    }

    pub(crate) fn refusal(&self) -> Option<AmqpError> {
        match self {
            Self::Refuse { condition } => {
                Some(AmqpError::new(condition, "The emulator was asked to refuse this (fault injection)."))
            }
            Self::LoseReply | Self::DelayReply(_) | Self::DropConnection => None,
        }
    }
}

/// One fault: a step, what goes wrong in it, and how often. By itself it strikes once, wherever the step comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Fault {
    step: Step,
    effect: Effect,
    entity: Option<String>,
    after: u32,
    times: u32,
}

impl Fault {
    /// Strikes once, at the next such step.
    pub fn new(step: Step, effect: Effect) -> Self {
        Self { step, effect, entity: None, after: 0, times: 1 }
    }

    /// Strikes on this entity only. Tokens and transactions belong to no entity.
    pub fn on(mut self, entity: impl Into<String>) -> Self {
        self.entity = Some(entity.into());
        self
    }

    /// Lets this many such steps pass first.
    pub fn after(mut self, steps: u32) -> Self {
        self.after = steps;
        self
    }

    /// Strikes so often, in a row.
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    fn meets(&self, step: Step, entity: &str) -> bool {
        self.step == step && self.entity.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(entity))
    }
}

/// The faults that are still to strike, in the order in which they were asked for.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    pub(crate) fn add(&self, fault: Fault) {
        self.lock().push(fault);
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// What goes wrong at this step, now. Counts the step.
    pub(crate) fn strike(&self, step: Step, entity: &str) -> Option<Effect> {
        let mut faults = self.lock();
        let fault = faults.iter_mut().find(|fault| fault.times > 0 && fault.meets(step, entity))?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        fault.times -= 1;
        let effect = fault.effect.clone();
        faults.retain(|fault| fault.times > 0);
        Some(effect)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Fault>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_where_and_as_often_as_it_was_asked_for() {
        let faults = Faults::default();
        faults.add(Fault::new(Step::Send, Effect::LoseReply).on("Orders").after(1).times(2));
        assert_eq!(faults.strike(Step::Settle, "orders"), None);
        assert_eq!(faults.strike(Step::Send, "other"), None);
        let struck: Vec<_> = (0..4).map(|_| faults.strike(Step::Send, "orders").is_some()).collect();
        assert_eq!(struck, [false, true, true, false]);
    }
}
