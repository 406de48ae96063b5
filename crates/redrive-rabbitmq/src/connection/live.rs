//! A connection that is up, or was.

use std::future::Future;

use lapin::{Channel, Connection};
use redrive_core::TransportError;

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
}

impl Live {
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
        answered_within_reason(answered_while(|| self.is_up(), question)).await
    }

    /// A new channel; closed when it is dropped.
    pub(crate) async fn channel(&self) -> Result<Channel, TransportError> {
        let channel = self.answered(self.connection.create_channel()).await;
        channel.map_err(|error| error::interrupted("cannot open a channel", error))
    }

    /// The largest frame agreed on; 0 means any size.
    pub(crate) fn frame_max(&self) -> u32 {
        self.connection.configuration().frame_max()
    }
}
