//! A link on which a client sends: assembles transfers, and passes the message to the link's purpose.

use bytes::BytesMut;

use super::Link;
use super::Session;
use crate::amqp::performative::{Disposition, Performative, Transfer};
use crate::amqp::state::{AmqpError, DeliveryState};
use crate::amqp::{Message, Value};
use crate::broker::EntityId;
use crate::faults::Effect;
use crate::server::address::Address;
use crate::server::context::Context;
use crate::server::delivery::Delivery;
use crate::server::errors::undecodable;
use crate::server::producer::accepted;
use crate::server::requests::{Answer, Request};
use crate::server::{cbs, coordinator, management, producer};

/// Credit of a client until it gets more.
const CREDIT: u32 = 1000;

#[derive(Debug)]
pub(super) struct IncomingLink {
    purpose: Purpose,
    /// In bytes.
    pub(super) max_message_size: u64,
    pub(super) delivery_count: u32,
    pub(super) credit: u32,
    unfinished: Option<Delivery>,
}

/// The purpose of a link on which a client sends.
#[derive(Debug, Clone)]
pub(super) enum Purpose {
    /// Messages for an entity.
    Producer {
        /// A queue or topic.
        entity: EntityId,
        /// As the client wrote it.
        path: String,
    },
    /// Tokens.
    Cbs,
    /// Requests about an entity.
    Management {
        /// The entity.
        entity: EntityId,
        /// As the client wrote it.
        path: String,
    },
    /// Begin and end of transactions.
    Coordinator,
}

impl IncomingLink {
    pub(super) fn new(purpose: Purpose, max_message_size: u64) -> Self {
        Self { purpose, max_message_size, delivery_count: 0, credit: CREDIT, unfinished: None }
    }

    pub(super) fn entity(&self) -> Option<&str> {
        match &self.purpose {
            Purpose::Producer { path, .. } => Some(path),
            Purpose::Cbs | Purpose::Management { .. } | Purpose::Coordinator => None,
        }
    }

    /// Returns the entity whose `$management` it is.
    pub(super) fn managed(&self) -> Option<&str> {
        match &self.purpose {
            Purpose::Management { path, .. } => Some(path),
            _ => None,
        }
    }

    pub(super) fn close(&mut self, context: &mut Context) {
        self.drop_unfinished(context);
        match self.purpose {
            Purpose::Coordinator => context.roll_back_all(),
            Purpose::Producer { entity, .. } => context.shared.sender_detached(entity),
            _ => {}
        }
    }

    fn drop_unfinished(&mut self, context: &mut Context) {
        if let Some(unfinished) = self.unfinished.take() {
            context.let_go(unfinished.bytes.len());
        }
    }

    /// Adds one transfer; returns the delivery once it is complete.
    fn take(
        &mut self,
        context: &mut Context,
        transfer: Transfer,
        payload: &[u8],
    ) -> Result<Option<Delivery>, AmqpError> {
        if self.unfinished.is_none() {
            let Some(delivery_id) = transfer.delivery_id else {
                return Err(AmqpError::new(
                    "amqp:invalid-field",
                    "The first transfer of a delivery needs a delivery-id.",
                ));
            };
            self.unfinished = Some(Delivery {
                delivery_id,
                format: transfer.message_format,
                settled: false,
                state: None,
                bytes: BytesMut::new(),
                size: 0,
            });
        }
        if transfer.aborted {
            self.drop_unfinished(context);
            return Ok(None);
        }
        let Some(delivery) = &mut self.unfinished else { return Ok(None) };
        delivery.settled |= transfer.settled;
        delivery.state = transfer.state.or(delivery.state.take());
        delivery.size += payload.len() as u64;
        if delivery.size <= self.max_message_size {
            delivery.bytes.extend_from_slice(payload);
            context.hold(payload.len())?;
        }
        if transfer.more {
            return Ok(None);
        }
        let delivery = self.unfinished.take();
        context.let_go(delivery.as_ref().map_or(0, |delivery| delivery.bytes.len()));
        self.delivery_count = self.delivery_count.wrapping_add(1);
        self.credit = self.credit.saturating_sub(1);
        Ok(delivery)
    }
}

impl Session {
    pub(super) fn on_transfer(
        &mut self,
        context: &mut Context,
        transfer: Transfer,
        payload: &[u8],
    ) -> Result<(), AmqpError> {
        let handle = transfer.handle;
        self.touch(context, handle);
        // The client sent this before it learned that its link is detached.
        let Some(Link::Incoming(incoming)) = self.links.get_mut(&handle) else { return Ok(()) };
        let Some(delivery) = incoming.take(context, transfer, payload)? else { return Ok(()) };
        let refill = incoming.credit < CREDIT / 2;
        if refill {
            incoming.credit = CREDIT;
        }
        let (purpose, max) = (incoming.purpose.clone(), incoming.max_message_size);
        let (outcome, fault) = match &purpose {
            Purpose::Producer { entity, path } => producer::take(context, *entity, path, max, &delivery),
            Purpose::Coordinator => coordinator::take(context, &delivery),
            Purpose::Cbs => (self.answer_request(context, &Address::Cbs, &delivery, cbs::answer)?, None),
            Purpose::Management { entity, path } => {
                let node = Address::Management(path.clone());
                let answer = |context: &mut Context, request: &Request| {
                    management::answer(context, *entity, path, request)
                };
                (self.answer_request(context, &node, &delivery, answer)?, None)
            }
        };
        if let Some(error) = fault.as_ref().and_then(Effect::detach) {
            self.detach(context, handle, error);
            return Ok(());
        }
        if !delivery.settled {
            self.answer_sent(context, delivery.delivery_id, outcome, fault.as_ref());
        }
        if refill {
            self.send_flow(context, Some(handle));
        }
        Ok(())
    }

    /// Sends the response on the client's link for responses, and returns the outcome of the request's delivery.
    ///
    /// # Errors
    /// If the client does not take its responses but sends more requests.
    fn answer_request(
        &mut self,
        context: &mut Context,
        node: &Address,
        delivery: &Delivery,
        answer: impl FnOnce(&mut Context, &Request) -> Answer,
    ) -> Result<DeliveryState, AmqpError> {
        let message = match Message::decode(&delivery.bytes) {
            Ok(message) => message,
            Err(error) => return Ok(DeliveryState::Rejected(Some(undecodable(&error)))),
        };
        let transaction = match &delivery.state {
            Some(DeliveryState::Transactional { transaction, .. }) => Some(transaction.clone()),
            _ => None,
        };
        let operation = message.application_properties.get("operation").and_then(Value::as_text);
        let request = Request { operation: operation.unwrap_or_default().to_owned(), message, transaction };
        let mut answer = answer(context, &request);
        let delay = match answer.fault.take() {
            Some(Effect::LoseReply) => return Ok(accepted(delivery.state.as_ref())),
            Some(Effect::DropConnection) => {
                context.drop_connection = true;
                return Ok(accepted(delivery.state.as_ref()));
            }
            Some(Effect::DelayReply(by)) => by,
            Some(Effect::Refuse { .. } | Effect::Detach { .. } | Effect::WithholdCredit) | None => {
                std::time::Duration::ZERO
            }
        };
        let due = context.now + delay;
        let answer = answer.message(node, &request.message).to_bytes();
        match self.reply_link(node, request.message.properties.reply_to.as_deref()) {
            Some((handle, replies)) => {
                let (held, dropped) = (answer.len(), replies.push(due, answer));
                context.let_go(dropped);
                context.hold(held)?;
                self.serve_replies(context, handle);
            }
            None => tracing::debug!(operation = request.operation, "no link for the answer"),
        }
        Ok(accepted(delivery.state.as_ref()))
    }

    fn answer_sent(&self, context: &mut Context, id: u32, state: DeliveryState, fault: Option<&Effect>) {
        let answer = Disposition { receiver: true, first: id, last: id, settled: true, state: Some(state) };
        let channel = self.channel;
        context.answer(fault, |context| context.send(channel, &Performative::Disposition(answer)));
    }
}
