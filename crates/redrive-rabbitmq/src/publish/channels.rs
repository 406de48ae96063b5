//! The channels that copies are published on: opened when one is needed, kept for the next batch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lapin::Channel;
use lapin::options::ConfirmSelectOptions;
use redrive_core::{TransportError, TransportErrorKind};
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};

use super::blocked_by_the_broker;
use crate::connection::{Backoff, Link, Live, answered, unless_blocked};
use crate::error;

#[derive(Debug)]
pub(super) struct Channels {
    link: Link,
    permits: Semaphore,
    idle: Mutex<Vec<Slot>>,
    renewal: Mutex<Renewal>,
    /// One lane at a time tries to connect; the others have what it gets.
    connecting: tokio::sync::Mutex<()>,
}

/// A channel in confirm mode with nothing on its way.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) channel: Channel,
    epoch: u64,
    opened: Instant,
}

/// Which channels are used no more after a refusal. RabbitMQ 3.10 goes on refusing on a channel of which a quorum queue refused
/// something once, also when the limit is gone.
#[derive(Debug, Default)]
struct Renewal {
    /// Channels opened before this are stale.
    since: Option<Instant>,
}

impl Renewal {
    /// A queue that refuses thousands costs a new channel a second, not one for each.
    const NOT_SOONER: Duration = Duration::from_secs(1);

    fn note_refusal(&mut self, opened: Instant, now: Instant) {
        if now.saturating_duration_since(opened) >= Self::NOT_SOONER {
            self.since = Some(now);
        }
    }

    fn is_stale(&self, opened: Instant) -> bool {
        self.since.is_some_and(|since| opened < since)
    }
}

impl Channels {
    pub(super) fn new(link: Link, most: usize) -> Self {
        let permits = Semaphore::new(most.min(Semaphore::MAX_PERMITS));
        Self {
            link,
            permits,
            idle: Mutex::default(),
            renewal: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    /// The right to use one channel. An error means that they are closed for good.
    pub(super) async fn permit(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.permits.acquire().await
    }

    /// A channel to publish on, now, and the connection that it is of; tried for as long as anybody wants it.
    pub(super) async fn ready(
        &self,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(Arc<Live>, Slot), TransportError> {
        let live = self.connected(is_wanted).await?;
        if live.is_blocked() {
            return Err(blocked_by_the_broker());
        }
        // A new channel is not opened during an alarm that the broker has not announced yet.
        let slot = unless_blocked(|| live.is_blocked(), self.slot(&live)).await;
        let slot = slot.unwrap_or_else(|| Err(blocked_by_the_broker()))?;
        Ok((live, slot))
    }

    pub(super) fn put_back(&self, slot: Slot) {
        if slot.channel.status().connected() {
            self.idle().push(slot);
        }
    }

    /// Something was refused on this channel: the next try has a new one, soon.
    pub(super) fn put_back_refused(&self, slot: Slot) {
        self.renewal().note_refusal(slot.opened, Instant::now());
        self.put_back(slot);
    }

    pub(super) async fn close(&self) {
        self.permits.close();
        self.idle().clear();
        self.link.close().await;
    }

    /// The publishing connection, however often it must be tried, as long as anybody waits: a lane that went on without
    /// would outlive the transport, and keep all that comes in meanwhile.
    async fn connected(&self, is_wanted: impl Fn() -> bool) -> Result<Arc<Live>, TransportError> {
        let _one_at_a_time = self.connecting.lock().await;
        let mut backoff = Backoff::default();
        loop {
            match self.link.live().await {
                Ok(live) => return Ok(live),
                Err(error) if error.kind() == TransportErrorKind::Closed => return Err(error),
                Err(error) if !is_wanted() => return Err(error),
                Err(error) => {
                    let pause = backoff.next();
                    tracing::warn!(%error, ?pause, "cannot publish, trying again");
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn slot(&self, live: &Live) -> Result<Slot, TransportError> {
        let usable = |slot: &Slot| {
            let stale = self.renewal().is_stale(slot.opened);
            !stale && slot.epoch == live.epoch && slot.channel.status().connected()
        };
        while let Some(slot) = self.idle().pop() {
            if usable(&slot) {
                return Ok(slot);
            }
        }
        let not_stored = |error| error::publishing("a channel to publish on", error);
        let channel = live.channel().await.map_err(|error| {
            TransportError::new(TransportErrorKind::NotStored, error.to_string()).with_source(error)
        })?;
        answered(&channel, channel.confirm_select(ConfirmSelectOptions::default()))
            .await
            .map_err(not_stored)?;
        Ok(Slot { channel, epoch: live.epoch, opened: Instant::now() })
    }

    fn renewal(&self) -> MutexGuard<'_, Renewal> {
        self.renewal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
