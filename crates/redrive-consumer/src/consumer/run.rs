//! The life of a consumer: starts in order, takes deliveries until it is asked to end, and shuts down in order.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, TryFutureExt};
use redrive_core::{Facts, OpenError, ReceiptOf, Receiver, Transport};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tracing::Instrument;

use super::context::Context;
use super::control::Control;
use super::give_back::{BROKER_TIMEOUT, give_back_unstarted};
use super::health::{Change, HealthState, note};
use super::in_flight_log::InFlightLog;
use super::intake::{Job, consume, reap};
use super::preflight::Preflight;
use super::reception::Reception;
use super::signal_state::SignalState;
use super::suspects::Rule;
use super::workers::Workers;
use super::{ConsumerError, Event, Report, Settings, telemetry};
use crate::service::ErasedService;

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
    let context = tokio::select! {
        biased;
        context = starting => context?,
        () = asked_to_end => {
            tracing::info!(queue = transport.queue(), "asked to end before it has started");
            transport.close().await;
            return Ok(Report::default());
        }
    };
    let (stop, stopped) = oneshot::channel::<()>();
    // The loop runs in a task of its own, on the workers' threads: the caller may await on another thread, and every batch of
    // deliveries would then wake a thread.
    let mut loops = JoinSet::new();
    loops.spawn(run_started(context, control, stopped.map(drop)).in_current_span());
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
    context: Context<T>,
    control: Control,
    shutdown: impl Future<Output = ()>,
) -> Result<Report, ConsumerError> {
    let context = Arc::new(context);
    let queue = context.queue();
    tracing::info!(queue, concurrency = context.settings.concurrency, "the consumer takes messages");
    context.note(&Change::Started);
    context.tell(&Event::Started { queue, system: context.system });
    let mut end = EndTold(Some(&*context));
    let working = Arc::clone(&context);
    let mut workers =
        Workers::new(context.settings.concurrency, move |(ready, received, alone): Job<ReceiptOf<T>>| {
            let context = Arc::clone(&working);
            async move { context.work(ready, received, alone).await }
        });
    let ended = consume(&context, &control, &mut workers, shutdown).await;
    match &ended {
        Ok(()) => tracing::info!(queue, "the consumer ends on request"),
        Err(error) => tracing::error!(%error, "the consumer ends"),
    }
    context.note(&Change::Stopping);
    finish(&context, workers).await;
    let report = context.counters.report();
    tracing::info!(queue, ?report, "the consumer has ended");
    end.tell(ended.as_ref().err());
    ended.map(|()| report)
}

/// Guard that tells the end of the consumer once, even if its future is dropped or its loop panics: gauges would stay as they were.
struct EndTold<'a, T: Transport>(Option<&'a Context<T>>);

impl<T: Transport> EndTold<'_, T> {
    fn tell(&mut self, error: Option<&ConsumerError>) {
        if let Some(context) = self.0.take() {
            context.signals.end();
            context.reception.end();
            context.tell(&Event::Stopped { queue: context.queue(), error });
        }
    }
}

impl<T: Transport> Drop for EndTold<'_, T> {
    fn drop(&mut self) {
        if let Some(context) = self.0 {
            tracing::warn!(
                queue = context.queue(),
                "the consumer was dropped before its end: what is in flight is redelivered"
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
) -> Result<Context<T>, ConsumerError> {
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
            "according to the ledger, a process died with these messages: each is handled alone"
        );
    }
    let context = Context::new(transport, (receiver, state), service, settings, rule, ledger, reception);
    if let Err(error) = context.receiver.set_limit(context.limit_at_first()).await {
        context.close().await;
        return Err(ConsumerError::Start { queue, error });
    }
    Ok(context)
}

/// Lets the workers finish within the grace period, then makes them give back, then closes the transport.
async fn finish<T: Transport>(context: &Context<T>, mut workers: Workers<Job<ReceiptOf<T>>>) {
    let finishing = async {
        tokio::join!(give_back_unstarted(context), workers.all_done(reap));
    };
    if timeout(context.settings.grace, finishing).await.is_err() {
        tracing::warn!(
            unfinished = workers.open(),
            "the grace period is over: what still runs is given back"
        );
    }
    context.over.send_replace(true);
    if timeout(BROKER_TIMEOUT, workers.all_done(reap)).await.is_err() {
        workers.abort_all();
        if timeout(ABORT_TIMEOUT, workers.all_done(reap)).await.is_err() {
            tracing::error!(
                blocked = workers.open(),
                "handlers block their threads: they are abandoned, and the broker takes their messages back with the connection"
            );
        }
    }
    if timeout(BROKER_TIMEOUT, context.close()).await.is_err() {
        tracing::warn!("the transport did not close in time");
    }
    // Idle workers hold the ledger too, and the next consumer may need it at once.
    if workers.open() == 0 {
        let _ = timeout(BROKER_TIMEOUT, workers.all_gone()).await;
    }
}
