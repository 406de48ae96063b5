//! The options that say how deliveries are taken and acknowledged.

use std::time::Duration;

use super::Options;

impl Options {
    /// How long an acknowledgement may wait for others, to be sent together with them: 5 ms, unless told otherwise.
    /// Fewer than 64 wait, and fewer than half the prefetch. Zero sends each at once, which costs about a third of the
    /// throughput of a trivial handler. What waits when the connection or the process ends comes again.
    pub fn ack_within(mut self, wait: Duration) -> Self {
        self.ack_within = wait;
        self
    }

    /// Sizes the prefetch by what is worked off: what is handed out in a twentieth of a second, from the consumer's own
    /// prefetch (twice its concurrency, unless told otherwise) up to this. It grows within a second, and shrinks after ten
    /// slow ones; each time the queue is subscribed to anew, and what is in hand stays in hand. Not with
    /// [`single_active_consumer`](Self::single_active_consumer), whose subscription is not given up, and not where the consumer's
    /// prefetch is 1. What a process has in hand when it dies is counted as handed out: more prefetch, more suspects. Without
    /// this option the prefetch stays as it is.
    pub fn prefetch_up_to(mut self, deliveries: u16) -> Self {
        self.prefetch_up_to = Some(deliveries);
        self
    }

    /// Which consumers of the queue are served first: those with the highest number that have room (`x-priority`). 0,
    /// unless told otherwise.
    pub fn consumer_priority(mut self, priority: i32) -> Self {
        self.consumer_priority = Some(priority);
        self
    }

    /// After how long without a delivery, and with nothing in hand, the messages that wait in the work queue are counted.
    /// Default: 30 s; zero: never. When messages wait twice in a row and none comes, the queue is subscribed to again:
    /// RabbitMQ 3.10 can forget a consumer whose quorum queue is deleted and declared again. A consumer that is not served
    /// for good reasons (its priority, another one that is active) does so less and less often.
    pub fn idle_check(mut self, period: Duration) -> Self {
        self.idle_check = period;
        self
    }

    /// After how long the broker takes back a delivery that is not settled. A quorum queue of RabbitMQ 4.3 is asked to do
    /// so; elsewhere it says how the broker is configured. When nothing is said: the `x-consumer-timeout` among the
    /// arguments, or else RabbitMQ's own default of 30 min.
    pub fn consumer_timeout(mut self, timeout: Duration) -> Self {
        self.consumer_timeout = Some(timeout);
        self
    }
}
