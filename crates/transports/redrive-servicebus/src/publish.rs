//! The publishers of a transport.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use redrive_core::transport::{Outgoing as ToPublish, Publish};
use redrive_core::{Message, TransportError, TransportErrorKind};

use crate::connection::ReconnectingConnection;
use crate::convert::later::enqueue_time;
use crate::convert::{self, Outgoing};

/// The most messages that one call of `publish` sends at the same time.
const MAX_CONCURRENT_SENDS: usize = 64;

/// Publishes to one queue or topic until its transport is closed.
#[derive(Debug)]
pub(crate) struct EntityPublisher {
    connection: Arc<ReconnectingConnection>,
    target: String,
}

impl EntityPublisher {
    pub(crate) fn new(connection: &Arc<ReconnectingConnection>, target: &str) -> Self {
        Self { connection: Arc::clone(connection), target: target.to_owned() }
    }

    pub(crate) async fn send(
        &self,
        message: &Message,
        enqueue_at: Option<SystemTime>,
    ) -> Result<(), TransportError> {
        if self.connection.is_closed() {
            return Err(TransportError::closed(&self.target));
        }
        let tried = || format!("sending to `{}`", self.target);
        let wire = self.connection.connection().await.map_err(|error| error.into_error(&tried()))?;
        let outgoing = convert::outgoing(message, Outgoing { enqueue_at, ..Outgoing::default() });
        wire.send(&self.target, outgoing).await.map_err(|error| {
            if !error.is_interruption() {
                return error.into_error_without_lock(&tried());
            }
            let message = format!(
                "{} had no answer ({error}): the message may be stored; send it again with the same id",
                tried()
            );
            TransportError::new(TransportErrorKind::Unreachable, message)
        })
    }
}

#[async_trait]
impl Publish for EntityPublisher {
    fn destination(&self) -> &str {
        &self.target
    }

    fn to(&self, entity: &str) -> Arc<dyn Publish> {
        Arc::new(Self::new(&self.connection, entity))
    }

    async fn publish(&self, messages: Vec<ToPublish>) -> Vec<Result<(), TransportError>> {
        let now = SystemTime::now();
        let send = |ToPublish { message, wait, .. }: ToPublish| async move {
            let enqueue_at = (!wait.is_zero()).then(|| enqueue_time(now, wait));
            self.send(&message, enqueue_at).await
        };
        stream::iter(messages).map(send).buffered(MAX_CONCURRENT_SENDS).collect().await
    }

    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}
