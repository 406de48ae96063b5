//! Faults on demand: what an emulator does when a test asks for it.

use crate::broker::{Broker, ConfirmFault, QueueCounts};
use crate::emulator::{Emulator, NotFound, VHostView};

impl Emulator {
    /// Closes all connections at once, without a word. Unsettled deliveries go back to their queues.
    pub fn cut_connections(&self) {
        self.with(|broker, _| broker.cut(None));
    }

    /// Closes all connections as an operator does: `connection.close` with 320 and this reason.
    pub fn close_connections(&self, reason: &str) {
        self.with(|broker, now| broker.close_all(reason, now));
    }

    /// Holds all confirms of publishes back until [`release_confirms`](Self::release_confirms).
    pub fn hold_confirms(&self) {
        self.with(|broker, now| broker.set_confirms(ConfirmFault::Hold, now));
    }

    /// Sends the confirms that were held back, and holds no more; ends [`refuse_confirms`](Self::refuse_confirms) too.
    pub fn release_confirms(&self) {
        self.with(|broker, now| broker.set_confirms(ConfirmFault::None, now));
    }

    /// Refuses this many publishes on channels that confirm: `basic.nack`, and nothing is stored.
    pub fn refuse_confirms(&self, publishes: u32) {
        let fault = if publishes == 0 { ConfirmFault::None } else { ConfirmFault::Refuse(publishes) };
        self.with(|broker, now| broker.set_confirms(fault, now));
    }

    /// Blocks publishers, as RabbitMQ does when memory or disk runs out: `connection.blocked` with this reason, such as `low on memory`.
    pub fn raise_alarm(&self, reason: &str) {
        self.with(|broker, now| broker.raise_alarm(reason, now));
    }

    /// Ends the alarm; what blocked publishers sent in the meantime is done now.
    pub fn clear_alarm(&self) {
        self.with(Broker::clear_alarm);
    }

    /// Stands still: connections stay open, and no byte is read or written until [`resume`](Self::resume).
    pub fn freeze(&self) {
        self.shared().set_frozen(true);
    }

    /// Goes on after [`freeze`](Self::freeze).
    pub fn resume(&self) {
        self.shared().set_frozen(false);
    }
}

impl VHostView<'_> {
    /// A quorum queue has no leader: it delivers nothing until [`restore_leader`](Self::restore_leader). What was delivered comes back.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn lose_leader(&self, queue: &str) -> Result<(), NotFound> {
        self.queue_with(queue, |broker, id, now| {
            broker.set_leaderless(id, true, now);
            broker.give_back_unsettled(id, now);
        })
    }

    /// A quorum queue has a leader again.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn restore_leader(&self, queue: &str) -> Result<(), NotFound> {
        self.queue_with(queue, |broker, id, now| broker.set_leaderless(id, false, now))
    }

    /// Takes back everything that consumers of this queue have not settled, as if their connections had ended. Returns how many.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn give_back_unsettled(&self, queue: &str) -> Result<usize, NotFound> {
        self.queue_with(queue, Broker::give_back_unsettled)
    }

    /// Returns how many messages a queue has.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn counts(&self, queue: &str) -> Result<QueueCounts, NotFound> {
        self.queue_with(queue, |broker, id, _| broker.counts(id))
    }
}
