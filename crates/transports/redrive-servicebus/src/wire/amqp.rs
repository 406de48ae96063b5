//! The operations of a connection with AMQP 1.0.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use fe2o3_amqp::Sendable;
use fe2o3_amqp::transaction::{Transaction, TransactionDischarge as _};
use fe2o3_amqp_types::messaging::Outcome;
use redrive_core::fail_point::{FailPoint, fail_point};
use tokio::time::timeout;
use uuid::Uuid;

use super::connection::{AmqpConnection, CloseMode, in_task, of_coordinator};
use super::link::{self, Link};
use super::receiver::AmqpReceiver;
use super::requests::Requests;
use super::waits::{OPEN_WAIT, no_answer};
use super::{Accepted, ReplaceOp, SessionRef, SettleAs, Wire, WireReceiver, management, read_error, session};
use crate::address::Address;
use crate::convert::WireMessage;
use crate::error::{Refusal, WireError};

/// Connects to the namespace.
pub(crate) async fn open(address: Arc<Address>) -> Result<Arc<dyn Wire>, WireError> {
    let opened = timeout(OPEN_WAIT, AmqpConnection::open(address)).await;
    let connection =
        opened.map_err(|_| WireError::interrupted(format!("no connection within {OPEN_WAIT:?}")))??;
    Ok(Arc::new(Amqp { connection }))
}

#[derive(Debug)]
struct Amqp {
    connection: Arc<AmqpConnection>,
}

#[async_trait]
impl Wire for Amqp {
    async fn receiver(&self, source: &str) -> Result<Box<dyn WireReceiver>, WireError> {
        let (connection, source) = (Arc::clone(&self.connection), source.to_owned());
        in_task(async move { Ok(Box::new(connection.attach_receiver(&source).await?) as Box<_>) }).await
    }

    async fn settle(&self, entity: &str, locks: &[Uuid], how: &SettleAs) -> Result<(), WireError> {
        // Retries once if the link ended: the broker ends a link that is idle for ten minutes.
        for last in [false, true] {
            let node = self.connection.management(entity).await?;
            match management::settle(&node, locks, how, None).await {
                Err(error) if !last && error.is_interruption() && !node.is_live() && self.is_live() => {}
                settled => return settled,
            }
        }
        Err(no_answer(entity))
    }

    async fn send(&self, target: &str, message: WireMessage) -> Result<(), WireError> {
        self.connection.send_or_send_alone(target, message).await
    }

    async fn replace(&self, ops: Vec<ReplaceOp>) -> Result<(), WireError> {
        let connection = Arc::clone(&self.connection);
        in_task(async move { connection.replace_or_explain(&ops).await }).await
    }

    async fn renew(&self, entity: &str, locks: &[Uuid]) -> Result<Vec<SystemTime>, WireError> {
        management::renew(&*self.connection.management(entity).await?, locks).await
    }

    async fn peek(&self, entity: &str, from: i64, count: i32) -> Result<Vec<WireMessage>, WireError> {
        management::peek(&*self.connection.management(entity).await?, from, count).await
    }

    async fn requires_sessions(&self, source: &str) -> Result<bool, WireError> {
        let known = self.connection.require_sessions().get(source);
        if let Some(known) = known {
            return Ok(known);
        }
        self.connection.authorize(source).await?;
        let amqp = self.connection.sessions.begin().await?;
        let answered = session::required(amqp, source, self.connection.link_name("look"));
        let required = timeout(OPEN_WAIT, answered).await.map_err(|_| no_answer(source))??;
        self.connection.require_sessions().insert(source, required);
        Ok(required)
    }

    async fn forget(&self, entity: &str) {
        self.connection.require_sessions().remove(entity);
        self.connection.tokens.forget(entity).await;
    }

    async fn accept(&self, source: &str, wait: Duration) -> Result<Accepted, WireError> {
        self.connection.authorize(source).await?;
        let amqp = self.connection.sessions.begin().await?;
        let accepted = session::accept(amqp, source, self.connection.link_name("session"), wait);
        timeout(wait.saturating_add(OPEN_WAIT), accepted).await.map_err(|_| no_answer(source))?
    }

    async fn renew_session(&self, entity: &str, session: &SessionRef) -> Result<SystemTime, WireError> {
        session::renew(&*self.connection.management(entity).await?, session).await
    }

    fn is_live(&self) -> bool {
        self.connection.is_live()
    }

    async fn ended(&self) {
        let _ = self.connection.ended.clone().wait_for(|ended| *ended).await;
    }

    async fn close(&self) {
        let _ = self.connection.end.send(CloseMode::Graceful);
        self.ended().await;
        // `ended` is set when closing starts. This waits for the answer of the broker.
        self.connection.end.closed().await;
    }

    fn abort(&self) {
        let _ = self.connection.end.send(CloseMode::Abrupt);
    }
}

/// The use of a link for sending.
#[derive(Clone, Copy)]
struct SendingLink<'a> {
    link: &'a Link,
    /// True if no other message is sent on it.
    alone: bool,
}

impl<'a> SendingLink<'a> {
    fn shared(link: &'a Link) -> Self {
        Self { link, alone: false }
    }

    fn alone(link: &'a Link) -> Self {
        Self { link, alone: true }
    }

    /// Returns the error of this link: a size that the broker named is that of the only message.
    fn read(self, mut error: WireError) -> WireError {
        if self.alone && error.refusal == Refusal::SomeTooLarge {
            error.refusal = Refusal::TooLarge;
        }
        error
    }
}

impl AmqpConnection {
    async fn attach_receiver(&self, source: &str) -> Result<AmqpReceiver, WireError> {
        self.tokens.authorize(source).await?;
        let name = self.link_name("receiver");
        let session = self.sessions.begin().await?;
        let attached = timeout(OPEN_WAIT, AmqpReceiver::attach(session, source, name)).await;
        attached.map_err(|_| no_answer(source))?
    }

    async fn send_or_send_alone(
        self: &Arc<Self>,
        target: &str,
        message: WireMessage,
    ) -> Result<(), WireError> {
        let message = Arc::new(Sendable::builder().message(message).build());
        let shared = self.sender(target).await?;
        let mut outcome = self.send(SendingLink::shared(&shared), &message).await;
        if outcome.as_ref().is_err_and(WireError::is_interruption) {
            self.forget_sender(target, &shared).await;
        }
        if outcome.as_ref().is_err_and(|error| error.refusal == Refusal::SomeTooLarge) {
            let alone = self.sender_alone(target).await?;
            outcome = self.send(SendingLink::alone(&alone), &message).await;
            alone.close().await;
        }
        read_error::outcome(outcome?)
    }

    async fn send(&self, link: SendingLink<'_>, message: &Arc<link::Outgoing>) -> Result<Outcome, WireError> {
        let handed_over = link.link.send(message).await;
        fail_point(FailPoint::CopyHandedOver);
        let stored = handed_over.map_err(|error| link.read(error))?;
        let stored = self.await_reply(async { stored.await.map_err(read_error::send) }).await;
        stored.map_err(|error| link.read(error))
    }

    async fn replace_or_explain(self: &Arc<Self>, ops: &[ReplaceOp]) -> Result<(), WireError> {
        let Some(ReplaceOp { target, .. }) = ops.first() else { return Ok(()) };
        let shared = self.sender(target).await?;
        let mut replaced = self.replace(SendingLink::shared(&shared), ops).await;
        if replaced.as_ref().is_err_and(WireError::is_interruption) {
            self.forget_sender(target, &shared).await;
        }
        if ops.len() == 1 && replaced.as_ref().is_err_and(|error| error.refusal == Refusal::SomeTooLarge) {
            let alone = self.sender_alone(target).await?;
            replaced = self.replace(SendingLink::alone(&alone), ops).await;
            alone.close().await;
        }
        match (replaced, ops) {
            (Err(error), [op]) if error.refusal == Refusal::Unexplained => Err(self.explain(error, op).await),
            (replaced, _) => replaced,
        }
    }

    /// Finds out why a message was rejected within a transaction, which the client library hides. It requests to schedule the
    /// same message, in a transaction that is always rolled back: the answer to a request contains the reason.
    async fn explain(self: &Arc<Self>, unexplained: WireError, op: &ReplaceOp) -> WireError {
        let scheduled = async {
            let node = self.management(&op.target).await?;
            let controller = self.controller().await?;
            let declared =
                async { Transaction::declare(controller.get(), None).await.map_err(read_error::control) };
            let mut transaction = self.await_reply(declared).await?;
            transaction.set_rollback_on_drop_trials(0);
            let scheduled = management::schedule(&node, &op.message, &transaction).await;
            let rolled_back = async { transaction.rollback().await.map_err(read_error::control) };
            if self.await_reply(rolled_back).await.is_err() {
                // The broker rolls back when the link ends.
                self.controller.lock().await.take();
            }
            scheduled
        };
        match scheduled.await {
            Err(error) if !error.is_interruption() => error,
            _ => unexplained,
        }
    }

    async fn replace(self: &Arc<Self>, link: SendingLink<'_>, ops: &[ReplaceOp]) -> Result<(), WireError> {
        let Some(ReplaceOp { entity, .. }) = ops.first() else { return Ok(()) };
        let node = self.management(entity).await?;
        let controller = self.controller().await?;
        let declared =
            async { Transaction::declare(controller.get(), None).await.map_err(read_error::control) };
        let mut transaction = match self.await_reply(declared).await {
            Ok(transaction) => transaction,
            Err(error) => {
                self.controller.lock().await.take();
                return Err(of_coordinator(error));
            }
        };
        // Without this, dropping the transaction would block this thread to roll back. The broker rolls back after two minutes.
        transaction.set_rollback_on_drop_trials(0);
        match self.post_and_settle(link, &node, &transaction, ops).await {
            Ok(()) => {
                let committed = async { transaction.commit().await.map_err(read_error::control) };
                let committed = self.await_reply(committed).await;
                fail_point(FailPoint::AckWritten);
                if committed.is_err() {
                    // Dropping the transaction rolls it back with a delivery tag that the link uses again.
                    self.controller.lock().await.take();
                }
                committed
            }
            Err(error) => {
                // If this fails too, the broker rolls back when the link ends.
                let rolled_back = async { transaction.rollback().await.map_err(read_error::control) };
                if self.await_reply(rolled_back).await.is_err() {
                    self.controller.lock().await.take();
                }
                Err(error)
            }
        }
    }

    async fn post_and_settle(
        &self,
        link: SendingLink<'_>,
        node: &Requests,
        transaction: &Transaction<'_>,
        ops: &[ReplaceOp],
    ) -> Result<(), WireError> {
        let mut stored = Vec::with_capacity(ops.len());
        for op in ops {
            let sendable = Sendable::builder().message(op.message.clone()).build();
            let posted = link.link.post(transaction, &sendable).await;
            stored.push(posted.map_err(|error| link.read(error))?);
        }
        fail_point(FailPoint::CopyHandedOver);
        // The commit succeeds even if the settlement was refused, so the answer of the settlement is checked too.
        let locks: Vec<Uuid> = ops.iter().map(|op| op.lock).collect();
        let session = ops.first().and_then(|op| op.session.as_ref());
        let complete = SettleAs::complete().within(session);
        management::settle(node, &locks, &complete, Some(transaction)).await?;
        for stored in stored {
            let stored = self.await_reply(async { stored.await.map_err(read_error::post) }).await;
            read_error::outcome(stored.map_err(|error| link.read(error))?)?;
        }
        fail_point(FailPoint::CopyConfirmed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fe2o3_amqp_types::messaging::{AmqpValue, Body};
    use redrive_servicebus_emulator::{Emulator, Settings};
    use serde_amqp::Value;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_refused_link_harms_no_other() {
        let emulator =
            Emulator::builder().queue("orders", Settings::default()).start().await.expect("started");
        let address = Address::parse(&emulator.connection_string()).expect("an address");
        let wire = open(Arc::new(address)).await.expect("connected");
        let message = || WireMessage::from(Body::Value(AmqpValue(Value::Null)));
        let mut receiver = wire.receiver("orders").await.expect("it is there");
        receiver.allow(100).await.expect("attached");
        for round in 0..20 {
            let nowhere = wire.send("nowhere", message()).await.expect_err("it is not there");
            assert_eq!(nowhere.refusal, Refusal::NotFound, "{nowhere}");
            wire.receiver("nowhere").await.map(drop).expect_err("it is not there");
            wire.renew("nowhere", &[Uuid::nil()]).await.expect_err("it is not there");
            wire.send("orders", message()).await.unwrap_or_else(|e| panic!("{round}: {e}"));
            receiver.next().await.unwrap_or_else(|error| panic!("{round}: {error}"));
        }
        assert!(wire.is_live());
    }

    #[tokio::test]
    async fn what_an_entity_requires_is_remembered_until_it_is_forgotten() {
        let emulator =
            Emulator::builder().queue("orders", Settings::default()).start().await.expect("started");
        let address = Address::parse(&emulator.connection_string()).expect("an address");
        let wire = open(Arc::new(address)).await.expect("connected");
        let required = async || wire.requires_sessions("orders").await.expect("it is there");
        assert!(!required().await);
        emulator.delete_queue("orders").expect("it was there");
        let mut settings = Settings::default();
        settings.requires_session = true;
        emulator.create_queue("orders", settings).expect("it fits");
        assert!(!required().await, "nobody has met another one yet");
        wire.forget("orders").await;
        assert!(required().await);
    }
}
