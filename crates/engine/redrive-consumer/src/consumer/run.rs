//! The life of a consumer: starts in order, takes deliveries until it is asked to end, and shuts down in order.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, TryFutureExt};
use redrive_core::transport::{Facts, OpenError, ReceiptOf, Receiver};
use redrive_core::{Transport, TransportError};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tracing::Instrument;

use super::control::Control;
use super::give_back::{BROKER_TIMEOUT, give_back_unstarted};
use super::health::{Change, HealthState, note};
use super::intake::{consume, reap};
use super::phases::{Job, Phases};
use super::preflight::Preflight;
use super::reception::Reception;
use super::workers::Workers;
use super::{ConsumerError, Event, Report, Settings, telemetry};
use crate::redelivery::{InFlightLog, Rule};
use crate::service::ErasedService;
use crate::signal_state::SignalState;

/// Time that dropped handlers get to stop. A handler stops at its next await; one that blocks its thread may never stop.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) async fn run<T: Transport>(
    transport: Arc<T>,
    service: ErasedService,
    settings: Settings,
    control: Control,
    shutdown: impl Future<Output = ()>,
) -> Result<Report, ConsumerError> {
    let mut end = EndNoted { health: control.health().clone(), error: None };
    let ended = run_to_end(transport, service, settings, control, shutdown).await;
    end.error = ended.as_ref().err().map(ToString::to_string);
    ended
}

/// Guard that records the end of the consumer, even if its future is dropped.
struct EndNoted {
    health: watch::Sender<HealthState>,
    error: Option<String>,
}

impl Drop for EndNoted {
    fn drop(&mut self) {
        let panicked = || std::thread::panicking().then(|| "the consumer panicked".to_owned());
        let error = self.error.take().or_else(panicked);
        note(&self.health, &Change::Ended(error));
    }
}

async fn run_to_end<T: Transport>(
    transport: Arc<T>,
    service: ErasedService,
    settings: Settings,
    control: Control,
    shutdown: impl Future<Output = ()>,
) -> Result<Report, ConsumerError> {
    let mut shutdown = pin!(shutdown);
    let start_span = telemetry::start_span(transport.queue());
    let starting = start(Arc::clone(&transport), service, settings, control.health().clone())
        .inspect_err(|error| telemetry::start_failed(&start_span, error))
        .instrument(start_span.clone());
    let asked_to_end = async {
        tokio::select! {
            () = &mut shutdown => {}
            () = control.stop_asked() => {}
        }
    };
    let phases = tokio::select! {
        biased;
        phases = starting => phases?,
        () = asked_to_end => {
            tracing::info!(queue = transport.queue(), "shutdown requested during startup");
            transport.close().await;
            return Ok(Report::default());
        }
    };
    let (stop, stopped) = oneshot::channel::<()>();
    // The loop runs in a task of its own, on the workers' threads: the caller may await on another thread, and every batch of
    // deliveries would then wake a thread.
    let mut loops = JoinSet::new();
    loops.spawn(run_started(phases, control, stopped.map(drop)).in_current_span());
    let mut ended = pin!(loops.join_next());
    let report = tokio::select! {
        biased;
        report = &mut ended => report,
        () = &mut shutdown => {
            drop(stop);
            ended.await
        }
    };
    match report.map(|report| report.map_err(JoinError::try_into_panic)) {
        Some(Ok(report)) => report,
        Some(Err(Ok(panic))) => resume_unwind(panic),
        // The runtime is shutting down: nobody waits for a result.
        Some(Err(Err(_))) | None => std::future::pending().await,
    }
}

async fn run_started<T: Transport>(
    phases: Phases<T>,
    control: Control,
    shutdown: impl Future<Output = ()>,
) -> Result<Report, ConsumerError> {
    let queue = phases.shared.queue();
    tracing::info!(queue, concurrency = phases.shared.settings.concurrency, "the consumer started");
    phases.shared.note(&Change::Started);
    phases.shared.tell(&Event::Started { queue, system: phases.shared.system });
    let mut end = EndTold(Some(&phases));
    let attempts = Arc::clone(&phases.attempts);
    let mut workers = Workers::new(
        phases.shared.settings.concurrency,
        move |(ready, received, alone): Job<ReceiptOf<T>>| {
            let attempts = Arc::clone(&attempts);
            async move { attempts.work(ready, received, alone).await }
        },
    );
    let ended = consume(&phases, &control, &mut workers, shutdown).await;
    match &ended {
        Ok(()) => tracing::info!(queue, "shutdown requested: the consumer ends"),
        Err(error) => tracing::error!(%error, "the consumer ends"),
    }
    phases.shared.note(&Change::Stopping);
    finish(&phases, workers).await;
    let report = phases.shared.counters.report();
    tracing::info!(queue, ?report, "the consumer has ended");
    end.tell(ended.as_ref().err());
    ended.map(|()| report)
}

/// Guard that tells the end of the consumer once, even if its future is dropped or its loop panics: gauges would stay as they were.
struct EndTold<'a, T: Transport>(Option<&'a Phases<T>>);

impl<T: Transport> EndTold<'_, T> {
    fn tell(&mut self, error: Option<&ConsumerError>) {
        if let Some(phases) = self.0.take() {
            phases.shared.signals.end();
            phases.shared.reception.end();
            phases.shared.tell(&Event::Stopped { queue: phases.shared.queue(), error });
        }
    }
}

impl<T: Transport> Drop for EndTold<'_, T> {
    fn drop(&mut self) {
        if let Some(phases) = self.0 {
            tracing::warn!(
                queue = phases.shared.queue(),
                "the consumer was dropped while running: messages in flight are redelivered"
            );
            self.tell(None);
        }
    }
}

/// Opens the transport, which refuses what the broker cannot do, and starts to take messages.
async fn start<T: Transport>(
    transport: Arc<T>,
    service: ErasedService,
    settings: Settings,
    health: watch::Sender<HealthState>,
) -> Result<Phases<T>, ConsumerError> {
    let queue = transport.queue().to_owned();
    let refused = |what| ConsumerError::Ledger { queue: queue.clone(), what };
    let ledger = settings.ledger.as_deref().map(InFlightLog::open).transpose().map_err(refused)?;
    let preflight = Arc::new(Preflight::new(&queue, &settings, ledger.is_some()));
    let changed = Arc::clone(&preflight);
    let reception = Reception::new(&queue, &settings.observers, health, settings.give_up_after);
    let watching = Arc::clone(&reception);
    let (state, signals) = SignalState::listen(
        settings.remembered().is_some(),
        move |facts: &Facts| changed.log_change(facts),
        move |connection| watching.changed(connection),
    );
    let receiver = match transport.open(&settings.needs, signals).await {
        Ok((receiver, facts)) => {
            state.opened(facts);
            receiver
        }
        Err(refused) => {
            transport.close().await;
            return Err(match refused {
                OpenError::Refused(unmet) => ConsumerError::Refused { queue, unmet },
                OpenError::Failed(error) => ConsumerError::Start { queue, error },
                // A reason of a newer `redrive-core`; its kind and sentence are kept.
                other => {
                    let error = TransportError::new(other.kind(), other.to_string()).with_source(other);
                    ConsumerError::Start { queue, error }
                }
            });
        }
    };
    let facts = state.facts();
    let rule = Rule::of(settings.suspects, &settings.needs, &facts, ledger.is_some());
    if let (Some(allowed), Some(limit)) = (settings.needs.deliveries_on(&facts), facts.limits.deliveries)
        && settings.needs.deliveries != Some(allowed)
    {
        tracing::info!(
            queue,
            allowed,
            limit,
            "messages are rejected as poison just before the broker removes them"
        );
    }
    preflight.log_doubts(&facts);
    if let Some(named) = ledger.as_ref().map(InFlightLog::counted).filter(|&named| named > 0) {
        tracing::warn!(
            queue,
            named,
            "according to the ledger, a process died with these messages in flight: each is handled alone"
        );
    }
    let phases = Phases::new(transport, (receiver, state), service, settings, rule, ledger, reception);
    if let Err(error) = phases.shared.receiver.set_limit(phases.limit_at_first()).await {
        phases.shared.transport.close().await;
        return Err(ConsumerError::Start { queue, error });
    }
    Ok(phases)
}

/// Lets the workers finish within the grace period, then makes them give back, then closes the transport.
async fn finish<T: Transport>(phases: &Phases<T>, mut workers: Workers<Job<ReceiptOf<T>>>) {
    let finishing = async {
        tokio::join!(give_back_unstarted(phases), workers.all_done(reap));
    };
    if timeout(phases.shared.settings.grace, finishing).await.is_err() {
        tracing::warn!(
            unfinished = workers.open(),
            "the grace period is over: unfinished messages are given back"
        );
    }
    phases.shared.over.send_replace(true);
    if timeout(BROKER_TIMEOUT, workers.all_done(reap)).await.is_err() {
        workers.abort_all();
        if timeout(ABORT_TIMEOUT, workers.all_done(reap)).await.is_err() {
            tracing::error!(
                blocked = workers.open(),
                "some handlers block their threads and cannot be stopped: they are abandoned, and the broker redelivers their messages when the connection ends"
            );
        }
    }
    if timeout(BROKER_TIMEOUT, phases.shared.transport.close()).await.is_err() {
        tracing::warn!("the broker connection did not close in time");
    }
    // Idle workers hold the ledger too, and the next consumer may need it at once.
    if workers.open() == 0 {
        let _ = timeout(BROKER_TIMEOUT, workers.all_gone()).await;
    }
}
