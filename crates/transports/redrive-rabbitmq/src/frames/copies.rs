//! A channel whose messages are written and confirmed here.

use std::collections::VecDeque;
use std::sync::Arc;

use redrive_core::Bytes;

use super::channels::OwnChannel;
use super::confirms::{Answer, Confirms, Written};

/// A channel in confirm mode whose messages are written and confirmed here, one batch at a time.
#[derive(Debug)]
pub(crate) struct CopyChannel {
    channel: OwnChannel,
    confirms: Arc<Confirms>,
}

impl CopyChannel {
    /// The library publishes nothing on the channel.
    pub(crate) fn new(channel: OwnChannel) -> Self {
        let confirms = channel.take_confirms();
        Self { channel, confirms }
    }

    pub(crate) fn number(&self) -> u16 {
        self.channel.number()
    }

    /// Writes these messages at once, whose frames are `pieces`, and waits for all answers, in the same order. Not cancel safe: afterwards
    /// the channel cannot be used again.
    ///
    /// # Errors
    /// If the channel ends first: the result of its messages is not known.
    pub(crate) fn publish(
        &self,
        messages: Vec<Written>,
        pieces: VecDeque<Bytes>,
    ) -> impl Future<Output = lapin::Result<Vec<Answer>>> {
        self.confirms.begin(messages);
        drop(self.channel.write(pieces));
        self.confirms.answers()
    }
}
