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

/// The time that the broker looks for a free session before it answers that there is none.
const WAIT: Duration = Duration::from_secs(60);

impl Sessions {
    /// Holds up to this many sessions at a time, with one message of each in flight: messages of different sessions are handled at the
    /// same time, messages of one session never. A session whose first message waits for its next attempt is held meanwhile, and
    /// counts.
    #[must_use]
    pub fn concurrent(count: u32) -> Self {
        let concurrent = count.max(1);
        Self { concurrent, accepting: concurrent.min(4), idle: Duration::from_secs(1), wait: WAIT }
    }

    /// How long to wait for the next message of a session before it is released and the next one is accepted. Default: 1 s.
    /// Longer saves requests where the messages of a session come far apart; shorter serves more sessions than are held at a time.
    #[must_use]
    pub fn idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// How many sessions to wait for at a time. Default: 4. With 1, sessions begin in the order of their oldest messages.
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
