//! What the transport told beside the deliveries.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::delivery::Delivery;
use crate::transport::{Facts, Signal, Signals};

/// How many deliveries that were never received are kept, at most, or twice what came with one interruption: as long as
/// nothing is received there may be one interruption after the other.
const MOST_UNRECEIVED: usize = 1024;

/// Filled by [`Signals`], from before the transport is opened on.
pub(crate) struct SignalState {
    /// `None`: not opened yet, and nothing has changed.
    facts: RwLock<Option<Arc<Facts>>>,
    interruption: Mutex<Interruption>,
    recoveries: watch::Sender<u64>,
}

#[derive(Default)]
struct Interruption {
    at: Option<Instant>,
    unreceived: Unreceived,
}

/// Deliveries that came again because their connection was lost before they were received; to nobody's fault.
struct Unreceived(Option<Vec<Delivery>>);

impl SignalState {
    /// Nothing yet; and where to tell it. `remembers`: whether anybody asks for what was never received. `changed` is called
    /// with facts that are told after [`opened`](Self::opened) and differ from those before.
    pub(crate) fn listen(
        remembers: bool,
        changed: impl Fn(&Facts) + Send + Sync + 'static,
    ) -> (Arc<Self>, Signals) {
        let told = Arc::new(Self {
            facts: RwLock::default(),
            interruption: Mutex::default(),
            recoveries: watch::Sender::new(0),
        });
        let listener = Arc::clone(&told);
        let signals = Signals::to(move |signal| match signal {
            Signal::Interrupted { unreceived } => {
                let mut interruption = listener.interruption();
                interruption.at = Some(Instant::now());
                if remembers {
                    interruption.unreceived.keep(unreceived);
                }
            }
            Signal::Recovered => listener.recoveries.send_modify(|times| *times += 1),
            Signal::FactsChanged(facts) => {
                let facts = Arc::new(facts);
                let mut known = listener.facts.write().unwrap_or_else(PoisonError::into_inner);
                let before = known.replace(Arc::clone(&facts));
                drop(known);
                if before.is_some_and(|before| before != facts) {
                    changed(&facts);
                }
            }
        });
        (told, signals)
    }

    /// What the transport said when it was opened, unless it has told of a change since.
    pub(crate) fn opened(&self, facts: Facts) {
        let mut known = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_with(|| Arc::new(facts));
    }

    /// What is known of the broker now.
    pub(crate) fn facts(&self) -> Arc<Facts> {
        let known = self.facts.read().unwrap_or_else(PoisonError::into_inner);
        known.clone().expect("nobody asks before the transport was opened")
    }

    /// Of the facts the one that each delivery needs: nothing is cloned for it.
    pub(crate) fn delivery_limit(&self) -> Option<u32> {
        let known = self.facts.read().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().and_then(|facts| facts.limits.deliveries)
    }

    /// When deliveries in flight were last lost and began to come again, though this process lived on.
    pub(crate) fn interrupted_at(&self) -> Option<Instant> {
        self.interruption().at
    }

    /// When that was, and what was lost before it was received, since this was asked for the last time; `None`: too many.
    pub(crate) fn take_interruption(&self) -> (Instant, Option<Vec<Delivery>>) {
        let mut interruption = self.interruption();
        let unreceived = std::mem::take(&mut interruption.unreceived);
        (interruption.at.unwrap_or_else(Instant::now), unreceived.0)
    }

    /// Resolves when what could not be stored is worth trying again at once. Listens from the call on.
    pub(crate) fn recovered(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut recoveries = self.recoveries.subscribe();
        async move {
            if recoveries.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn interruption(&self) -> MutexGuard<'_, Interruption> {
        self.interruption.lock().unwrap_or_else(PoisonError::into_inner)
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
    use crate::Message;

    fn deliveries(count: usize) -> Vec<Delivery> {
        (0..count).map(|n| Delivery::new(Message::new("").with_id(n.to_string()), "q", UNIX_EPOCH)).collect()
    }

    #[test]
    fn what_was_never_received_is_kept_until_it_is_too_much() {
        let (told, signals) = SignalState::listen(true, |_| {});
        let unreceived = || told.take_interruption().1.map(|deliveries| deliveries.len());
        signals.send(Signal::Interrupted { unreceived: deliveries(MOST_UNRECEIVED - 1) });
        signals.send(Signal::Interrupted { unreceived: deliveries(1) });
        assert_eq!(unreceived(), Some(MOST_UNRECEIVED));
        assert_eq!(unreceived(), Some(0), "each is answered once");
        signals.send(Signal::Interrupted { unreceived: deliveries(5 * MOST_UNRECEIVED) });
        signals.send(Signal::Interrupted { unreceived: deliveries(1) });
        assert_eq!(unreceived(), None);
        let (told, signals) = SignalState::listen(false, |_| {});
        signals.send(Signal::Interrupted { unreceived: deliveries(1) });
        assert_eq!(told.take_interruption().1.map(|deliveries| deliveries.len()), Some(0), "nobody asks");
    }

    #[test]
    fn a_change_that_was_told_before_is_newer_than_what_opening_answers() {
        let (told, signals) = SignalState::listen(true, |_| {});
        signals.send(Signal::FactsChanged(Facts::new("newer")));
        told.opened(Facts::new("older"));
        assert_eq!(told.facts().system, "newer");
    }

    #[test]
    fn each_change_after_the_opening_is_told_once() {
        let changes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&changes);
        let (told, signals) = SignalState::listen(true, move |facts| seen.lock().unwrap().push(facts.system));
        told.opened(Facts::new("old"));
        for system in ["old", "new", "new", "newer"] {
            signals.send(Signal::FactsChanged(Facts::new(system)));
        }
        assert_eq!(*changes.lock().unwrap(), ["new", "newer"]);
    }

    #[tokio::test]
    async fn a_recovery_is_heard_from_the_call_on() {
        let (told, signals) = SignalState::listen(true, |_| {});
        signals.send(Signal::Recovered);
        let mut recovered = Box::pin(told.recovered());
        assert!((&mut recovered).now_or_never().is_none(), "that was before");
        signals.send(Signal::Recovered);
        recovered.await;
    }
}
