//! The right to settle one delivery.

use std::fmt;
use std::sync::Arc;

use redrive_core::TransportError;
use redrive_core::transport::Origin;
use redrive_transport::{GiveBack, InFlight};

use crate::broker::Version;
use crate::delivery_channel::{DeliveryChannel, Refusal};

/// The right to settle one delivery. Dropping it gives the delivery back.
#[must_use = "dropping the receipt gives the delivery back"]
pub struct Receipt {
    held: InFlight<Unsettled>,
    /// False if the message was read without some of its headers: a copy would lose them.
    whole: bool,
    /// Where the delivery came from, as the broker reports it.
    origin: Option<Origin>,
}

/// One unsettled delivery.
struct Unsettled {
    tag: u64,
    channel: Arc<DeliveryChannel>,
}

impl GiveBack for Unsettled {
    fn give_back(self) {
        // Passed to the channel, without a runtime. An error means that the broker has taken the delivery back.
        drop(self.channel.refuse(self.tag, Refusal::GiveBack));
    }
}

impl Receipt {
    pub(crate) fn new(tag: u64, channel: Arc<DeliveryChannel>) -> Self {
        Self { held: InFlight::new(Unsettled { tag, channel }), whole: true, origin: None }
    }

    /// Sets the origin of the delivery.
    pub(crate) fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Sets whether the message was read with all of its headers.
    pub(crate) fn read_whole(mut self, whole: bool) -> Self {
        self.whole = whole;
        self
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns the channel of the delivery.
    pub(crate) fn channel(&self) -> &DeliveryChannel {
        &self.held.channel
    }

    /// Returns the version of the broker.
    pub(crate) fn version(&self) -> Option<Version> {
        self.held.channel.version()
    }

    /// Removes the message: the acknowledgement is sent now, or within the time that it may wait for others.
    pub(crate) async fn ack(self) -> Result<(), TransportError> {
        let Unsettled { tag, channel } = self.held.take();
        match channel.acknowledge(tag)? {
            None => Ok(()),
            Some(sending) => channel.written(sending).await,
        }
    }

    /// Gives the delivery back.
    pub(crate) async fn release(self) -> Result<(), TransportError> {
        self.refuse(Refusal::GiveBack).await
    }

    /// Lets the broker dead-letter the delivery.
    pub(crate) async fn dead_letter(self) -> Result<(), TransportError> {
        self.refuse(Refusal::DeadLetter).await
    }

    /// Gives the delivery back as failed: a quorum queue of 4.3 counts that, and holds the message back if configured.
    pub(crate) async fn fail(self) -> Result<(), TransportError> {
        self.refuse(Refusal::Fail).await
    }

    async fn refuse(self, refusal: Refusal) -> Result<(), TransportError> {
        let Unsettled { tag, channel } = self.held.take();
        channel.refuse(tag, refusal)?.await
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("channel", &self.held.channel).finish_non_exhaustive()
    }
}
