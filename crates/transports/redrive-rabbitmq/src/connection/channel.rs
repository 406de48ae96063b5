//! A channel of the client library, which is closed in order when it is dropped.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::frames::CloseReason;

/// An open channel. The last clone closes it.
///
/// The library closes a channel that is dropped, too. But if the connection ends before the broker has answered to that, it takes
/// this for an error of the connection, and logs it.
#[derive(Clone)]
pub(crate) struct Channel(Arc<Open>);

struct Open {
    channel: lapin::Channel,
    /// For a channel for questions.
    reason: Option<CloseReason>,
    closing: Closing,
}

impl Channel {
    pub(super) fn new(channel: lapin::Channel, reason: Option<CloseReason>, closing: &Closing) -> Self {
        Self(Arc::new(Open { channel, reason, closing: closing.clone() }))
    }

    /// Returns the broker's answer if it closed a channel for questions; otherwise the error of the library.
    pub(super) fn answer(&self, error: lapin::Error) -> lapin::Error {
        self.0.reason.as_ref().and_then(CloseReason::error).unwrap_or(error)
    }
}

impl Deref for Channel {
    type Target = lapin::Channel;

    fn deref(&self) -> &lapin::Channel {
        &self.0.channel
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.channel.status().connected()
            && let Ok(runtime) = Handle::try_current()
        {
            let channel = self.channel.clone();
            // An error means that it has ended otherwise.
            self.closing.add(runtime.spawn(async move { drop(channel.close(200, "OK".into()).await) }));
        }
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.channel.fmt(f)
    }
}

/// The channels of one connection that are being closed. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Closing(Arc<Mutex<Vec<JoinHandle<()>>>>);

impl Closing {
    fn add(&self, closing: JoinHandle<()>) {
        let mut all = self.all();
        all.retain(|closing| !closing.is_finished());
        all.push(closing);
    }

    /// Waits until those that are being closed now have ended.
    pub(super) async fn ended(&self) {
        let all = std::mem::take(&mut *self.all());
        for closing in all {
            let _ = closing.await;
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.0.lock()
    }
}
