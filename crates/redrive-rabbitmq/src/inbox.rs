//! What was handed out and not yet received.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use redrive_core::{Delivery, Message, Origin, TransportError};
use tokio::sync::Notify;

use crate::session::Session;

/// Deliveries between the intake and the consumer. The broker's prefetch bounds them. Those of an ended session come again:
/// they are kept only to tell which they were.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    arrived: VecDeque<Arrived>,
    /// Of sessions that ended before they were received, since the last interruption was told.
    unreceived: Vec<Delivery>,
    phase: Phase,
}

/// What arrived on a channel.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) message: Message,
    /// What the message lacks, because its headers are too large to be read.
    pub(crate) left_out: Option<String>,
    pub(crate) origin: Origin,
    pub(crate) redelivered: bool,
    pub(crate) tag: u64,
    pub(crate) session: Arc<Session>,
}

/// Whether more will come.
#[derive(Debug, Default)]
pub(crate) enum Phase {
    /// Yes, sooner or later.
    Open,
    /// Not until deliveries are wanted.
    #[default]
    Drained,
    /// Not until a person did something.
    Failed(TransportError),
    /// Never: the intake panicked. The error says so.
    Panicked(TransportError),
    /// Never.
    Closed,
}

impl Arrived {
    /// As it is told when it comes again.
    fn unreceived(self) -> Delivery {
        Delivery::from_origin(self.message, &self.origin, SystemTime::now())
            .after_interruptions(self.session.interruptions())
    }
}

impl State {
    fn pop(&mut self) -> Option<Arrived> {
        while let Some(arrived) = self.arrived.pop_front() {
            if arrived.session.is_live() {
                return Some(arrived);
            }
            self.unreceived.push(arrived.unreceived());
        }
        None
    }
}

impl Inbox {
    /// The next delivery; `None` when none is to come. Cancel safe: it leaves the inbox only when it is returned.
    pub(crate) async fn next(&self) -> Result<Option<Arrived>, TransportError> {
        loop {
            if let Some(next) = self.next_now() {
                return next;
            }
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(next) = self.next_now() {
                return next;
            }
            changed.await;
        }
    }

    /// What is there already, if anything.
    pub(crate) fn another(&self) -> Option<Arrived> {
        self.state().pop()
    }

    fn next_now(&self) -> Option<Result<Option<Arrived>, TransportError>> {
        let mut state = self.state();
        if let Some(arrived) = state.pop() {
            return Some(Ok(Some(arrived)));
        }
        match &state.phase {
            Phase::Open => None,
            Phase::Drained | Phase::Closed => Some(Ok(None)),
            Phase::Failed(error) | Phase::Panicked(error) => Some(Err(error.clone())),
        }
    }

    pub(crate) fn push(&self, arrived: impl IntoIterator<Item = Arrived>) {
        let was_empty = {
            let mut state = self.state();
            let was_empty = state.arrived.is_empty();
            state.arrived.extend(arrived);
            was_empty
        };
        // As long as there is one nobody waits.
        if was_empty {
            self.changed.notify_waiters();
        }
    }

    /// Only [`Phase::Closed`] follows a panic of the intake.
    pub(crate) fn enter(&self, phase: Phase) {
        let mut state = self.state();
        if !matches!(state.phase, Phase::Panicked(_)) || matches!(phase, Phase::Closed) {
            state.phase = phase;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// More is to come again, unless it was closed. Answers whether the intake had failed, and waits to be woken.
    ///
    /// # Errors
    ///
    /// When the intake panicked: nothing takes deliveries any more.
    pub(crate) fn reopen(&self) -> Result<bool, TransportError> {
        let mut state = self.state();
        let failed = match &state.phase {
            Phase::Panicked(error) => return Err(error.clone()),
            Phase::Closed => return Ok(false),
            phase => matches!(phase, Phase::Failed(_)),
        };
        state.phase = Phase::Open;
        drop(state);
        self.changed.notify_waiters();
        Ok(failed)
    }

    /// Waits until nothing more comes in.
    pub(crate) async fn until_drained(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if !matches!(self.state().phase, Phase::Open) {
                return;
            }
            changed.await;
        }
    }

    #[cfg(test)]
    pub(crate) fn is_drained(&self) -> bool {
        matches!(self.state().phase, Phase::Drained)
    }

    /// Takes out what came in an ended session.
    pub(crate) fn forget_stale(&self) {
        let mut state = self.state();
        let (live, stale): (_, VecDeque<_>) =
            state.arrived.drain(..).partition(|arrived| arrived.session.is_live());
        state.arrived = live;
        state.unreceived.extend(stale.into_iter().map(Arrived::unreceived));
    }

    /// What came in sessions that ended before it was received, since this was asked for the last time.
    pub(crate) fn take_unreceived(&self) -> Vec<Delivery> {
        self.forget_stale();
        std::mem::take(&mut self.state().unreceived)
    }

    /// Everything that was not received.
    pub(crate) fn take_all(&self) -> Vec<Arrived> {
        self.state().arrived.drain(..).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
