//! Injected faults: what fails, where, and how often.

use std::time::Duration;

use crate::amqp::state::AmqpError;
use parking_lot::Mutex;

/// The step at which a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// A token is put.
    Cbs,
    /// A link to an entity is attached, or one to the transaction coordinator: `$coordinator`.
    Attach,
    /// A message, or a batch, is sent.
    Send,
    /// A message is requested by HTTP.
    Receive,
    /// A delivery is settled on its link, or by HTTP.
    Settle,
    /// A request to `$management`; by HTTP: a lock is renewed.
    Request,
    /// A transaction is begun.
    Declare,
    /// A transaction is committed.
    Commit,
}

/// The effect of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// Done, but the client gets no reply.
    LoseReply,
    /// Done, but the client gets the reply later.
    DelayReply(Duration),
    /// Done, but the connection ends without a reply or close.
    DropConnection,
    /// Not done: the client gets this AMQP condition.
    Refuse {
        /// For example `com.microsoft:server-busy`.
        condition: String,
    },
    /// Not done: the link is detached with this AMQP condition. Only at [`Step::Send`] by AMQP; elsewhere it has no effect.
    Detach {
        /// For example `amqp:link:message-size-exceeded`.
        condition: String,
    },
    /// Done, but the client never gets credit on the link: it may send nothing. Only at [`Step::Attach`] of a link that sends to an
    /// entity; elsewhere it has no effect.
    WithholdCredit,
}

impl Effect {
    /// Refuses because the service is too busy. Clients wait before they try again.
    pub fn server_busy() -> Self {
        Self::refuse("com.microsoft:server-busy")
    }

    /// Refuses because the client is not authorized.
    pub fn unauthorized() -> Self {
        Self::refuse("amqp:unauthorized-access")
    }

    /// Refuses with this AMQP condition.
    pub fn refuse(condition: &str) -> Self {
        Self::Refuse { condition: condition.to_owned() }
    }

    pub(crate) fn refusal(&self) -> Option<AmqpError> {
        match self {
            Self::Refuse { condition } => Some(asked_for(condition)),
            _ => None,
        }
    }

    pub(crate) fn detach(&self) -> Option<AmqpError> {
        match self {
            Self::Detach { condition } => Some(asked_for(condition)),
            _ => None,
        }
    }
}

fn asked_for(condition: &str) -> AmqpError {
    AmqpError::new(condition, "The emulator was asked to refuse this (fault injection).")
}

/// A fault: a step, an effect, and how often it happens. Default: once, the next time the step occurs anywhere.
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
    /// Creates a fault that happens once, at the next such step.
    pub fn new(step: Step, effect: Effect) -> Self {
        Self { step, effect, entity: None, after: 0, times: 1 }
    }

    /// Restricts the fault to this entity. Tokens and transactions belong to no entity.
    pub fn on(mut self, entity: impl Into<String>) -> Self {
        self.entity = Some(entity.into());
        self
    }

    /// Lets this many such steps pass first.
    pub fn after(mut self, steps: u32) -> Self {
        self.after = steps;
        self
    }

    /// Repeats the fault this many times in a row.
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    fn meets(&self, step: Step, entity: &str) -> bool {
        self.step == step && self.entity.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(entity))
    }
}

/// The faults that have not happened yet, in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    pub(crate) fn add(&self, fault: Fault) {
        self.0.lock().push(fault);
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Returns the effect of a fault at this step, if any. Counts the step.
    pub(crate) fn strike(&self, step: Step, entity: &str) -> Option<Effect> {
        let mut faults = self.0.lock();
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
