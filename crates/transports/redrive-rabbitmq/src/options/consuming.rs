//! Options for receiving and acknowledging deliveries.

use std::time::Duration;

use super::Options;

impl Options {
    /// Counts the deaths of a message in the work queue (`x-death`, by rejection or delivery limit) as failed attempts, if redrive
    /// has not written on the message before. For a queue that moves to redrive from retries by dead-lettering: a message that failed
    /// three times continues with attempt 4, and its copies keep the deaths as history. Default: attempts begin at 1.
    pub fn attempts_from_deaths(mut self) -> Self {
        self.attempts_from_deaths = true;
        self
    }

    /// Sets how long an acknowledgement may wait for others, to be sent together with them. Default: 5 ms. Fewer than 64 wait, and
    /// fewer than half the prefetch. Zero sends each immediately, which costs about a third of the throughput of a trivial
    /// handler. If the connection or the process ends, deliveries whose acknowledgement waits are redelivered.
    pub fn ack_within(mut self, wait: Duration) -> Self {
        self.ack_within = wait;
        self
    }

    /// Adapts the prefetch to the throughput: the deliveries of a twentieth of a second, from the consumer's own prefetch
    /// (default: twice its concurrency) up to this number. It grows within a second, and shrinks after ten slow ones; each time
    /// the consumer subscribes again, and deliveries stay in flight. It has no effect with
    /// [`single_active_consumer`](Self::single_active_consumer), whose subscription must stay, and with a prefetch of 1. If a
    /// process dies, the broker charges all deliveries in flight: a larger prefetch means more suspects. Default: fixed prefetch.
    pub fn prefetch_up_to(mut self, deliveries: u16) -> Self {
        self.prefetch_up_to = Some(deliveries);
        self
    }

    /// Sets the priority of this consumer (`x-priority`): the broker delivers first to the consumers with the highest priority
    /// that have room. Default: 0.
    pub fn consumer_priority(mut self, priority: i32) -> Self {
        self.consumer_priority = Some(priority);
        self
    }

    /// Sets how often waiting messages are counted while no delivery comes and none is in flight. Default: 30 s; zero: never. If
    /// messages wait twice in a row and none comes, the consumer subscribes again: RabbitMQ 3.10 can forget a consumer whose
    /// quorum queue is deleted and declared again. A consumer that rightly gets nothing (because of its priority, or because
    /// another one is active) subscribes less and less often.
    pub fn idle_check(mut self, period: Duration) -> Self {
        self.idle_check = period;
        self
    }

    /// Sets the time after which the broker takes an unsettled delivery back. redrive sets it on a quorum queue of RabbitMQ 4.3;
    /// elsewhere it tells redrive how the broker is configured. Default: the `x-consumer-timeout` among the arguments, or
    /// RabbitMQ's own default of 30 min.
    pub fn consumer_timeout(mut self, timeout: Duration) -> Self {
        self.consumer_timeout = Some(timeout);
        self
    }
}
