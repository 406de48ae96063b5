//! The main loop: takes deliveries when the stack is ready for them, and hands them to the workers.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::OptionFuture;
use redrive_core::{ReceiptOf, Received, Receiver, Transport, TransportError};
use tokio::task::JoinError;
use tokio::time::{Instant, sleep_until, timeout};

use super::context::Context;
use super::control::{Asked, Control};
use super::give_back::{give_back_one, give_back_unstarted};
use super::health::Change;
use super::in_flight::Alone;
use super::isolate::Isolation;
use super::suspects::Step;
use super::workers::Workers;
use super::{ConsumerError, Event};
use crate::service::ErasedService;

/// Maximum number of available deliveries that the loop takes before it checks its other events.
const MAX_BATCH: usize = 64;

/// How long a stack is kept ready for a delivery that has not come yet.
const IDLE_AFTER: Duration = Duration::from_millis(20);

/// Runs until somebody asks for the end, or until a fault that cannot be repaired.
pub(super) async fn consume<T: Transport>(
    context: &Arc<Context<T>>,
    control: &Control,
    workers: &mut Workers<Job<ReceiptOf<T>>>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ConsumerError> {
    let isolation = Isolation::begin(context);
    let resumed_at = Instant::now();
    let mut intake =
        Intake { paused: false, resumed_at, shut: false, next: None, idle: false, taken: None, isolation };
    let ended = take_in(context, &mut intake, control, workers, shutdown).await;
    intake.give_back(context).await;
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
    let mut end = pin!(async {
        tokio::select! {
            () = shutdown => {}
            () = control.stop_asked() => {}
        }
    });
    let mut asked = control.subscribe();
    // The request may have come before the start.
    asked.mark_changed();
    let (mut trouble, mut on_hold) = (context.trouble.subscribe(), context.on_hold.subscribe());
    let mut over = pin!(context.reception.over(intake.resumed_at));
    let concurrency = context.settings.concurrency;
    loop {
        let most = intake.isolation.most(concurrency, || workers.open(), || context.on_hold.now());
        let mut room = workers.room(most);
        if room == 0 {
            intake.give_back_reservation(context);
        }
        let doubted = OptionFuture::from(intake.isolation.doubts_until().map(sleep_until));
        tokio::select! {
            biased;
            () = &mut end => return Ok(()),
            Ok(()) = asked.changed() => {
                let wanted = *asked.borrow_and_update();
                let followed = async {
                    match wanted {
                        Asked::Stop => {}
                        Asked::Pause => intake.pause(context).await,
                        Asked::Run => return intake.resume(context).await,
                    }
                    Ok(())
                };
                let Some(followed) = unless(end.as_mut(), followed).await else { return Ok(()) };
                followed.map_err(broken)?;
                over.set(context.reception.over(intake.resumed_at));
            }
            error = &mut over, if !intake.paused => return Err(error),
            () = workers.changed(reap) => {}
            Ok(()) = trouble.changed() => intake.shut_while(*trouble.borrow_and_update() > 0, context),
            // A delivery on hold has no running handler: then a suspect that waits for the others may have room.
            Ok(()) = on_hold.changed(), if intake.isolation.waits() => {}
            () = context.held.notified(), if intake.open() => {
                let Some(held) = unless(end.as_mut(), intake.isolation.held(context)).await else { return Ok(()) };
                held.map_err(broken)?;
            }
            Some(()) = doubted, if intake.open() => {
                let Some(ended) = unless(end.as_mut(), intake.isolation.end(context)).await else { return Ok(()) };
                ended.map_err(broken)?;
            }
            taken = intake.take(context, room > 0), if (room > 0 || intake.isolation.waits()) && intake.open() => {
                let mut taken = taken;
                for left in (0..MAX_BATCH).rev() {
                    // Somebody else closed the transport.
                    let Some((ready, received)) = taken? else { return Ok(()) };
                    let isolation = &mut intake.isolation;
                    let (step, received) = if isolation.ordinary(context, &received.delivery) {
                        (Step::Handle, Some((received, None)))
                    } else {
                        workers.call();
                        let sorting = isolation.sort(context, received);
                        let Some(sorted) = unless(end.as_mut(), sorting).await else { return Ok(()) };
                        sorted
                    };
                    if let Some((received, alone)) = received {
                        workers.hand((ready, received, alone));
                    }
                    if let Step::Widen { suspects } = step {
                        workers.call();
                        let widening = isolation.widen(context, suspects);
                        let Some(widened) = unless(end.as_mut(), widening).await else { return Ok(()) };
                        widened.map_err(broken)?;
                    }
                    let most = isolation.most(concurrency, || workers.open(), || context.on_hold.now());
                    // There is at least as much room as before, less one; other jobs may have ended since.
                    room = if most == concurrency && room > 1 { room - 1 } else { workers.room(most) };
                    // Every delivery taken must go to a worker: the last round takes none.
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

/// Does what may take the broker many seconds, unless the end is asked for first: its grace period begins at once.
async fn unless<T>(end: Pin<&mut impl Future<Output = ()>>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = end => None,
        done = work => Some(done),
    }
}

/// A delivery, a stack that is ready for it, and the guard held while it is handled alone.
pub(super) type Job<R> = (ErasedService, Received<R>, Alone);

/// State of the intake, between the transport and the workers.
struct Intake<R> {
    /// True while a pause is requested.
    paused: bool,
    /// When the last pause ended, or the start.
    resumed_at: Instant,
    /// True while copies cannot be stored.
    shut: bool,
    /// A clone of the stack that is ready, or becoming ready, for the next delivery.
    next: Option<ErasedService>,
    /// True if no delivery came for a while: then `next` is waited for only when one has come.
    idle: bool,
    /// A delivery that came while the intake was idle, until `next` is ready for it.
    taken: Option<Received<R>>,
    isolation: Isolation<R>,
}

impl<R: Send + 'static> Intake<R> {
    fn open(&self) -> bool {
        !self.paused && !self.shut
    }

    /// Waits until the stack is ready, then receives a delivery: takes no message without room for it. If none comes soon, gives back
    /// what the stack has reserved, for others that share the limits of its layers, and waits for it when a delivery has come.
    /// Cancel safe.
    async fn take<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        context: &Context<T>,
        room: bool,
    ) -> Result<Option<(ErasedService, Received<R>)>, ConsumerError> {
        let reserves = context.settings.reserves;
        if !self.idle {
            self.ready(context).await?;
        }
        if self.taken.is_none() {
            let taking = self.isolation.take(context, room);
            let mut taking = pin!(taking);
            let taken = if reserves && !self.idle {
                match timeout(IDLE_AFTER, taking.as_mut()).await {
                    Ok(taken) => taken,
                    Err(_) => {
                        self.next = None;
                        self.idle = true;
                        taking.await
                    }
                }
            } else {
                taking.await
            };
            let broken = |error| ConsumerError::Transport { queue: context.queue().to_owned(), error };
            let Some(taken) = taken.map_err(broken)? else { return Ok(None) };
            self.taken = Some(taken);
        }
        if self.idle {
            self.ready(context).await?;
            self.idle = false;
        }
        Ok(self.next.take().zip(self.taken.take()))
    }

    /// Waits until the stack is ready. Cancel safe.
    async fn ready<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        context: &Context<T>,
    ) -> Result<(), ConsumerError> {
        let next = self.next.get_or_insert_with(|| context.stack());
        let ready = context.ready(next).await;
        ready.map_err(|error| ConsumerError::Layer { queue: context.queue().to_owned(), error })
    }

    /// Gives back what the next stack has reserved: no delivery is taken for now.
    fn give_back_reservation<T: Transport<Receiver: Receiver<Receipt = R>>>(&mut self, context: &Context<T>) {
        if context.settings.reserves && self.next.take().is_some() {
            context.end_wait_for_readiness();
        }
    }

    /// Gives back the deliveries that it holds.
    async fn give_back<T: Transport<Receiver: Receiver<Receipt = R>>>(&mut self, context: &Context<T>) {
        self.isolation.give_back_kept(context).await;
        if let Some(taken) = self.taken.take() {
            give_back_one(context, taken).await;
        }
    }

    async fn pause<T: Transport<Receiver: Receiver<Receipt = R>>>(&mut self, context: &Context<T>) {
        if self.paused {
            return;
        }
        self.paused = true;
        self.give_back_reservation(context);
        self.give_back(context).await;
        give_back_unstarted(context).await;
        let queue = context.queue();
        tracing::info!(queue, "paused, as asked");
        context.note(&Change::Paused);
        context.tell(&Event::Paused { queue });
    }

    async fn resume<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        context: &Context<T>,
    ) -> Result<(), TransportError> {
        if !self.paused {
            return Ok(());
        }
        if let Some(limit) = self.isolation.limit() {
            context.reception.set_limit(&context.receiver, limit).await?;
        }
        self.paused = false;
        self.resumed_at = Instant::now();
        let queue = context.queue();
        tracing::info!(queue, "resumed, as asked");
        context.note(&Change::Resumed);
        context.tell(&Event::Resumed { queue });
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
            self.give_back_reservation(context);
            tracing::error!(queue, "takes no more messages: copies cannot be stored");
            context.note(&Change::Blocked);
            context.tell(&Event::IntakePaused { queue });
        } else {
            tracing::info!(queue, "takes messages again: copies can be stored");
            context.note(&Change::Unblocked);
            context.tell(&Event::IntakeResumed { queue });
        }
    }
}

/// Logs a worker that panicked. Panics of handlers and layers are caught earlier; this one comes from redrive itself, or from an
/// observer. The dropped receipt gives the message back.
pub(super) fn reap(worker: Result<(), JoinError>) {
    if let Err(error) = worker
        && error.is_panic()
    {
        tracing::error!(%error, "a worker panicked: its message is given back");
    }
}
