//! Decides which acknowledgements of one channel to send. Pure.
//!
//! RabbitMQ numbers the deliveries of a channel 1, 2, 3, …, and one `basic.ack` with `multiple` settles all deliveries in flight
//! up to its number. So it may only be sent if every delivery up to it is settled; and its own delivery must still be in flight,
//! otherwise the broker closes the channel.

use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;

/// Maximum number of acknowledgements that wait.
const MOST: u16 = 64;
/// Maximum distance between a slow delivery and the latest one before the slow one is tracked separately.
const SPAN: RangeInclusive<usize> = 1024..=4 * u16::MAX as usize;

/// The deliveries of one channel.
#[derive(Debug)]
pub(crate) struct AckWindow {
    /// Maximum number of unsent acknowledgements.
    most: usize,
    /// Maximum number of deliveries in `states`.
    span: usize,
    /// Tag of the first of `states`. Each delivery below it is acknowledged, or in `slow`, or in `late`.
    first: u64,
    states: VecDeque<State>,
    /// Tags in `states` that are settled and not acknowledged, in the order of settling.
    due: Vec<u64>,
    /// Unsettled, and far behind. While there is one, no multiple acknowledgement can pass it.
    slow: BTreeSet<u64>,
    /// Were slow; settled and not acknowledged.
    late: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Unsettled, or not handed out yet.
    Unsettled,
    /// Settled, but not acknowledged.
    Settled,
    Acknowledged,
}

/// What to do after a delivery was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing: others wait already, and this one waits with them.
    Waits,
    /// It is the first that waits: acknowledge it within the time limit.
    WaitsFirst,
    /// Send acknowledgements now.
    Now,
}

/// One acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) tag: u64,
    /// True to include all unsettled deliveries below it.
    pub(crate) multiple: bool,
}

impl AckWindow {
    /// Creates the window of a channel with this prefetch. At most half of the prefetch waits: otherwise the broker could deliver
    /// nothing until it gets the acknowledgements.
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

    /// Creates the window of a channel on which every acknowledgement is sent immediately.
    pub(crate) fn immediate() -> Self {
        Self { most: 1, ..Self::new(1) }
    }

    /// Records a settled delivery. A second call changes nothing.
    pub(crate) fn settle(&mut self, tag: u64) -> Due {
        if self.slow.remove(&tag) {
            self.late.push(tag);
        } else {
            match self.state(tag) {
                Some(state) if *state == State::Unsettled => *state = State::Settled,
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

    /// Records a delivery that was settled by other means (`basic.nack`). Call it when that is sent, before anything else of this
    /// window is sent.
    pub(crate) fn settled_otherwise(&mut self, tag: u64) {
        if !self.slow.remove(&tag)
            && let Some(state) = self.state(tag)
            && *state == State::Unsettled
        {
            *state = State::Acknowledged;
        }
    }

    /// Returns true if a delivery with a tag up to `last` is unsettled.
    pub(crate) fn has_in_flight(&self, last: u64) -> bool {
        let count = usize::try_from((last + 1).saturating_sub(self.first)).unwrap_or(usize::MAX);
        // A number that was never settled may not have its state yet.
        !self.slow.is_empty()
            || self.states.len() < count
            || self.states.iter().take(count).any(|state| *state == State::Unsettled)
    }

    /// Takes the acknowledgements to send after [`Due::Now`], in order: a multiple one for all up to the first unsettled delivery;
    /// single ones for those behind it only if the maximum number waits there.
    #[must_use]
    pub(crate) fn take_due(&mut self) -> Vec<Ack> {
        self.take(self.most)
    }

    /// Takes all waiting acknowledgements, to be sent in order.
    #[must_use]
    pub(crate) fn take_all(&mut self) -> Vec<Ack> {
        self.take(1)
    }

    fn take(&mut self, too_many: usize) -> Vec<Ack> {
        // Before any that passes them: two acknowledgements of one delivery would end the channel.
        let mut acks: Vec<_> = self.late.drain(..).map(|tag| Ack { tag, multiple: false }).collect();
        if self.slow.is_empty() {
            acks.extend(self.take_front());
        }
        if self.due.len() >= too_many {
            for tag in std::mem::take(&mut self.due) {
                if let Some(state) = self.state(tag) {
                    *state = State::Acknowledged;
                    acks.push(Ack { tag, multiple: false });
                }
            }
        }
        self.trim();
        acks
    }

    fn take_front(&mut self) -> Option<Ack> {
        let (mut settled, mut last) = (0, 0);
        while let Some(state) = self.states.front().filter(|state| **state != State::Unsettled) {
            if *state == State::Settled {
                (settled, last) = (settled + 1, self.first);
            }
            self.states.pop_front();
            self.first += 1;
        }
        if settled == 0 {
            return None;
        }
        self.due.retain(|tag| *tag >= self.first);
        Some(Ack { tag: last, multiple: settled > 1 })
    }

    /// Bounds the memory, however slow the slowest delivery is.
    fn trim(&mut self) {
        while let Some(state) = self.states.front() {
            match state {
                State::Acknowledged => {}
                State::Unsettled if self.states.len() > self.span => {
                    self.slow.insert(self.first);
                }
                State::Unsettled | State::Settled => return,
            }
            self.states.pop_front();
            self.first += 1;
        }
    }

    fn state(&mut self, tag: u64) -> Option<&mut State> {
        let index = usize::try_from(tag.checked_sub(self.first)?).ok()?;
        if index >= self.states.len() {
            self.states.resize(index + 1, State::Unsettled);
        }
        self.states.get_mut(index)
    }
}

#[cfg(test)]
#[path = "ack_window_tests.rs"]
mod tests;
