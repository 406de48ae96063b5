//! What was handed out and not yet received.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redrive_core::{Received, TransportError, TransportErrorKind};
use tokio::sync::Notify;

use crate::receipt::Receipt;

/// Deliveries between the intakes and the consumer. Credit bounds them.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    arrived: VecDeque<Received<Receipt>>,
    /// One for each intake: more may come from it.
    open: Vec<bool>,
    closed: bool,
    failed: Option<(TransportErrorKind, String)>,
}

impl Inbox {
    /// What is there, in order, and `most` at most; waits for the first. 0 when none is to come. Cancel safe: a delivery leaves
    /// the inbox only when the future is ready.
    pub(crate) async fn receive(
        &self,
        batch: &mut VecDeque<Received<Receipt>>,
        most: usize,
    ) -> Result<usize, TransportError> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(received) = self.receive_now(batch, most) {
                return received;
            }
            changed.await;
        }
    }

    fn receive_now(
        &self,
        batch: &mut VecDeque<Received<Receipt>>,
        most: usize,
    ) -> Option<Result<usize, TransportError>> {
        let mut state = self.state();
        let mut lost = Vec::new();
        let mut count = 0;
        while count < most
            && let Some(received) = state.arrived.pop_front()
        {
            if received.receipt.is_lost() {
                // Its lock ran out in here: it comes again.
                lost.push(received);
            } else {
                batch.push_back(received);
                count += 1;
            }
        }
        let end = match &state.failed {
            _ if count > 0 => Some(Ok(count)),
            _ if state.closed => Some(Ok(0)),
            Some((kind, message)) => Some(Err(TransportError::new(*kind, message.clone()))),
            None => (!state.open.contains(&true)).then_some(Ok(0)),
        };
        drop(state);
        drop(lost);
        end
    }

    pub(crate) fn push(&self, received: Received<Receipt>) {
        self.state().arrived.push_back(received);
        self.changed.notify_waiters();
    }

    /// More may come, from so many intakes, which are told so meanwhile: before it, one could still say that it is drained;
    /// after it, what one that was told says of a failure would be taken for what was before.
    pub(crate) fn open(&self, intakes: usize, tell: impl FnOnce()) {
        let mut state = self.state();
        tell();
        state.open = vec![true; intakes];
        state.failed = None;
    }

    /// No more comes from this intake, until it is opened again: if that is still so, now that nobody can open it.
    pub(crate) fn drained(&self, intake: usize, still: impl FnOnce() -> bool) {
        let mut state = self.state();
        if let Some(open) = state.open.get_mut(intake).filter(|_| still()) {
            *open = false;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// No more comes until a person did something.
    pub(crate) fn fail(&self, error: &TransportError) {
        self.state().failed = Some((error.kind(), error.to_string()));
        self.changed.notify_waiters();
    }

    /// Whether a person has to do something.
    pub(crate) fn has_failed(&self) -> bool {
        self.state().failed.is_some()
    }

    /// Never any more. Answers what was not received.
    pub(crate) fn close(&self) -> Vec<Received<Receipt>> {
        let mut state = self.state();
        state.closed = true;
        let rest = state.arrived.drain(..).collect();
        drop(state);
        self.changed.notify_waiters();
        rest
    }

    /// Waits until nothing more comes in.
    pub(crate) async fn until_drained(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let state = self.state();
                if state.closed || state.failed.is_some() || !state.open.contains(&true) {
                    return;
                }
            }
            changed.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
