//! State that all connections share: the broker behind its lock, the clock, and the waiting clients.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redrive_emulator_host::{Clock, Journal, Ticket, TooFar};
use tokio::sync::Notify;

use super::keys::Keys;
use super::mailbox::{LinkKey, Mail, Mailbox};
use crate::broker::{Broker, BrokerError, Change, EntityId, ReceiverId, Timestamp, Wake};
use crate::faults::Faults;

/// State that all connections share.
#[derive(Debug)]
pub(crate) struct SharedState {
    state: Mutex<State>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) faults: Arc<Faults>,
    /// Time after which unused links are detached; `None`: never.
    pub(crate) idle_links: Option<Duration>,
    /// Writes the state file; `None` if there is none.
    pub(crate) journal: Option<Journal<Change>>,
    /// Notified when the next deadline may have changed.
    pub(crate) deadline_moved: Notify,
    next_id: AtomicU64,
}

#[derive(Debug)]
struct State {
    broker: Broker,
    connections: HashMap<u64, Arc<Mailbox>>,
    /// Links with credit on an entity, or that ask for a session of it, and found nothing.
    waiting: HashMap<EntityId, Waiting>,
    /// The number of links that send to an entity.
    senders: HashMap<EntityId, usize>,
    /// The links that hold sessions.
    receivers: HashMap<ReceiverId, (u64, LinkKey)>,
}

#[derive(Debug, Default)]
struct Waiting {
    links: BTreeSet<(u64, LinkKey)>,
    /// Advances by one each time, so that each waiting link is sometimes the first to be woken.
    turn: usize,
}

impl SharedState {
    pub(crate) fn new(
        broker: Broker,
        journal: Option<Journal<Change>>,
        clock: Arc<Clock>,
        keys: Arc<Keys>,
        faults: Arc<Faults>,
    ) -> Self {
        let state = State {
            broker,
            connections: HashMap::new(),
            waiting: HashMap::new(),
            senders: HashMap::new(),
            receivers: HashMap::new(),
        };
        Self {
            state: Mutex::new(state),
            clock,
            keys,
            faults,
            idle_links: None,
            journal,
            deadline_moved: Notify::new(),
            next_id: AtomicU64::new(1),
        }
    }

    pub(crate) fn detaching_idle_links(self, after: Option<Duration>) -> Self {
        Self { idle_links: after, ..self }
    }

    /// Returns a new unique number.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn connect(&self) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::new(self.next_id()));
        self.state.lock().connections.insert(mailbox.id, Arc::clone(&mailbox));
        mailbox
    }

    pub(crate) fn disconnect(&self, connection: u64) {
        self.state.lock().connections.remove(&connection);
    }

    /// Calls the broker, and wakes the links that may be served because of the call.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Broker, Timestamp) -> T) -> T {
        let mut state = self.state.lock();
        let deadline = state.broker.next_deadline();
        let answer = act(&mut state.broker, self.clock.now());
        self.keep_changes(&mut state);
        state.tell();
        if state.broker.next_deadline() != deadline {
            self.deadline_moved.notify_one();
        }
        answer
    }

    /// As [`with`](Self::with), for a call that changes stored data.
    ///
    /// # Errors
    /// Those of `act`; [`BrokerError::NotKept`] while the state file cannot be written: `act` is not called then.
    pub(crate) fn change<T>(
        &self,
        act: impl FnOnce(&mut Broker, Timestamp) -> Result<T, BrokerError>,
    ) -> Result<T, BrokerError> {
        self.check_writable()?;
        self.with(act)
    }

    /// Checks that changes can be stored now.
    ///
    /// # Errors
    /// [`BrokerError::NotKept`] if not.
    pub(crate) fn check_writable(&self) -> Result<(), BrokerError> {
        let reason = self.journal.as_ref().and_then(Journal::failing);
        reason.map_or(Ok(()), |reason| Err(BrokerError::NotKept { reason }))
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
        if self.idle_links.is_some() {
            self.post_to_all(|mail| mail.time_moved = true);
        }
        Ok(())
    }

    /// As [`with`](Self::with), for a call that may find nothing: the link is then woken when there may be something. While the
    /// state file cannot be written, nothing is found.
    pub(crate) fn with_or_wait<T>(
        &self,
        entity: EntityId,
        link: (u64, LinkKey),
        act: impl FnOnce(&mut Broker, Timestamp) -> Option<T>,
    ) -> Option<T> {
        let writable = self.check_writable().is_ok();
        let mut state = self.state.lock();
        let deadline = state.broker.next_deadline();
        let answer = if writable { act(&mut state.broker, self.clock.now()) } else { None };
        self.keep_changes(&mut state);
        // Links that waited before come first.
        state.tell();
        if answer.is_none() {
            state.waiting.entry(entity).or_default().links.insert(link);
        }
        if state.broker.next_deadline() != deadline {
            self.deadline_moved.notify_one();
        }
        answer
    }

    /// Called under the lock of the state, which also keeps the order of the changes.
    fn keep_changes(&self, state: &mut State) {
        if let Some(journal) = &self.journal {
            journal.hand_in(state.broker.take_changes());
        }
    }

    /// Returns a ticket for all changes until now: they must be on disk before any output that depends on them is sent.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.journal.as_ref().map(Journal::ticket)
    }

    /// Waits until the ticket's changes are on disk, for a client that connected after this many `outages`. Cancel safe.
    ///
    /// # Errors
    /// If they cannot be written now.
    pub(crate) async fn written(&self, ticket: Option<Ticket>, outages: u64) -> Result<(), BrokerError> {
        match (&self.journal, ticket) {
            (Some(journal), Some(ticket)) => {
                journal.written_since(ticket, outages).await.map_err(|reason| BrokerError::NotKept { reason })
            }
            _ => Ok(()),
        }
    }

    /// Returns how often writing the state file has begun to fail.
    pub(crate) fn outages(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::outages)
    }

    /// Resolves once each time that the state file can be written again. Cancel safe.
    pub(crate) async fn writable_again(&self) {
        match &self.journal {
            Some(journal) => journal.recovered().await,
            None => std::future::pending().await,
        }
    }

    /// Wakes all links that wait.
    pub(crate) fn wake_all(&self) {
        let mut state = self.state.lock();
        let entities: Vec<_> = state.waiting.keys().copied().collect();
        for entity in entities {
            state.wake_waiting(entity);
        }
    }

    /// Removes a link that no longer waits.
    pub(crate) fn stop_waiting(&self, entity: EntityId, link: (u64, LinkKey)) {
        let mut state = self.state.lock();
        if let Some(waiting) = state.waiting.get_mut(&entity) {
            waiting.links.remove(&link);
            if waiting.links.is_empty() {
                state.waiting.remove(&entity);
            }
        }
    }

    /// Registers the link that holds a session, or is about to: it is notified when the session is lost.
    pub(crate) fn hold(&self, receiver: ReceiverId, link: (u64, LinkKey)) {
        self.state.lock().receivers.insert(receiver, link);
    }

    /// Removes the link.
    pub(crate) fn release(&self, receiver: ReceiverId) {
        self.state.lock().receivers.remove(&receiver);
        self.with(|broker, now| broker.release_receiver(receiver, now));
    }

    /// Returns true if a link of this connection holds the session.
    pub(crate) fn holds_session(&self, connection: u64, entity: EntityId, session: &str) -> bool {
        let state = self.state.lock();
        let link =
            state.broker.session_holder(entity, session).and_then(|holder| state.receivers.get(&holder));
        link.is_some_and(|(holder, _)| *holder == connection)
    }

    pub(crate) fn sender_attached(&self, entity: EntityId) {
        *self.state.lock().senders.entry(entity).or_default() += 1;
    }

    pub(crate) fn sender_detached(&self, entity: EntityId) {
        if let Some(senders) = self.state.lock().senders.get_mut(&entity) {
            *senders = senders.saturating_sub(1);
        }
    }

    /// Returns how many links send to this entity.
    pub(crate) fn senders(&self, entity: EntityId) -> usize {
        self.state.lock().senders.get(&entity).copied().unwrap_or_default()
    }

    /// Returns how many links wait for something of this entity.
    pub(crate) fn waiting(&self, entity: EntityId) -> usize {
        self.state.lock().waiting.get(&entity).map_or(0, |waiting| waiting.links.len())
    }

    /// Notifies every connection.
    pub(crate) fn post_to_all(&self, write: impl Fn(&mut Mail)) {
        for mailbox in self.state.lock().connections.values() {
            mailbox.post(&write);
        }
    }

    /// Returns the number of connected clients.
    pub(crate) fn connections(&self) -> usize {
        self.state.lock().connections.len()
    }
}

impl State {
    fn tell(&mut self) {
        for wake in self.broker.take_wakes() {
            match wake {
                Wake::Entity(entity) => self.wake_waiting(entity),
                Wake::Receiver(receiver) => {
                    self.post(receiver, |mail, link| {
                        mail.wake.insert(link);
                    });
                }
                Wake::SessionLost(receiver) => {
                    self.post(receiver, |mail, link| {
                        mail.session_lost.insert(link);
                    });
                }
            }
        }
    }

    fn wake_waiting(&mut self, entity: EntityId) {
        let Some(waiting) = self.waiting.get_mut(&entity) else { return };
        let links: Vec<_> = std::mem::take(&mut waiting.links).into_iter().collect();
        if links.is_empty() {
            return;
        }
        waiting.turn = (waiting.turn + 1) % links.len();
        let (first, last) = links.split_at(waiting.turn);
        for (connection, link) in last.iter().chain(first) {
            if let Some(mailbox) = self.connections.get(connection) {
                mailbox.post(|mail| {
                    mail.wake.insert(*link);
                });
            }
        }
    }

    fn post(&self, receiver: ReceiverId, write: impl FnOnce(&mut Mail, LinkKey)) {
        if let Some((connection, link)) = self.receivers.get(&receiver)
            && let Some(mailbox) = self.connections.get(connection)
        {
            mailbox.post(|mail| write(mail, *link));
        }
    }
}
