//! The right to settle one delivery.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use redrive_core::Headers;
use redrive_transport::{GiveBack, InFlight, LossSignal};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::convert::copy_id::CopySource;
use crate::locks::session::Session;
use crate::shared::Shared;
use crate::wire::{Handle, SessionRef, Tag};

/// The right to settle one delivery. Dropping it gives the delivery back, and the broker counts that as a delivery.
#[derive(Debug)]
pub struct Receipt {
    pub(crate) locked: InFlight<Locked>,
}

/// A message that is locked for this process.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) shared: Arc<Shared>,
    /// The path of the entity in which the message is locked.
    pub(crate) entity: Arc<str>,
    pub(crate) lock: Uuid,
    pub(crate) tag: Tag,
    pub(crate) handle: Arc<dyn Handle>,
    pub(crate) sequence_number: i64,
    pub(crate) enqueued_at: Option<SystemTime>,
    /// True if another program wrote a shelf mark on it.
    pub(crate) marked: bool,
    /// The headers as they were delivered: dead-lettering by the broker sends only the changes.
    pub(crate) delivered: Headers,
    pub(crate) lost: Arc<LossSignal>,
    pub(crate) in_flight: Arc<InFlightCount>,
    /// The session that it was delivered in.
    pub(crate) session: Option<Arc<Session>>,
    /// The broker's count of its earlier deliveries.
    pub(crate) delivery_count: u32,
}

/// The number of deliveries of one link that are in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlightCount {
    count: AtomicU32,
    /// Wakes the intake when there is room for another delivery.
    pub(crate) freed: Notify,
}

impl InFlightCount {
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    fn increment(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    fn decrement(&self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
        self.freed.notify_one();
    }
}

impl Locked {
    /// Returns the session of the message, as requests name it.
    pub(crate) fn in_session(&self) -> Option<&SessionRef> {
        self.session.as_ref().map(|session| &session.reference)
    }

    /// Returns what the ids of the copies of this message are made from.
    pub(crate) fn copy_source(&self) -> CopySource<'_> {
        CopySource {
            entity: &self.entity,
            sequence_number: self.sequence_number,
            enqueued_at: self.enqueued_at,
        }
    }

    /// Removes the message from the deliveries in flight. With `give_back`, the broker delivers it again.
    fn end(self, give_back: bool) {
        let Self { shared, entity, lock, session, in_flight, .. } = self;
        shared.locks.leave(&lock);
        match session {
            // The intake of the session gives it back before it requests the next message.
            Some(session) => session.free(give_back.then_some(lock)),
            None if give_back => shared.completions.abandon_later(&entity, lock),
            None => {}
        }
        in_flight.decrement();
    }
}

impl Receipt {
    pub(crate) fn new(locked: Locked) -> Self {
        locked.in_flight.increment();
        Self { locked: InFlight::new(locked) }
    }

    /// Returns true if the lock is lost: another receiver may have the message.
    pub(crate) fn is_lost(&self) -> bool {
        self.locked.lost.is_sent()
    }

    /// Ends the delivery after the broker has settled it: nothing is given back.
    pub(crate) fn settled(self) {
        self.locked.take().end(false);
    }
}

impl GiveBack for Locked {
    fn give_back(self) {
        let is_lost = self.lost.is_sent();
        self.end(!is_lost);
    }
}
