//! Receives messages from one entity with AMQP.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use fe2o3_amqp::Receiver;
use fe2o3_amqp::link::delivery::{Delivery, DeliveryInfo};
use fe2o3_amqp::link::receiver::{CreditMode, ReceiverDisposer};
use fe2o3_amqp::link::{ReceiverAttachError, RecvError};
use fe2o3_amqp_types::definitions::{Fields, SenderSettleMode};
use fe2o3_amqp_types::messaging::{Body, Source};
use futures::FutureExt as _;
use serde_amqp::Value;
use tokio::runtime::Handle as Runtime;
use tokio::time::timeout;
use uuid::Uuid;

use super::own_session::OwnSession;
use super::waits::{CLOSE_WAIT, OPEN_WAIT, no_answer};
use super::{Arrived, Handle, Tag, WireReceiver, read_error};
use crate::convert;
use crate::error::{Refusal, WireError};

type Received = Result<Delivery<Body<Value>>, RecvError>;

#[derive(Debug)]
pub(super) struct AmqpReceiver {
    /// `None`: it is closed, or is being closed.
    link: Option<(Receiver, OwnSession)>,
    /// What arrived while the link was drained.
    drained: VecDeque<Result<Arrived, WireError>>,
    /// The path of the entity that it receives from.
    source: String,
    handle: Arc<LinkHandle>,
}

/// A link on which messages were delivered.
#[derive(Debug)]
struct LinkHandle {
    disposer: ReceiverDisposer,
    live: AtomicBool,
}

impl AmqpReceiver {
    pub(super) async fn attach(session: OwnSession, source: &str, name: String) -> Result<Self, WireError> {
        let source = Source::builder().address(source).build();
        let attached = Self::attach_to(session, source, name, None).await;
        Ok(attached.map_err(|error| read_error::attach_receiver(error, false))?.0)
    }

    /// Attaches a link, and returns also the source and the link properties that the broker answered.
    pub(super) async fn attach_to(
        mut session: OwnSession,
        source: Source,
        name: String,
        properties: Option<Fields>,
    ) -> Result<(Self, Option<Source>, Fields), ReceiverAttachError> {
        let mut builder = Receiver::builder()
            .name(name)
            .source(source.clone())
            .sender_settle_mode(SenderSettleMode::Unsettled)
            .credit_mode(CreditMode::Manual)
            .verify_incoming_source(false)
            .verify_incoming_target(false);
        builder.properties = properties;
        let receiver = match builder.attach(&mut session.0).await {
            Ok(receiver) => receiver,
            Err(error) => {
                session.end().await;
                return Err(error);
            }
        };
        let (found, properties) = (receiver.source().clone(), receiver.properties(Clone::clone));
        let handle = Arc::new(LinkHandle { disposer: receiver.disposer(), live: AtomicBool::new(true) });
        let source = source.address.unwrap_or_default();
        let drained = VecDeque::new();
        let attached = Self { link: Some((receiver, session)), drained, source, handle };
        Ok((attached, found, properties.unwrap_or_default()))
    }

    fn receiver(&mut self) -> Result<&mut Receiver, WireError> {
        let (receiver, _) = self.link.as_mut().ok_or_else(closed)?;
        Ok(receiver)
    }

    fn arrived(&self, received: Received) -> Result<Arrived, WireError> {
        match received {
            Ok(delivery) => {
                let (info, message) = delivery.into_parts();
                Ok(Arrived {
                    lock: lock(&info)?,
                    tag: Tag::Link(info),
                    message: Ok(Box::new(convert::incoming(message).read_from(&self.source))),
                })
            }
            // The link continues; only this message cannot be decoded.
            Err(RecvError::MessageDecode(broken)) => Ok(Arrived {
                lock: lock(&broken.info)?,
                message: Err(broken.source.to_string()),
                tag: Tag::Link(broken.info),
            }),
            Err(error) => {
                self.handle.live.store(false, Ordering::Release);
                Err(read_error::recv(error))
            }
        }
    }
}

#[async_trait]
impl WireReceiver for AmqpReceiver {
    async fn next(&mut self) -> Result<Arrived, WireError> {
        if let Some(arrived) = self.drained.pop_front() {
            return arrived;
        }
        let received = self.receiver()?.recv().await;
        self.arrived(received)
    }

    fn next_now(&mut self) -> Option<Result<Arrived, WireError>> {
        if let Some(arrived) = self.drained.pop_front() {
            return Some(arrived);
        }
        let (receiver, _) = self.link.as_mut()?;
        // Unconstrained: a message that has arrived must be found even if the task has used up its budget.
        let received = tokio::task::unconstrained(receiver.recv()).now_or_never()?;
        Some(self.arrived(received))
    }

    async fn allow(&mut self, more: u32) -> Result<(), WireError> {
        self.receiver()?.set_credit(more).await.map_err(|error| read_error::illegal_state(&error))
    }

    async fn drain(&mut self) -> Result<(), WireError> {
        let (receiver, session) = self.link.as_mut().ok_or_else(closed)?;
        receiver.drain().await.map_err(|error| read_error::illegal_state(&error))?;
        let (received, fenced) = fence(receiver, session, &self.source).await;
        for delivery in received {
            let arrived = self.arrived(delivery);
            self.drained.push_back(arrived);
        }
        fenced
    }

    async fn ended(&mut self) {
        while let Ok(late) = self.next().await {
            self.handle.release(&late.tag).await;
        }
    }

    fn handle(&self) -> Arc<dyn Handle> {
        Arc::<LinkHandle>::clone(&self.handle)
    }

    async fn close(mut self: Box<Self>) {
        while let Some(Ok(late)) = self.next_now() {
            self.handle.release(&late.tag).await;
        }
        self.handle.live.store(false, Ordering::Release);
        if let Some(link) = self.link.take() {
            close(link).await;
        }
    }
}

impl Drop for AmqpReceiver {
    /// Closes a link that nobody closed, as of a cancelled look at a shelf: the broker gives back its messages.
    fn drop(&mut self) {
        // One that the broker ended needs no close.
        let open = self.link.take().filter(|_| self.handle.live.swap(false, Ordering::AcqRel));
        if let (Some(link), Ok(runtime)) = (open, Runtime::try_current()) {
            runtime.spawn(close(link));
        }
    }
}

/// Attaches another link in the session of a drained one, and returns what was delivered meanwhile. The client library does not say
/// when a drain is done; what the broker sends in one session comes in order, and an answer in another one may overtake deliveries.
async fn fence(
    drained: &mut Receiver,
    session: &mut OwnSession,
    source: &str,
) -> (Vec<Received>, Result<(), WireError>) {
    let fence = Receiver::builder()
        .name(format!("{}-fence", drained.name()))
        .source(Source::builder().address(source).build())
        .credit_mode(CreditMode::Manual)
        .verify_incoming_source(false)
        .verify_incoming_target(false);
    let attached = timeout(OPEN_WAIT, fence.attach(&mut session.0));
    tokio::pin!(attached);
    let mut received = Vec::<Received>::new();
    let attached = loop {
        let is_open =
            !matches!(received.last(), Some(Err(error)) if !matches!(error, RecvError::MessageDecode(_)));
        // The client library has room for few deliveries, and hands on no answer while it has none.
        tokio::select! {
            attached = &mut attached => break attached,
            delivery = drained.recv(), if is_open => received.push(delivery),
        }
    };
    let fenced = match attached {
        Ok(Ok(fence)) => {
            // If that fails, the session is gone.
            let _ = timeout(CLOSE_WAIT, fence.close()).await;
            Ok(())
        }
        Ok(Err(error)) => Err(read_error::attach_receiver(error, false)),
        Err(_) => Err(no_answer(source)),
    };
    (received, fenced)
}

fn closed() -> WireError {
    WireError::interrupted("the link is closed")
}

/// Closes the link first, so that the broker gives back its messages, or its session of an entity, at once.
async fn close((receiver, session): (Receiver, OwnSession)) {
    // If that fails, the link is already gone.
    let _ = timeout(CLOSE_WAIT, receiver.close()).await;
    session.end().await;
}

#[async_trait]
impl Handle for LinkHandle {
    async fn release(&self, tag: &Tag) -> bool {
        let Some(info) = tag.on_link() else { return false };
        self.live.load(Ordering::Acquire) && self.disposer.release(info.clone()).await.is_ok()
    }

    async fn forget(&self, tag: &Tag) {
        // The broker has settled it: this only removes the delivery from the link, at both ends.
        let Some(info) = tag.on_link() else { return };
        if self.live.load(Ordering::Acquire) {
            let _ = self.disposer.accept(info.clone()).await;
        }
    }
}

/// Reads the lock token, which is the delivery tag in the byte order of .NET.
fn lock(info: &DeliveryInfo) -> Result<Uuid, WireError> {
    let tag: [u8; 16] = info.delivery_tag().as_ref().try_into().map_err(|_| {
        WireError::new(
            Refusal::Other,
            "a message arrived without a lock: its delivery tag is not a lock token",
        )
    })?;
    Ok(Uuid::from_bytes_le(tag))
}
