//! Copies, stored for good: persistent, mandatory, confirmed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Confirmation};
use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::{Message, TransportError, TransportErrorKind};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::connection::{Backoff, Link, Live, answered, answered_on};
use crate::convert;
use crate::error;

/// Publishes on a pool of channels, ONE message at a time on each. With several on their way on one channel the client
/// library may report a returned message on another one's confirm, and a message that was stored nowhere would be taken
/// for stored.
#[derive(Debug)]
pub(crate) struct Publisher {
    link: Link,
    permits: Semaphore,
    idle: Mutex<Vec<Slot>>,
    /// One caller at a time tries to connect; the others have what it gets.
    connecting: tokio::sync::Mutex<()>,
    confirm_timeout: Duration,
}

/// A channel in confirm mode with nothing on its way.
#[derive(Debug)]
struct Slot {
    channel: Channel,
    epoch: u64,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) exchange: &'a str,
    pub(crate) routing_key: &'a str,
}

impl Target<'_> {
    fn shown(self) -> String {
        match self.exchange {
            "" => self.routing_key.to_owned(),
            exchange => format!("{exchange} → {}", self.routing_key),
        }
    }
}

/// What became of a message that the broker answered for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Stored,
    /// No queue was there to take it.
    Returned(String),
    /// The broker could not store it: most often the queue is full.
    Refused,
}

impl Publisher {
    pub(crate) fn new(link: Link, channels: usize, confirm_timeout: Duration) -> Self {
        let permits = Semaphore::new(channels.min(Semaphore::MAX_PERMITS));
        Self {
            link,
            permits,
            idle: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            confirm_timeout,
        }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Publishes one message and waits for the broker's answer. An error means that it is not known whether it was
    /// stored, or that it certainly was not.
    pub(crate) async fn publish(
        &self,
        target: Target<'_>,
        message: Message,
        persistent: bool,
    ) -> Result<Answer, TransportError> {
        let message = convert::for_publishing(message, &self.link.user());
        let properties = convert::properties(&message, persistent)?;
        let publishing = self.publish_on_a_channel(target, &message, properties);
        timeout(self.confirm_timeout, publishing).await.unwrap_or_else(|_| {
            let within = humantime::format_duration(self.confirm_timeout);
            let message =
                format!("RabbitMQ did not confirm the copy for `{}` within {within}", target.shown());
            Err(TransportError::new(TransportErrorKind::NotStored, message))
        })
    }

    async fn publish_on_a_channel(
        &self,
        target: Target<'_>,
        message: &Message,
        properties: BasicProperties,
    ) -> Result<Answer, TransportError> {
        let _permit = self.permits.acquire().await.map_err(|_| error::closed())?;
        let live = self.connected().await?;
        check_size(message, live.frame_max())?;
        if live.is_blocked() {
            let message = "RabbitMQ takes no messages: its memory or disk is full";
            return Err(TransportError::new(TransportErrorKind::NotStored, message));
        }
        // From here on the slot is gone when anything ends early: with an answer still to come it is of no use.
        let slot = self.slot(&live).await?;
        let sent = slot.channel.basic_publish(
            convert::short(target.exchange, "the name of an exchange")?,
            convert::short(target.routing_key, "a routing key")?,
            BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() },
            message.body(),
            properties,
        );
        let not_stored = |error| error::publishing(&target.shown(), error);
        let confirmed = answered_on(&slot.channel, async {
            let confirm = sent.await?;
            fail_point(FailPoint::CopyHandedOver);
            confirm.await
        });
        let answer = match confirmed.await.map_err(not_stored)? {
            Confirmation::Ack(None) => {
                fail_point(FailPoint::CopyConfirmed);
                Answer::Stored
            }
            Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned)) => {
                Answer::Returned(returned.reply_text.as_str().to_owned())
            }
            Confirmation::Nack(None) => Answer::Refused,
            Confirmation::NotRequested => {
                let message = "the channel is not in confirm mode";
                return Err(TransportError::new(TransportErrorKind::NotStored, message));
            }
        };
        self.put_back(slot);
        Ok(answer)
    }

    /// The publishing connection, however often it must be tried; the caller's patience ends it.
    async fn connected(&self) -> Result<Arc<Live>, TransportError> {
        let _one_at_a_time = self.connecting.lock().await;
        let mut backoff = Backoff::default();
        loop {
            match self.link.live().await {
                Ok(live) => return Ok(live),
                Err(error) if error.kind() == TransportErrorKind::Closed => return Err(error),
                Err(error) => {
                    let pause = backoff.next();
                    tracing::warn!(%error, ?pause, "cannot publish, trying again");
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn slot(&self, live: &Live) -> Result<Slot, TransportError> {
        let usable = |slot: &Slot| slot.epoch == live.epoch && slot.channel.status().connected();
        while let Some(slot) = self.idle().pop() {
            if usable(&slot) {
                return Ok(slot);
            }
        }
        let not_stored = |error| error::publishing("a channel to publish on", error);
        let channel = live.channel().await.map_err(|error| {
            TransportError::new(TransportErrorKind::NotStored, error.to_string()).with_source(error)
        })?;
        answered(channel.confirm_select(ConfirmSelectOptions::default())).await.map_err(not_stored)?;
        Ok(Slot { channel, epoch: live.epoch })
    }

    fn put_back(&self, slot: Slot) {
        if slot.channel.status().connected() {
            self.idle().push(slot);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Slot>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn close(&self) {
        self.permits.close();
        self.idle().clear();
        self.link.close().await;
    }
}

/// How many bytes properties and headers of a copy may take: they must fit one frame, and the broker adds to them
/// later, unchecked.
pub(crate) fn max_header_bytes(frame_max: u32) -> Option<usize> {
    const ADDED_LATER: u32 = 16 * 1024;
    match frame_max {
        0 => None,
        small if small < 2 * ADDED_LATER => Some(small as usize / 2),
        usual => Some((usual - ADDED_LATER) as usize),
    }
}

/// The client library does not look: a header that is too large would end the connection, and everything on it.
fn check_size(message: &Message, frame_max: u32) -> Result<(), TransportError> {
    let (size, Some(most)) = (message.encoded_header_len(), max_header_bytes(frame_max)) else {
        return Ok(());
    };
    if size <= most {
        return Ok(());
    }
    let message = format!("the headers take {size} bytes, and a frame of RabbitMQ has room for {most}");
    Err(TransportError::new(TransportErrorKind::TooLarge, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_what_the_broker_adds() {
        assert_eq!(max_header_bytes(131_072), Some(114_688));
        assert_eq!(max_header_bytes(8192), Some(4096));
        assert_eq!(max_header_bytes(0), None);
    }

    #[test]
    fn headers_that_fit_no_frame_are_refused() {
        let message = Message::new("x").with_header("large", "l".repeat(200_000));
        assert_eq!(check_size(&message, 131_072).unwrap_err().kind(), TransportErrorKind::TooLarge);
        assert!(check_size(&Message::new("x"), 131_072).is_ok());
    }
}
