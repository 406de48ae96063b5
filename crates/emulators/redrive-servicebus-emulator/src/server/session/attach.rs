//! Attaches a link: decides its kind, and whether it is allowed.

use super::Link;
use super::Session;
use super::accepting::Accepting;
use super::consumer::Consumer;
use super::incoming::{IncomingLink, Purpose};
use super::replies::Replies;
use crate::amqp::Value;
use crate::amqp::performative::{Attach, Detach, Performative};
use crate::amqp::state::AmqpError;
use crate::broker::{ReceiveMode, ReceiverId};
use crate::faults::{Effect, Step};
use crate::server::address::{Address, address_of, is_coordinator, session_filter};
use crate::server::context::Context;
use crate::server::errors::amqp_error;

/// A sender in this mode expects no settlement.
const SETTLED: u8 = 1;
/// Maximum size of a request.
const MAX_REQUEST: u64 = 1024 * 1024;

impl Session {
    pub(super) fn on_attach(&mut self, context: &mut Context, attach: &Attach) -> Result<(), AmqpError> {
        self.check_handle(attach.handle)?;
        let handle = attach.handle;
        match link_for(context, attach) {
            Ok(Link::Accepting(accepting)) => {
                self.links.insert(handle, Link::Accepting(accepting));
                self.try_accept(context, handle);
            }
            Ok(link) => {
                self.answer_attach(context, answer(attach, &link));
                let sends = matches!(link, Link::Incoming(_));
                self.links.insert(handle, link);
                self.touch(context, handle);
                if sends {
                    self.send_flow(context, Some(handle));
                }
            }
            Err(error) => self.refuse_attach(context, attach, error),
        }
        Ok(())
    }

    pub(super) fn answer_attach(&self, context: &mut Context, answer: Attach) {
        context.send(self.channel, &Performative::Attach(Box::new(answer)));
    }

    /// Refuses as the specification demands: an attach without a terminus, then a detach with the reason.
    pub(super) fn refuse_attach(&self, context: &mut Context, attach: &Attach, error: AmqpError) {
        let mut nowhere = attach.mirrored();
        if attach.receiver {
            nowhere.source = Value::Null;
        } else {
            nowhere.target = Value::Null;
        }
        self.answer_attach(context, nowhere);
        let detach = Detach { handle: attach.handle, closed: true, error: Some(error) };
        context.send(self.channel, &Performative::Detach(detach));
    }
}

fn link_for(context: &mut Context, attach: &Attach) -> Result<Link, AmqpError> {
    if attach.receiver {
        let Some(address) = address_of(&attach.source) else { return Err(no_address("source")) };
        return match Address::parse(address) {
            Address::Entity(path) => receiving_link(context, attach, &path),
            node => {
                let target = address_of(&attach.target).map(str::to_owned);
                Ok(Link::Replies(Replies::new(attach.name.clone(), node, target)))
            }
        };
    }
    if is_coordinator(&attach.target) {
        refusal(context, "$coordinator")?;
        return Ok(Link::Incoming(IncomingLink::new(Purpose::Coordinator, MAX_REQUEST)));
    }
    let Some(address) = address_of(&attach.target) else { return Err(no_address("target")) };
    Ok(Link::Incoming(match Address::parse(address) {
        Address::Cbs => IncomingLink::new(Purpose::Cbs, MAX_REQUEST),
        Address::Management(path) => {
            context.check_authorised(&path)?;
            let entity =
                context.shared.with(|broker, _| broker.find(&path)).map_err(|error| amqp_error(&error))?;
            let max = context.shared.with(|broker, _| broker.settings(entity).max_message_size);
            IncomingLink::new(Purpose::Management { entity, path }, max.max(MAX_REQUEST))
        }
        Address::Entity(path) => sending_link(context, path)?,
    }))
}

fn receiving_link(context: &mut Context, attach: &Attach, path: &str) -> Result<Link, AmqpError> {
    check(context, path)?;
    let session = session_filter(&attach.source);
    let entity = context
        .shared
        .with(|broker, _| {
            let entity = broker.find(path)?;
            broker.check_receiver(entity, session.is_some()).map(|()| entity)
        })
        .map_err(|error| amqp_error(&error))?;
    let settled = attach.sender_settle_mode == SETTLED;
    let mut consumer = Consumer {
        entity,
        path: path.to_owned(),
        receiver: ReceiverId(context.shared.next_id()),
        mode: if settled { ReceiveMode::ReceiveAndDelete } else { ReceiveMode::PeekLock },
        in_session: false,
        delivery_count: 0,
        credit: 0,
        drain: false,
    };
    let Some(session) = session else { return Ok(Link::Consumer(consumer)) };
    consumer.in_session = true;
    Ok(Link::Accepting(Box::new(Accepting::new(
        attach.clone(),
        session.map(str::to_owned),
        consumer,
        context.now,
    ))))
}

fn sending_link(context: &mut Context, path: String) -> Result<IncomingLink, AmqpError> {
    let fault = check(context, &path)?;
    let (entity, max) = context
        .shared
        .with(|broker, _| {
            let entity = broker.find(&path)?;
            broker.check_sender(entity)?;
            Ok((entity, broker.settings(entity).max_message_size))
        })
        .map_err(|error| amqp_error(&error))?;
    context.shared.sender_attached(entity);
    let mut link = IncomingLink::new(Purpose::Producer { entity, path }, max);
    if fault == Some(Effect::WithholdCredit) {
        link.credit = 0;
    }
    Ok(link)
}

fn check(context: &mut Context, path: &str) -> Result<Option<Effect>, AmqpError> {
    context.check_authorised(path)?;
    refusal(context, path)
}

/// Returns the fault that happens, unless it is a refusal.
fn refusal(context: &mut Context, path: &str) -> Result<Option<Effect>, AmqpError> {
    let fault = context.fault(Step::Attach, path);
    fault.as_ref().and_then(Effect::refusal).map_or(Ok(fault), Err)
}

fn no_address(terminus: &str) -> AmqpError {
    AmqpError::new("amqp:invalid-field", format!("The {terminus} of the link has no address."))
}

fn answer(attach: &Attach, link: &Link) -> Attach {
    let mut answer = attach.mirrored();
    answer.max_message_size = match link {
        Link::Incoming(incoming) => Some(incoming.max_message_size),
        // Receiving clients expect a limit too.
        _ => Some(u64::MAX >> 1),
    };
    answer
}
