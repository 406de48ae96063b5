//! A link on which a client sends: transfers are put together, and what they make is handed to what the link is for.

use bytes::BytesMut;

use super::address::Address;
use super::context::Context;
use super::link::Link;
use super::requests::Request;
use super::session::Session;
use super::{cbs, coordinator, management, producer};
use crate::amqp::performative::{Disposition, Performative, Transfer};
use crate::amqp::state::{AmqpError, DeliveryState};
use crate::broker::EntityId;
use crate::faults::Effect;

/// What a client may send before it is given more.
const CREDIT: u32 = 1000;

#[derive(Debug)]
pub(super) struct Inlet {
    purpose: Purpose,
    /// Bytes.
    pub(super) max_message_size: u64,
    pub(super) delivery_count: u32,
    pub(super) credit: u32,
    unfinished: Option<Delivery>,
}

/// What a link is for on which a client sends.
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

/// What a client sends, in one transfer or several.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) delivery_id: u32,
    pub(super) format: u32,
    pub(super) settled: bool,
    pub(super) state: Option<DeliveryState>,
    /// Without what is beyond the limit.
    pub(super) bytes: BytesMut,
    /// With what is beyond the limit.
    pub(super) size: u64,
}

impl Inlet {
    pub(super) fn new(purpose: Purpose, max_message_size: u64) -> Self {
        Self { purpose, max_message_size, delivery_count: 0, credit: CREDIT, unfinished: None }
    }

    pub(super) fn entity(&self) -> Option<&str> {
        match &self.purpose {
            Purpose::Producer { path, .. } => Some(path),
            Purpose::Cbs | Purpose::Management { .. } | Purpose::Coordinator => None,
        }
    }

    pub(super) fn close(&mut self, context: &mut Context) {
        self.drop_unfinished(context);
        if matches!(self.purpose, Purpose::Coordinator) {
            context.roll_back_all();
        }
    }

    fn drop_unfinished(&mut self, context: &mut Context) {
        if let Some(unfinished) = self.unfinished.take() {
            context.let_go(unfinished.bytes.len());
        }
    }

    /// Takes in one transfer; the whole delivery once it is whole.
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
        // Said before the client heard that its link is detached.
        let Some(Link::Inlet(inlet)) = self.links.get_mut(&handle) else { return Ok(()) };
        let Some(delivery) = inlet.take(context, transfer, payload)? else { return Ok(()) };
        let refill = inlet.credit < CREDIT / 2;
        if refill {
            inlet.credit = CREDIT;
        }
        let (purpose, max) = (inlet.purpose.clone(), inlet.max_message_size);
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
        if !delivery.settled {
            self.answer_sent(context, delivery.delivery_id, outcome, fault.as_ref());
        }
        if refill {
            self.send_flow(context, Some(handle));
        }
        Ok(())
    }

    fn answer_sent(&self, context: &mut Context, id: u32, state: DeliveryState, fault: Option<&Effect>) {
        let answer = Disposition { receiver: true, first: id, last: id, settled: true, state: Some(state) };
        let channel = self.channel;
        context.answer(fault, |context| context.send(channel, &Performative::Disposition(answer)));
    }
}
