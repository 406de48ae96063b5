//! State that all deliveries of one consumer share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redrive_core::{
    Delivery, Disposition, Facts, Failure, Planning, Publisher, TraceParent, Transport, panic,
};
use tokio::sync::{Notify, watch};
use tracing::Span;

use super::guarded_count::GuardedCount;
use super::health::{Change, note};
use super::in_flight::InFlight;
use super::in_flight_log::InFlightLog;
use super::losses::Losses;
use super::readiness::Readiness;
use super::reception::Reception;
use super::refusals::Copies;
use super::report::Counters;
use super::settled_cache::SettledCache;
use super::signal_state::SignalState;
use super::suspects::Rule;
use super::{Event, Settings};
use crate::service::ErasedService;

/// State that all deliveries of one consumer share.
pub(crate) struct Context<T: Transport> {
    pub(super) transport: Arc<T>,
    pub(crate) receiver: T::Receiver,
    pub(super) publisher: Publisher,
    pub(crate) signals: Arc<SignalState>,
    /// Name of the broker's system.
    pub(super) system: &'static str,
    pub(crate) settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) settled: Option<Mutex<SettledCache>>,
    pub(super) losses: Mutex<Losses>,
    /// True once any delivery was handled and lost.
    pub(super) any_lost: AtomicBool,
    pub(crate) rule: Rule,
    pub(crate) ledger: Option<InFlightLog>,
    /// Number of deliveries in flight whose copies cannot be stored. While there is one, the intake is shut.
    pub(crate) trouble: GuardedCount,
    /// Notified when a delivery that was handled alone stays in flight unsettled.
    pub(crate) held: Notify,
    /// Number of deliveries that stay in flight after their handlers are done.
    pub(crate) on_hold: GuardedCount,
    pub(super) readiness: Readiness,
    /// The copies that were stored, and those that are refused.
    pub(super) copies: Copies,
    /// True once the grace period of the shutdown is over.
    pub(crate) over: watch::Sender<bool>,
    /// Whether the transport can receive.
    pub(super) reception: Arc<Reception>,
    /// The stack, and clones of it that have finished a call and are reused for the next one.
    pub(super) stacks: Mutex<Vec<ErasedService>>,
}

impl<T: Transport> Context<T> {
    pub(crate) fn new(
        transport: Arc<T>,
        (receiver, signals): (T::Receiver, Arc<SignalState>),
        service: ErasedService,
        settings: Settings,
        rule: Rule,
        ledger: Option<InFlightLog>,
        reception: Arc<Reception>,
    ) -> Self {
        let facts = signals.facts();
        let max_in_flight = facts.limits.in_flight.unwrap_or(0).max(settings.needs.prefetch) as usize;
        Self {
            system: facts.system,
            publisher: transport.publisher(),
            transport,
            receiver,
            signals,
            losses: Mutex::default(),
            any_lost: AtomicBool::new(false),
            rule,
            ledger,
            counters: Counters::default(),
            settled: settings
                .remembered()
                .map(|capacity| Mutex::new(SettledCache::new(capacity, max_in_flight))),
            trouble: GuardedCount::new(),
            held: Notify::new(),
            on_hold: GuardedCount::new(),
            readiness: Readiness::default(),
            copies: Copies::new(),
            over: watch::Sender::new(false),
            reception,
            stacks: Mutex::new(vec![service]),
            settings,
        }
    }

    /// Returns the name of the queue that is consumed.
    pub(crate) fn queue(&self) -> &str {
        self.transport.queue()
    }

    /// Returns how many deliveries the broker may hand out at first. If suspects are possible, that is one: it shows whether
    /// a process died before, and nothing else is in flight until then.
    pub(crate) fn limit_at_first(&self) -> u32 {
        if self.rule.is_off() { self.settings.needs.prefetch } else { 1 }
    }

    pub(super) fn planning<'a>(&self, facts: &'a Facts) -> Planning<'a> {
        let mut planning = Planning::new(self.transport.now(), facts);
        planning.header_budget = self.settings.header_budget;
        planning
    }

    pub(super) fn redacted(&self, disposition: Disposition) -> Disposition {
        let Some(redactor) = &self.settings.redactor else { return disposition };
        // A text must not be written without its redactor.
        let redactor = |text: &str| {
            panic::contained("the redactor", || redactor(text))
                .unwrap_or_else(|| "(withheld: the redactor panicked)".to_owned())
        };
        let redact = |failure: Failure| failure.redacted_by(&redactor);
        match disposition {
            Disposition::Retry(wait, failure) => Disposition::Retry(wait, redact(failure)),
            Disposition::DeadLetter(failure) => Disposition::DeadLetter(redact(failure)),
            Disposition::Park(failure) => Disposition::Park(redact(failure)),
            Disposition::Discard(failure) => Disposition::Discard(redact(failure)),
            other => other,
        }
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        self.settings.observers.tell(event);
    }

    /// Joins the span of a delivery to the trace that its message carries.
    pub(super) fn join(&self, span: &Span, delivery: &Delivery) {
        if let Some(tracer) = self.settings.tracer.as_ref().filter(|_| !span.is_disabled()) {
            panic::contained("the tracer", || tracer.join(span, delivery));
        }
    }

    /// Returns the position of a span in its trace.
    pub(super) fn trace_of(&self, span: &Span) -> Option<TraceParent> {
        let tracer = self.settings.tracer.as_ref().filter(|_| !span.is_disabled())?;
        panic::contained("the tracer", || tracer.context(span)).flatten()
    }

    /// Applies a change to the consumer's health. Returns true if the health changed.
    pub(super) fn note(&self, change: &Change) -> bool {
        note(&self.reception.health, change)
    }

    pub(super) fn tell_settled(
        &self,
        delivery: &Delivery,
        in_flight: &mut InFlight,
        disposition: &Disposition,
    ) {
        self.counters.settled(disposition);
        if !self.settings.observers.is_empty() {
            let handled = std::mem::take(&mut in_flight.handled);
            self.tell(&Event::Settled { delivery, disposition, at: self.transport.now(), handled });
        }
    }

    pub(super) fn lost(&self, delivery: &Delivery, in_flight: &mut InFlight) {
        self.counters.lost();
        let handled = std::mem::take(&mut in_flight.handled);
        self.tell(&Event::Lost { delivery, handled });
    }

    /// Returns a clone of the stack, not ready for a call; preferably one that was [put back](Self::put_back).
    pub(crate) fn stack(&self) -> ErasedService {
        let mut stacks = self.stacks();
        if stacks.len() > 1
            && let Some(spare) = stacks.pop()
        {
            return spare;
        }
        stacks[0].clone()
    }

    /// Takes back a stack that has finished a call. One that may still hold a reservation is dropped instead: a stage or a layer may
    /// have turned the delivery away before the layers inside of it, and what these have reserved would be lost to all others.
    pub(crate) fn put_back(&self, stack: ErasedService) {
        if !self.settings.reserves {
            self.stacks().push(stack);
        }
    }

    fn stacks(&self) -> MutexGuard<'_, Vec<ErasedService>> {
        self.stacks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves once the grace period of the shutdown is over.
    pub(crate) async fn over(&self) {
        // `self` owns the sender: it cannot be gone.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// Closes the transport.
    pub(crate) async fn close(&self) {
        self.transport.close().await;
    }
}
