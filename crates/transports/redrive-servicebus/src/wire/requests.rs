//! Requests and replies, matched by correlation id. The client library's own implementation ignores the ids: cancelling one of
//! its requests shifts all later replies by one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::transaction::Transaction;
use fe2o3_amqp::{Receiver, Sendable, Sender};
use fe2o3_amqp_types::messaging::{
    AmqpValue, ApplicationProperties, Body, Message, MessageId, Properties, Source, Target,
};
use fe2o3_amqp_types::primitives::{OrderedMap, SimpleValue};
use parking_lot::Mutex;
use redrive_core::fail_point::{FailPoint, fail_point};
use serde_amqp::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::link::Link;
use super::own_session::OwnSession;
use super::read_error;
use super::waits::REPLY_WAIT;
use crate::convert::WireMessage;
use crate::error::{Refusal, WireError};

/// The most replies that may be on their way at the same time.
const REPLY_CREDIT: u32 = 1000;

/// A node that answers requests: `$cbs`, or the `$management` of an entity.
#[derive(Debug)]
pub(crate) struct Requests {
    link: Link,
    pending: Arc<PendingReplies>,
    reader: JoinHandle<()>,
    reply_to: String,
    next_id: AtomicU64,
}

/// A reply to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: i32,
    condition: String,
    description: String,
    pub(crate) body: Value,
}

/// The requests that wait for a reply.
#[derive(Debug, Default)]
struct PendingReplies {
    by_id: Mutex<HashMap<String, oneshot::Sender<Reply>>>,
    ended: AtomicBool,
}

impl Requests {
    /// Attaches to a node. `name` must be unique on the connection.
    pub(super) async fn attach(mut session: OwnSession, node: &str, name: &str) -> Result<Self, WireError> {
        match attach(&mut session, node, name).await {
            Ok((receiver, sender)) => Ok(Self::start(receiver, Link::new(sender, session), name)),
            Err(error) => {
                session.end().await;
                Err(error)
            }
        }
    }

    fn start(mut receiver: Receiver, link: Link, name: &str) -> Self {
        let pending = Arc::new(PendingReplies::default());
        let reader = tokio::spawn({
            let pending = Arc::clone(&pending);
            async move {
                while let Some(reply) = read(&mut receiver).await {
                    pending.answer(reply);
                }
                pending.end();
            }
        });
        Self { link, pending, reader, reply_to: reply_to(name), next_id: AtomicU64::new(0) }
    }

    /// Returns true if requests can be sent, as far as known.
    pub(crate) fn is_live(&self) -> bool {
        if self.link.is_ended() {
            self.pending.end();
        }
        !self.pending.ended.load(Ordering::Acquire)
    }

    /// Sends a request, and waits for the reply, with any status. In a transaction, the request takes effect at the commit.
    pub(crate) async fn request(
        &self,
        properties: OrderedMap<String, SimpleValue>,
        body: Value,
        transaction: Option<&Transaction<'_>>,
    ) -> Result<Reply, WireError> {
        let id = format!("{}", self.next_id.fetch_add(1, Ordering::Relaxed));
        let (answer, answered) = oneshot::channel();
        let _ended_on_drop = self.pending.enter(id.clone(), answer)?;
        let message = Arc::new(Sendable::builder().message(self.message(id, properties, body)).build());
        // The outcome of the request message is ignored: the reply has the result.
        let handed_over = match transaction {
            None => self.link.send(&message).await.map(drop),
            Some(transaction) => self.link.post(transaction, &message).await.map(drop),
        };
        if let Err(error) = handed_over {
            if error.is_interruption() {
                // The next request attaches a new link.
                self.pending.end();
            }
            return Err(error);
        }
        if transaction.is_some() {
            // Only the completion of an original is requested in a transaction.
            fail_point(FailPoint::AckHandedOver);
        }
        match tokio::time::timeout(REPLY_WAIT, answered).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(_)) => Err(WireError::interrupted("the link ended before the answer came")),
            Err(_) => Err(WireError::interrupted(format!("no answer within {REPLY_WAIT:?}"))),
        }
    }

    fn message(&self, id: String, properties: OrderedMap<String, SimpleValue>, body: Value) -> WireMessage {
        let mut message = Message::from(Body::Value(AmqpValue(body)));
        message.properties = Some(Properties {
            message_id: Some(MessageId::String(id)),
            reply_to: Some(self.reply_to.clone()),
            ..Properties::default()
        });
        message.application_properties = Some(ApplicationProperties(properties));
        message
    }
}

async fn attach(session: &mut OwnSession, node: &str, name: &str) -> Result<(Receiver, Sender), WireError> {
    let reply_to = reply_to(name);
    let receiver = Receiver::builder()
        .name(reply_to.clone())
        .source(Source::builder().address(node).build())
        .target(Target::builder().address(reply_to.clone()).build())
        .credit_mode(CreditMode::Auto(REPLY_CREDIT))
        .auto_accept(true)
        .verify_incoming_source(false)
        .verify_incoming_target(false)
        .attach(&mut session.0)
        .await
        .map_err(|error| read_error::attach_receiver(error, false))?;
    let sender = Sender::builder()
        .name(format!("{name}-requests"))
        .source(Source::builder().address(reply_to.clone()).build())
        .target(Target::builder().address(node).build())
        .verify_incoming_source(false)
        .verify_incoming_target(false)
        .attach(&mut session.0)
        .await
        .map_err(read_error::attach_sender)?;
    Ok((receiver, sender))
}

/// Returns the address of the replies.
fn reply_to(name: &str) -> String {
    format!("{name}-replies")
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Reply {
    /// Returns the reply if its status is a success, and else an error.
    pub(crate) fn check(self) -> Result<Self, WireError> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let text = format!("{} {} {}", self.status, self.condition, self.description);
        Err(WireError::from_condition(&self.condition, Some(self.status), text))
    }

    /// Takes a field of the body.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        match &mut self.body {
            Value::Map(map) => map.swap_remove(&Value::String(name.to_owned())),
            _ => None,
        }
    }
}

impl PendingReplies {
    fn enter(&self, id: String, answer: oneshot::Sender<Reply>) -> Result<PendingReply<'_>, WireError> {
        let mut by_id = self.by_id();
        if self.ended.load(Ordering::Acquire) {
            return Err(WireError::interrupted("the link ended"));
        }
        by_id.insert(id.clone(), answer);
        Ok(PendingReply { pending: self, id })
    }

    fn answer(&self, (id, reply): (String, Reply)) {
        // A late reply, for which nobody waits, is dropped.
        if let Some(answer) = self.by_id().remove(&id) {
            let _ = answer.send(reply);
        }
    }

    fn end(&self) {
        let mut by_id = self.by_id();
        self.ended.store(true, Ordering::Release);
        by_id.clear();
    }

    fn by_id(&self) -> parking_lot::MutexGuard<'_, HashMap<String, oneshot::Sender<Reply>>> {
        self.by_id.lock()
    }
}

/// A request that waits for its reply. Dropping it forgets the request.
struct PendingReply<'a> {
    pending: &'a PendingReplies,
    id: String,
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        self.pending.by_id().remove(&self.id);
    }
}

/// Returns the next readable reply, or `None` at the end of the link.
async fn read(receiver: &mut Receiver) -> Option<(String, Reply)> {
    loop {
        match receiver.recv::<Body<Value>>().await {
            Ok(delivery) => {
                if let Some(reply) = reply(delivery.into_message()) {
                    return Some(reply);
                }
            }
            // An unreadable reply is skipped.
            Err(fe2o3_amqp::link::RecvError::MessageDecode(_)) => {}
            Err(_) => return None,
        }
    }
}

fn reply(message: WireMessage) -> Option<(String, Reply)> {
    let MessageId::String(id) = message.properties?.correlation_id? else { return None };
    let mut properties = message.application_properties.unwrap_or_default().0;
    let mut take = |names: [&str; 2]| names.into_iter().find_map(|name| properties.swap_remove(name));
    let status = match take(["statusCode", "status-code"]) {
        Some(SimpleValue::Int(status)) => status,
        Some(SimpleValue::Uint(status)) => i32::try_from(status).ok()?,
        Some(SimpleValue::Long(status)) => i32::try_from(status).ok()?,
        _ => return None,
    };
    let text = |value: Option<SimpleValue>| match value {
        Some(SimpleValue::String(text)) => text,
        Some(SimpleValue::Symbol(symbol)) => symbol.into_inner(),
        _ => String::new(),
    };
    let description = text(take(["statusDescription", "status-description"]));
    let condition = text(take(["errorCondition", "error-condition"]));
    let body = match message.body {
        Body::Value(AmqpValue(value)) => value,
        _ => Value::Null,
    };
    Some((id, Reply { status, condition, description, body }))
}

/// Returns the error for a reply that cannot be read.
pub(crate) fn unreadable_reply(operation: &str) -> WireError {
    WireError::new(Refusal::Other, format!("the answer to `{operation}` cannot be read"))
}
