//! Receives from an entity without sessions: attaches, grants credit, passes deliveries on, and attaches again after an
//! interruption.

use std::sync::Arc;

use redrive_transport::{LossSignal, ReconnectBackoff};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::arrival::{ArrivalContext, ConsumedEntity, Counts};
use super::inbox::Source;
use crate::connection::LONGEST_BACKOFF;
use crate::error::WireError;
use crate::locks::RenewedLock;
use crate::receipt::InFlightCount;
use crate::topology;
use crate::wire::{Arrived, Wire, WireReceiver};

/// Receives from one of the entities of a transport.
pub(crate) struct Intake {
    consumed: ConsumedEntity,
    source: Source,
    backoff: ReconnectBackoff,
    /// The connection of the last attempt. `None`: there was none.
    wire: Option<Arc<dyn Wire>>,
    /// True from an attach on until the link is drained on request: a lost link loses its deliveries.
    may_be_cut: bool,
    /// False after a failure: the entity is compared with the options before the next attach.
    is_verified: bool,
    retired: Vec<Retired>,
}

/// A link that delivers nothing more. Its deliveries can be released on it until it is closed.
#[derive(Debug)]
pub(crate) struct Retired {
    in_flight: Arc<InFlightCount>,
    /// Dropping this closes the link.
    open: oneshot::Sender<()>,
    watched: JoinHandle<()>,
}

impl Retired {
    /// Watches the link in a task: its handle must know when the broker detaches it, and nobody receives from it any more.
    fn new(in_flight: Arc<InFlightCount>, mut receiver: Box<dyn WireReceiver>) -> Self {
        let (open, closed) = oneshot::channel();
        let watched = tokio::spawn(async move {
            tokio::select! {
                () = receiver.ended() => {}
                _ = closed => receiver.close().await,
            }
        });
        Self { in_flight, open, watched }
    }

    pub(crate) async fn close(self) {
        drop(self.open);
        // If the task panicked, the link is gone.
        let _ = self.watched.await;
    }
}

/// The reason why receiving on a link ended.
enum LinkEnd {
    /// The limit changed, or the transport is closed.
    Requested,
    Interrupted(WireError),
}

impl Intake {
    pub(crate) fn new(consumed: ConsumedEntity, source: Source) -> Self {
        let backoff = ReconnectBackoff::up_to(LONGEST_BACKOFF);
        Self {
            consumed,
            source,
            backoff,
            wire: None,
            may_be_cut: false,
            is_verified: true,
            retired: Vec::new(),
        }
    }

    /// Receives until the transport is closed. Returns the links of deliveries that are still in flight: these can be released
    /// until the links are closed.
    pub(crate) async fn run(mut self) -> Vec<Retired> {
        while let Some(limit) = self.source.wanted().await {
            self.close_emptied().await;
            let began = Instant::now();
            match self.take(limit).await {
                Ok(LinkEnd::Requested) => {}
                Ok(LinkEnd::Interrupted(error)) => {
                    if began.elapsed() > LONGEST_BACKOFF {
                        self.backoff.reset();
                    }
                    self.consumed.shared.locks.signal_interruption();
                    warn!(entity = %self.consumed.path, %error, "interrupted; attaching again");
                    self.again_after(error, limit).await;
                }
                Err(error) => {
                    warn!(entity = %self.consumed.path, %error, "cannot attach; trying again");
                    self.again_after(error, limit).await;
                }
            }
        }
        self.close_emptied().await;
        self.retired
    }

    async fn again_after(&mut self, error: WireError, limit: u32) {
        self.is_verified = false;
        self.consumed.refused(error, self.wire.as_ref()).await;
        self.back_off(limit).await;
    }

    /// Waits after a failure. A change of the limit ends the wait.
    async fn back_off(&mut self, limit: u32) {
        let mut wishes = self.source.wishes();
        tokio::select! {
            () = sleep(self.backoff.next_wait()) => {}
            () = wishes.other_than(limit) => {}
        }
    }

    async fn take(&mut self, limit: u32) -> Result<LinkEnd, WireError> {
        let mut wishes = self.source.wishes();
        self.wire = None;
        let wire = tokio::select! {
            wire = self.consumed.shared.connection.connection() => wire?,
            () = wishes.other_than(limit) => return Ok(LinkEnd::Requested),
        };
        self.wire = Some(Arc::clone(&wire));
        if !self.is_verified {
            // The entity may have been replaced by one that does not fit. A link that is refused would disturb the others.
            topology::fits(&*wire, &self.consumed.path, false).await?;
            self.is_verified = true;
        }
        let mut receiver = wire.receiver(&self.consumed.path).await?;
        let in_flight = Arc::new(InFlightCount::default());
        if let Some(longest) = self.consumed.max_wait_time {
            receiver.set_max_wait(longest);
        }
        let locks = &self.consumed.shared.locks;
        if std::mem::replace(&mut self.may_be_cut, true) | locks.take_loss() {
            // Again, however long the outage or the pause was: what was lost is redelivered from now on.
            locks.signal_interruption();
        }
        receiver.allow(limit).await?;
        info!(entity = %self.consumed.path, limit, "attached");
        let _receiving = self.consumed.shared.locks.receiving(&self.consumed.path);
        // Credit is granted again when more than this many deliveries are settled, not for each one.
        let credit_threshold = limit / 8;
        let mut taken: u32 = 0;
        let mut settled_reported: u32 = 0;
        let end = loop {
            tokio::select! {
                biased;
                () = wishes.other_than(limit) => break LinkEnd::Requested,
                arrived = receiver.next() => match arrived {
                    Ok(arrived) => {
                        // Not when attaching: a link that is always detached at once is not a success.
                        self.backoff.reset();
                        taken = taken.wrapping_add(1);
                        self.accept(arrived, &in_flight, &*receiver);
                    }
                    Err(error) => break LinkEnd::Interrupted(error),
                },
                () = in_flight.freed.notified() => {
                    let settled = taken.wrapping_sub(in_flight.count());
                    if settled.wrapping_sub(settled_reported) > credit_threshold {
                        settled_reported = settled;
                        receiver.allow(limit.saturating_sub(in_flight.count())).await?;
                    }
                }
                () = wire.ended() => break LinkEnd::Interrupted(WireError::interrupted("the connection ended")),
            }
        };
        match end {
            LinkEnd::Requested => {
                self.may_be_cut = self.drain(&mut *receiver, &in_flight).await.is_err();
                self.retired.push(Retired::new(in_flight, receiver));
                Ok(LinkEnd::Requested)
            }
            interrupted => Ok(interrupted),
        }
    }

    /// Stops the broker from delivering, and receives what it has already sent. After an error some of that may be lost.
    async fn drain(
        &self,
        receiver: &mut dyn WireReceiver,
        in_flight: &Arc<InFlightCount>,
    ) -> Result<(), WireError> {
        receiver.drain().await?;
        while let Some(arrived) = receiver.next_now() {
            self.accept(arrived?, in_flight, receiver);
        }
        Ok(())
    }

    fn accept(&self, arrived: Arrived, in_flight: &Arc<InFlightCount>, receiver: &dyn WireReceiver) {
        let Arrived { lock, tag, message } = arrived;
        let incoming = match message {
            Ok(incoming) => *incoming,
            Err(why) => {
                let (consumed, in_flight) = (self.consumed.clone(), Arc::clone(in_flight));
                tokio::spawn(async move {
                    consumed.dead_letter_undecodable(lock, &why, None).await;
                    // There is no receipt that would wake the intake to grant credit again.
                    in_flight.freed.notify_one();
                });
                return;
            }
        };
        let (options, locks) = (&self.consumed.shared.options, &self.consumed.shared.locks);
        let (handle, lost) = (receiver.handle(), Arc::<LossSignal>::default());
        let held = RenewedLock::new(
            Arc::clone(&self.consumed.path),
            (tag.clone(), Arc::clone(&handle), Arc::clone(&lost)),
            incoming.sequence_number,
            incoming.locked_until,
            options.max_lock_renewal,
        );
        let count = incoming.delivery_count;
        let counts = Counts {
            broker_delivery_count: count.saturating_add(1),
            failures_in_place: if options.hold_lock_up_to.is_some() { count } else { 0 },
        };
        let in_flight = Arc::clone(in_flight);
        let taken = ArrivalContext { lock, tag, handle, lost, in_flight, session: None, counts };
        if count > 0 {
            // An earlier delivery of the message that is still in flight is lost.
            locks.lose_earlier(&self.consumed.path, incoming.sequence_number);
        }
        locks.enter(lock, held);
        self.consumed.deliver(incoming, taken, &self.source);
    }

    /// Closes links that have no delivery in flight.
    async fn close_emptied(&mut self) {
        let is_emptied = |link: &Retired| link.in_flight.count() == 0;
        let (emptied, rest) =
            std::mem::take(&mut self.retired).into_iter().partition::<Vec<_>, _>(is_emptied);
        self.retired = rest;
        for link in emptied {
            link.close().await;
        }
    }
}
