//! The right to settle one delivery.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use redrive_core::Headers;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::broker::Broker;
use crate::copy_id::Source;
use crate::lost::Lost;
use crate::session::Session;
use crate::wire::{Handle, InSession, Tag};

/// The right to settle one delivery. Dropped, it gives the delivery back, and that counts as a hand-out.
#[derive(Debug)]
pub struct Receipt {
    pub(crate) broker: Arc<Broker>,
    /// Where the message is locked.
    pub(crate) entity: Arc<str>,
    pub(crate) lock: Uuid,
    pub(crate) tag: Tag,
    pub(crate) handle: Arc<dyn Handle>,
    pub(crate) sequence_number: i64,
    pub(crate) enqueued_at: Option<SystemTime>,
    /// Somebody else wrote on it on which shelf it rests.
    pub(crate) marked: bool,
    /// The headers as they were delivered: a native dead-lettering says what changed.
    pub(crate) delivered: Headers,
    pub(crate) lost: Arc<Lost>,
    pub(crate) room: Arc<Room>,
    /// The session that it was handed out in.
    pub(crate) session: Option<Arc<Session>>,
    /// How often it had come back by then, as far as that counts.
    pub(crate) delivery_count: u32,
    settled: bool,
}

/// How much of what was handed out on one link is still in hand.
#[derive(Debug, Default)]
pub(crate) struct Room {
    in_hand: AtomicU32,
    /// Wakes the intake: there is room again.
    pub(crate) freed: Notify,
}

impl Room {
    pub(crate) fn in_hand(&self) -> u32 {
        self.in_hand.load(Ordering::Acquire)
    }
}

/// What a receipt is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) broker: Arc<Broker>,
    pub(crate) entity: Arc<str>,
    pub(crate) lock: Uuid,
    pub(crate) tag: Tag,
    pub(crate) handle: Arc<dyn Handle>,
    pub(crate) sequence_number: i64,
    pub(crate) enqueued_at: Option<SystemTime>,
    pub(crate) marked: bool,
    pub(crate) delivered: Headers,
    pub(crate) lost: Arc<Lost>,
    pub(crate) room: Arc<Room>,
    pub(crate) session: Option<Arc<Session>>,
    pub(crate) delivery_count: u32,
}

impl Receipt {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { broker, entity, lock, tag, handle, sequence_number, delivered, lost, room, .. } = parts;
        let Parts { session, delivery_count, enqueued_at, marked, .. } = parts;
        room.in_hand.fetch_add(1, Ordering::AcqRel);
        Self {
            broker,
            entity,
            lock,
            tag,
            handle,
            sequence_number,
            enqueued_at,
            marked,
            delivered,
            lost,
            room,
            session,
            delivery_count,
            settled: false,
        }
    }

    /// The session that it was handed out in, as requests name it.
    pub(crate) fn in_session(&self) -> Option<&InSession> {
        self.session.as_ref().map(|session| &session.place)
    }

    /// What copies of the message are told apart by.
    pub(crate) fn source(&self) -> Source<'_> {
        Source { entity: &self.entity, sequence_number: self.sequence_number, enqueued_at: self.enqueued_at }
    }

    /// Whether the message is not ours any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_said()
    }

    /// The broker has settled it: nothing is to be given back.
    pub(crate) fn settled(mut self) {
        self.settled = true;
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.broker.locks.leave(&self.lock);
        let give_back = !self.settled && !self.is_lost();
        match &self.session {
            // By its slot, which asks for the next one only then.
            Some(session) => session.free(give_back.then_some(self.lock)),
            None if give_back => self.broker.settler.abandon(&self.entity, self.lock),
            None => {}
        }
        self.room.in_hand.fetch_sub(1, Ordering::AcqRel);
        self.room.freed.notify_one();
    }
}
