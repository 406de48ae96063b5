//! Has the broker hand out one at a time and takes it back again: the acting side of [`suspects`](super::suspects).

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Event;
use super::context::Context;
use super::give_back::{BROKER_TIMEOUT, give_back_unstarted};
use super::in_flight_log::InFlightLog;
use super::in_hand::Alone;
use super::settled_cache::COMES_AGAIN_WITHIN;
use super::suspects::{Rule, Step, Suspicion, Watch};
use crate::delivery::Delivery;
use crate::transport::{Received, Receiver, Transport, TransportError, TransportErrorKind};

/// How long after the start, or the last suspect, what is only doubtful is handled alone. Long enough for most killers to
/// kill; who starts beside messages that were given back in order is slowed down for no longer.
const DOUBTS_FOR: Duration = Duration::from_secs(10);

/// What the loop asks about each delivery. On the way of an ordinary one: two comparisons.
pub(crate) struct Isolation<R> {
    rule: Rule,
    watch: Watch,
    /// More may be in flight than is handled: it matters how many the broker hands out.
    narrows: bool,
    /// How many the broker may hand out at the moment, unless the intake is stopped.
    limit: u32,
    /// Where the next delivery is received; empty in between.
    batch: VecDeque<Received<R>>,
    /// The suspect that is kept until nothing else is in flight, or the patience is over.
    kept: Option<Received<R>>,
    /// Until when handlers that run are waited for.
    patience: Option<Instant>,
    /// Until when what is doubtful is taken for a suspect.
    doubts_until: Instant,
    /// Something doubtful is handled alone, or was the last that was.
    doubts: bool,
    /// Alive while something is handled alone.
    alone: Weak<()>,
    /// The intake is stopped until `kept` has come to an end.
    stopped: bool,
}

impl<R: Send + 'static> Isolation<R> {
    /// Before the first delivery.
    pub(crate) fn begin<T: Transport<Receiver: Receiver<Receipt = R>>>(context: &Context<T>) -> Self {
        let rule = context.rule;
        let narrows = (context.narrowed || !rule.is_off()) && context.settings.needs.prefetch > 1;
        Self {
            rule,
            watch: Watch::new(context.narrowed),
            narrows,
            limit: context.limit_at_first(),
            batch: VecDeque::new(),
            kept: None,
            patience: None,
            doubts_until: Instant::now() + DOUBTS_FOR,
            doubts: false,
            alone: Weak::new(),
            stopped: false,
        }
    }

    /// How many deliveries may be in flight of workers at the same time. It is asked how many are at the moment, and how many of
    /// these are held without a handler, only where that matters.
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
        // What outlived the patience goes on, and one at a time is handled beside it.
        if self.waits() { held() + 1 } else { running() + 1 }
    }

    /// True while handlers that run are waited for: [`take`](Self::take) ends the waiting.
    pub(crate) fn waits(&self) -> bool {
        self.patience.is_some()
    }

    /// Whether handling it changes nothing: it is no suspect, and nobody looks for one.
    pub(crate) fn ordinary<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &self,
        context: &Context<T>,
        delivery: &Delivery,
    ) -> bool {
        self.watch.together()
            && self.rule.ordinary(delivery)
            && !context.ledger.as_ref().is_some_and(InFlightLog::names_any)
    }

    /// For a delivery that is not ordinary: what to do, and the delivery itself unless it is kept for later, with what is to
    /// be held until it has come to an end. When it is to be handled, that is to be begun before [`widen`](Self::widen) is
    /// called.
    pub(crate) async fn sort<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        context: &Context<T>,
        mut received: Received<R>,
    ) -> (Step, Option<(Received<R>, Alone)>) {
        let deaths = context.ledger.as_ref().map_or(0, |ledger| ledger.deaths(&received.delivery));
        if deaths > 0 {
            received.delivery =
                received.delivery.with_broker_delivery_count_of_at_least(deaths.saturating_add(1));
        }
        let delivery = &received.delivery;
        let suspicion = self.suspicion(context, delivery, deaths);
        let suspect = suspicion == Suspicion::Suspect;
        let alone = self.watch.isolates();
        let step = self.watch.arrived(suspicion);
        self.doubts = suspicion == Suspicion::Doubtful && !self.watch.together();
        if suspect {
            self.doubts_until = Instant::now() + DOUBTS_FOR;
        }
        if self.watch.isolates() && !alone {
            announce(context, delivery);
        }
        if step == Step::Isolate {
            self.isolate(context, received).await;
            return (step, None);
        }
        if suspect {
            tracing::warn!(
                queue = context.queue(),
                id = delivery.id(),
                handed_out = delivery.broker_delivery_count(),
                "handled alone: it was handed out before and did not come to an end; should the process die now, this \
                 message is the reason"
            );
            context.counters.suspect();
            context.tell(&Event::Suspect { delivery });
        }
        let alone = (!self.watch.together()).then(Arc::default);
        self.alone = alone.as_ref().map(Arc::downgrade).unwrap_or_default();
        (step, Some((received, alone)))
    }

    /// The next delivery, now that there is room for it or handlers are [waited](Self::waits) for: the kept suspect first.
    /// After it the intake is taken up again, for one delivery at a time: nothing else was in flight beside the suspect.
    /// Cancel safe.
    pub(crate) async fn take<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        context: &Context<T>,
        room: bool,
    ) -> Result<Option<Received<R>>, TransportError> {
        if let Some(until) = self.patience.filter(|_| !room) {
            sleep_until(until).await;
            tracing::warn!(
                queue = context.queue(),
                "handlers still run: what was handed out before is handled one at a time beside them"
            );
        }
        self.patience = None;
        if let Some(kept) = self.kept.take() {
            return Ok(Some(kept));
        }
        if self.stopped {
            take_up_to(context, self.limit).await?;
            self.stopped = false;
        }
        // One for each place in the layers: each has its own limits.
        context.receiver.receive(&mut self.batch, 1).await?;
        Ok(self.batch.pop_front())
    }

    /// A resume that was asked for: how many the broker may hand out now; `None` when the intake stays stopped for now, and is
    /// taken up later.
    pub(crate) fn limit(&self) -> Option<u32> {
        (!self.stopped).then_some(self.limit)
    }

    /// When something doubtful has been handled alone for long enough: [`end`](Self::end) is due.
    pub(crate) fn doubts_until(&self) -> Option<Instant> {
        self.doubts.then_some(self.doubts_until)
    }

    /// Something that was handled alone has come to its end and cannot be settled: it stays in flight, where it fills the only
    /// place. Should another be handled alone by now, that one is waited for.
    pub(crate) async fn held<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        context: &Context<T>,
    ) -> Result<(), TransportError> {
        if self.alone.strong_count() == 0 { self.end(context).await } else { Ok(()) }
    }

    /// The last that was handled alone is not waited for any longer.
    pub(crate) async fn end<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        context: &Context<T>,
    ) -> Result<(), TransportError> {
        let suspects = self.watch.end();
        self.doubts = false;
        self.widen(context, suspects).await
    }

    /// As many as configured are in flight again from now on.
    pub(crate) async fn widen<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        context: &Context<T>,
        suspects: u64,
    ) -> Result<(), TransportError> {
        if suspects > 0 {
            tracing::info!(
                queue = context.queue(),
                suspects,
                "what was handed out before has come to an end: messages are handled side by side again"
            );
            context.tell(&Event::IsolationEnded { suspects });
        }
        if !self.narrows {
            return Ok(());
        }
        self.limit = context.settings.needs.prefetch;
        give_back_unstarted(context).await;
        self.stopped = false;
        take_up_to(context, self.limit).await
    }

    /// Nothing is kept any more.
    pub(crate) async fn give_back_kept<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        context: &Context<T>,
    ) {
        if let Some(kept) = self.kept.take() {
            // Where the release is a copy, it may wait for an alarm to end. Dropped, the receipt gives it back as it is.
            let _ = tokio::time::timeout(BROKER_TIMEOUT, context.release(kept)).await;
        }
    }

    /// Stops the intake and gives back all that no handler has begun with, but this one. Handlers that run may end, within
    /// the grace period: one that takes hours must not hold everything up.
    async fn isolate<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        context: &Context<T>,
        received: Received<R>,
    ) {
        if self.narrows {
            self.limit = 1;
            let given_back = give_back_unstarted(context).await;
            if context.told.facts().counting.releases {
                self.watch.gave_back_copies(given_back);
            }
            self.stopped = true;
        }
        // A grace period without end is a year.
        let patience = context.settings.grace.min(Duration::from_secs(365 * 24 * 3600));
        self.patience = Some(Instant::now() + patience);
        self.kept = Some(received);
    }

    fn suspicion<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &self,
        context: &Context<T>,
        delivery: &Delivery,
        deaths: u32,
    ) -> Suspicion {
        // It is deduplicated: no handler runs.
        if self.rule.is_off() || (delivery.redelivered() && context.knows(delivery)) {
            return Suspicion::None;
        }
        let interrupted =
            || context.told.interrupted_at().is_some_and(|at| at.elapsed() < COMES_AGAIN_WITHIN);
        let pardoned = delivery.redelivered() && interrupted();
        match self.rule.suspicion(delivery, pardoned, deaths) {
            Suspicion::Doubtful if Instant::now() >= self.doubts_until => Suspicion::None,
            suspicion => suspicion,
        }
    }
}

fn announce<T: Transport>(context: &Context<T>, delivery: &Delivery) {
    tracing::warn!(
        queue = context.queue(),
        id = delivery.id(),
        handed_out = delivery.broker_delivery_count(),
        "handed out before and did not come to an end: a process may have died of it; from now on messages are handled one \
         at a time, until one arrives that nobody had in flight"
    );
    context.tell(&Event::IsolationBegan { delivery });
}

/// Closed by somebody else in the meantime, there is nothing to take: receiving says so.
async fn take_up_to<T: Transport>(context: &Context<T>, limit: u32) -> Result<(), TransportError> {
    match context.receiver.set_limit(limit).await {
        Err(error) if error.kind() == TransportErrorKind::Closed => Ok(()),
        other => other,
    }
}
