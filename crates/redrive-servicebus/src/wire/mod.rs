//! What the transport needs of a Service Bus, whoever speaks the protocol: the one place that knows the AMQP client.

mod amqp;
mod connection;
mod management;
mod probe;
mod read_error;
mod receiver;
mod requests;
#[cfg(feature = "rest")]
mod rest;
mod sending;
mod session;
mod stream;
mod tls;
mod tokens;
mod waits;
#[cfg(feature = "websockets")]
mod websocket;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use fe2o3_amqp_types::primitives::SimpleValue;
use uuid::Uuid;

use crate::connection::address::Address;
use crate::convert::{Incoming, WireMessage};
use crate::error::{Refusal, WireError};
use crate::options::Protocol;

/// Connects to the namespace.
pub(crate) async fn open(address: Arc<Address>, protocol: Protocol) -> Result<Arc<dyn Wire>, WireError> {
    match protocol {
        Protocol::Amqp => amqp::open(address).await,
        #[cfg(feature = "rest")]
        Protocol::Rest { poll_wait, polls } => rest::open(address, poll_wait, polls),
    }
}

/// A connection to the namespace.
#[async_trait]
pub(crate) trait Wire: Debug + Send + Sync {
    /// Begins to receive from an entity, under locks, with no credit yet.
    async fn receiver(&self, source: &str) -> Result<Box<dyn WireReceiver>, WireError>;

    /// Settles locked messages, and waits for the broker's word on it. Refused for one, it may have been done for others.
    async fn settle(&self, entity: &str, locks: &[Uuid], how: &SettleAs) -> Result<(), WireError>;

    /// Sends a message, and waits until it is stored.
    async fn send(&self, target: &str, message: WireMessage) -> Result<(), WireError>;

    /// Sends messages and completes locked ones, all of it or nothing. All are from one entity, and to one target; of a
    /// session it is only one.
    async fn replace(&self, ops: Vec<ReplaceOp>) -> Result<(), WireError>;

    /// Renews locks; answers until when each holds. Refused for one, it may have been done for others.
    async fn renew(&self, entity: &str, locks: &[Uuid]) -> Result<Vec<SystemTime>, WireError>;

    /// Up to `count` messages from this sequence number on, not locked, whatever their state.
    async fn peek(&self, entity: &str, from: i64, count: i32) -> Result<Vec<WireMessage>, WireError>;

    /// Whether the entity is consumed by sessions only, as far as its words of a refusal tell.
    async fn requires_sessions(&self, source: &str) -> Result<bool, WireError> {
        let _ = source;
        Ok(false)
    }

    /// Accepts the next session that is free and has messages, with no credit yet; `None` when there is none within this
    /// time. Dropped, whatever was accepted is let go.
    async fn accept(&self, source: &str, wait: Duration) -> Result<Option<Accepted>, WireError> {
        let _ = wait;
        Err(WireError::new(Refusal::NotAllowed, format!("sessions of `{source}` cannot be had this way")))
    }

    /// Renews the lock of a session, and with it those of its messages; answers until when it holds.
    async fn renew_session(&self, entity: &str, session: &SessionRef) -> Result<SystemTime, WireError> {
        Err(WireError::new(Refusal::NotAllowed, format!("no session `{}` of `{entity}` is held", session.id)))
    }

    /// For a protocol that can look at messages only by locking them: up to this many messages from the head, locked, and the way to
    /// give them back.
    /// `None`: by [`Wire::peek`].
    async fn lock_all(&self, _entity: &str, _most: usize) -> Result<Option<LockedAll>, WireError> {
        Ok(None)
    }

    /// Whether the connection stands, as far as known.
    fn is_live(&self) -> bool;

    /// Resolves when it does not stand any more.
    async fn ended(&self);

    /// Closes it in order; what was sent before arrives before.
    async fn close(&self);

    /// Ends it as the death of the process would.
    fn abort(&self);
}

/// Messages coming in from one entity.
#[async_trait]
pub(crate) trait WireReceiver: Debug + Send + Sync {
    /// The next one. Cancel safe.
    async fn next(&mut self) -> Result<Arrived, WireError>;

    /// The next one, if it is here already.
    fn next_now(&mut self) -> Option<Result<Arrived, WireError>>;

    /// Lets the broker hand out this many more than were taken by `next`. Never fewer than were allowed before: the
    /// client library takes what then is too much for a fault of the broker.
    async fn allow(&mut self, more: u32) -> Result<(), WireError>;

    /// Lets a request for messages wait no longer than this. Where messages are pushed, no request waits.
    fn set_max_wait(&mut self, longest: Duration) {
        let _ = longest;
    }

    /// Asks the broker to hand out what it is about to, and then no more.
    async fn drain(&mut self) -> Result<(), WireError>;

    /// The way to give back what was handed out here, from anywhere.
    fn handle(&self) -> Arc<dyn Handle>;

    /// Ends the link.
    async fn close(self: Box<Self>);
}

/// A link on which messages were handed out.
#[async_trait]
pub(crate) trait Handle: Debug + Send + Sync {
    /// Gives one back, uncounted. Answers false where the link is gone.
    async fn release(&self, tag: &Tag) -> bool;

    /// Forgets one that the broker confirmed to have settled otherwise. Where it has not, this removes the message.
    async fn forget(&self, tag: &Tag);
}

/// Messages that were locked to be looked at.
pub(crate) type LockedAll = (Vec<Arrived>, Arc<dyn Handle>);

/// A message that was handed out.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) lock: Uuid,
    pub(crate) tag: Tag,
    /// The message, or why it cannot be read.
    pub(crate) message: Result<Box<Incoming>, String>,
}

/// How a message that was handed out is known where it was.
#[derive(Clone, Debug)]
pub(crate) enum Tag {
    /// On a link.
    Link(fe2o3_amqp::link::delivery::DeliveryInfo),
    /// In an entity, by its lock.
    #[cfg(feature = "rest")]
    Rest(Arc<str>, Uuid),
}

impl Tag {
    fn on_link(&self) -> Option<&fe2o3_amqp::link::delivery::DeliveryInfo> {
        match self {
            Self::Link(info) => Some(info),
            #[cfg(feature = "rest")]
            Self::Rest(..) => None,
        }
    }
}

/// A session, by the link that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionRef {
    pub(crate) id: Arc<str>,
    /// The name of the link.
    pub(crate) link: Arc<str>,
}

/// A session that was accepted. It is held until its receiver is closed.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) reference: SessionRef,
    pub(crate) receiver: Box<dyn WireReceiver>,
    pub(crate) locked_until: Option<SystemTime>,
}

/// A message that takes the place of another.
#[derive(Clone, Debug)]
pub(crate) struct ReplaceOp {
    pub(crate) target: String,
    pub(crate) message: WireMessage,
    /// Where the other one is locked.
    pub(crate) entity: String,
    pub(crate) lock: Uuid,
    pub(crate) session: Option<SessionRef>,
}

/// What becomes of a locked message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SettleAs {
    pub(crate) kind: SettleKind,
    /// Changed on the message on its way.
    pub(crate) properties: Vec<(String, SimpleValue)>,
    /// The session that it was handed out in.
    pub(crate) session: Option<SessionRef>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SettleKind {
    Complete,
    /// Given back, and counted.
    Abandon,
    DeadLetter {
        reason: String,
        description: String,
    },
}

impl SettleAs {
    pub(crate) fn complete() -> Self {
        Self::new(SettleKind::Complete)
    }

    pub(crate) fn abandon() -> Self {
        Self::new(SettleKind::Abandon)
    }

    pub(crate) fn new(kind: SettleKind) -> Self {
        Self { kind, properties: Vec::new(), session: None }
    }

    pub(crate) fn with_properties(mut self, properties: Vec<(String, SimpleValue)>) -> Self {
        self.properties = properties;
        self
    }

    pub(crate) fn within(mut self, session: Option<&SessionRef>) -> Self {
        self.session = session.cloned();
        self
    }
}
