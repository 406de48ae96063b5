//! The options that say which queues there are and what they are like.

use std::time::Duration;

use redrive_core::Value;

use super::Options;
use crate::delay::{DeadLetters, Delay, SingleQueue};
use crate::topology::{QueueType, Topology};

impl Options {
    /// The type of the work queue and of the shelves: quorum, unless told otherwise.
    pub fn queue_type(mut self, queue_type: QueueType) -> Self {
        self.queue_type = queue_type;
        self
    }

    /// The type of the delay queues: quorum, unless told otherwise, also beside a classic work queue. A classic delay
    /// queue passes on what expired without waiting for the disk of the queue that it goes to, and a broker that is
    /// killed just then can lose it. With [`Topology::Verify`] and [`Topology::Nothing`]: what they are.
    pub fn retry_queue_type(mut self, queue_type: QueueType) -> Self {
        self.retry_queue_type = Some(queue_type);
        self
    }

    /// Whether the queues are declared, only verified, or neither: declared, unless told otherwise.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = topology;
        self
    }

    /// After how many returns the broker takes a message off a quorum work queue: 20, unless told otherwise. With
    /// [`Topology::Verify`] and [`Topology::Nothing`]: what the queue has.
    pub fn delivery_limit(mut self, limit: u32) -> Self {
        self.delivery_limit = Some(limit);
        self
    }

    /// Whether the work queue's dead letters reach the dead-letter queue by themselves. Declared queues do; of others
    /// only you know.
    pub fn native_dead_letter(mut self, native: bool) -> Self {
        self.native_dead_letter = Some(native);
        self
    }

    /// How a retried message waits: in a ladder of delay queues, unless told otherwise.
    pub fn delay(mut self, delay: impl Into<Delay>) -> Self {
        self.delay = delay.into();
        self
    }

    /// The classic topology with one queue for all waits, all of it durable: short for
    /// `delay(SingleQueue::durable())`, under the name that those who run it know.
    pub fn with_durable_dead_letter_backoff(self) -> Self {
        self.delay(SingleQueue::durable())
    }

    /// What becomes of a message that is dead-lettered: a copy with its story, unless told otherwise.
    /// [`DeadLetters::Broker`] needs a work queue that dead-letters into the dead-letter queue: declared ones do; of others
    /// say it with [`native_dead_letter`](Self::native_dead_letter).
    pub fn dead_letters(mut self, dead_letters: DeadLetters) -> Self {
        self.dead_letters = dead_letters;
        self
    }

    /// How long no copy is entrusted to a quorum queue that was just declared for the first time: 3 s, unless told
    /// otherwise. A broker that is killed in the first second of a quorum queue comes back without the messages that it
    /// had confirmed there, and RabbitMQ 3.10 may refuse messages in that time. Less is for tests that kill no broker.
    pub fn new_queue_wait(mut self, wait: Duration) -> Self {
        self.new_queue_wait = wait;
        self
    }

    /// The queue of dead letters: `{queue}--dead-letters`, unless told otherwise; with
    /// [`Delay::SingleQueue`], where messages wait in a queue of that name, `{queue}--failed`.
    pub fn dead_letter_queue(mut self, name: impl Into<String>) -> Self {
        self.names.dead_letters = Some(name.into());
        self
    }

    /// The queue that only people take from: `{queue}--parking-lot`, unless told otherwise.
    pub fn parking_queue(mut self, name: impl Into<String>) -> Self {
        self.names.parking = name.into();
        self
    }

    /// Other work queues whose dead letters rest on the same shelves. A redrive sends a message back to the one of them that
    /// its `redrive-source-queue` names. Default: none, everything goes back to this work queue. The header alone decides
    /// nothing, because any publisher can write it.
    pub fn shelves_shared_with(mut self, queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.shelves_shared_with.extend(queues.into_iter().map(Into::into));
        self
    }

    /// What the names of the delay queues begin with: `{queue}--retry`, unless told otherwise; `-1000ms` is added.
    pub fn retry_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.names.retry_prefix = prefix.into();
        self
    }

    /// One more argument of the work queue, or another value for one of redrive's. Where it changes how the queue
    /// dead-letters, redrive no longer relies on that, unless [`native_dead_letter`](Self::native_dead_letter) says so.
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.arguments.insert(name.into(), value.into());
        self
    }

    /// Has the broker hand the work queue to one of its consumers only, and to the next one when that is gone
    /// (`x-single-active-consumer`). It keeps the order only together with a concurrency and a prefetch of 1, and without
    /// retries: see the page on RabbitMQ.
    pub fn single_active_consumer(self) -> Self {
        self.argument("x-single-active-consumer", true)
    }

    /// Compares, at the start, the queues and the policies on them with what is needed, through the management API at this
    /// URL (`http://user:password@host:15672`; without a user: that of the AMQP URL). What would lose messages, or bring
    /// them back too early or never, refuses the start; what is only doubtful is logged. An API that does not answer is
    /// logged, and no reason not to start.
    #[cfg(feature = "management")]
    pub fn management(mut self, url: impl Into<String>) -> Self {
        self.management_url = Some(url.into());
        self
    }

    /// A delay queue for one more wait, besides those that the retry policies ask for: for snoozes, and for waits that
    /// errors ask for.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.more_waits.push(wait);
        self
    }
}
