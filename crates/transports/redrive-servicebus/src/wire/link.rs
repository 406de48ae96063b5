//! A link for sending that many share: no sender that stops waiting harms the others.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use fe2o3_amqp::Sender;
use fe2o3_amqp::link::SendError;
use fe2o3_amqp::link::delivery::{DeliveryFut, Sendable};
use fe2o3_amqp::transaction::{PostError, Transaction};
use fe2o3_amqp_types::messaging::{Body, Outcome};
use futures::FutureExt as _;
use serde_amqp::Value;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::unconstrained;
use tokio::time::{Instant, timeout, timeout_at};

use super::own_session::OwnSession;
use super::read_error;
use super::sending::{self, goes_in_one_frame};
use super::waits::{CLOSE_WAIT, REPLY_WAIT};
use crate::error::{Refusal, WireError};

/// A message to send.
pub(super) type Outgoing = Sendable<Body<Value>>;

/// The outcome of a message that was passed to a link.
pub(super) type Sent = DeliveryFut<Result<Outcome, SendError>>;

/// A link for sending.
pub(super) struct Link {
    state: Mutex<LinkState>,
    session: OwnSession,
}

enum LinkState {
    Idle {
        sender: Box<Sender>,
        /// When a message began to wait for credit, if none was sent since. It outlives a sender that stops waiting: a link on which
        /// every sender stops waiting would never be given up.
        waiting_since: Option<Instant>,
    },
    /// A message of several frames is being passed to the link, and may be sent in part. If its sender stops waiting, the next one
    /// sends the rest first: a part of a message would be taken for the begin of the next one.
    Sending { transfer: Transfer, began: Instant },
    /// Nothing more may be sent.
    Failed,
}

type Transfer = Pin<Box<dyn Future<Output = (Box<Sender>, Result<Sent, SendError>)> + Send>>;

impl Link {
    pub(super) fn new(sender: Sender, session: OwnSession) -> Self {
        let state = LinkState::Idle { sender: Box::new(sender), waiting_since: None };
        Self { state: Mutex::new(state), session }
    }

    /// Returns true if the link must not be used any more: it failed, lets nothing be sent, or the broker detached it, as Azure does
    /// with links that are idle for ten minutes. A link in use is not idle, and its user notices its end.
    pub(super) fn is_ended(&self) -> bool {
        self.state.try_lock().is_ok_and(|mut state| state.is_ended())
    }

    /// Passes a message to the link, and returns a future of its outcome. Cancel safe: nothing is left running. A message of one
    /// frame is sent or not; a larger one that waits, or is sent in part, is kept, and the next call sends it first.
    pub(super) async fn send(&self, message: &Arc<Outgoing>) -> Result<Sent, WireError> {
        let mut state = self.turn().await?;
        if goes_in_one_frame(message) {
            let (sender, waiting_since) = state.sender()?;
            return sending::send(sender, waiting_since, message).await;
        }
        state.begin(Arc::clone(message))?;
        state.finish().await
    }

    /// Passes a message to the link, as [`send`](Self::send) does, within a transaction. Not cancel safe.
    pub(super) async fn post(
        &self,
        transaction: &Transaction<'_>,
        message: &Outgoing,
    ) -> Result<DeliveryFut<Result<Outcome, PostError>>, WireError> {
        let mut state = self.turn().await?;
        let (sender, waiting_since) = state.sender()?;
        let posted = sending::post(transaction, sender, message).await;
        if posted.is_ok() {
            *waiting_since = None;
        }
        if posted.as_ref().is_err_and(|error| error.refusal != Refusal::TooLarge)
            && !goes_in_one_frame(message)
        {
            // It may be sent in part.
            *state = LinkState::Failed;
        }
        posted
    }

    /// Closes the link.
    pub(super) async fn close(self) {
        if let LinkState::Idle { mut sender, .. } = self.state.into_inner()
            && !is_detached(&mut sender)
        {
            let _ = timeout(CLOSE_WAIT, sender.close()).await;
        }
        self.session.end().await;
    }

    /// Waits until nobody else is sending.
    async fn turn(&self) -> Result<MutexGuard<'_, LinkState>, WireError> {
        let mut state = self.state.lock().await;
        if matches!(*state, LinkState::Sending { .. }) {
            // Nobody waits for its outcome, unless it ended the link.
            let finished = state.finish().await;
            if matches!(*state, LinkState::Failed) {
                finished?;
            }
        }
        Ok(state)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl LinkState {
    /// Returns the link, and when a message began to wait for credit on it.
    fn sender(&mut self) -> Result<(&mut Sender, &mut Option<Instant>), WireError> {
        match self {
            Self::Idle { sender, waiting_since } => Ok((sender, waiting_since)),
            Self::Sending { .. } | Self::Failed => Err(ended()),
        }
    }

    fn is_ended(&mut self) -> bool {
        if let Self::Sending { transfer, .. } = self
            && let Some(done) = unconstrained(transfer.as_mut()).now_or_never()
        {
            let _ = self.sent(done);
        }
        match self {
            Self::Idle { sender, waiting_since } => {
                waiting_since.is_some_and(is_stuck) || is_detached(sender)
            }
            Self::Sending { began, .. } => is_stuck(*began),
            Self::Failed => true,
        }
    }

    /// Begins to send a message of several frames.
    fn begin(&mut self, message: Arc<Outgoing>) -> Result<(), WireError> {
        let Self::Idle { mut sender, .. } = std::mem::replace(self, Self::Failed) else {
            return Err(ended());
        };
        let transfer = Box::pin(async move {
            let sent = sender.send_batchable_ref(&*message).await;
            (sender, sent)
        });
        *self = Self::Sending { transfer, began: Instant::now() };
        Ok(())
    }

    /// Waits until the message is sent that was begun, whoever began it. Cancel safe.
    async fn finish(&mut self) -> Result<Sent, WireError> {
        let Self::Sending { transfer, began } = self else { return Err(ended()) };
        // Unconstrained: a used-up task budget must not look like a wait.
        match timeout_at(*began + REPLY_WAIT, unconstrained(transfer.as_mut())).await {
            Ok(done) => self.sent(done),
            Err(_) => {
                *self = Self::Failed;
                Err(sending::no_credit())
            }
        }
    }

    fn sent(&mut self, (sender, sent): (Box<Sender>, Result<Sent, SendError>)) -> Result<Sent, WireError> {
        let sent = sent.map_err(read_error::send);
        let is_usable = sent.as_ref().err().is_none_or(|error| error.refusal == Refusal::TooLarge);
        *self = if is_usable { Self::Idle { sender, waiting_since: None } } else { Self::Failed };
        sent
    }
}

fn is_detached(sender: &mut Sender) -> bool {
    unconstrained(sender.on_detach()).now_or_never().is_some()
}

/// Returns true if a message that began to be sent at this time waits for too long.
fn is_stuck(began: Instant) -> bool {
    began.elapsed() >= REPLY_WAIT
}

fn ended() -> WireError {
    WireError::interrupted("the link ended")
}
