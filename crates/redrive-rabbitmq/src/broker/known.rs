//! What is known of the broker, and how much is wanted in hand.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tracing::warn;

use super::Broker;
use crate::connection::Live;
use crate::prefetch::Sizing;
use crate::session::Session;
use crate::topology::QueueType;
use crate::version::Version;

/// What the last connection and the start told.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) version: Option<Version>,
    pub(super) frame_max: u32,
    /// What the intake made of the prefetch, where it may.
    sized: u16,
    /// At most so many in hand, from the next subscription on; 0: as many as the needs say.
    narrowed: u16,
    interruptions: u64,
    sessions: Vec<Weak<Session>>,
    pub(super) told: Told,
}

/// What the management API told of the work queue; nothing, where it was not asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    pub(crate) delivery_limit: Option<u32>,
    pub(crate) consumer_timeout: Option<Duration>,
}

impl Broker {
    /// Takes in what a connection tells of the broker; it may be another version after each restart.
    pub(crate) fn note_connection(&self, live: &Live) {
        {
            let mut known = self.known();
            known.version = live.version;
            known.frame_max = live.frame_max();
        }
        self.tell_facts();
    }

    pub(crate) fn prefetch(&self) -> u16 {
        let asked = self.active().prefetch;
        let known = self.known();
        let most = if known.narrowed == 0 { u16::MAX } else { known.narrowed };
        asked.max(known.sized).clamp(1, most)
    }

    /// Between which bounds the intake may size what is in hand; `None` where it may not, or not now.
    pub(crate) fn may_size(&self) -> Option<Sizing> {
        let prefetch = self.active().prefetch;
        let most = self.grows_to(prefetch)?;
        (self.known().narrowed == 0).then(|| Sizing::between(prefetch, most))
    }

    /// How many may be in hand, where more than the prefetch may be.
    pub(super) fn grows_to(&self, prefetch: u16) -> Option<u16> {
        // Who subscribes anew is no longer the active one.
        let active = self.options.arguments.contains_key("x-single-active-consumer");
        // Who asks for one at a time means it.
        let may = prefetch > 1 && !active;
        self.options.prefetch_up_to.filter(|&most| may && most > prefetch)
    }

    /// From the next subscription on.
    pub(crate) fn size(&self, in_hand: u16) {
        self.known().sized = in_hand;
    }

    /// How many the consumer allows, from the next subscription on. Answers how many that are here.
    pub(crate) fn set_limit(&self, limit: u32) -> u16 {
        let prefetch = self.active().prefetch.max(1);
        let limit = u16::try_from(limit.max(1)).unwrap_or(u16::MAX).min(prefetch);
        self.known().narrowed = if limit < prefetch { limit } else { 0 };
        limit
    }

    /// How many there were, with those that were not counted yet.
    pub(crate) fn interruptions(&self) -> u64 {
        let mut known = self.known();
        let ended =
            known.sessions.iter().filter_map(Weak::upgrade).filter(|session| session.is_interruption());
        // They ended together, or one after the other: what counts is that some did.
        if ended.count() > 0 {
            known.interruptions += 1;
        }
        known.interruptions
    }

    /// A message came again without a count. Said once, where one was to be expected.
    pub(crate) fn warn_of_missing_counts(&self) {
        if self.options.queue_type == QueueType::Quorum && !self.warned.swap(true, Ordering::Relaxed) {
            warn!(
                queue = %self.queue(),
                "a message was handed out again without a count: this is a classic queue, and a quorum queue is configured. A \
                 message that kills its process is not bounded. Say `queue_type(QueueType::Classic)`, and give the consumer a \
                 ledger"
            );
        }
    }

    pub(crate) fn remember(&self, session: &Arc<Session>) {
        let sessions = &mut self.known().sessions;
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(session));
    }

    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        self.known().sessions.iter().filter_map(Weak::upgrade).collect()
    }

    #[cfg(feature = "management")]
    pub(crate) fn note_told(&self, told: Told) {
        self.known().told = told;
        self.tell_facts();
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
