//! What was handed out and not yet received.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use redrive_core::{Delivery, Message, Origin, TransportError, TransportErrorKind};
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
    /// Of sessions that ended before they were received.
    unreceived: Unreceived,
    phase: Phase,
}

/// As long as nobody receives, sessions may end again and again: no more is kept than so many, or twice what one session had.
const MOST_UNRECEIVED: usize = 1024;

#[derive(Debug, Default)]
enum Unreceived {
    /// Nobody asked yet, and perhaps nobody ever does.
    #[default]
    NotAskedFor,
    These(Vec<Delivery>),
    TooMany,
}

impl Unreceived {
    fn keep(&mut self, stale: impl IntoIterator<Item = Arrived>) {
        let Self::These(kept) = self else { return };
        let before = kept.len();
        kept.extend(stale.into_iter().map(|arrived| {
            let Arrived { message, origin, session, .. } = arrived;
            Delivery::from_origin(message, &origin, SystemTime::now())
                .after_interruptions(session.interruptions())
        }));
        if kept.len() > MOST_UNRECEIVED.max(2 * (kept.len() - before)) {
            *self = Self::TooMany;
        }
    }

    fn deliveries(self) -> Option<Vec<Delivery>> {
        match self {
            Self::NotAskedFor => Some(Vec::new()),
            Self::These(kept) => Some(kept),
            Self::TooMany => None,
        }
    }
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
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Yes, sooner or later.
    #[default]
    Open,
    /// Not until the intake is resumed.
    Drained,
    /// Not until a person did something.
    Failed(TransportErrorKind, String),
    /// Never.
    Closed,
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

    fn next_now(&self) -> Option<Result<Option<Arrived>, TransportError>> {
        let mut state = self.state();
        while let Some(arrived) = state.arrived.pop_front() {
            if arrived.session.is_live() {
                return Some(Ok(Some(arrived)));
            }
            state.unreceived.keep([arrived]);
        }
        match &state.phase {
            Phase::Open => None,
            Phase::Drained | Phase::Closed => Some(Ok(None)),
            Phase::Failed(kind, message) => Some(Err(TransportError::new(*kind, message.clone()))),
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

    pub(crate) fn enter(&self, phase: Phase) {
        self.state().phase = phase;
        self.changed.notify_waiters();
    }

    /// More is to come again, unless it was closed. Answers whether the intake had failed.
    pub(crate) fn reopen(&self) -> bool {
        let mut state = self.state();
        let failed = matches!(state.phase, Phase::Failed(..));
        if state.phase != Phase::Closed {
            state.phase = Phase::Open;
        }
        drop(state);
        self.changed.notify_waiters();
        failed
    }

    /// Waits until nothing more comes in.
    pub(crate) async fn until_drained(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.state().phase != Phase::Open {
                return;
            }
            changed.await;
        }
    }

    /// Takes out what came in an ended session.
    pub(crate) fn forget_stale(&self) {
        let mut state = self.state();
        let (live, stale): (_, VecDeque<_>) =
            state.arrived.drain(..).partition(|arrived| arrived.session.is_live());
        state.arrived = live;
        state.unreceived.keep(stale);
    }

    /// What came in sessions that ended before it was received, since this was asked for the last time; `None`: too many.
    pub(crate) fn take_unreceived(&self) -> Option<Vec<Delivery>> {
        std::mem::replace(&mut self.state().unreceived, Unreceived::These(Vec::new())).deliveries()
    }

    /// Everything that was not received.
    pub(crate) fn take_all(&self) -> Vec<Arrived> {
        self.state().arrived.drain(..).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
