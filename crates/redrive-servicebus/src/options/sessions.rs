//! How an entity that requires sessions is consumed.

use std::time::Duration;

/// How sessions are consumed: each is held by one consumer at a time, and its messages are handed out one by one, in order.
///
/// ```
/// use std::time::Duration;
/// use redrive_servicebus::{ServiceBus, Sessions};
///
/// let options = ServiceBus::options("orders").sessions(Sessions::concurrent(8).idle(Duration::from_secs(5)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sessions {
    pub(crate) concurrent: u32,
    pub(crate) accepting: u32,
    pub(crate) idle: Duration,
    pub(crate) wait: Duration,
}

/// How long the broker looks for a free session before it says that there is none.
const WAIT: Duration = Duration::from_secs(60);

impl Sessions {
    /// Up to so many sessions are held at a time. Of each, one message is in flight: messages are handled at once across
    /// sessions, never within one. A session whose first message waits for its next attempt is held meanwhile, and counts.
    #[must_use]
    pub fn concurrent(count: u32) -> Self {
        let concurrent = count.max(1);
        Self { concurrent, accepting: concurrent.min(4), idle: Duration::from_secs(1), wait: WAIT }
    }

    /// After how long without a message a session is let go, and the next one accepted; 1 s unless said otherwise. Longer
    /// saves requests where the messages of a session come in drops; shorter serves more sessions than are held at a time.
    #[must_use]
    pub fn idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// How many sessions are waited for at a time; 4 unless said otherwise. With 1 they are begun in the order of their
    /// oldest messages.
    #[must_use]
    pub fn accepting(mut self, count: u32) -> Self {
        self.accepting = count.clamp(1, self.concurrent);
        self
    }
    /// For tests: how long the broker looks for a free session before it is asked again.
    #[doc(hidden)]
    #[must_use]
    pub fn looking_for(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}
