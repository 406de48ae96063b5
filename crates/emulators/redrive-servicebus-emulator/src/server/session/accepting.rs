//! A link that waits for a session, and is attached once it has one.

use std::time::Duration;

use tokio::time::Instant;

use super::Link;
use super::Session;
use super::consumer::Consumer;
use crate::amqp::performative::{Attach, Flow};
use crate::amqp::state::AmqpError;
use crate::amqp::{Map, Value};
use crate::broker::Timestamp;
use crate::server::address::with_session;
use crate::server::context::Context;
use crate::server::errors::amqp_error;
use crate::server::mailbox::LinkKey;

/// Default wait for a session, if the client gives no timeout.
const DEFAULT_ACCEPT_TIMEOUT: Duration = Duration::from_secs(60);
/// .NET counts from the year 1, in steps of 100 ns.
const TICKS_AT_1970: i64 = 621_355_968_000_000_000;
const TICKS_PER_MILLISECOND: i64 = 10_000;

#[derive(Debug)]
pub(super) struct Accepting {
    attach: Attach,
    /// `None`: the next free one.
    session: Option<String>,
    consumer: Consumer,
    pub(super) path: String,
    /// When the client is refused.
    pub(super) deadline: Instant,
}

impl Accepting {
    pub(super) fn new(attach: Attach, session: Option<String>, consumer: Consumer, now: Instant) -> Self {
        let timeout = attach.properties.get("com.microsoft:timeout").and_then(Value::as_u32);
        let timeout = timeout.map_or(DEFAULT_ACCEPT_TIMEOUT, |ms| Duration::from_millis(ms.into()));
        Self { path: consumer.path.clone(), attach, session, consumer, deadline: now + timeout }
    }

    /// Keeps the credit: some clients give credit before they are attached.
    pub(super) fn on_flow(&mut self, flow: &Flow) {
        self.consumer.on_flow(flow);
    }

    pub(super) fn close(&self, context: &Context, link: LinkKey) {
        context.shared.stop_waiting(self.consumer.entity, (context.mailbox.id, link));
        context.shared.release(self.consumer.receiver);
    }
}

impl Session {
    /// Attaches the link if its session is available now.
    pub(super) fn try_accept(&mut self, context: &mut Context, handle: u32) {
        let Some(Link::Accepting(accepting)) = self.links.get(&handle) else { return };
        let link = (context.mailbox.id, LinkKey { channel: self.channel, handle });
        let (entity, receiver) = (accepting.consumer.entity, accepting.consumer.receiver);
        // Registered before the session is accepted: the link must learn of its loss at any later time.
        context.shared.hold(receiver, link);
        let accepted = context.shared.with_or_wait(entity, link, |broker, now| {
            broker.accept_session(entity, accepting.session.as_deref(), receiver, now).transpose()
        });
        match accepted {
            None => {}
            Some(Err(error)) => self.refuse(context, handle, amqp_error(&error)),
            Some(Ok(accepted)) => {
                self.attach_accepted(context, handle, &accepted.session, accepted.locked_until);
            }
        }
    }

    /// Refuses the link: the client's timeout is over.
    pub(super) fn refuse_waiting(&mut self, context: &mut Context, handle: u32) {
        let text = "No session became free in the time that the client gave.";
        self.refuse(context, handle, AmqpError::new("com.microsoft:timeout", text));
    }

    fn attach_accepted(&mut self, context: &mut Context, handle: u32, session: &str, until: Timestamp) {
        let Some(Link::Accepting(accepting)) = self.links.remove(&handle) else { return };
        let Accepting { attach, consumer, .. } = *accepting;
        let mut answer = attach.mirrored();
        answer.source = with_session(&attach.source, session);
        answer.properties =
            Map::new().with_symbol("com.microsoft:locked-until-utc", Value::Long(ticks(until)));
        answer.max_message_size = Some(u64::MAX >> 1);
        self.answer_attach(context, answer);
        self.links.insert(handle, Link::Consumer(consumer));
        self.touch(context, handle);
        self.serve(context, handle);
    }

    pub(super) fn refuse(&mut self, context: &mut Context, handle: u32, error: AmqpError) {
        if let Some(Link::Accepting(accepting)) = self.links.remove(&handle) {
            accepting.close(context, LinkKey { channel: self.channel, handle });
            self.refuse_attach(context, &accepting.attach, error);
        }
    }
}

fn ticks(time: Timestamp) -> i64 {
    time.millis().saturating_mul(TICKS_PER_MILLISECOND).saturating_add(TICKS_AT_1970)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_those_of_dotnet() {
        // new DateTime(2020, 1, 1, 0, 0, 0, DateTimeKind.Utc).Ticks
        assert_eq!(ticks(Timestamp::from_millis(1_577_836_800_000)), 637_134_336_000_000_000);
    }
}
