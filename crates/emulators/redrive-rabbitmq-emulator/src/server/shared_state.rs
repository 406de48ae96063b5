//! State that all connections share: the broker behind its lock, the clock, the state file, and how each connection's task is woken.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use redrive_emulator_host::{Clock, Journal, Ticket, TooFar};
use tokio::sync::{Notify, watch};

use super::event_log;
use crate::broker::{Broker, Change, Command, ConnectionId, Timestamp};

#[derive(Debug)]
pub(crate) struct SharedState {
    state: Mutex<State>,
    pub(crate) clock: Arc<Clock>,
    /// Writes the state file; `None` if there is none.
    pub(crate) journal: Option<Journal<Change>>,
    logs_events: bool,
    /// Notified when the next deadline may have changed.
    pub(crate) deadline_moved: Notify,
    /// A fault: no bytes move while it is true.
    frozen: watch::Sender<bool>,
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
    /// The client has logged in, and opened a virtual host.
    pub(crate) open: bool,
    pub(crate) wants_input: bool,
    /// Seconds between signs of life; 0: none.
    pub(crate) heartbeat: u16,
}

impl SharedState {
    pub(crate) fn new(broker: Broker, journal: Option<Journal<Change>>, clock: Arc<Clock>) -> Self {
        Self {
            state: Mutex::new(State { broker, tasks: HashMap::new() }),
            clock,
            journal,
            logs_events: false,
            deadline_moved: Notify::new(),
            frozen: watch::channel(false).0,
        }
    }

    /// Logs what no client is told.
    pub(crate) fn logging_events(self, logs_events: bool) -> Self {
        Self { logs_events, ..self }
    }

    /// Registers a client; its task is woken by the `Notify`.
    pub(crate) fn connect(&self, peer: String) -> (ConnectionId, Arc<Notify>) {
        let wake = Arc::new(Notify::new());
        let mut state = self.state.lock();
        let id = state.broker.connect(peer, self.clock.now());
        state.tasks.insert(id, Arc::clone(&wake));
        (id, wake)
    }

    pub(crate) fn disconnect(&self, id: ConnectionId) {
        self.with(|broker, now| broker.disconnect(id, now));
        self.state.lock().tasks.remove(&id);
    }

    pub(crate) fn handle(&self, id: ConnectionId, commands: &mut Vec<Command>) {
        self.with(|broker, now| broker.handle(id, commands.drain(..), now));
    }

    /// Returns what a connection is to do. `take`: whether it can take more output.
    pub(crate) fn next(&self, id: ConnectionId, take: bool) -> Next {
        self.with(|broker, now| Next {
            output: if take { broker.take_output(id, now) } else { BytesMut::new() },
            over: broker.is_over(id),
            cut: broker.is_cut(id),
            closing: broker.is_closing(id),
            open: broker.is_open(id),
            wants_input: broker.wants_input(id),
            heartbeat: broker.heartbeat(id),
        })
    }

    /// Calls the broker, and wakes the connections that have output because of the call.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Broker, Timestamp) -> T) -> T {
        let mut state = self.state.lock();
        let deadline = state.broker.next_deadline();
        let answer = act(&mut state.broker, self.clock.now());
        if let Some(journal) = &self.journal {
            // Under the lock of the state, which also keeps the order of the changes.
            journal.hand_in(state.broker.take_changes());
        }
        for id in state.broker.take_touched() {
            if let Some(wake) = state.tasks.get(&id) {
                wake.notify_one();
            }
        }
        if state.broker.next_deadline() != deadline {
            self.deadline_moved.notify_one();
        }
        if self.logs_events {
            let events = state.broker.unlogged_events();
            // Writing a line may take long.
            drop(state);
            event_log::log(events);
        }
        answer
    }

    /// Advances the clock, and applies everything that is due by then.
    ///
    /// # Errors
    /// If the step would pass the last time; nothing has changed then.
    pub(crate) fn put_forward(&self, by: Duration) -> Result<(), TooFar> {
        self.clock.advance(by)?;
        self.with(Broker::advance);
        // The time until the next deadline changes even if the deadline does not.
        self.deadline_moved.notify_one();
        Ok(())
    }

    /// Returns a ticket for all changes until now: they must be on disk before any output that depends on them is sent.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.journal.as_ref().map(Journal::ticket)
    }

    /// Waits until the ticket's changes are on disk. Cancel safe.
    ///
    /// # Errors
    /// If they cannot be written now; the text is the reason.
    pub(crate) async fn written(&self, ticket: Option<Ticket>) -> Result<(), String> {
        match (&self.journal, ticket) {
            (Some(journal), Some(ticket)) => journal.written(ticket).await,
            _ => Ok(()),
        }
    }

    pub(crate) fn set_frozen(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    /// Resolves while no fault stops the bytes. Cancel safe.
    pub(crate) async fn thawed(&self) {
        // The sender lives as long as this value.
        let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
    }

    pub(crate) fn is_frozen(&self) -> bool {
        *self.frozen.borrow()
    }

    /// Resolves when a fault begins to stop the bytes. Cancel safe.
    pub(crate) async fn frozen(&self) {
        let _ = self.frozen.subscribe().wait_for(|frozen| *frozen).await;
    }
}
