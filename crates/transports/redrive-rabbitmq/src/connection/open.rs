//! One connection, from its opening on.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapin::ErrorKind;
use parking_lot::{Mutex, MutexGuard};
use redrive_core::TransportError;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::channel::{Channel, Closing};
use super::timeouts::{poll_while, within_limit};
use crate::broker::Version;
use crate::error;
use crate::frames::{Opened, OwnChannel, OwnChannels};

/// A connection of one epoch: what belongs to an earlier epoch is stale.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) lapin: lapin::Connection,
    pub(crate) epoch: u64,
    /// The broker's version, if the broker sends it.
    pub(crate) version: Option<Version>,
    channels: OwnChannels,
    closing: Closing,
    /// Dropped with it: the socket is then closed within seconds.
    _wanted: oneshot::Sender<()>,
    /// Number of channels opened on it.
    opened: AtomicU32,
    /// Number of channel numbers that cannot be used again.
    unusable: AtomicU32,
    /// Until then the broker processes settlements. It drops pending ones when their channel closes.
    settles_until: Mutex<Option<Instant>>,
}

impl Connection {
    pub(super) fn new(opened: Opened, epoch: u64) -> Self {
        let Opened { connection, version, channels, wanted } = opened;
        Self {
            lapin: connection,
            epoch,
            version,
            channels,
            closing: Closing::default(),
            _wanted: wanted,
            opened: AtomicU32::new(0),
            unusable: AtomicU32::new(0),
            settles_until: Mutex::new(None),
        }
    }

    /// Returns a channel of the library as one whose messages do not go through it.
    pub(crate) fn own(&self, channel: &Channel) -> OwnChannel {
        self.channels.register(channel.id())
    }

    /// Records the end of a channel whose last settlements reach the queue within this time.
    pub(crate) fn settles_for(&self, rest: Duration) {
        let mut until = self.settles_until();
        *until = (*until).max(Some(Instant::now() + rest));
    }

    /// Waits for the last settlements of channels that have ended, and for their end.
    pub(super) async fn settle_down(&self) {
        let until = *self.settles_until();
        if let Some(until) = until.filter(|_| self.is_up()) {
            sleep_until(until).await;
        }
        self.closing.ended().await;
    }

    fn settles_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.settles_until.lock()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.lapin.status().connected()
    }

    /// Returns true while the broker accepts no messages, because its memory or disk is full.
    pub(crate) fn is_blocked(&self) -> bool {
        self.lapin.status().blocked()
    }

    /// Waits for the broker's answer to a request on the connection itself: up to 30 s, and while the connection is open.
    pub(crate) async fn with_timeout<T>(
        &self,
        request: impl Future<Output = lapin::Result<T>>,
    ) -> lapin::Result<T> {
        within_limit(poll_while(|| self.is_up(), Duration::ZERO, request)).await
    }

    /// Opens a channel, which is closed when it is dropped.
    pub(crate) async fn channel(&self) -> Result<Channel, TransportError> {
        Ok(Channel::new(self.open_channel().await?, None, &self.closing))
    }

    /// Opens a channel for questions that the broker may answer by closing it. The answer is the error of the request; the client
    /// library, which would log it, is only told that the channel is closed.
    pub(crate) async fn channel_to_ask(&self) -> Result<Channel, TransportError> {
        let channel = self.open_channel().await?;
        let reason = self.channels.ask_on(channel.id());
        Ok(Channel::new(channel, Some(reason), &self.closing))
    }

    async fn open_channel(&self) -> Result<lapin::Channel, TransportError> {
        for _ in 0..=u16::MAX {
            self.opened.fetch_add(1, Ordering::Relaxed);
            match self.with_timeout(self.lapin.create_channel()).await {
                Ok(channel) => return Ok(channel),
                // The broker closed an earlier channel of this number, and the client library (lapin 4.12) reports that reason
                // for the new channel too. It does not use the number again.
                Err(error) if self.is_up() && error::is_about_a_channel(&error) => {
                    self.unusable.fetch_add(1, Ordering::Relaxed);
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
        let unusable = self.unusable.load(Ordering::Relaxed);
        if unusable > 0 {
            warn!(
                unusable,
                "no channel number is free on the connection to RabbitMQ: opening a new connection"
            );
            // If that fails, the connection is gone already.
            let _ = self.with_timeout(self.lapin.close(200, "no channel number is left".into())).await;
        }
        error::no_number()
    }

    /// Returns true if half of the channel numbers were used: soon a number would be used a second time.
    pub(super) fn is_worn(&self) -> bool {
        let numbers = u32::from(self.lapin.configuration().channel_max());
        self.opened.load(Ordering::Relaxed) >= (numbers / 2).max(1)
    }

    /// Returns the negotiated maximum frame size; 0: any size.
    pub(crate) fn frame_max(&self) -> u32 {
        self.lapin.configuration().frame_max()
    }
}
