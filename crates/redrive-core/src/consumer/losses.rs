//! Counts how often a message was handled and lost before it could be settled. Pure.
//!
//! A broker takes back a delivery that is held too long: RabbitMQ after its consumer timeout, which not every queue counts. The
//! message of a slower handler would be handled again and again, and neither success nor failure would ever be recorded.

use std::collections::{HashMap, VecDeque};

use super::ledger_state::Key;
use crate::delivery::Delivery;

/// Maximum number of messages that are counted; the oldest are forgotten first.
const MOST_COUNTED: usize = 1024;

/// Messages that this process handled to the end and could not settle.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    times: HashMap<Key, u32>,
    order: VecDeque<Key>,
}

impl Losses {
    /// Records a loss. Returns how many there are by now.
    pub(crate) fn note(&mut self, delivery: &Delivery) -> u32 {
        let key = Key::of(delivery);
        if !self.times.contains_key(&key) {
            if self.order.len() == MOST_COUNTED
                && let Some(oldest) = self.order.pop_front()
            {
                self.times.remove(&oldest);
            }
            self.order.push_back(key.clone());
        }
        let times = self.times.entry(key).or_default();
        *times = times.saturating_add(1);
        *times
    }

    /// Forgets a message that was settled.
    pub(crate) fn forget(&mut self, delivery: &Delivery) {
        if !self.times.is_empty() {
            let key = Key::of(delivery);
            if self.times.remove(&key).is_some() {
                self.order.retain(|other| *other != key);
            }
        }
    }

    /// Returns how often the message was lost since it was last settled.
    pub(crate) fn times(&self, delivery: &Delivery) -> u32 {
        if self.times.is_empty() {
            0
        } else {
            self.times.get(&Key::of(delivery)).copied().unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;
    use std::time::UNIX_EPOCH;

    fn delivery(id: usize) -> Delivery {
        Delivery::new(Message::new("").with_id(id.to_string()), "q", UNIX_EPOCH)
    }

    #[test]
    fn losses_are_counted_until_it_is_settled() {
        let mut losses = Losses::default();
        assert_eq!(
            [losses.note(&delivery(1)), losses.note(&delivery(1)), losses.note(&delivery(2))],
            [1, 2, 1]
        );
        assert_eq!((losses.times(&delivery(1)), losses.times(&delivery(3))), (2, 0));
        losses.forget(&delivery(1));
        losses.forget(&delivery(3));
        assert_eq!((losses.times(&delivery(1)), losses.times(&delivery(2))), (0, 1));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut losses = Losses::default();
        for id in 0..=MOST_COUNTED {
            losses.note(&delivery(id));
        }
        assert_eq!((losses.times(&delivery(0)), losses.times(&delivery(1))), (0, 1));
        assert_eq!((losses.times.len(), losses.order.len()), (MOST_COUNTED, MOST_COUNTED));
    }
}
