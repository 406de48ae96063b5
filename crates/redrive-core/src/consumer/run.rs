//! The loop: takes deliveries when the stack is ready for them, and ends in order.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::OptionFuture;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep_until, timeout};
use tracing::Instrument;

use super::context::Context;
use super::control::{Asked, Control};
use super::give_back::{BROKER_TIMEOUT, give_back_unstarted};
use super::in_flight_log::InFlightLog;
use super::in_hand::Alone;
use super::isolate::Isolation;
use super::preflight::Preflight;
use super::signal_state::SignalState;
use super::suspects::{Rule, Step};
use super::workers::Workers;
use super::{ConsumerError, Event, Report, Settings};
use crate::service::ErasedService;
use crate::transport::{Facts, OpenError, ReceiptOf, Received, Receiver, Transport, TransportError};

/// How long handlers that were dropped may take to notice. At an await they notice at once; one that blocks its thread may
/// never do.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// How many deliveries that are there already are taken before anybody else is asked.
const MAX_BATCH: usize = 64;

pub(crate) async fn run<T: Transport>(
    transport: Arc<T>,
    service: ErasedService,
    settings: Settings,
    control: Control,
    shutdown: impl Future<Output = ()>,
) -> Result<Report, ConsumerError> {
    let context = start(transport, service, settings).await?;
    let (stop, stopped) = oneshot::channel::<()>();
    // In a task of its own, on the threads of the workers: whoever waits here may be on another, and every batch of
    // deliveries would wake a thread.
    let mut loops = JoinSet::new();
    loops.spawn(run_started(context, control, stopped.map(drop)).in_current_span());
    let mut ended = pin!(loops.join_next());
    let report = tokio::select! {
        biased;
        report = &mut ended => report,
        () = shutdown => {
            drop(stop);
            ended.await
        }
    };
    match report.map(|report| report.map_err(JoinError::try_into_panic)) {
        Some(Ok(report)) => report,
        Some(Err(Ok(panic))) => resume_unwind(panic),
        // The runtime is being shut down: nobody waits for an answer.
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
    context.tell(&Event::Started { queue });
    let working = Arc::clone(&context);
    let mut workers =
        Workers::new(context.settings.concurrency, move |(ready, received, alone): Job<ReceiptOf<T>>| {
            let context = Arc::clone(&working);
            async move { context.work(ready, received, alone).await }
        });
    let ended = consume(&context, &control, &mut workers, shutdown).await;
    match &ended {
        Ok(()) => tracing::info!(queue, "the consumer ends, as it was asked to"),
        Err(error) => tracing::error!(%error, "the consumer ends"),
    }
    finish(&context, workers).await;
    let report = context.counters.report();
    tracing::info!(queue, ?report, "the consumer has ended");
    context.tell(&Event::Stopped);
    ended.map(|()| report)
}

/// Opens the transport, which refuses what the broker cannot do, and begins to take messages.
async fn start<T: Transport>(
    transport: Arc<T>,
    service: ErasedService,
    settings: Settings,
) -> Result<Context<T>, ConsumerError> {
    let queue = transport.queue().to_owned();
    let refused = |what| ConsumerError::Ledger { queue: queue.clone(), what };
    let ledger = settings.ledger.as_deref().map(InFlightLog::open).transpose().map_err(refused)?;
    let preflight = Arc::new(Preflight::new(&queue, &settings, ledger.is_some()));
    let changed = Arc::clone(&preflight);
    let (told, signals) =
        SignalState::listen(settings.remembered().is_some(), move |facts: &Facts| changed.log(facts));
    let receiver = match transport.open(&settings.needs, signals).await {
        Ok((receiver, facts)) => {
            told.opened(facts);
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
    let facts = told.facts();
    let rule = Rule::of(settings.suspects, &settings.needs, &facts, ledger.is_some());
    let suspects = (rule, !rule.is_off());
    if let (Some(allowed), Some(limit)) = (settings.needs.deliveries_on(&facts), facts.limits.deliveries)
        && settings.needs.deliveries != Some(allowed)
    {
        tracing::info!(
            queue,
            allowed,
            limit,
            "messages are turned away as poison just before the broker takes them away"
        );
    }
    preflight.log(&facts);
    if let Some(named) = ledger.as_ref().map(InFlightLog::counted).filter(|&named| named > 0) {
        tracing::warn!(
            queue,
            named,
            "by its ledger, a process died with these messages: each is handled alone"
        );
    }
    let context = Context::new(transport, (receiver, told), service, settings, suspects, ledger);
    if let Err(error) = context.receiver.set_limit(context.limit_at_first()).await {
        context.close().await;
        return Err(ConsumerError::Start { queue, error });
    }
    Ok(context)
}

/// Until the end is asked for, or something is broken for good.
async fn consume<T: Transport>(
    context: &Arc<Context<T>>,
    control: &Control,
    workers: &mut Workers<Job<ReceiptOf<T>>>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ConsumerError> {
    let isolation = Isolation::begin(context);
    let mut intake = Intake { paused: false, shut: false, next: None, isolation };
    let ended = take_in(context, &mut intake, control, workers, shutdown).await;
    intake.isolation.give_back_kept(context).await;
    ended
}

async fn take_in<T: Transport>(
    context: &Arc<Context<T>>,
    intake: &mut Intake<ReceiptOf<T>>,
    control: &Control,
    workers: &mut Workers<Job<ReceiptOf<T>>>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ConsumerError> {
    let broken = |error| ConsumerError::Transport { queue: context.queue().to_owned(), error };
    let mut shutdown = pin!(shutdown);
    let mut asked = control.subscribe();
    // It may have been asked for before the start.
    asked.mark_changed();
    let mut trouble = context.trouble.subscribe();
    let concurrency = context.settings.concurrency;
    loop {
        let most = intake.isolation.most(concurrency, || workers.open(), || context.on_hold.now());
        let mut room = workers.room(most);
        let doubted = OptionFuture::from(intake.isolation.doubts_until().map(sleep_until));
        tokio::select! {
            biased;
            () = &mut shutdown => return Ok(()),
            Ok(()) = asked.changed() => {
                let wanted = *asked.borrow_and_update();
                match wanted {
                    Asked::Stop => return Ok(()),
                    Asked::Pause => intake.pause(context).await,
                    Asked::Run => intake.resume(context).await.map_err(broken)?,
                }
            }
            () = workers.changed(reap) => {}
            Ok(()) = trouble.changed() => intake.shut_while(*trouble.borrow_and_update() > 0, context),
            () = context.held.notified(), if intake.open() => intake.isolation.held(context).await.map_err(broken)?,
            Some(()) = doubted, if intake.open() => intake.isolation.end(context).await.map_err(broken)?,
            // A place in the layers that the idle intake holds is for who has a message.
            () = context.stack_wanted.notified() => intake.next = None,
            taken = intake.take(context, room > 0), if (room > 0 || intake.isolation.waits()) && intake.open() => {
                let mut taken = taken;
                for left in (0..MAX_BATCH).rev() {
                    // Closed by somebody else.
                    let Some((ready, received)) = taken? else { return Ok(()) };
                    let isolation = &mut intake.isolation;
                    let (step, received) = if isolation.ordinary(context, &received.delivery) {
                        (Step::Handle, Some((received, None)))
                    } else {
                        workers.call();
                        isolation.sort(context, received).await
                    };
                    if let Some((received, alone)) = received {
                        workers.hand((ready, received, alone));
                    }
                    if let Step::Widen { suspects } = step {
                        workers.call();
                        isolation.widen(context, suspects).await.map_err(broken)?;
                    }
                    let most = isolation.most(concurrency, || workers.open(), || context.on_hold.now());
                    // There is no less room than was found; others may have ended since.
                    room = if most == concurrency && room > 1 { room - 1 } else { workers.room(most) };
                    // What is taken is handed to a worker: nothing is taken in the last turn.
                    if left == 0 || room == 0 || !intake.open() {
                        break;
                    }
                    match intake.take(context, true).now_or_never() {
                        Some(next) => taken = next,
                        None => break,
                    }
                }
                workers.call();
            }
        }
    }
}

/// A delivery, a stack that is ready for it, and what is held while it is handled alone.
type Job<R> = (ErasedService, Received<R>, Alone);

/// What stands between the transport and the workers.
struct Intake<R> {
    /// As asked.
    paused: bool,
    /// While copies cannot be stored.
    shut: bool,
    /// A clone of the stack that is, or is becoming, ready for the next delivery.
    next: Option<ErasedService>,
    isolation: Isolation<R>,
}

impl<R: Send + 'static> Intake<R> {
    fn open(&self) -> bool {
        !self.paused && !self.shut
    }

    /// Takes no message that there is no room for: first the stack is ready, then a delivery is received. Cancel safe.
    async fn take<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        context: &Context<T>,
        room: bool,
    ) -> Result<Option<(ErasedService, Received<R>)>, ConsumerError> {
        let queue = || context.queue().to_owned();
        let next = self.next.get_or_insert_with(|| context.stack());
        next.ready().await.map_err(|error| ConsumerError::Layer { queue: queue(), error })?;
        let received = self.isolation.take(context, room).await;
        let received = received.map_err(|error| ConsumerError::Transport { queue: queue(), error })?;
        Ok(received.and_then(|received| self.next.take().map(|ready| (ready, received))))
    }

    async fn pause<T: Transport<Receiver: Receiver<Receipt = R>>>(&mut self, context: &Context<T>) {
        if self.paused {
            return;
        }
        self.paused = true;
        // What is ready holds permits of the layers.
        self.next = None;
        self.isolation.give_back_kept(context).await;
        give_back_unstarted(context).await;
        tracing::info!(queue = context.queue(), "paused, as asked");
    }

    async fn resume<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        context: &Context<T>,
    ) -> Result<(), TransportError> {
        if !self.paused {
            return Ok(());
        }
        if let Some(limit) = self.isolation.limit() {
            context.receiver.set_limit(limit).await?;
        }
        self.paused = false;
        tracing::info!(queue = context.queue(), "resumed, as asked");
        Ok(())
    }

    fn shut_while<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        shut: bool,
        context: &Context<T>,
    ) {
        if shut == self.shut {
            return;
        }
        self.shut = shut;
        let queue = context.queue();
        if shut {
            self.next = None;
            tracing::error!(queue, "takes no more messages: copies cannot be stored");
            context.tell(&Event::IntakePaused);
        } else {
            tracing::info!(queue, "takes messages again: copies can be stored");
            context.tell(&Event::IntakeResumed);
        }
    }
}

/// Lets the workers finish within the grace period, then has them give back, then parts from the broker.
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
                "handlers block their threads: they are left behind, and their messages go back with the connection"
            );
        }
    }
    if timeout(BROKER_TIMEOUT, context.close()).await.is_err() {
        tracing::warn!("the transport did not close in time");
    }
    // Those that wait for a job hold the ledger, and whoever runs the next consumer may want it at once.
    if workers.open() == 0 {
        let _ = timeout(BROKER_TIMEOUT, workers.all_gone()).await;
    }
}

/// Handlers and layers cannot bring a worker down; this would be our own fault, or an observer's. The message is given
/// back by its receipt.
fn reap(worker: Result<(), JoinError>) {
    if let Err(error) = worker
        && error.is_panic()
    {
        tracing::error!(%error, "a worker panicked: its message is given back");
    }
}
