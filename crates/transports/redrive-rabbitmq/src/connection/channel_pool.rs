//! The channels that publish messages: opened on demand, kept for the next batch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lapin::options::ConfirmSelectOptions;
use parking_lot::{Mutex, MutexGuard};
use redrive_core::{TransportError, TransportErrorKind};
use redrive_transport::ReconnectBackoff;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};

use super::channel::Channel;
use super::open::Connection;
use super::reconnecting::ReconnectingConnection;
use super::timeouts::{LONGEST_BACKOFF, unless_blocked, with_timeout};
use crate::error;
use crate::frames::CopyChannel;

/// A bounded number of channels in confirm mode, on one connection.
#[derive(Debug)]
pub(crate) struct ChannelPool {
    connection: ReconnectingConnection,
    permits: Semaphore,
    idle: Mutex<Vec<PooledChannel>>,
    renewal: Mutex<Renewal>,
    /// One caller at a time tries to connect; the others share its result.
    connecting: tokio::sync::Mutex<()>,
}

/// A channel in confirm mode with no unconfirmed message.
#[derive(Debug)]
pub(crate) struct PooledChannel {
    pub(crate) channel: Channel,
    pub(crate) copies: CopyChannel,
    epoch: u64,
    opened: Instant,
}

/// When channels are replaced after a refusal. After a quorum queue has refused a message, RabbitMQ 3.10 keeps refusing on the same
/// channel, even after the queue has room again.
#[derive(Debug, Default)]
struct Renewal {
    /// Channels opened before this are stale.
    since: Option<Instant>,
}

impl Renewal {
    /// Limits the cost of a queue that refuses thousands of messages to one new channel a second.
    const MIN_CHANNEL_AGE: Duration = Duration::from_secs(1);

    fn note_refusal(&mut self, opened: Instant, now: Instant) {
        if now.saturating_duration_since(opened) >= Self::MIN_CHANNEL_AGE {
            self.since = Some(now);
        }
    }

    fn is_stale(&self, opened: Instant) -> bool {
        self.since.is_some_and(|since| opened < since)
    }
}

impl ChannelPool {
    pub(crate) fn new(connection: ReconnectingConnection, most: usize) -> Self {
        let permits = Semaphore::new(most.min(Semaphore::MAX_PERMITS));
        Self {
            connection,
            permits,
            idle: Mutex::default(),
            renewal: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn connection(&self) -> &ReconnectingConnection {
        &self.connection
    }

    /// Waits for the right to use one channel. An error means that the pool is closed for good.
    pub(crate) async fn permit(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.permits.acquire().await
    }

    /// Returns a channel to publish on, and its connection. Retries connecting while `is_wanted` returns true.
    pub(crate) async fn ready(
        &self,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(Arc<Connection>, PooledChannel), TransportError> {
        let connection = self.connected(is_wanted).await?;
        if connection.is_blocked() {
            return Err(blocked_by_the_broker());
        }
        // A new channel is not opened during an alarm that the broker has not announced yet.
        let channel = unless_blocked(|| connection.is_blocked(), self.channel(&connection)).await;
        let channel = channel.unwrap_or_else(|| Err(blocked_by_the_broker()))?;
        Ok((connection, channel))
    }

    pub(crate) fn put_back(&self, channel: PooledChannel) {
        if channel.channel.status().connected() {
            self.idle().push(channel);
        }
    }

    /// Puts back a channel on which a message was refused: a later batch gets a new channel.
    pub(crate) fn put_back_refused(&self, channel: PooledChannel) {
        self.renewal().note_refusal(channel.opened, Instant::now());
        self.put_back(channel);
    }

    pub(crate) async fn close(&self) {
        self.permits.close();
        // Kept: the client library logs an error for each channel that is dropped while its connection closes.
        let _idle = std::mem::take(&mut *self.idle());
        self.connection.close().await;
    }

    /// Returns the connection. Retries while `is_wanted` returns true: a batch that nobody waits for must not outlive the transport.
    async fn connected(&self, is_wanted: impl Fn() -> bool) -> Result<Arc<Connection>, TransportError> {
        let _one_at_a_time = self.connecting.lock().await;
        let mut backoff = ReconnectBackoff::up_to(LONGEST_BACKOFF);
        loop {
            match self.connection.connection().await {
                Ok(connection) => return Ok(connection),
                Err(error) if error.kind() == TransportErrorKind::Closed => return Err(error),
                Err(error) if !is_wanted() => return Err(error),
                Err(error) => {
                    let pause = backoff.next_wait();
                    tracing::warn!(%error, ?pause, "cannot publish, trying again");
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn channel(&self, connection: &Connection) -> Result<PooledChannel, TransportError> {
        let usable = |idle: &PooledChannel| {
            let stale = self.renewal().is_stale(idle.opened);
            !stale && idle.epoch == connection.epoch && idle.channel.status().connected()
        };
        while let Some(idle) = self.idle().pop() {
            if usable(&idle) {
                return Ok(idle);
            }
        }
        let channel = connection.channel().await.map_err(|error| {
            TransportError::new(TransportErrorKind::NotSent, error.to_string()).with_source(error)
        })?;
        with_timeout(&channel, channel.confirm_select(ConfirmSelectOptions::default()))
            .await
            .map_err(error::no_channel_to_publish)?;
        let copies = CopyChannel::new(connection.own(&channel));
        Ok(PooledChannel { channel, copies, epoch: connection.epoch, opened: Instant::now() })
    }

    fn renewal(&self) -> MutexGuard<'_, Renewal> {
        self.renewal.lock()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PooledChannel>> {
        self.idle.lock()
    }
}

/// Returns the error for a message that was not sent because the broker accepts none.
pub(crate) fn blocked_by_the_broker() -> TransportError {
    let message = "RabbitMQ accepts no messages: its memory or disk is full";
    TransportError::new(TransportErrorKind::NotSent, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_makes_every_channel_stale_once_a_second() {
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        let mut renewal = Renewal::default();
        renewal.note_refusal(at(0), at(5000));
        assert!(renewal.is_stale(at(0)) && renewal.is_stale(at(4999)), "others may have been refused too");
        assert!(!renewal.is_stale(at(5000)));
        for refusal in 5000..5999 {
            renewal.note_refusal(at(5000), at(refusal));
        }
        assert!(!renewal.is_stale(at(5000)), "it is used for a while all the same");
        renewal.note_refusal(at(5000), at(6000));
        assert!(renewal.is_stale(at(5000)));
    }
}
