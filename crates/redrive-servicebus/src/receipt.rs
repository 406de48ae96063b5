//! The right to settle one delivery.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use redrive_core::Headers;
use redrive_transport::LossSignal;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::convert::copy_id::CopySource;
use crate::receive::session::Session;
use crate::shared::Shared;
use crate::wire::{Handle, SessionRef, Tag};

/// The right to settle one delivery. Dropped, it gives the delivery back, and the broker counts that as a delivery.
#[derive(Debug)]
pub struct Receipt {
    pub(crate) locked: Locked,
    settled: bool,
}

/// A message that is locked for this process.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) shared: Arc<Shared>,
    /// Where the message is locked.
    pub(crate) entity: Arc<str>,
    pub(crate) lock: Uuid,
    pub(crate) tag: Tag,
    pub(crate) handle: Arc<dyn Handle>,
    pub(crate) sequence_number: i64,
    pub(crate) enqueued_at: Option<SystemTime>,
    /// Another program wrote a shelf mark on it.
    pub(crate) marked: bool,
    /// The headers as they were delivered: a native dead-lettering sends what changed.
    pub(crate) delivered: Headers,
    pub(crate) lost: Arc<LossSignal>,
    pub(crate) in_flight: Arc<InFlightCount>,
    /// The session that it was handed out in.
    pub(crate) session: Option<Arc<Session>>,
    /// How often it had come back before, as far as the broker counts.
    pub(crate) delivery_count: u32,
}

/// How many of the deliveries of one link are in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlightCount {
    count: AtomicU32,
    /// Wakes the intake: there is room for another delivery.
    pub(crate) freed: Notify,
}

impl InFlightCount {
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }
}

impl Locked {
    /// The session that it was handed out in, as requests name it.
    pub(crate) fn in_session(&self) -> Option<&SessionRef> {
        self.session.as_ref().map(|session| &session.reference)
    }

    /// What tells the copies of this message from others.
    pub(crate) fn copy_source(&self) -> CopySource<'_> {
        CopySource {
            entity: &self.entity,
            sequence_number: self.sequence_number,
            enqueued_at: self.enqueued_at,
        }
    }
}

impl Receipt {
    pub(crate) fn new(locked: Locked) -> Self {
        locked.in_flight.count.fetch_add(1, Ordering::AcqRel);
        Self { locked, settled: false }
    }

    /// Whether another receiver may have the message by now.
    pub(crate) fn is_lost(&self) -> bool {
        self.locked.lost.is_sent()
    }

    /// The broker has settled it: nothing is given back.
    pub(crate) fn settled(mut self) {
        self.settled = true;
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        let give_back = !self.settled && !self.is_lost();
        let Locked { shared, entity, lock, session, in_flight, .. } = &self.locked;
        shared.locks.leave(lock);
        match session {
            // Its intake gives it back, before it asks for the next one.
            Some(session) => session.free(give_back.then_some(*lock)),
            None if give_back => shared.completions.abandon_later(entity, *lock),
            None => {}
        }
        in_flight.count.fetch_sub(1, Ordering::AcqRel);
        in_flight.freed.notify_one();
    }
}
