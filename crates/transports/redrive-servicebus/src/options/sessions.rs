//! The options of an entity that requires sessions.

use std::time::Duration;

/// The options of sessions. One consumer at a time holds a session, and receives its messages one by one, in order.
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
const ACCEPT_WAIT: Duration = Duration::from_secs(60);

impl Sessions {
    /// Holds up to this many sessions at a time, with one message of each in flight: messages of different sessions are handled
    /// concurrently, messages of one session are not. A session whose first message waits for its next attempt stays held, and
    /// counts.
    #[must_use]
    pub fn concurrent(count: u32) -> Self {
        let concurrent = count.max(1);
        Self { concurrent, accepting: concurrent.min(4), idle: Duration::from_secs(1), wait: ACCEPT_WAIT }
    }

    /// Sets how long to wait for the next message of a session before the session is released and the next one is accepted.
    /// Default: 1 s. A longer time saves requests if the messages of a session are far apart; a shorter time serves more sessions
    /// than are held.
    #[must_use]
    pub fn idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// Sets how many requests for a session wait at the same time. Default: 4. With 1, sessions start in the order of their
    /// oldest messages.
    #[must_use]
    pub fn accepting(mut self, count: u32) -> Self {
        self.accepting = count.clamp(1, self.concurrent);
        self
    }

    /// Sets how long the broker looks for a free session before it is asked again, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn looking_for(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}
