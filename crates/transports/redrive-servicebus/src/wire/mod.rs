//! The operations that the transport needs from Service Bus, independent of the protocol. Only this module uses the AMQP client.

mod amqp;
mod connection;
mod link;
mod management;
mod own_session;
mod probe;
mod read_error;
mod receiver;
mod remembered;
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

use crate::address::Address;
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
    /// Starts to receive from an entity with locks, without credit.
    async fn receiver(&self, source: &str) -> Result<Box<dyn WireReceiver>, WireError>;

    /// Settles locked messages, and waits for the broker's answer. After a refusal, some of the messages may be settled.
    async fn settle(&self, entity: &str, locks: &[Uuid], how: &SettleAs) -> Result<(), WireError>;

    /// Sends a message, and waits until it is stored.
    async fn send(&self, target: &str, message: WireMessage) -> Result<(), WireError>;

    /// Sends messages and completes their originals atomically. All originals are from one entity, and all messages have one
    /// target. An operation in a session is alone.
    async fn replace(&self, ops: Vec<ReplaceOp>) -> Result<(), WireError>;

    /// Renews locks, and returns the expiry time of each. After a refusal, some of the locks may be renewed.
    async fn renew(&self, entity: &str, locks: &[Uuid]) -> Result<Vec<SystemTime>, WireError>;

    /// Returns up to `count` messages from this sequence number on, in any state, without locking them.
    async fn peek(&self, entity: &str, from: i64, count: i32) -> Result<Vec<WireMessage>, WireError>;

    /// Returns true if the entity requires sessions, as far as its refusal of a link shows. The answer is remembered for a minute, or
    /// until [`Wire::forget`].
    async fn requires_sessions(&self, source: &str) -> Result<bool, WireError> {
        let _ = source;
        Ok(false)
    }

    /// Forgets the authorization for an entity, and what is known of it: the next operation gets a fresh one. It was refused, or may
    /// have been replaced.
    async fn forget(&self, entity: &str) {
        let _ = entity;
    }

    /// Accepts the next session that is free and has messages, without credit. If there is none within the wait, the error is
    /// [`Refusal::NoSession`]. Dropping the future releases a session that was accepted.
    async fn accept(&self, source: &str, wait: Duration) -> Result<Accepted, WireError> {
        let _ = wait;
        Err(WireError::new(
            Refusal::NotAllowed,
            format!("this protocol cannot accept sessions of `{source}`"),
        ))
    }

    /// Renews the lock of a session, which covers its messages, and returns its expiry time.
    async fn renew_session(&self, entity: &str, session: &SessionRef) -> Result<SystemTime, WireError> {
        Err(WireError::new(
            Refusal::NotAllowed,
            format!("the session `{}` of `{entity}` is not held", session.id),
        ))
    }

    /// Locks up to `limit` messages from the head, if the protocol can read messages only by locking them, and returns them with
    /// a handle to give them back. Otherwise returns `None`: use [`Wire::peek`].
    async fn lock_all(&self, _entity: &str, _limit: usize) -> Result<Option<LockedAll>, WireError> {
        Ok(None)
    }

    /// Returns true if the connection is open, as far as known.
    fn is_live(&self) -> bool;

    /// Resolves when the connection has ended.
    async fn ended(&self);

    /// Closes the connection after everything that was sent has arrived.
    async fn close(&self);

    /// Ends the connection as a crash of the process would.
    fn abort(&self);
}

/// Messages coming in from one entity.
#[async_trait]
pub(crate) trait WireReceiver: Debug + Send + Sync {
    /// Returns the next message. Cancel safe.
    async fn next(&mut self) -> Result<Arrived, WireError>;

    /// Returns the next message if it has already arrived.
    fn next_now(&mut self) -> Option<Result<Arrived, WireError>>;

    /// Lets the broker deliver this many messages beyond those that `next` returned. The number must not decrease: the client
    /// library would treat messages beyond the new credit as a fault of the broker.
    async fn allow(&mut self, more: u32) -> Result<(), WireError>;

    /// Limits the wait of a request for messages. Without effect if messages are pushed.
    fn set_max_wait(&mut self, longest: Duration) {
        let _ = longest;
    }

    /// Stops the broker from delivering. What it sent until then has arrived: `next_now` returns it, also after an error.
    async fn drain(&mut self) -> Result<(), WireError>;

    /// Resolves when nothing can be released on the link any more. Only after [`WireReceiver::drain`]: what arrives
    /// nevertheless is given back.
    async fn ended(&mut self) {
        std::future::pending::<()>().await;
    }

    /// Returns a handle to give back the messages of this receiver, from any task.
    fn handle(&self) -> Arc<dyn Handle>;

    /// Ends the link.
    async fn close(self: Box<Self>);
}

/// A link on which messages were delivered.
#[async_trait]
pub(crate) trait Handle: Debug + Send + Sync {
    /// Releases a message, which counts no delivery. Returns false if the link is gone.
    async fn release(&self, tag: &Tag) -> bool;

    /// Forgets a message that the broker confirmed as settled by another request. If it is not settled, this removes the message.
    async fn forget(&self, tag: &Tag);
}

/// Messages that were locked to be read, and the handle to give them back.
pub(crate) type LockedAll = (Vec<Arrived>, Arc<dyn Handle>);

/// A message that arrived.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) lock: Uuid,
    pub(crate) tag: Tag,
    /// The message, or the reason why it cannot be read.
    pub(crate) message: Result<Box<Incoming>, String>,
}

/// Identifies an arrived message where it is locked.
#[derive(Clone, Debug)]
pub(crate) enum Tag {
    /// Identifies it on a link.
    Link(fe2o3_amqp::link::delivery::DeliveryInfo),
    /// Identifies it in an entity, by its lock.
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

/// Identifies a session and the link that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionRef {
    pub(crate) id: Arc<str>,
    /// The name of the link.
    pub(crate) link: Arc<str>,
}

/// An accepted session. It is held until its receiver is closed.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) reference: SessionRef,
    pub(crate) receiver: Box<dyn WireReceiver>,
    pub(crate) locked_until: Option<SystemTime>,
}

/// A message that replaces another one.
#[derive(Clone, Debug)]
pub(crate) struct ReplaceOp {
    pub(crate) target: String,
    pub(crate) message: WireMessage,
    /// The entity in which the original is locked.
    pub(crate) entity: String,
    pub(crate) lock: Uuid,
    pub(crate) session: Option<SessionRef>,
}

/// A settlement of locked messages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SettleAs {
    pub(crate) kind: SettleKind,
    /// The properties to change on the message.
    pub(crate) properties: Vec<(String, SimpleValue)>,
    /// The session that the message was delivered in.
    pub(crate) session: Option<SessionRef>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SettleKind {
    Complete,
    /// Gives the message back, which counts a delivery.
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
