//! The consumers of a queue, and whose turn it is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet, VecDeque};

use crate::broker::ConsumerId;

/// Consumers take turns, those of higher priority first. One that can take nothing waits aside until its channel says so: the cost of
/// a delivery does not depend on how many do.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    turns: BTreeMap<Reverse<i64>, VecDeque<ConsumerId>>,
    blocked: HashSet<ConsumerId>,
    /// All of them, in the order in which they came.
    all: Vec<(ConsumerId, i64)>,
    /// With single active consumer: the one that is served.
    active: Option<ConsumerId>,
    /// The single active consumer is another one since the queue served it last.
    unserved: bool,
}

impl Consumers {
    pub(crate) fn add(&mut self, id: ConsumerId, priority: i64) {
        self.unserved = false;
        self.all.push((id, priority));
        self.turns.entry(Reverse(priority)).or_default().push_back(id);
    }

    pub(crate) fn remove(&mut self, id: ConsumerId) {
        self.all.retain(|(other, _)| *other != id);
        self.blocked.remove(&id);
        self.turns.retain(|_, turns| {
            turns.retain(|other| *other != id);
            !turns.is_empty()
        });
        if self.active == Some(id) {
            self.active = None;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ConsumerId> {
        self.all.iter().map(|(id, _)| *id)
    }

    /// Returns whose turn it is.
    pub(crate) fn next(&self) -> Option<ConsumerId> {
        self.turns.values().find_map(|turns| turns.front().copied())
    }

    /// The consumer took a message: the next one has its turn.
    pub(crate) fn took(&mut self, id: ConsumerId) {
        let turns = self.turns.values_mut().find(|turns| turns.front() == Some(&id));
        if let Some(turns) = turns {
            turns.rotate_left(1);
        }
    }

    /// The consumer can take nothing now.
    pub(crate) fn block(&mut self, id: ConsumerId) {
        self.turns.retain(|_, turns| {
            turns.retain(|other| *other != id);
            !turns.is_empty()
        });
        self.blocked.insert(id);
    }

    /// The consumer may be able to take something again. Returns false if it was not blocked.
    pub(crate) fn unblock(&mut self, id: ConsumerId) -> bool {
        if !self.blocked.remove(&id) {
            return false;
        }
        self.unserved = false;
        let priority = self.all.iter().find(|(other, _)| *other == id).map_or(0, |(_, priority)| *priority);
        self.turns.entry(Reverse(priority)).or_default().push_back(id);
        true
    }

    /// Makes a consumer the single active one if there is none: the first, or with `by_priority` the first of the highest priority.
    pub(crate) fn activate(&mut self, by_priority: bool) {
        if self.active.is_none() {
            self.active = if by_priority { self.best().map(|(id, _)| id) } else { self.ids().next() };
        }
    }

    /// The single active consumer gets nothing until the queue has something to do.
    pub(crate) fn wait(&mut self) {
        self.unserved = true;
    }

    /// The queue has something to do: it serves its consumers again.
    pub(crate) fn serve(&mut self) {
        self.unserved = false;
    }

    pub(crate) fn is_served(&self) -> bool {
        !self.unserved && !self.is_empty()
    }

    /// Returns the single active consumer.
    pub(crate) fn active(&self) -> Option<ConsumerId> {
        self.active
    }

    /// Returns a consumer of higher priority than the single active one: the first of the highest.
    pub(crate) fn above_active(&self) -> Option<ConsumerId> {
        let (_, priority) = self.all.iter().find(|(id, _)| self.active == Some(*id))?;
        self.best().filter(|(_, best)| best > priority).map(|(id, _)| id)
    }

    /// Makes another consumer the single active one.
    pub(crate) fn hand_over(&mut self, id: ConsumerId) {
        self.active = Some(id);
    }

    fn best(&self) -> Option<(ConsumerId, i64)> {
        let best = self.all.iter().map(|(_, priority)| *priority).max()?;
        self.all.iter().find(|(_, priority)| *priority == best).copied()
    }

    pub(crate) fn is_blocked(&self, id: ConsumerId) -> bool {
        self.blocked.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumers_take_turns_by_priority() {
        let mut consumers = Consumers::default();
        let [a, b, c] = [ConsumerId(1), ConsumerId(2), ConsumerId(3)];
        consumers.add(a, 0);
        consumers.add(b, 0);
        consumers.add(c, 5);
        let mut served = Vec::new();
        for _ in 0..2 {
            served.extend(consumers.next());
            consumers.took(c);
        }
        assert_eq!(served, [c, c]);
        consumers.block(c);
        assert_eq!(consumers.next(), Some(a));
        consumers.took(a);
        assert_eq!(consumers.next(), Some(b));
        assert!(consumers.unblock(c));
        assert_eq!(consumers.next(), Some(c));
    }

    #[test]
    fn the_single_active_consumer_keeps_its_place() {
        let mut consumers = Consumers::default();
        let [a, b, c] = [ConsumerId(1), ConsumerId(2), ConsumerId(3)];
        for (id, priority) in [(a, 0), (b, 0), (c, 5)] {
            consumers.add(id, priority);
            consumers.activate(true);
        }
        assert_eq!((consumers.active(), consumers.above_active()), (Some(a), Some(c)));
        consumers.remove(a);
        consumers.activate(false);
        assert_eq!(consumers.active(), Some(b), "the next in order");
        consumers.remove(b);
        consumers.add(a, 0);
        consumers.activate(true);
        assert_eq!((consumers.active(), consumers.above_active()), (Some(c), None));
    }
}
