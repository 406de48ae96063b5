//! A link on which a client receives and settles messages.

use bytes::Bytes;
use uuid::Uuid;

use super::Link;
use super::replies::credit;
use super::{Session, Unsettled};
use crate::amqp::Map;
use crate::amqp::performative::{Disposition, Flow, Performative};
use crate::amqp::state::{AmqpError, DeliveryState};
use crate::broker::{EntityId, Operation, ReceiveMode, ReceiverId, Settlement};
use crate::faults::{Effect, Step};
use crate::server::context::Context;
use crate::server::errors::{amqp_error, session_lock_lost};
use crate::server::mailbox::LinkKey;

#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) entity: EntityId,
    pub(super) path: String,
    pub(super) receiver: ReceiverId,
    pub(super) mode: ReceiveMode,
    /// True if it holds a session.
    pub(super) in_session: bool,
    pub(super) delivery_count: u32,
    pub(super) credit: u32,
    pub(super) drain: bool,
}

impl Consumer {
    pub(super) fn on_flow(&mut self, flow: &Flow) {
        self.credit = credit(flow, self.delivery_count);
        self.drain = flow.drain;
    }

    pub(super) fn close(&mut self, context: &Context, link: LinkKey) {
        context.shared.stop_waiting(self.entity, (context.mailbox.id, link));
        if self.in_session {
            context.shared.release(self.receiver);
        }
    }
}

impl Session {
    /// Hands out messages while there is credit, room, and a message.
    pub(super) fn serve_consumer(&mut self, context: &mut Context, handle: u32) {
        let key = (context.mailbox.id, LinkKey { channel: self.channel, handle });
        while self.has_room(context) {
            let Some(Link::Consumer(consumer)) = self.links.get_mut(&handle) else { return };
            if consumer.credit == 0 {
                // Deliveries that the client had not seen when it asked to drain may have used up the credit.
                return self.drained(context, handle);
            }
            let (entity, receiver, mode) = (consumer.entity, consumer.receiver, consumer.mode);
            let next = context.shared.with_or_wait(entity, key, |broker, now| {
                match broker.receive(entity, receiver, mode, 1, now) {
                    Ok(messages) => messages.into_iter().next().map(Ok),
                    Err(error) => Some(Err(error)),
                }
            });
            match next {
                Some(Ok(delivered)) => {
                    consumer.credit -= 1;
                    consumer.delivery_count = consumer.delivery_count.wrapping_add(1);
                    let tag =
                        delivered.lock_token.unwrap_or_else(|| number_as_tag(delivered.sequence_number));
                    let tag = Bytes::copy_from_slice(&tag.to_bytes_le());
                    let payload = delivered.to_message().to_bytes();
                    self.deliver(context, handle, tag, delivered.lock_token, payload);
                }
                Some(Err(error)) => {
                    self.detach(context, handle, amqp_error(&error));
                    return;
                }
                None => return self.drained(context, handle),
            }
        }
    }

    /// Uses up the credit of a client that drains: there are no more messages.
    fn drained(&mut self, context: &mut Context, handle: u32) {
        let Some(Link::Consumer(consumer)) = self.links.get_mut(&handle) else { return };
        if consumer.drain {
            consumer.delivery_count = consumer.delivery_count.wrapping_add(consumer.credit);
            consumer.credit = 0;
            self.send_flow(context, Some(handle));
            if let Some(Link::Consumer(consumer)) = self.links.get_mut(&handle) {
                consumer.drain = false;
            }
        }
    }

    pub(super) fn on_disposition(&mut self, context: &mut Context, disposition: Disposition) {
        let Disposition { receiver, first, last, settled, state } = disposition;
        // The server has settled everything that the client sent.
        if !receiver || last.wrapping_sub(first) > i32::MAX as u32 {
            return;
        }
        let held = self.held_in(first, last);
        match state {
            None | Some(DeliveryState::Received) if !settled => {}
            // The client has forgotten them: their locks expire by themselves.
            None | Some(DeliveryState::Received) => {
                for (delivery_id, _) in held {
                    self.unsettled.remove(&delivery_id);
                }
            }
            Some(_) if held.is_empty() && !settled => {
                // If the first delivery of a range is from a lost session, the whole range is: links do not share ids.
                let error = match self.lost.remove(&first) {
                    true => session_lock_lost(),
                    false => AmqpError::new("amqp:not-found", "This link has no such delivery to settle."),
                };
                self.answer_settled(context, (first, last), DeliveryState::Rejected(Some(error)), None);
            }
            Some(state) => self.settle(context, &held, settled, &state),
        }
    }

    /// Ids wrap: the end of a range may be less than its beginning.
    fn held_in(&self, first: u32, last: u32) -> Vec<(u32, Unsettled)> {
        let held = |range: std::ops::RangeInclusive<u32>| {
            self.unsettled.range(range).map(|(id, unsettled)| (*id, *unsettled)).collect::<Vec<_>>()
        };
        if first <= last {
            return held(first..=last);
        }
        let mut all = held(first..=u32::MAX);
        all.extend(held(0..=last));
        all
    }

    /// Settles each, and reports ranges of equal outcomes together.
    fn settle(
        &mut self,
        context: &mut Context,
        held: &[(u32, Unsettled)],
        settled: bool,
        state: &DeliveryState,
    ) {
        if let Some((_, unsettled)) = held.first() {
            self.touch(context, unsettled.handle);
        }
        let mut answered: Option<(u32, u32, DeliveryState, Option<Effect>)> = None;
        for (delivery_id, unsettled) in held {
            self.unsettled.remove(delivery_id);
            let (answer, fault) = self.settle_one(context, *unsettled, state);
            match &mut answered {
                Some((_, last, state, effect))
                    if last.wrapping_add(1) == *delivery_id && *state == answer && *effect == fault =>
                {
                    *last = *delivery_id;
                }
                _ => {
                    let next = (*delivery_id, *delivery_id, answer, fault);
                    if let Some((first, last, state, fault)) = answered.replace(next)
                        && !settled
                    {
                        self.answer_settled(context, (first, last), state, fault.as_ref());
                    }
                }
            }
        }
        if let Some((first, last, state, fault)) = answered
            && !settled
        {
            self.answer_settled(context, (first, last), state, fault.as_ref());
        }
    }

    fn settle_one(
        &self,
        context: &mut Context,
        unsettled: Unsettled,
        state: &DeliveryState,
    ) -> (DeliveryState, Option<Effect>) {
        let Some(Link::Consumer(consumer)) = self.links.get(&unsettled.handle) else {
            let error = AmqpError::new("amqp:not-found", "The link of this delivery is gone.");
            return (DeliveryState::Rejected(Some(error)), None);
        };
        let fault = context.fault(Step::Settle, &consumer.path);
        if let Some(refusal) = fault.as_ref().and_then(Effect::refusal) {
            return (DeliveryState::Rejected(Some(refusal)), fault);
        }
        let (transaction, outcome) = match state {
            DeliveryState::Transactional { transaction, outcome } => {
                (Some(transaction), outcome.as_deref().unwrap_or(&DeliveryState::Accepted))
            }
            state => (None, state),
        };
        let answer = match settlement(outcome) {
            Some(settlement) => settle_at(context, consumer.entity, unsettled.token, settlement, transaction),
            None => Err(AmqpError::new("amqp:not-allowed", "This is no outcome of a message.")),
        };
        (answer.map_or_else(|error| DeliveryState::Rejected(Some(error)), |()| echo(state)), fault)
    }

    fn answer_settled(
        &self,
        context: &mut Context,
        (first, last): (u32, u32),
        state: DeliveryState,
        fault: Option<&Effect>,
    ) {
        let answer = Disposition { receiver: false, first, last, settled: true, state: Some(state) };
        let channel = self.channel;
        context.answer(fault, |context| context.send(channel, &Performative::Disposition(answer)));
    }
}

fn settle_at(
    context: &Context,
    at: EntityId,
    token: Uuid,
    settlement: Settlement,
    transaction: Option<&Bytes>,
) -> Result<(), AmqpError> {
    let transaction = transaction.map(|id| context.transaction(id)).transpose()?;
    let settled = context.shared.change(|broker, now| match transaction {
        None => broker.settle(at, &[token], &settlement, now),
        Some(id) => {
            broker.enlist(id, Operation::Settle { at, tokens: vec![token], settlement }, now).map(drop)
        }
    });
    settled.map_err(|error| amqp_error(&error))
}

/// Returns the settlement that a client asks for.
fn settlement(outcome: &DeliveryState) -> Option<Settlement> {
    Some(match outcome {
        DeliveryState::Accepted => Settlement::Complete,
        DeliveryState::Released => Settlement::Release,
        DeliveryState::Modified { undeliverable_here: true, annotations } => {
            Settlement::Defer { properties: annotations.clone() }
        }
        DeliveryState::Modified { undeliverable_here: false, annotations } => {
            Settlement::Abandon { properties: annotations.clone() }
        }
        DeliveryState::Rejected(error) => dead_letter(error.as_ref()),
        DeliveryState::Received | DeliveryState::Declared { .. } | DeliveryState::Transactional { .. } => {
            return None;
        }
    })
}

/// Reads the reason and the description from the error's info; everything else there becomes a property.
fn dead_letter(error: Option<&AmqpError>) -> Settlement {
    let mut properties = error.map_or_else(Map::new, |error| error.info.clone());
    let mut text = |key| properties.remove(key).and_then(|value| value.as_text().map(str::to_owned));
    let (reason, description) = (text("DeadLetterReason"), text("DeadLetterErrorDescription"));
    let description = description.or_else(|| error.and_then(|error| error.description.clone()));
    Settlement::DeadLetter { reason, description, properties }
}

/// Returns the outcome that confirms a settlement. A rejection with its error would look like a refusal.
fn echo(state: &DeliveryState) -> DeliveryState {
    match state {
        DeliveryState::Rejected(_) => DeliveryState::Rejected(None),
        DeliveryState::Transactional { transaction, outcome } => DeliveryState::Transactional {
            transaction: transaction.clone(),
            outcome: outcome.as_ref().map(|outcome| Box::new(echo(outcome))),
        },
        state => state.clone(),
    }
}

/// A message that is received and deleted has no lock, but a delivery needs a tag.
fn number_as_tag(sequence_number: i64) -> Uuid {
    Uuid::from_u128(u128::from(sequence_number.unsigned_abs()))
}
