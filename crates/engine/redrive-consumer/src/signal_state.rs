//! What the transport has signalled, apart from deliveries.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock};
use redrive_core::transport::{Facts, Signal, Signals};
use redrive_core::{Delivery, TransportError};
use tokio::sync::watch;
use tokio::time::Instant;

/// Maximum number of lost, never received deliveries that are kept, or twice the number of one interruption if that is more:
/// while nothing is received, one interruption may follow another.
const MOST_UNRECEIVED: usize = 1024;

/// State that [`Signals`] update, from before the transport is opened.
pub(crate) struct SignalState {
    /// `None`: the transport is not opened, and no facts have changed.
    facts: RwLock<Option<Arc<Facts>>>,
    interruption: Mutex<Interruption>,
    recoveries: watch::Sender<u64>,
    /// `None`: the consumer has ended.
    connection: RwLock<Option<Box<OnConnection>>>,
}

/// What is called when the transport signals whether it can receive.
type OnConnection = dyn Fn(Connection) + Send + Sync;

/// Whether the transport can receive.
#[derive(Debug)]
pub(crate) enum Connection {
    Whole,
    /// Not from one of its queues.
    Partial(TransportError),
    Lost(TransportError),
}

#[derive(Default)]
struct Interruption {
    at: Option<Instant>,
    unreceived: Unreceived,
}

/// Deliveries that are redelivered because their connection was lost before they were received; no message is to blame.
struct Unreceived(Option<Vec<Delivery>>);

impl SignalState {
    /// Creates an empty state, and the signals that fill it. `remembers`: whether lost, never received deliveries are needed.
    /// `changed` is called with facts that are signalled after [`opened`](Self::opened) and differ from the previous ones,
    /// `connection` whenever the transport signals whether it can receive.
    pub(crate) fn listen(
        remembers: bool,
        changed: impl Fn(&Facts) + Send + Sync + 'static,
        connection: impl Fn(Connection) + Send + Sync + 'static,
    ) -> (Arc<Self>, Signals) {
        let state = Arc::new(Self {
            facts: RwLock::default(),
            interruption: Mutex::default(),
            recoveries: watch::Sender::new(0),
            connection: RwLock::new(Some(Box::new(connection))),
        });
        let listener = Arc::clone(&state);
        let signals = Signals::to(move |signal| match signal {
            Signal::Interrupted { unreceived } => {
                let mut interruption = listener.interruption();
                interruption.at = Some(Instant::now());
                if remembers {
                    interruption.unreceived.keep(unreceived);
                }
            }
            Signal::Recovered => listener.recoveries.send_modify(|times| *times += 1),
            Signal::Disconnected(error) => listener.connection_changed(Connection::Lost(error)),
            Signal::PartlyConnected(error) => listener.connection_changed(Connection::Partial(error)),
            Signal::Connected => listener.connection_changed(Connection::Whole),
            Signal::FactsChanged(facts) => {
                let facts = Arc::new(facts);
                let mut known = listener.facts.write();
                let before = known.replace(Arc::clone(&facts));
                drop(known);
                if before.is_some_and(|before| before != facts) {
                    changed(&facts);
                }
            }
            // A signal of a newer `redrive-core`: it asks nothing of this consumer.
            _ => {}
        });
        (state, signals)
    }

    /// Drops what is called for the connection: the transport may still signal how it parts from the broker, and nothing is reported
    /// after the end of the consumer.
    pub(crate) fn end(&self) {
        let connection = self.connection.write().take();
        drop(connection);
    }

    fn connection_changed(&self, connection: Connection) {
        let changed = self.connection.read();
        if let Some(changed) = &*changed {
            changed(connection);
        }
    }

    /// Stores the facts returned by opening the transport, unless it has signalled a change since.
    pub(crate) fn opened(&self, facts: Facts) {
        let mut known = self.facts.write();
        known.get_or_insert_with(|| Arc::new(facts));
    }

    /// Returns the current facts of the broker.
    pub(crate) fn facts(&self) -> Arc<Facts> {
        let known = self.facts.read();
        known.clone().expect("nobody asks before the transport was opened")
    }

    /// Returns the one fact that each delivery needs, without cloning the facts.
    pub(crate) fn delivery_limit(&self) -> Option<u32> {
        let known = self.facts.read();
        known.as_ref().and_then(|facts| facts.limits.deliveries)
    }

    /// Returns when deliveries in flight were last lost and began to be redelivered while this process lived on.
    pub(crate) fn interrupted_at(&self) -> Option<Instant> {
        self.interruption().at
    }

    /// Returns the time of the last interruption, and the deliveries lost before they were received since the previous call;
    /// `None`: too many to keep.
    pub(crate) fn take_interruption(&self) -> (Instant, Option<Vec<Delivery>>) {
        let mut interruption = self.interruption();
        let unreceived = std::mem::take(&mut interruption.unreceived);
        (interruption.at.unwrap_or_else(Instant::now), unreceived.0)
    }

    /// Resolves when a failed store is worth trying again at once. Subscribes at the call.
    pub(crate) fn recovered(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut recoveries = self.recoveries.subscribe();
        async move {
            if recoveries.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn interruption(&self) -> MutexGuard<'_, Interruption> {
        self.interruption.lock()
    }
}

impl Unreceived {
    fn keep(&mut self, more: Vec<Delivery>) {
        let Some(kept) = &mut self.0 else { return };
        let most = MOST_UNRECEIVED.max(2 * more.len());
        kept.extend(more);
        if kept.len() > most {
            self.0 = None;
        }
    }
}

impl Default for Unreceived {
    fn default() -> Self {
        Self(Some(Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use futures::FutureExt;

    use super::*;
    use redrive_core::Message;

    fn deliveries(count: usize) -> Vec<Delivery> {
        (0..count).map(|n| Delivery::new(Message::new("").with_id(n.to_string()), "q", UNIX_EPOCH)).collect()
    }

    #[test]
    fn what_was_never_received_is_kept_until_it_is_too_much() {
        let (state, signals) = SignalState::listen(true, |_| {}, drop);
        let unreceived = || state.take_interruption().1.map(|deliveries| deliveries.len());
        signals.send(Signal::Interrupted { unreceived: deliveries(MOST_UNRECEIVED - 1) });
        signals.send(Signal::Interrupted { unreceived: deliveries(1) });
        assert_eq!(unreceived(), Some(MOST_UNRECEIVED));
        assert_eq!(unreceived(), Some(0), "each is answered once");
        signals.send(Signal::Interrupted { unreceived: deliveries(5 * MOST_UNRECEIVED) });
        signals.send(Signal::Interrupted { unreceived: deliveries(1) });
        assert_eq!(unreceived(), None);
        let (state, signals) = SignalState::listen(false, |_| {}, drop);
        signals.send(Signal::Interrupted { unreceived: deliveries(1) });
        assert_eq!(state.take_interruption().1.map(|deliveries| deliveries.len()), Some(0), "nobody asks");
    }

    #[test]
    fn a_change_that_was_told_before_is_newer_than_what_opening_answers() {
        let (state, signals) = SignalState::listen(true, |_| {}, drop);
        signals.send(Signal::FactsChanged(Facts::new("newer")));
        state.opened(Facts::new("older"));
        assert_eq!(state.facts().system, "newer");
    }

    #[test]
    fn each_change_after_the_opening_is_told_once() {
        let changes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&changes);
        let (state, signals) = SignalState::listen(true, move |facts| seen.lock().push(facts.system), drop);
        state.opened(Facts::new("old"));
        for system in ["old", "new", "new", "newer"] {
            signals.send(Signal::FactsChanged(Facts::new(system)));
        }
        assert_eq!(*changes.lock(), ["new", "newer"]);
    }

    #[tokio::test]
    async fn a_recovery_is_heard_from_the_call_on() {
        let (state, signals) = SignalState::listen(true, |_| {}, drop);
        signals.send(Signal::Recovered);
        let mut recovered = Box::pin(state.recovered());
        assert!((&mut recovered).now_or_never().is_none(), "that was before");
        signals.send(Signal::Recovered);
        recovered.await;
    }
}
