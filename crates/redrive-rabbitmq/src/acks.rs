//! Which deliveries of one channel are settled, and which acknowledgements tell the broker so. Pure.
//!
//! RabbitMQ numbers the deliveries of a channel 1, 2, 3, …, and one `basic.ack` with `multiple` settles all that are in
//! hand up to its number. So it may be sent only when every number up to it is settled; and its own number must still
//! be in hand, or the broker closes the channel.

use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;

/// An acknowledgement is never kept back for more deliveries than this.
const MOST: u16 = 64;
/// How many deliveries a slow one may lie behind before it is kept apart.
const SPAN: RangeInclusive<usize> = 1024..=4 * u16::MAX as usize;

/// The deliveries of one channel.
#[derive(Debug)]
pub(crate) struct Window {
    /// How many settled deliveries the broker is left in the dark about at most.
    most: usize,
    /// How many deliveries `states` may span.
    span: usize,
    /// The number of the first of `states`. Below it all is told, or in `slow`, or in `late`.
    first: u64,
    states: VecDeque<State>,
    /// What of `states` is settled and not told, in the order in which it was settled.
    due: Vec<u64>,
    /// In hand, and far behind. While there is one, no acknowledgement can pass it.
    slow: BTreeSet<u64>,
    /// Was slow; settled and not told.
    late: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Or not handed out yet.
    InHand,
    /// Not told.
    Settled,
    Told,
}

/// What is to be done after a delivery was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing: others wait already, and this one with them.
    Waits,
    /// It is the first that waits: to be told within the time bound.
    WaitsFirst,
    /// It is time to tell.
    Now,
}

/// One acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) tag: u64,
    /// And all that are in hand below it.
    pub(crate) multiple: bool,
}

impl Window {
    /// The window of a channel with this prefetch. Half of it is the most that is kept back: else the broker would have
    /// nothing to hand out until it is told.
    pub(crate) fn new(prefetch: u16) -> Self {
        Self {
            most: usize::from((prefetch / 2).clamp(1, MOST)),
            span: (4 * usize::from(prefetch)).clamp(*SPAN.start(), *SPAN.end()),
            first: 1,
            states: VecDeque::new(),
            due: Vec::new(),
            slow: BTreeSet::new(),
            late: Vec::new(),
        }
    }

    /// The window of a channel on which every acknowledgement is told at once.
    pub(crate) fn at_once() -> Self {
        Self { most: 1, ..Self::new(1) }
    }

    /// This delivery is done. Settled a second time it changes nothing.
    pub(crate) fn settle(&mut self, tag: u64) -> Due {
        if self.slow.remove(&tag) {
            self.late.push(tag);
        } else {
            match self.state(tag) {
                Some(state) if *state == State::InHand => *state = State::Settled,
                _ => return Due::Waits,
            }
            self.due.push(tag);
        }
        match self.due.len() + self.late.len() {
            due if due >= self.most => Due::Now,
            1 => Due::WaitsFirst,
            _ => Due::Waits,
        }
    }

    /// This delivery was told to the broker by other means (`basic.nack`). To be called when that is sent, before
    /// anything else of this window is.
    pub(crate) fn told(&mut self, tag: u64) {
        if !self.slow.remove(&tag)
            && let Some(state) = self.state(tag)
            && *state == State::InHand
        {
            *state = State::Told;
        }
    }

    /// True when one of the deliveries up to this number is neither settled nor told.
    pub(crate) fn has_in_hand(&self, last: u64) -> bool {
        let count = usize::try_from((last + 1).saturating_sub(self.first)).unwrap_or(usize::MAX);
        // A number that was never settled may not have its state yet.
        !self.slow.is_empty()
            || self.states.len() < count
            || self.states.iter().take(count).any(|state| *state == State::InHand)
    }

    /// What to send when [`Due::Now`] was answered: one acknowledgement for all up to the first that is in hand; and
    /// single ones for those behind it only when as many as may be wait there.
    pub(crate) fn tell(&mut self, send: impl FnMut(Ack)) {
        self.send(self.most, send);
    }

    /// What to send when nothing may wait any longer.
    pub(crate) fn tell_all(&mut self, send: impl FnMut(Ack)) {
        self.send(1, send);
    }

    fn send(&mut self, too_many: usize, mut send: impl FnMut(Ack)) {
        // Before any that passes them: two acknowledgements of one delivery would end the channel.
        for tag in self.late.drain(..) {
            send(Ack { tag, multiple: false });
        }
        if self.slow.is_empty() {
            self.send_front(&mut send);
        }
        if self.due.len() >= too_many {
            for tag in std::mem::take(&mut self.due) {
                if let Some(state) = self.state(tag) {
                    *state = State::Told;
                    send(Ack { tag, multiple: false });
                }
            }
        }
        self.trim();
    }

    fn send_front(&mut self, send: &mut impl FnMut(Ack)) {
        let (mut settled, mut last) = (0, 0);
        while let Some(state) = self.states.front().filter(|state| **state != State::InHand) {
            if *state == State::Settled {
                (settled, last) = (settled + 1, self.first);
            }
            self.states.pop_front();
            self.first += 1;
        }
        if settled > 0 {
            send(Ack { tag: last, multiple: settled > 1 });
            self.due.retain(|tag| *tag >= self.first);
        }
    }

    /// Keeps what is remembered small, however slow the slowest is.
    fn trim(&mut self) {
        while let Some(state) = self.states.front() {
            match state {
                State::Told => {}
                State::InHand if self.states.len() > self.span => {
                    self.slow.insert(self.first);
                }
                State::InHand | State::Settled => return,
            }
            self.states.pop_front();
            self.first += 1;
        }
    }

    fn state(&mut self, tag: u64) -> Option<&mut State> {
        let index = usize::try_from(tag.checked_sub(self.first)?).ok()?;
        if index >= self.states.len() {
            self.states.resize(index + 1, State::InHand);
        }
        self.states.get_mut(index)
    }
}

#[cfg(test)]
#[path = "acks_tests.rs"]
mod tests;
