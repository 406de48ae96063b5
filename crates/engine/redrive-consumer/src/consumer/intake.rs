//! The main loop: takes deliveries when the stack is ready for them, and hands them to the workers.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures::FutureExt;
use futures::future::OptionFuture;
use redrive_core::transport::{ReceiptOf, Received, Receiver};
use redrive_core::{Transport, TransportError};
use tokio::task::JoinError;
use tokio::time::{Instant, sleep_until, timeout};

use super::control::{Asked, Control};
use super::give_back::{give_back_one, give_back_unstarted};
use super::health::Change;
use super::isolate::Isolation;
use super::phases::{Job, Phases};
use super::workers::Workers;
use super::{ConsumerError, Event};
use crate::redelivery::Step;
use crate::service::ErasedService;

/// Maximum number of available deliveries that the loop takes before it checks its other events.
const MAX_BATCH: usize = 64;

/// How long a stack is kept ready for a delivery that has not come yet.
const IDLE_AFTER: Duration = Duration::from_millis(20);

/// Runs until somebody asks for the end, or until a fault that cannot be repaired.
pub(super) async fn consume<T: Transport>(
    phases: &Phases<T>,
    control: &Control,
    workers: &mut Workers<Job<ReceiptOf<T>>>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ConsumerError> {
    let isolation = Isolation::begin(phases);
    let resumed_at = Instant::now();
    let mut intake =
        Intake { paused: false, resumed_at, shut: false, next: None, idle: false, taken: None, isolation };
    let ended = take_in(phases, &mut intake, control, workers, shutdown).await;
    intake.give_back(phases).await;
    ended
}

async fn take_in<T: Transport>(
    phases: &Phases<T>,
    intake: &mut Intake<ReceiptOf<T>>,
    control: &Control,
    workers: &mut Workers<Job<ReceiptOf<T>>>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ConsumerError> {
    let broken = |error| ConsumerError::Transport { queue: phases.shared.queue().to_owned(), error };
    let mut end = pin!(async {
        tokio::select! {
            () = shutdown => {}
            () = control.stop_asked() => {}
        }
    });
    let mut asked = control.subscribe();
    // The request may have come before the start.
    asked.mark_changed();
    let (mut trouble, mut on_hold) =
        (phases.settling.trouble.subscribe(), phases.settling.on_hold.subscribe());
    let mut over = pin!(phases.shared.reception.over(intake.resumed_at));
    let concurrency = phases.shared.settings.concurrency;
    loop {
        let most = intake.isolation.most(concurrency, || workers.open(), || phases.settling.on_hold.now());
        let mut room = workers.room(most);
        if room == 0 {
            intake.give_back_reservation(phases);
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
                        Asked::Pause => intake.pause(phases).await,
                        Asked::Run => return intake.resume(phases).await,
                    }
                    Ok(())
                };
                let Some(followed) = unless(end.as_mut(), followed).await else { return Ok(()) };
                followed.map_err(broken)?;
                over.set(phases.shared.reception.over(intake.resumed_at));
            }
            error = &mut over, if !intake.paused => return Err(error),
            () = workers.changed(reap) => {}
            Ok(()) = trouble.changed() => intake.shut_while(*trouble.borrow_and_update() > 0, phases),
            // A delivery on hold has no running handler: then a suspect that waits for the others may have room.
            Ok(()) = on_hold.changed(), if intake.isolation.waits() => {}
            () = phases.settling.held.notified(), if intake.open() => {
                let Some(held) = unless(end.as_mut(), intake.isolation.held(phases)).await else { return Ok(()) };
                held.map_err(broken)?;
            }
            Some(()) = doubted, if intake.open() => {
                let Some(ended) = unless(end.as_mut(), intake.isolation.end(phases)).await else { return Ok(()) };
                ended.map_err(broken)?;
            }
            taken = intake.take(phases, room > 0), if (room > 0 || intake.isolation.waits()) && intake.open() => {
                let mut taken = taken;
                for left in (0..MAX_BATCH).rev() {
                    // Somebody else closed the transport.
                    let Some((ready, received)) = taken? else { return Ok(()) };
                    let isolation = &mut intake.isolation;
                    let (step, received) = if isolation.ordinary(phases, &received.delivery) {
                        (Step::Handle, Some((received, None)))
                    } else {
                        workers.call();
                        let sorting = isolation.sort(phases, received);
                        let Some(sorted) = unless(end.as_mut(), sorting).await else { return Ok(()) };
                        sorted
                    };
                    if let Some((received, alone)) = received {
                        workers.hand((ready, received, alone));
                    }
                    if let Step::Widen { suspects } = step {
                        workers.call();
                        let widening = isolation.widen(phases, suspects);
                        let Some(widened) = unless(end.as_mut(), widening).await else { return Ok(()) };
                        widened.map_err(broken)?;
                    }
                    let most = isolation.most(concurrency, || workers.open(), || phases.settling.on_hold.now());
                    // There is at least as much room as before, less one; other jobs may have ended since.
                    room = if most == concurrency && room > 1 { room - 1 } else { workers.room(most) };
                    // Every delivery taken must go to a worker: the last round takes none.
                    if left == 0 || room == 0 || !intake.open() {
                        break;
                    }
                    match intake.take(phases, true).now_or_never() {
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
        phases: &Phases<T>,
        room: bool,
    ) -> Result<Option<(ErasedService, Received<R>)>, ConsumerError> {
        let reserves = phases.shared.settings.reserves;
        if !self.idle {
            self.ready(phases).await?;
        }
        if self.taken.is_none() {
            let taking = self.isolation.take(phases, room);
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
            let broken = |error| ConsumerError::Transport { queue: phases.shared.queue().to_owned(), error };
            let Some(taken) = taken.map_err(broken)? else { return Ok(None) };
            self.taken = Some(taken);
        }
        if self.idle {
            self.ready(phases).await?;
            self.idle = false;
        }
        Ok(self.next.take().zip(self.taken.take()))
    }

    /// Waits until the stack is ready. Cancel safe.
    async fn ready<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        phases: &Phases<T>,
    ) -> Result<(), ConsumerError> {
        let next = self.next.get_or_insert_with(|| phases.stacks.take());
        let ready = phases.stacks.ready(next).await;
        ready.map_err(|error| ConsumerError::Layer { queue: phases.shared.queue().to_owned(), error })
    }

    /// Gives back what the next stack has reserved: no delivery is taken for now.
    fn give_back_reservation<T: Transport<Receiver: Receiver<Receipt = R>>>(&mut self, phases: &Phases<T>) {
        if phases.shared.settings.reserves && self.next.take().is_some() {
            phases.stacks.end_wait();
        }
    }

    /// Gives back the deliveries that it holds.
    async fn give_back<T: Transport<Receiver: Receiver<Receipt = R>>>(&mut self, phases: &Phases<T>) {
        self.isolation.give_back_kept(phases).await;
        if let Some(taken) = self.taken.take() {
            give_back_one(phases, taken).await;
        }
    }

    async fn pause<T: Transport<Receiver: Receiver<Receipt = R>>>(&mut self, phases: &Phases<T>) {
        if self.paused {
            return;
        }
        self.paused = true;
        self.give_back_reservation(phases);
        self.give_back(phases).await;
        give_back_unstarted(phases).await;
        let queue = phases.shared.queue();
        tracing::info!(queue, "intake paused by request");
        phases.shared.note(&Change::Paused);
        phases.shared.tell(&Event::Paused { queue });
    }

    async fn resume<T: Transport<Receiver: Receiver<Receipt = R>>>(
        &mut self,
        phases: &Phases<T>,
    ) -> Result<(), TransportError> {
        if !self.paused {
            return Ok(());
        }
        if let Some(limit) = self.isolation.limit() {
            phases.shared.reception.set_limit(&phases.shared.receiver, limit).await?;
        }
        self.paused = false;
        self.resumed_at = Instant::now();
        let queue = phases.shared.queue();
        tracing::info!(queue, "intake resumed by request");
        phases.shared.note(&Change::Resumed);
        phases.shared.tell(&Event::Resumed { queue });
        Ok(())
    }

    fn shut_while<T: Transport<Receiver: Receiver<Receipt = R>>>(&mut self, shut: bool, phases: &Phases<T>) {
        if shut == self.shut {
            return;
        }
        self.shut = shut;
        let queue = phases.shared.queue();
        if shut {
            self.give_back_reservation(phases);
            tracing::error!(queue, "intake paused: the broker does not store copies");
            phases.shared.note(&Change::Blocked);
            phases.shared.tell(&Event::IntakePaused { queue });
        } else {
            tracing::info!(queue, "intake resumed: the broker stores copies again");
            phases.shared.note(&Change::Unblocked);
            phases.shared.tell(&Event::IntakeResumed { queue });
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
