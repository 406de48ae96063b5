//! A connection that is up, or was.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lapin::{Channel, Connection, ErrorKind};
use redrive_core::TransportError;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::asking::{answered_while, answered_within_reason};
use crate::error;
use crate::version::Version;

/// A connection of one epoch.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) connection: Connection,
    pub(crate) epoch: u64,
    /// The broker's version, when it tells.
    pub(crate) version: Option<Version>,
    /// How many channels were opened on it.
    opened: AtomicU32,
    /// How many numbers of channels are of no more use.
    spoilt: AtomicU32,
    /// Until then the broker takes settlements in. It forgets those that still wait when their channel closes.
    settles_until: Mutex<Option<Instant>>,
}

impl Live {
    pub(super) fn new(connection: Connection, epoch: u64, version: Option<Version>) -> Self {
        Self {
            connection,
            epoch,
            version,
            opened: AtomicU32::new(0),
            spoilt: AtomicU32::new(0),
            settles_until: Mutex::new(None),
        }
    }

    /// A session has ended whose last settlements are still on their way into the queue, for so long at most.
    pub(crate) fn settles_for(&self, rest: Duration) {
        let mut until = self.settles_until();
        *until = (*until).max(Some(Instant::now() + rest));
    }

    /// Waits for the last settlements of sessions that have ended.
    pub(super) async fn settle_down(&self) {
        let until = *self.settles_until();
        if let Some(until) = until.filter(|_| self.is_up()) {
            sleep_until(until).await;
        }
    }

    fn settles_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.settles_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.connection.status().connected()
    }

    /// True while the broker takes no messages, because its memory or disk is full.
    pub(crate) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    /// The broker's answer to what is asked of the connection itself, waited for only as long as it is up.
    pub(crate) async fn answered<T>(
        &self,
        question: impl Future<Output = lapin::Result<T>>,
    ) -> lapin::Result<T> {
        answered_within_reason(answered_while(|| self.is_up(), Duration::ZERO, question)).await
    }

    /// A new channel; closed when it is dropped.
    pub(crate) async fn channel(&self) -> Result<Channel, TransportError> {
        for _ in 0..=u16::MAX {
            self.opened.fetch_add(1, Ordering::Relaxed);
            match self.answered(self.connection.create_channel()).await {
                Ok(channel) => return Ok(channel),
                // The broker closed an earlier channel of this number, and the client library (lapin 4.12) gives the reason
                // of then for the new one too. It does not use the number again.
                Err(error) if self.is_up() && error::is_about_a_channel(&error) => {
                    self.spoilt.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(self.no_channel(error).await),
            }
        }
        Err(error::no_number())
    }

    async fn no_channel(&self, error: lapin::Error) -> TransportError {
        if !matches!(error.kind(), ErrorKind::ChannelsLimitReached) {
            return error::interrupted("cannot open a channel", error);
        }
        let spoilt = self.spoilt.load(Ordering::Relaxed);
        if spoilt > 0 {
            warn!(spoilt, "no channel number is left on the connection to RabbitMQ: making a new one");
            // Where that fails it is gone already.
            let _ = self.answered(self.connection.close(200, "no channel number is left".into())).await;
        }
        error::no_number()
    }

    /// True when so many channels were opened that a number could come up a second time.
    pub(super) fn is_worn(&self) -> bool {
        let numbers = u32::from(self.connection.configuration().channel_max());
        self.opened.load(Ordering::Relaxed) >= (numbers / 2).max(1)
    }

    /// The largest frame agreed on; 0 means any size.
    pub(crate) fn frame_max(&self) -> u32 {
        self.connection.configuration().frame_max()
    }
}
