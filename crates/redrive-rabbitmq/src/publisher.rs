//! The publishers' side of a transport.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use redrive_core::{Outgoing, Publish, TransportError};

use crate::broker::Broker;
use crate::delay::Way;

/// Publishes one way, until the transport that it came from is closed.
#[derive(Debug)]
pub(crate) struct WayPublisher {
    broker: Arc<Broker>,
    way: Way,
}

impl WayPublisher {
    pub(crate) fn new(broker: &Arc<Broker>, way: Way) -> Self {
        Self { broker: Arc::clone(broker), way }
    }
}

#[async_trait]
impl Publish for WayPublisher {
    fn destination(&self) -> &str {
        self.way.shown()
    }

    fn to(&self, queue: &str) -> Arc<dyn Publish> {
        Arc::new(Self::new(&self.broker, Way::queue(queue)))
    }

    async fn publish(&self, messages: Vec<Outgoing>) -> Vec<Result<(), TransportError>> {
        // The pool sends those together that come together.
        join_all(messages.into_iter().map(|message| self.broker.publish(&self.way, message))).await
    }
}
