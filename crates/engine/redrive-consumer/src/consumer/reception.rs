//! Whether the transport can receive, and the rule of what ends a consumer that cannot: the only place that decides it.
//!
//! A transport reports a refusal in one of two ways. One that tries again by itself signals it; one that does not returns it from
//! `receive`, and is asked again here. In both cases a consumer that has received goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use redrive_core::transport::{Received, Receiver};
use redrive_core::{TransportError, TransportErrorKind};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::Span;

use super::health::{Change, HealthState, note};
use super::observe::Observers;
use super::{ConsumerError, Event, backoff, telemetry};
use crate::signal_state::Connection;

/// Returns true if a refusal ends the consumer. Before the transport could receive for the first time, one that waiting does not
/// cure is a mistake in the set-up. Later it may be over in a minute: an entity that is disabled, moved or created again. Only a
/// transport that was closed never receives again.
fn is_the_end(error: TransportErrorKind, has_received: bool) -> bool {
    use TransportErrorKind::{Closed, Topology, Unauthorized, Unsupported};
    match error {
        Closed => true,
        Topology | Unauthorized | Unsupported => !has_received,
        _ => false,
    }
}

/// Returns the log line of a refusal. `is_new`: it was not refused before, or not in this part.
fn log_line(partly: bool, is_new: bool) -> &'static str {
    match (partly, is_new) {
        (false, true) => "cannot receive: retrying until it succeeds",
        (false, false) => "still cannot receive, for another reason: retrying until it succeeds",
        (true, true) => {
            "cannot receive from one of its queues: retrying until it succeeds, and receiving from the others"
        }
        (true, false) => {
            "still cannot receive from one of its queues, for another reason: retrying until it succeeds, and receiving from the others"
        }
    }
}

/// Reports to the health, the log and the observers whether the transport can receive, and knows when the consumer must end.
pub(crate) struct Reception {
    queue: String,
    observers: Observers,
    pub(super) health: watch::Sender<HealthState>,
    give_up_after: Option<Duration>,
    span: Mutex<Option<Span>>,
    /// True while no delivery changes the state: most deliveries need no lock.
    receives: AtomicBool,
    state: watch::Sender<State>,
}

#[derive(Clone, Default)]
struct State {
    /// True once the transport could receive.
    has_received: bool,
    interruption: Option<Interruption>,
    /// The wait before `receive` is called again.
    retry: Option<Retry>,
}

#[derive(Clone)]
struct Interruption {
    since: Instant,
    /// Since when nothing can be received. `None`: it is received from some of several queues.
    nothing_since: Option<Instant>,
    /// The last error.
    error: TransportError,
    is_the_end: bool,
}

#[derive(Clone, Copy)]
struct Retry {
    tries: u32,
    at: Option<Instant>,
}

impl Reception {
    pub(super) fn new(
        queue: &str,
        observers: &Observers,
        health: watch::Sender<HealthState>,
        give_up_after: Option<Duration>,
    ) -> Arc<Self> {
        Arc::new(Self {
            queue: queue.to_owned(),
            observers: observers.clone(),
            health,
            give_up_after,
            span: Mutex::default(),
            receives: AtomicBool::new(false),
            state: watch::Sender::default(),
        })
    }

    /// Records whether the transport can receive.
    pub(super) fn changed(&self, connection: Connection) {
        match connection {
            Connection::Whole => self.received(),
            Connection::Partial(error) => self.interrupted(&error, true),
            Connection::Lost(error) => self.interrupted(&error, false),
        }
    }

    /// `partly`: it is received from some of several queues.
    fn interrupted(&self, error: &TransportError, partly: bool) {
        let mut is_another = false;
        self.state.send_modify(|state| {
            let before = state.interruption.take();
            is_another = before.as_ref().is_some_and(|before| before.error.kind() != error.kind());
            let now = Instant::now();
            let nothing_since = || before.as_ref().and_then(|before| before.nothing_since).unwrap_or(now);
            if partly {
                (state.has_received, state.retry) = (true, None);
            }
            state.interruption = Some(Interruption {
                since: before.as_ref().map_or(now, |before| before.since),
                nothing_since: (!partly).then(nothing_since),
                is_the_end: !partly && is_the_end(error.kind(), state.has_received),
                error: error.clone(),
            });
            // Under the lock: otherwise this could overtake the end of the interruption.
            self.receives.store(partly, Ordering::Release);
        });
        let queue = &*self.queue;
        let change = if partly { Change::PartlyInterrupted } else { Change::Interrupted };
        let is_new = note(&self.health, &change(error.to_string()));
        if is_new || is_another {
            let gives_up_after = self.give_up_after.filter(|_| !partly).map(tracing::field::debug);
            tracing::error!(queue, %error, gives_up_after, "{}", log_line(partly, is_new));
        }
        if is_new {
            *self.span() = Some(telemetry::interruption_span(queue, error));
            self.observers.tell(&Event::Interrupted { queue, error, partly });
        }
    }

    fn received(&self) {
        let mut since = None;
        self.state.send_if_modified(|state| {
            let changes = !state.has_received || state.interruption.is_some() || state.retry.is_some();
            since = state.interruption.take().map(|interruption| interruption.since);
            (state.has_received, state.retry) = (true, None);
            self.receives.store(true, Ordering::Release);
            changes
        });
        if note(&self.health, &Change::Recovered) {
            let after = since.map_or(Duration::ZERO, |since| since.elapsed());
            let queue = &*self.queue;
            tracing::info!(queue, ?after, "can receive again");
            *self.span() = None;
            self.observers.tell(&Event::Recovered { queue, after });
        }
    }

    /// Records a delivery. If the transport returned an error before, it can receive again; one that signalled an error signals the end
    /// of that too.
    fn delivered(&self) {
        let mut is_signalled = false;
        self.state.send_if_modified(|state| {
            is_signalled = state.interruption.is_some() && state.retry.is_none();
            state.has_received |= is_signalled;
            false
        });
        if !is_signalled {
            self.received();
        }
    }

    /// Resolves with the error that ends the consumer. The time without being able to receive counts from `from` at the earliest.
    /// Cancel safe.
    pub(super) async fn over(&self, from: Instant) -> ConsumerError {
        let mut changes = self.state.subscribe();
        loop {
            let interruption = changes.borrow_and_update().interruption.clone();
            let ended = interruption.as_ref().filter(|interruption| interruption.is_the_end);
            if let Some(Interruption { error, .. }) = ended {
                return ConsumerError::Transport { queue: self.queue.clone(), error: error.clone() };
            }
            let deadline = interruption.as_ref().zip(self.give_up_after);
            let deadline = deadline
                .and_then(|(interruption, wait)| interruption.nothing_since?.max(from).checked_add(wait));
            let change = async {
                if changes.changed().await.is_err() {
                    // `self` owns the sender.
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = change => {}
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    if let (Some(Interruption { error, .. }), Some(after)) = (interruption, self.give_up_after) {
                        return ConsumerError::GaveUp { queue: self.queue.clone(), after, error };
                    }
                }
            }
        }
    }

    /// Receives one delivery; `None` if none will come. An error of the transport that does not end the consumer is waited out, and
    /// the limit set again. Cancel safe.
    ///
    /// # Errors
    ///
    /// If the transport can never receive again, or could not in the first place.
    pub(super) async fn receive<R: Receiver>(
        &self,
        receiver: &R,
        limit: u32,
    ) -> Result<Option<Received<R::Receipt>>, TransportError> {
        loop {
            if !self.receives.load(Ordering::Acquire) {
                let retry_at = self.state.borrow().retry.and_then(|retry| retry.at);
                if let Some(at) = retry_at {
                    sleep_until(at).await;
                    self.set_limit(receiver, limit).await?;
                    continue;
                }
            }
            match receiver.receive().await {
                Ok(received) => {
                    if received.is_some() && !self.receives.load(Ordering::Acquire) {
                        self.delivered();
                    }
                    return Ok(received);
                }
                Err(error) => self.refused(error)?,
            }
        }
    }

    /// Sets the limit of the receiver. An error that does not end the consumer is tried again by [`receive`](Self::receive).
    ///
    /// # Errors
    ///
    /// The same as [`receive`](Self::receive).
    pub(super) async fn set_limit<R: Receiver>(
        &self,
        receiver: &R,
        limit: u32,
    ) -> Result<(), TransportError> {
        match receiver.set_limit(limit).await {
            Ok(()) => {
                self.state.send_if_modified(|state| {
                    if let Some(retry) = &mut state.retry {
                        retry.at = None;
                    }
                    false
                });
                Ok(())
            }
            Err(error) => self.refused(error),
        }
    }

    fn refused(&self, error: TransportError) -> Result<(), TransportError> {
        if is_the_end(error.kind(), self.state.borrow().has_received) {
            return Err(error);
        }
        self.state.send_if_modified(|state| {
            let tries = state.retry.map_or(1, |retry| retry.tries.saturating_add(1));
            state.retry =
                Some(Retry { tries, at: Some(Instant::now() + backoff::wait(tries, fastrand::u64(..))) });
            false
        });
        self.interrupted(&error, false);
        Ok(())
    }

    /// Ends the span of the interruption, if there is one.
    pub(super) fn end(&self) {
        *self.span() = None;
    }

    fn span(&self) -> MutexGuard<'_, Option<Span>> {
        self.span.lock()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn error(kind: TransportErrorKind) -> TransportError {
        TransportError::new(kind, "the entity is disabled")
    }

    fn reception(give_up_after: Option<Duration>) -> Arc<Reception> {
        let health = watch::Sender::new(HealthState::new());
        Reception::new("orders", &Observers::default(), health, give_up_after)
    }

    #[test]
    fn only_a_start_is_refused() {
        use TransportErrorKind::{
            Closed, Full, Lost, Other, Topology, Unauthorized, Unreachable, Unsupported,
        };
        for kind in [Topology, Unauthorized, Unsupported] {
            assert!(is_the_end(kind, false) && !is_the_end(kind, true), "{kind:?}");
        }
        for kind in [Full, Lost, Other, Unreachable] {
            assert!(!is_the_end(kind, false) && !is_the_end(kind, true), "{kind:?}");
        }
        assert!(is_the_end(Closed, true));
    }

    #[test]
    fn of_a_consumer_that_receives_in_part_nothing_more_is_said() {
        for is_new in [false, true] {
            assert!(log_line(true, is_new).contains("receiving from the others"));
            assert!(!log_line(false, is_new).contains("queues"));
            assert_eq!(log_line(true, is_new).contains("another reason"), !is_new);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_nobody_gives_up() {
        let reception = reception(None);
        reception.changed(Connection::Whole);
        reception.changed(Connection::Lost(error(TransportErrorKind::Topology)));
        let over = tokio::time::timeout(Duration::from_secs(1_000_000), reception.over(Instant::now())).await;
        assert!(over.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn it_gives_up_after_the_time_and_no_pause_counts() {
        let reception = reception(Some(Duration::from_secs(60)));
        let began = Instant::now();
        reception.changed(Connection::Whole);
        reception.changed(Connection::Lost(error(TransportErrorKind::Unauthorized)));
        tokio::time::advance(Duration::from_secs(50)).await;
        reception.changed(Connection::Lost(error(TransportErrorKind::Topology)));
        assert!(reception.over(began).now_or_never().is_none());
        reception.changed(Connection::Whole);
        reception.changed(Connection::Lost(error(TransportErrorKind::Topology)));
        let interrupted = Instant::now();
        tokio::time::advance(Duration::from_secs(30)).await;
        let resumed = Instant::now();
        let over = reception.over(resumed).await;
        assert_eq!(interrupted.elapsed(), Duration::from_secs(90), "it was paused for the first 30 s");
        assert!(matches!(over, ConsumerError::GaveUp { after, .. } if after == Duration::from_secs(60)));
        assert!(over.to_string().contains("the entity is disabled"), "{over}");
    }

    #[tokio::test(start_paused = true)]
    async fn it_does_not_give_up_while_one_of_its_queues_can_be_received_from() {
        let reception = reception(Some(Duration::from_secs(60)));
        let began = Instant::now();
        reception.changed(Connection::Whole);
        reception.changed(Connection::Lost(error(TransportErrorKind::Unreachable)));
        tokio::time::advance(Duration::from_secs(50)).await;
        for _ in 0..3 {
            reception.changed(Connection::Partial(error(TransportErrorKind::Topology)));
            let over = tokio::time::timeout(Duration::from_secs(1000), reception.over(began)).await;
            assert!(over.is_err(), "nothing needs to be delivered for that");
            assert!(reception.receives.load(Ordering::Acquire));
        }
        reception.changed(Connection::Lost(error(TransportErrorKind::Topology)));
        let lost = Instant::now();
        reception.over(began).await;
        assert_eq!(lost.elapsed(), Duration::from_secs(60));
    }

    #[test]
    fn after_the_first_delivery_no_refusal_is_the_end() {
        let reception = reception(None);
        reception.delivered();
        assert!(reception.refused(error(TransportErrorKind::Topology)).is_ok());
        assert!(!reception.receives.load(Ordering::Acquire));
        reception.delivered();
        assert!(reception.receives.load(Ordering::Acquire), "it can receive again");
        assert!(reception.state.borrow().interruption.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_before_the_first_success_is_the_end() {
        let reception = reception(None);
        reception.changed(Connection::Lost(error(TransportErrorKind::Unreachable)));
        assert!(reception.over(Instant::now()).now_or_never().is_none());
        reception.changed(Connection::Lost(error(TransportErrorKind::Topology)));
        let over = reception.over(Instant::now()).now_or_never();
        assert!(matches!(over, Some(ConsumerError::Transport { .. })), "{over:?}");
    }
}
