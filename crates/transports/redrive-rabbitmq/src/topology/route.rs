//! The target of a message.

use std::fmt;
use std::sync::Arc;

/// An exchange and a routing key. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Route {
    pub(crate) exchange: Arc<str>,
    pub(crate) routing_key: Arc<str>,
}

impl Route {
    /// Creates a route directly into a queue.
    pub(crate) fn queue(name: impl AsRef<str>) -> Self {
        Self { exchange: Arc::default(), routing_key: name.as_ref().into() }
    }

    /// Returns the queue or exchange, for errors and logs.
    pub(crate) fn target(&self) -> &str {
        if self.exchange.is_empty() { &self.routing_key } else { &self.exchange }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.exchange {
            "" => f.write_str(&self.routing_key),
            exchange => write!(f, "{exchange} → {}", self.routing_key),
        }
    }
}
