//! The options that say how deliveries are taken and acknowledged.

use std::time::Duration;

use super::Options;

impl Options {
    /// Counts the deaths of a message in the work queue (`x-death`, by rejection or delivery limit) as failed attempts, where redrive
    /// has not written on the message before. For a queue that moves to redrive from retries by dead-lettering: a message that failed
    /// three times continues with attempt 4, and its copies keep the deaths as history. Default: attempts begin at 1.
    pub fn attempts_from_deaths(mut self) -> Self {
        self.attempts_from_deaths = true;
        self
    }

    /// How long an acknowledgement may wait for others, to be sent together with them. Default: 5 ms. Fewer than 64
    /// wait, and fewer than half the prefetch. Zero sends each immediately, which costs about a third of the
    /// throughput of a trivial handler. Deliveries whose acknowledgement waits when the connection or the process
    /// ends come again.
    pub fn ack_within(mut self, wait: Duration) -> Self {
        self.ack_within = wait;
        self
    }

    /// Sizes the prefetch by the throughput: the deliveries of a twentieth of a second, from the consumer's own
    /// prefetch (default: twice its concurrency) up to this number. It grows within a second, and shrinks after ten
    /// slow ones; each time the queue is subscribed to again, and deliveries stay in flight. It has no effect with
    /// [`single_active_consumer`](Self::single_active_consumer), whose subscription is not given up, and with a
    /// prefetch of 1. When a process dies, the broker counts all deliveries that it had in flight: more prefetch,
    /// more suspects. Default: the prefetch stays as it is.
    pub fn prefetch_up_to(mut self, deliveries: u16) -> Self {
        self.prefetch_up_to = Some(deliveries);
        self
    }

    /// The priority of this consumer (`x-priority`): the broker delivers first to the consumers with the highest
    /// priority that have room. Default: 0.
    pub fn consumer_priority(mut self, priority: i32) -> Self {
        self.consumer_priority = Some(priority);
        self
    }

    /// How often waiting messages are counted while no delivery comes and none is in flight. Default: 30 s; zero:
    /// never. When messages wait twice in a row and none comes, the queue is subscribed to again: RabbitMQ 3.10 can
    /// forget a consumer whose quorum queue is deleted and declared again. A consumer that is not served for good
    /// reasons (its priority, another one that is active) subscribes less and less often.
    pub fn idle_check(mut self, period: Duration) -> Self {
        self.idle_check = period;
        self
    }

    /// The time after which the broker takes an unsettled delivery back. A quorum queue of RabbitMQ 4.3 is asked to
    /// do so; elsewhere it says how the broker is configured. Default: the `x-consumer-timeout` among the
    /// arguments, or RabbitMQ's own default of 30 min.
    pub fn consumer_timeout(mut self, timeout: Duration) -> Self {
        self.consumer_timeout = Some(timeout);
        self
    }
}
