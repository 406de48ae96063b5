//! Where a delivery came from.

use std::sync::Arc;

/// Origin of a delivery: its queue, and the exchange and key that it was published with. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Origin {
    names: Arc<Names>,
}

#[derive(Clone, Debug)]
struct Names {
    queue: Arc<str>,
    exchange: Arc<str>,
    routing_key: Arc<str>,
    counting_headers: &'static [&'static str],
}

impl Origin {
    /// Creates the origin: this queue (or subscription), published to this exchange (or topic) with this routing key.
    #[must_use]
    pub fn new(
        queue: impl Into<Arc<str>>,
        exchange: impl Into<Arc<str>>,
        routing_key: impl Into<Arc<str>>,
    ) -> Self {
        let (queue, exchange, routing_key) = (queue.into(), exchange.into(), routing_key.into());
        Self { names: Arc::new(Names { queue, exchange, routing_key, counting_headers: &[] }) }
    }

    /// Names the headers into which the broker writes its counts: they differ with each delivery of one message, and are no part
    /// of its identity.
    #[must_use]
    pub fn with_counting_headers(mut self, names: &'static [&'static str]) -> Self {
        Arc::make_mut(&mut self.names).counting_headers = names;
        self
    }

    /// Returns the queue (or subscription).
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.names.queue
    }

    /// Returns the exchange (or topic).
    #[must_use]
    pub fn exchange(&self) -> &str {
        &self.names.exchange
    }

    /// Returns the routing key.
    #[must_use]
    pub fn routing_key(&self) -> &str {
        &self.names.routing_key
    }

    /// Returns the origin of another delivery of this queue, published to this exchange with this routing key.
    #[must_use]
    pub fn published_to(mut self, exchange: impl Into<Arc<str>>, routing_key: impl Into<Arc<str>>) -> Self {
        let names = Arc::make_mut(&mut self.names);
        (names.exchange, names.routing_key) = (exchange.into(), routing_key.into());
        self
    }

    pub(crate) fn counting_headers(&self) -> &'static [&'static str] {
        self.names.counting_headers
    }
}
