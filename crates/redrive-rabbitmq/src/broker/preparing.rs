//! The queues prepared: declared or verified, and compared, at the start and before each subscription that follows an
//! interruption. What is relied on is what was there the last time.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redrive_core::{TransportError, TransportErrorKind};
use tokio::time::Instant;
use tracing::{info, warn};

use super::Broker;
use crate::connection::Live;
use crate::delay::Way;
use crate::error;
use crate::topology::{self, Declared, Part, Task, Topology};

/// Before each further try to declare. A broker that stands still for 5 s gives up a new quorum queue that has no leader yet,
/// and ends the connection with it: measured on 3.10, whose log says `failed to form new cluster`.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2)];

/// When the queues are prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// Or when a copy found one missing. All must be there.
    Start,
    /// Before a subscription that is not the first.
    Again,
}

/// What follows from a part that is not as it must be, or could not be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    End,
    /// The connection that has it may be one of ours that the broker has not missed yet.
    TryAgainLater,
    /// A queue whose node is down is not missing, and loses nothing: a copy for it stays in hand.
    LeaveIt,
    /// After the others: what waits should find its way back whatever becomes of the intake.
    EndAtLast,
}

impl Occasion {
    fn after(self, failed: &TransportError, is_work: bool, is_up: bool) -> Then {
        match (self, failed.kind()) {
            (Self::Start, _) => Then::End,
            (Self::Again, _) if !is_up => Then::End,
            (Self::Again, _) if error::is_held_by_another(failed) => Then::TryAgainLater,
            (Self::Again, TransportErrorKind::Unreachable) if is_work => Then::End,
            (Self::Again, TransportErrorKind::Unreachable) => Then::LeaveIt,
            (Self::Again, _) => Then::EndAtLast,
        }
    }
}

impl Broker {
    /// Declares or verifies the queues; not on the publishing connection, which may be blocked. Tries again where a broker that
    /// could be reached gave up in the middle of it.
    pub(crate) async fn prepare(&self) -> Result<(), TransportError> {
        let _one_at_a_time = self.declaring.lock().await;
        for pause in PAUSES {
            let live = self.asking().await?;
            match self.prepare_on(&live, Occasion::Start).await {
                Err(error) if error.kind() == TransportErrorKind::Unreachable => {
                    warn!(queue = %self.queue(), %error, "the queues are not ready: trying again in {pause:?}");
                    tokio::time::sleep(pause).await;
                }
                done => return done,
            }
        }
        let live = self.asking().await?;
        self.prepare_on(&live, Occasion::Start).await
    }

    /// The same once more: somebody may have replaced a queue, and with it what is believed of it. An error of the kind
    /// `Topology` says that it does not fit; any other, that it could not be found out.
    pub(crate) async fn prepare_again(&self) -> Result<(), TransportError> {
        let _one_at_a_time = self.declaring.lock().await;
        let live = self.asking().await?;
        self.prepare_on(&live, Occasion::Again).await
    }

    /// True when the queues were last prepared for this consuming connection.
    pub(crate) fn is_prepared_for(&self, live: &Live) -> bool {
        self.prepared_in.load(Ordering::Acquire) == live.epoch
    }

    async fn prepare_on(&self, live: &Live, occasion: Occasion) -> Result<(), TransportError> {
        let epoch = self.live().await?.epoch;
        self.note_connection(live);
        let parts = self.parts();
        // Most often there is nothing to do.
        if !topology::all_fit(live, &parts).await? {
            self.prepare_each(live, &parts, occasion).await?;
        }
        #[cfg(feature = "management")]
        self.compare(&parts.iter().map(|(part, _)| part).collect::<Vec<_>>()).await?;
        self.prepared_in.store(epoch, Ordering::Release);
        let parts = parts.len();
        info!(queue = %self.queue(), parts, topology = ?self.options.topology, "queues are there");
        Ok(())
    }

    /// What must be there, in the order in which it is declared.
    fn parts(&self) -> Vec<(Part, Task)> {
        let topology = self.options.topology;
        let task = |declared| match topology {
            _ if declared => Some(Task::Declare),
            Topology::Declare | Topology::Verify => Some(Task::Verify),
            Topology::Nothing => None,
        };
        let ours = task(topology == Topology::Declare);
        let waiting = task(self.options.delay.is_declared(topology));
        let ours = self.plan.queues().into_iter().filter_map(|queue| Some((Part::Queue(queue), ours?)));
        ours.chain(self.mode().parts().into_iter().filter_map(|part| Some((part, waiting?)))).collect()
    }

    /// One by one, and says what is wrong.
    async fn prepare_each(
        &self,
        live: &Live,
        parts: &[(Part, Task)],
        occasion: Occasion,
    ) -> Result<(), TransportError> {
        let mut wrong = Vec::new();
        for (part, task) in parts {
            let Err(error) = self.prepare_part(live, part, *task).await else { continue };
            match occasion.after(&error, part.is_queue(self.queue()), live.is_up()) {
                Then::End => return Err(error),
                Then::TryAgainLater => {
                    return Err(TransportError::new(TransportErrorKind::Unreachable, error.to_string()));
                }
                Then::LeaveIt => {
                    warn!(queue = %self.queue(), %error, "not compared: the intake goes on without");
                }
                Then::EndAtLast => wrong.push(error),
            }
        }
        // What time does not mend comes first.
        wrong.sort_by_key(|error| error.kind() != TransportErrorKind::Topology);
        wrong.into_iter().next().map_or(Ok(()), Err)
    }

    /// Declares what is missing: a spare delay queue that is needed for the first time, or whatever was deleted. Before the start
    /// only the queue that this way leads to: which delay queues will be needed is not known yet.
    pub(super) async fn declare_again(&self, way: &Way) -> Result<(), TransportError> {
        if !self.is_started() {
            let leads_to = |part: &Part| way.exchange.is_empty() && part.is_queue(&way.routing_key);
            let parts = match self.work_parts() {
                work if work.last().is_some_and(leads_to) => work,
                _ => self.plan.queues().into_iter().map(Part::Queue).filter(leads_to).collect(),
            };
            return self.declare_parts(parts).await;
        }
        if let Some(spare) = self.mode().spare(way) {
            info!(queue = way.shown(), "declaring a delay queue for a wait that was not known at the start");
            let _one_at_a_time = self.declaring.lock().await;
            return self.prepare_part(&*self.asking().await?, &spare, Task::Declare).await;
        }
        warn!(queue = way.shown(), "the queue is not there: declaring it");
        self.prepare().await
    }

    /// The work queue, behind the shelf that it dead-letters to: what expires in it would be lost without.
    pub(super) fn work_parts(&self) -> Vec<Part> {
        let names = [&self.plan.names.dead_letters, &self.plan.names.work];
        let queues = self.plan.queues().into_iter().filter(|queue| names.contains(&&queue.name));
        queues.map(Part::Queue).collect()
    }

    /// Declares these, unless they are there by now.
    pub(super) async fn declare_parts(&self, parts: Vec<Part>) -> Result<(), TransportError> {
        let _one_at_a_time = self.declaring.lock().await;
        let live = self.asking().await?;
        let parts: Vec<_> = parts.into_iter().map(|part| (part, Task::Declare)).collect();
        if topology::all_fit(&live, &parts).await? {
            return Ok(());
        }
        for (part, task) in &parts {
            info!(queue = %self.queue(), ?part, "declaring a queue for a publisher");
            self.prepare_part(&live, part, *task).await?;
        }
        Ok(())
    }

    async fn prepare_part(&self, live: &Live, part: &Part, task: Task) -> Result<(), TransportError> {
        if topology::prepare(live, part, task).await? == Declared::SomeQuorumQueueIsNew {
            let mut young_until = self.young_until.lock().unwrap_or_else(PoisonError::into_inner);
            *young_until = Some(Instant::now() + self.options.new_queue_wait);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(occasion: Occasion, kind: TransportErrorKind, is_work: bool) -> Then {
        occasion.after(&TransportError::new(kind, "as the test wants it"), is_work, true)
    }

    #[test]
    fn at_the_start_all_must_be_there() {
        for kind in [TransportErrorKind::Unreachable, TransportErrorKind::Topology] {
            assert_eq!(after(Occasion::Start, kind, false), Then::End);
        }
    }

    #[test]
    fn a_queue_out_of_reach_is_not_missing() {
        let unreachable = TransportErrorKind::Unreachable;
        assert_eq!(after(Occasion::Again, unreachable, false), Then::LeaveIt);
        assert_eq!(after(Occasion::Again, unreachable, true), Then::End, "it is waited for");
        let lost = TransportError::new(unreachable, "the connection ended");
        assert_eq!(Occasion::Again.after(&lost, false, false), Then::End);
    }

    #[test]
    fn what_does_not_fit_ends_it_after_all_others_were_prepared() {
        for kind in [TransportErrorKind::Topology, TransportErrorKind::Unauthorized] {
            assert_eq!(after(Occasion::Again, kind, true), Then::EndAtLast);
        }
    }
}
