//! A named exchange between the work queue and the dead-letter queue. Pure.

use lapin::ExchangeKind;

use super::{Exchange, Lifetime};

/// The durable exchange through which the broker moves dead letters of the work queue to the dead-letter queue, like the
/// `orders.dlx` of many set-ups. Set with [`Options::dead_letter_exchange`](crate::Options::dead_letter_exchange); a name alone
/// means a direct exchange.
///
/// ```
/// use redrive_rabbitmq::{DeadLetterExchange, RabbitMq};
///
/// let options = RabbitMq::options("orders")
///     .dead_letter_exchange(DeadLetterExchange::topic("shop.dlx").key("orders.failed"))
///     .dead_letter_queue("orders.dlq");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterExchange {
    pub(super) name: String,
    kind: ExchangeKind,
    pub(super) key: Option<String>,
}

impl DeadLetterExchange {
    /// Creates a direct exchange.
    #[must_use]
    pub fn direct(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: ExchangeKind::Direct, key: None }
    }

    /// Creates a fanout exchange: every queue that is bound to it gets the dead letters.
    #[must_use]
    pub fn fanout(name: impl Into<String>) -> Self {
        Self { kind: ExchangeKind::Fanout, ..Self::direct(name) }
    }

    /// Creates a topic exchange.
    #[must_use]
    pub fn topic(name: impl Into<String>) -> Self {
        Self { kind: ExchangeKind::Topic, ..Self::direct(name) }
    }

    /// Sets the routing key of dead letters and of the dead-letter queue's binding. Default: the name of the work queue.
    #[must_use]
    pub fn key(mut self, routing_key: impl Into<String>) -> Self {
        self.key = Some(routing_key.into());
        self
    }

    pub(super) fn declared(&self) -> Exchange {
        Exchange { name: self.name.clone(), kind: self.kind.clone(), lifetime: Lifetime::DURABLE }
    }

    /// Returns true if it routes the dead letters of `work` to a queue that is bound with this key. For a topic exchange, recognizes
    /// only the pattern for all keys.
    pub(crate) fn leads_to(&self, exchange: &str, key: &str, work: &str) -> bool {
        let is_bound = match self.kind {
            ExchangeKind::Fanout => true,
            ExchangeKind::Topic if key == "#" => true,
            _ => key == self.key.as_deref().unwrap_or(work),
        };
        self.name == exchange && is_bound
    }

    pub(crate) fn is_unnamed(&self) -> bool {
        self.name.is_empty()
    }
}

impl From<&str> for DeadLetterExchange {
    fn from(name: &str) -> Self {
        Self::direct(name)
    }
}

impl From<String> for DeadLetterExchange {
    fn from(name: String) -> Self {
        Self::direct(name)
    }
}
