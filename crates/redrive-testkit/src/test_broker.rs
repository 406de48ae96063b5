//! What a test of a consumer needs of its broker.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use redrive_core::{Message, Shelves};

use crate::record::{AttemptRecord, End, PublishedMessage};
use crate::recorder::{Clock, Recorder};

/// A broker whose time a test lets pass.
pub trait TestBroker: Send + Sync {
    /// Called once, before the consumer starts.
    fn begin(&mut self);

    /// Returns the virtual clock.
    fn clock(&self) -> Clock;

    fn elapsed(&self) -> Duration {
        self.clock()()
    }

    /// Returns true if no message waits, and none is in flight.
    fn is_empty(&self, sent: &[Message], recorder: &Recorder) -> bool;

    /// Lets time pass if nothing else happens, at most this long.
    fn pass(&self, rest: Duration) -> impl Future<Output = ()> + Send;

    fn shelves(&self) -> &dyn Shelves;

    /// Returns where the broker has messages of the queue. Of several with one id, the first counts.
    fn places(
        &self,
        sent: &[Message],
        attempts: &[AttemptRecord],
    ) -> impl Future<Output = Vec<(End, Message)>> + Send;

    /// Returns the content of other queues.
    fn published(&self) -> BTreeMap<String, Vec<PublishedMessage>>;
}
