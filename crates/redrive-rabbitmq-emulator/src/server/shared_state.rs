//! State that all connections share: the broker behind its lock, the clock, and how each connection's task is woken.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use tokio::sync::Notify;

use super::clock::Clock;
use crate::broker::{Broker, Command, ConnectionId, Timestamp};

#[derive(Debug)]
pub(crate) struct SharedState {
    state: Mutex<State>,
    pub(crate) clock: Arc<Clock>,
    /// Notified when the next deadline may have changed.
    pub(crate) deadline_moved: Notify,
}

#[derive(Debug)]
struct State {
    broker: Broker,
    tasks: HashMap<ConnectionId, Arc<Notify>>,
}

/// What a connection's task is to do next.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) output: BytesMut,
    /// Close the socket once the output is written.
    pub(crate) over: bool,
    /// Close the socket at once.
    pub(crate) cut: bool,
    /// The server closed the connection, and the client has not confirmed it.
    pub(crate) closing: bool,
    pub(crate) wants_input: bool,
    /// Seconds between signs of life; 0: none.
    pub(crate) heartbeat: u16,
}

impl SharedState {
    pub(crate) fn new(broker: Broker, clock: Arc<Clock>) -> Self {
        Self {
            state: Mutex::new(State { broker, tasks: HashMap::new() }),
            clock,
            deadline_moved: Notify::new(),
        }
    }

    /// Registers a client; its task is woken by the `Notify`.
    pub(crate) fn connect(&self, peer: String) -> (ConnectionId, Arc<Notify>) {
        let wake = Arc::new(Notify::new());
        let mut state = self.lock();
        let id = state.broker.connect(peer, self.clock.now());
        state.tasks.insert(id, Arc::clone(&wake));
        (id, wake)
    }

    pub(crate) fn disconnect(&self, id: ConnectionId) {
        self.with(|broker, now| broker.disconnect(id, now));
        self.lock().tasks.remove(&id);
    }

    pub(crate) fn handle(&self, id: ConnectionId, commands: &mut Vec<Command>) {
        self.with(|broker, now| broker.handle(id, commands.drain(..), now));
    }

    pub(crate) fn next(&self, id: ConnectionId) -> Next {
        self.with(|broker, now| Next {
            output: broker.take_output(id, now),
            over: broker.is_over(id),
            cut: broker.is_cut(id),
            closing: broker.is_closing(id),
            wants_input: broker.wants_input(id),
            heartbeat: broker.heartbeat(id),
        })
    }

    /// Calls the broker, and wakes the connections that have output because of the call.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Broker, Timestamp) -> T) -> T {
        let mut state = self.lock();
        let deadline = state.broker.next_deadline();
        let answer = act(&mut state.broker, self.clock.now());
        for id in state.broker.take_touched() {
            if let Some(wake) = state.tasks.get(&id) {
                wake.notify_one();
            }
        }
        if state.broker.next_deadline() != deadline {
            self.deadline_moved.notify_one();
        }
        answer
    }

    /// Advances the clock, and applies everything that is due by then.
    pub(crate) fn put_forward(&self, by: Duration) {
        self.clock.advance(by);
        self.with(Broker::advance);
        // The time until the next deadline changes even if the deadline does not.
        self.deadline_moved.notify_one();
    }

    /// Ignores poisoning: after a panic inside the broker, the other connections go on.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
