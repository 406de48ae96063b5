//! The messages of a queue that wait for a consumer, in the order in which they leave.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use redrive_emulator_host::Timestamp;

use crate::broker::message::{Counts, Message};

/// One message in one queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stored {
    /// Its place: messages with smaller numbers came earlier. No number is used twice in a broker.
    pub(crate) number: u64,
    pub(crate) message: Arc<Message>,
    pub(crate) arrived: Timestamp,
    pub(crate) expires: Option<Timestamp>,
    /// It is not delivered before this (4.3).
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) redelivered: bool,
    pub(crate) counts: Counts,
    /// Its priority in this queue; 0 in a queue without priorities.
    pub(crate) priority: u8,
    /// Number of bytes that count against the queue's limit.
    pub(crate) size: u64,
    /// It is in the state file.
    pub(crate) kept: bool,
}

impl Stored {
    /// Returns how often it was taken, as clients see it: in its last queue, as long as nobody gave it back in this one.
    pub(crate) fn acquired(&self) -> u32 {
        if self.counts.acquired > 0 { self.counts.acquired } else { self.message.carried.acquired }
    }
}

/// Where a message that is given back goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Return {
    /// To the place where it was (classic).
    Place,
    /// Before everything that is ready, after what was given back before (quorum).
    Front,
}

/// Everything costs the same, however many messages wait: only ends are touched.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    front: VecDeque<Stored>,
    lanes: BTreeMap<Reverse<u8>, Lane>,
    length: usize,
    bytes: u64,
}

/// Messages of one priority. What was given back came earlier than everything that never left.
#[derive(Debug, Default)]
struct Lane {
    returned: BTreeMap<u64, Stored>,
    fresh: VecDeque<Stored>,
}

impl Lane {
    fn first(&self) -> Option<&Stored> {
        self.returned.first_key_value().map(|(_, stored)| stored).or_else(|| self.fresh.front())
    }

    fn pop(&mut self) -> Option<Stored> {
        self.returned.pop_first().map(|(_, stored)| stored).or_else(|| self.fresh.pop_front())
    }
}

impl Ready {
    pub(crate) fn push(&mut self, stored: Stored) {
        self.count(&stored);
        self.lanes.entry(Reverse(stored.priority)).or_default().fresh.push_back(stored);
    }

    pub(crate) fn give_back(&mut self, stored: Stored, to: Return) {
        self.count(&stored);
        match to {
            Return::Front => self.front.push_back(stored),
            Return::Place => {
                self.lanes
                    .entry(Reverse(stored.priority))
                    .or_default()
                    .returned
                    .insert(stored.number, stored);
            }
        }
    }

    pub(crate) fn first(&self) -> Option<&Stored> {
        self.front.front().or_else(|| self.lanes.values().find_map(Lane::first))
    }

    pub(crate) fn pop(&mut self) -> Option<Stored> {
        let popped = match self.front.pop_front() {
            Some(stored) => Some(stored),
            None => self.lanes.values_mut().find_map(Lane::pop),
        };
        self.discount(popped)
    }

    /// Takes a message that has expired, if it is first; with `each_lane`: first of its priority.
    pub(crate) fn pop_expired(&mut self, now: Timestamp, each_lane: bool) -> Option<Stored> {
        let due = |stored: Option<&Stored>| {
            stored.and_then(|stored| stored.expires).is_some_and(|expires| expires <= now)
        };
        if due(self.first()) {
            return self.pop();
        }
        if !each_lane {
            return None;
        }
        let popped = self.lanes.values_mut().find(|lane| due(lane.first())).and_then(Lane::pop);
        self.discount(popped)
    }

    /// Returns when the next message expires, of those that are first.
    pub(crate) fn next_expiry(&self, each_lane: bool) -> Option<Timestamp> {
        if !each_lane {
            return self.first().and_then(|first| first.expires);
        }
        let firsts = self.front.front().into_iter().chain(self.lanes.values().filter_map(Lane::first));
        firsts.filter_map(|stored| stored.expires).min()
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stored> {
        let lanes = self.lanes.values().flat_map(|lane| lane.returned.values().chain(&lane.fresh));
        self.front.iter().chain(lanes)
    }

    pub(crate) fn drain(&mut self) -> Vec<Stored> {
        let mut all = Vec::with_capacity(self.length);
        while let Some(stored) = self.pop() {
            all.push(stored);
        }
        all
    }

    fn count(&mut self, stored: &Stored) {
        self.length += 1;
        self.bytes += stored.size;
    }

    fn discount(&mut self, popped: Option<Stored>) -> Option<Stored> {
        if let Some(stored) = &popped {
            self.length -= 1;
            self.bytes -= stored.size;
        }
        popped
    }
}
