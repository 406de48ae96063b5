//! Narrows the broker to one delivery at a time, and widens again: carries out what the [`Watch`] decides.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redrive_core::transport::{Received, Receiver};
use redrive_core::{Delivery, Transport, TransportError, TransportErrorKind, engine};
use tokio::time::{Instant, sleep_until};

use super::Event;
use super::give_back::{give_back_one, give_back_unstarted};
use super::health::Change;
use super::in_flight::Alone;
use super::phases::Phases;
use crate::redelivery::{Step, Suspicion, Watch};

/// How long after the start, or after the last suspect, a doubtful delivery is handled alone. Long enough for most killers to
/// kill. A consumer that starts among messages given back in order is slowed down for no longer than this.
const DOUBTS_FOR: Duration = Duration::from_secs(10);

/// Decides about each delivery for the loop. An ordinary delivery costs two comparisons.
pub(crate) struct Isolation<R> {
    watch: Watch,
    /// True if isolation must also limit what the broker hands out: suspects are possible, and the prefetch is above one.
    limits_intake: bool,
    /// Number of deliveries that the broker may hand out now, unless the intake is stopped.
    limit: u32,
    /// The suspect that is kept until nothing else is in flight, or the wait is over.
    kept: Option<Received<R>>,
    /// Deadline of the wait for running handlers.
    wait_until: Option<Instant>,
    /// Until then, a doubtful delivery is treated as a suspect.
    doubts_until: Instant,
    /// True if a doubtful delivery is being handled alone, or was the last one handled alone.
    doubts: bool,
    /// Alive while a delivery is handled alone.
    alone: Weak<()>,
    /// True while the intake is stopped, until `kept` has come to an end.
    stopped: bool,
    /// True from the announcement of an isolation until its end is told.
    announced: bool,
}

impl<R: Send + 'static> Isolation<R> {
    /// Creates the state before the first delivery.
    pub(crate) fn begin<T: Transport<Receiver: Receiver<Receipt = R>>>(phases: &Phases<T>) -> Self {
        let rule = phases.redelivery.rule();
        Self {
            watch: Watch::new(!rule.is_off()),
            limits_intake: !rule.is_off() && phases.shared.settings.needs.prefetch > 1,
            limit: phases.limit_at_first(),
            kept: None,
            wait_until: None,
            doubts_until: Instant::now() + DOUBTS_FOR,
            doubts: false,
            alone: Weak::new(),
            stopped: false,
            announced: false,
        }
    }

    /// Returns the maximum number of deliveries that workers may have in flight. Calls `running` (how many are in flight now) and
    /// `held` (how many of them have no running handler) only when the answer depends on them.
    pub(crate) fn most(
        &self,
        concurrency: usize,
        running: impl FnOnce() -> usize,
        held: impl FnOnce() -> usize,
    ) -> usize {
        if self.watch.together() {
            return concurrency;
        }
        if self.alone.strong_count() > 0 {
            return 0;
        }
        // Handlers that still run at the deadline go on; one more delivery at a time is handled beside them.
        if self.waits() { held() + 1 } else { running() + 1 }
    }

    /// Returns true while running handlers are waited for: [`take`](Self::take) ends that wait.
    pub(crate) fn waits(&self) -> bool {
        self.wait_until.is_some()
    }

    /// Returns true if the delivery needs no special handling: it is no suspect, and no isolation is in progress.
    pub(crate) fn ordinary<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &self,
        phases: &Phases<T>,
        delivery: &Delivery,
    ) -> bool {
        self.watch.together() && phases.redelivery.ordinary(delivery)
    }

    /// Sorts a delivery that is not ordinary. Returns what to do, and the delivery unless it is kept for later, with the guard to
    /// hold until the delivery has come to an end. If the delivery is to be handled, start that before calling
    /// [`widen`](Self::widen).
    pub(crate) async fn sort<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        phases: &Phases<T>,
        mut received: Received<R>,
    ) -> (Step, Option<(Received<R>, Alone)>) {
        let deaths = phases.redelivery.deaths(&received.delivery);
        if deaths > 0 {
            received.delivery = engine::with_proven_deliveries(received.delivery, deaths.saturating_add(1));
        }
        let delivery = &received.delivery;
        let suspicion = match phases.redelivery.suspicion(delivery, deaths) {
            Suspicion::Doubtful if Instant::now() >= self.doubts_until => Suspicion::None,
            suspicion => suspicion,
        };
        let suspect = suspicion == Suspicion::Suspect;
        let alone = self.watch.isolates();
        let step = self.watch.arrived(suspicion);
        self.doubts = suspicion == Suspicion::Doubtful && !self.watch.together();
        if suspect {
            self.doubts_until = Instant::now() + DOUBTS_FOR;
        }
        if self.watch.isolates() && !alone {
            announce(phases, delivery);
            self.announced = true;
        }
        if step == Step::Isolate {
            self.isolate(phases, received).await;
            return (step, None);
        }
        if suspect {
            tracing::warn!(
                queue = phases.shared.queue(),
                message_id = delivery.id(),
                delivery_count = delivery.broker_delivery_count(),
                "handled alone: an earlier delivery did not finish; if the process dies now, this \
                 message is the cause"
            );
            phases.shared.counters.suspect();
            phases.shared.tell(&Event::Suspect { delivery });
        }
        let alone = (!self.watch.together()).then(Arc::default);
        self.alone = alone.as_ref().map(Arc::downgrade).unwrap_or_default();
        (step, Some((received, alone)))
    }

    /// Returns the next delivery: the kept suspect first. Call it when there is room, or while handlers are [waited](Self::waits)
    /// for. After the suspect, the intake resumes with one delivery at a time: nothing else was in flight beside the suspect.
    /// Cancel safe.
    pub(crate) async fn take<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        phases: &Phases<T>,
        room: bool,
    ) -> Result<Option<Received<R>>, TransportError> {
        if let Some(until) = self.wait_until.filter(|_| !room) {
            sleep_until(until).await;
            tracing::warn!(
                queue = phases.shared.queue(),
                "handlers still run after the grace period: suspect messages are handled one at a time beside them"
            );
        }
        self.wait_until = None;
        if let Some(kept) = self.kept.take() {
            return Ok(Some(kept));
        }
        if self.stopped {
            take_up_to(phases, self.limit).await?;
            self.stopped = false;
        }
        // One per ready stack: each holds its own permits of the layers.
        phases.shared.reception.receive(&phases.shared.receiver, self.limit).await
    }

    /// Returns how many deliveries the broker may hand out after a requested resume; `None` if the intake stays stopped for now
    /// and resumes later.
    pub(crate) fn limit(&self) -> Option<u32> {
        (!self.stopped).then_some(self.limit)
    }

    /// Returns when a doubtful delivery has been handled alone for long enough: then call [`end`](Self::end).
    pub(crate) fn doubts_until(&self) -> Option<Instant> {
        self.doubts.then_some(self.doubts_until)
    }

    /// Call when a delivery that was handled alone has finished its handler but cannot be settled: it stays in flight and fills
    /// the only place. If another delivery is already handled alone, the consumer waits for that one.
    pub(crate) async fn held<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        phases: &Phases<T>,
    ) -> Result<(), TransportError> {
        if self.alone.strong_count() == 0 { self.end(phases).await } else { Ok(()) }
    }

    /// Stops waiting for the last delivery that was handled alone.
    pub(crate) async fn end<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        phases: &Phases<T>,
    ) -> Result<(), TransportError> {
        let suspects = self.watch.end();
        self.doubts = false;
        self.widen(phases, suspects).await
    }

    /// Allows the configured number of deliveries in flight from now on.
    pub(crate) async fn widen<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        phases: &Phases<T>,
        suspects: u64,
    ) -> Result<(), TransportError> {
        // Not by the number of suspects: one that was given back while it was kept is handled elsewhere.
        if std::mem::take(&mut self.announced) {
            tracing::info!(
                queue = phases.shared.queue(),
                suspects,
                "isolation ended: all suspects are settled, concurrency restored"
            );
            phases.shared.note(&Change::IsolationEnded);
            phases.shared.tell(&Event::IsolationEnded { suspects });
        }
        if !self.limits_intake {
            return Ok(());
        }
        self.limit = phases.shared.settings.needs.prefetch;
        give_back_unstarted(phases).await;
        self.stopped = false;
        take_up_to(phases, self.limit).await
    }

    /// Gives back the kept suspect, if there is one.
    pub(crate) async fn give_back_kept<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        phases: &Phases<T>,
    ) {
        if let Some(kept) = self.kept.take() {
            give_back_one(phases, kept).await;
        }
    }

    /// Stops the intake and gives back every delivery that no handler has begun with, except this one. Running handlers may
    /// finish within the grace period: a handler that takes hours must not block everything.
    async fn isolate<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        phases: &Phases<T>,
        received: Received<R>,
    ) {
        if self.limits_intake {
            self.limit = 1;
            let given_back = give_back_unstarted(phases).await;
            if phases.shared.signals.facts().counting.releases {
                self.watch.gave_back_copies(given_back);
            }
            self.stopped = true;
        }
        // Caps an unlimited grace period at a year.
        let wait = phases.shared.settings.grace.min(Duration::from_secs(365 * 24 * 3600));
        self.wait_until = Some(Instant::now() + wait);
        self.kept = Some(received);
    }
}

fn announce<T: Transport>(phases: &Phases<T>, delivery: &Delivery) {
    tracing::warn!(
        queue = phases.shared.queue(),
        message_id = delivery.id(),
        delivery_count = delivery.broker_delivery_count(),
        "redelivered after an unfinished delivery: a process may have died while handling it; from now on messages are handled one \
         at a time, until a message arrives that was never in flight before"
    );
    phases.shared.note(&Change::Isolated);
    phases.shared.tell(&Event::IsolationBegan { delivery });
}

/// Sets the limit of the receiver. Ignores a transport that somebody else closed meanwhile: the next receive reports it.
async fn take_up_to<T: Transport>(phases: &Phases<T>, limit: u32) -> Result<(), TransportError> {
    match phases.shared.reception.set_limit(&phases.shared.receiver, limit).await {
        Err(error) if error.kind() == TransportErrorKind::Closed => Ok(()),
        other => other,
    }
}
