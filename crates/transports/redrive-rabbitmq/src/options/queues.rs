//! Options for the queues.

use std::time::Duration;

use redrive_core::Value;

use super::Options;
use crate::broker::QueueType;
use crate::delay::{DeadLetters, Delay, SingleQueue};
use crate::topology::{DeadLetterExchange, Topology};

impl Options {
    /// Sets the type of the work queue and of the shelves. Default: quorum.
    pub fn queue_type(mut self, queue_type: QueueType) -> Self {
        self.queue_type = queue_type;
        self
    }

    /// Sets the type of the delay queues. Default: quorum, even beside a classic work queue. A classic delay queue passes an
    /// expired message on without waiting for the disk of the target queue, and a broker that is killed at that moment can lose
    /// it. With [`Topology::Verify`] and [`Topology::Nothing`] this option tells redrive the type of the existing queues.
    pub fn retry_queue_type(mut self, queue_type: QueueType) -> Self {
        self.retry_queue_type = Some(queue_type);
        self
    }

    /// Sets whether the queues are declared, only verified, or neither. Default: declared.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = topology;
        self
    }

    /// Sets the number of returns after which the broker removes a message from a quorum work queue. Default: 20. With
    /// [`Topology::Verify`] and [`Topology::Nothing`] it tells redrive the limit of the existing queue.
    pub fn delivery_limit(mut self, limit: u32) -> Self {
        self.delivery_limit = Some(limit);
        self
    }

    /// Tells whether the broker itself moves dead letters of the work queue to the dead-letter queue. Default: true for a queue
    /// that redrive declares, false for others, because only the user knows. Say so of a quorum queue only if its dead-letter strategy
    /// is `at-least-once`: otherwise a dead letter for which the dead-letter queue has no room is lost. A classic queue never
    /// waits for room; redrive has it move messages only with [`DeadLetters::Broker`].
    pub fn native_dead_letter(mut self, native: bool) -> Self {
        self.native_dead_letter = Some(native);
        self
    }

    /// Sets how a retried message waits. Default: in a ladder of delay queues.
    pub fn delay(mut self, delay: impl Into<Delay>) -> Self {
        self.delay = delay.into();
        self
    }

    /// Uses one durable queue for all waits: the same as `delay(SingleQueue::durable())`, under the name that users of that
    /// topology know.
    pub fn with_durable_dead_letter_backoff(self) -> Self {
        self.delay(SingleQueue::durable())
    }

    /// Sets how a message is dead-lettered. Default: a copy with its history is stored. [`DeadLetters::Broker`] needs a work queue
    /// that dead-letters into the dead-letter queue. A declared queue does; for an existing queue, confirm it with
    /// [`native_dead_letter`](Self::native_dead_letter). A classic work queue drops what its dead-letter queue has no room for: give
    /// that queue no limit.
    pub fn dead_letters(mut self, dead_letters: DeadLetters) -> Self {
        self.dead_letters = dead_letters;
        self
    }

    /// Sets how long no copy is stored in a new quorum queue. Default: 3 s. A broker that is killed in the first second of a
    /// quorum queue loses the messages that it confirmed there, and RabbitMQ 3.10 may refuse messages in that time. Use a shorter
    /// time only in tests that kill no broker.
    pub fn new_queue_wait(mut self, wait: Duration) -> Self {
        self.new_queue_wait = wait;
        self
    }

    /// Sets the name of the dead-letter queue. Default: `{queue}--dead-letters`; with [`Delay::SingleQueue`], where messages wait
    /// in a queue of that name, `{queue}--failed`.
    pub fn dead_letter_queue(mut self, name: impl Into<String>) -> Self {
        self.names.dead_letters = Some(name.into());
        self
    }

    /// Lets the broker move dead letters of the work queue through this exchange; a name alone means a direct exchange. Under
    /// [`Topology::Declare`] exchange and binding are declared. Copies that redrive publishes go directly into the dead-letter queue.
    /// Default: the default exchange.
    ///
    /// ```
    /// # use redrive_rabbitmq::RabbitMq;
    /// let options = RabbitMq::options("orders").dead_letter_exchange("orders.dlx").dead_letter_queue("orders.dlq");
    /// ```
    pub fn dead_letter_exchange(mut self, exchange: impl Into<DeadLetterExchange>) -> Self {
        self.dead_letter_exchange = Some(exchange.into());
        self
    }

    /// Binds the work queue to an exchange of the application, once with each of these keys (one empty key for a fanout exchange).
    /// The exchange must exist: redrive does not declare it. Under [`Topology::Declare`] the bindings are declared; a binding that
    /// is no longer in this list stays. Default: none.
    ///
    /// ```
    /// # use redrive_rabbitmq::RabbitMq;
    /// let options = RabbitMq::options("orders").bind("shop", ["order.created", "order.paid"]);
    /// ```
    pub fn bind(
        mut self,
        exchange: impl Into<String>,
        keys: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let exchange = exchange.into();
        self.bindings.extend(keys.into_iter().map(|key| (exchange.clone(), key.into())));
        self
    }

    /// Sets the name of the queue from which only people take messages. Default: `{queue}--parking-lot`.
    pub fn parking_queue(mut self, name: impl Into<String>) -> Self {
        self.names.parking = name.into();
        self
    }

    /// Sets the names of both shelf queues from a configuration: [`dead_letter_queue`](Self::dead_letter_queue) and
    /// [`parking_queue`](Self::parking_queue).
    #[cfg(feature = "config")]
    pub fn shelves(mut self, queues: redrive_core::options::ShelfQueues) -> Self {
        if let Some(name) = queues.dead_letter_queue {
            self = self.dead_letter_queue(name);
        }
        if let Some(name) = queues.parking_queue {
            self = self.parking_queue(name);
        }
        self
    }

    /// Reads shelves although RabbitMQ says that it may remove messages which are looked at too often. Default: false.
    ///
    /// Each look at a quorum queue is a delivery. Shelves that redrive declares bear two thousand million of them. About a shelf with a
    /// [name](Self::dead_letter_queue) of its own, [`Shelves`](redrive_core::Shelves) ask the broker, and read nothing if its
    /// `x-delivery-limit` is low. They do not see policies: accept it if the queue sets no limit and a policy sets a large one. Where both
    /// set one, the lower counts.
    pub fn accept_low_delivery_limit(mut self, accept: bool) -> Self {
        self.accepts_low_delivery_limit = accept;
        self
    }

    /// Sets for how long a look at a shelf waits while other looks or actions of redrive have it; then it is
    /// [`Busy`](redrive_core::TransportErrorKind::Busy). Default: 15 s. An action waits four times as long; a count, and whoever has the
    /// lease, a second at most.
    pub fn shelf_turn_within(mut self, wait: Duration) -> Self {
        self.turn_within = wait;
        self
    }

    /// Names other work queues whose dead letters are on the same shelves. A redrive sends a message back to the one that it failed in, as
    /// `x-death` or `redrive-source-queue` tells. Default: none. What failed in a queue that is not named is shown, and
    /// [no action takes it](redrive_core::shelves::Owner::Other): anybody can write these headers.
    pub fn shelves_shared_with(mut self, queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.shelves_shared_with.extend(queues.into_iter().map(Into::into));
        self
    }

    /// Sets the prefix of the names of the delay queues; `-1000ms` follows. Default: `{queue}--retry`.
    pub fn retry_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.names.retry_prefix = prefix.into();
        self
    }

    /// Adds an argument of the work queue, or replaces one of redrive's. If an argument changes how the queue dead-letters,
    /// redrive relies on dead-lettering only if [`native_dead_letter`](Self::native_dead_letter) is set.
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.arguments.insert(name.into(), value.into());
        self
    }

    /// Lets the broker deliver to one consumer only, and to the next one when that is gone (`x-single-active-consumer`). Messages
    /// stay in order only with a concurrency and a prefetch of 1, and without retries: see the page on RabbitMQ.
    pub fn single_active_consumer(self) -> Self {
        self.argument("x-single-active-consumer", true)
    }

    /// Compares the queues, and the policies on them, through the management API at this URL
    /// (`http://user:password@host:15672`; default user: that of the AMQP URL) when the transport is opened. A queue that would
    /// lose messages, or return them too early or never, is an error. A doubtful queue is logged, and so is an API that does not
    /// answer.
    #[cfg(feature = "management")]
    pub fn management(mut self, url: impl Into<String>) -> Self {
        self.management_url = Some(url.into());
        self
    }

    /// Adds a delay queue for one more wait, besides those of the retry policies: for snoozes, and for waits that errors ask for.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.more_waits.push(wait);
        self
    }
}
