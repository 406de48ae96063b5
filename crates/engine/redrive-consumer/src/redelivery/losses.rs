//! Counts how often a message was handled here and lost before it could be settled. Pure.
//!
//! A broker takes back a delivery that is held too long: RabbitMQ after its consumer timeout, which not every queue counts. The
//! message of a slower handler would be handled again and again, and neither success nor failure would ever be recorded.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use redrive_core::Delivery;

use super::ledger_state::Key;

/// Maximum number of messages that are counted; the oldest are forgotten first.
const MOST_COUNTED: usize = 1024;

/// Messages that this process handled and could not settle.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    of: HashMap<Key, Lost>,
    order: VecDeque<Key>,
}

#[derive(Debug, Default)]
struct Lost {
    /// Number of handlers that came to an end too late.
    times: u32,
    /// Times of arrival of the redeliveries whose handlers still run.
    running: Vec<SystemTime>,
}

impl Losses {
    /// Records a loss. Returns how many there are by now.
    pub(crate) fn note(&mut self, delivery: &Delivery) -> u32 {
        let lost = self.of(delivery);
        lost.times = lost.times.saturating_add(1);
        lost.times
    }

    /// Records that a handler begins with a redelivery.
    pub(crate) fn begin(&mut self, redelivery: &Delivery) {
        self.of(redelivery).running.push(redelivery.received_at());
    }

    /// Records that this handler has come to an end.
    pub(crate) fn end(&mut self, redelivery: &Delivery) {
        let key = Key::of(redelivery);
        let Some(lost) = self.of.get_mut(&key) else { return };
        if let Some(at) = lost.running.iter().position(|&time| time == redelivery.received_at()) {
            lost.running.swap_remove(at);
        }
        if lost.times == 0 && lost.running.is_empty() {
            self.remove(&key);
        }
    }

    /// Forgets a message that was settled.
    pub(crate) fn forget(&mut self, delivery: &Delivery) {
        if !self.of.is_empty() {
            self.remove(&Key::of(delivery));
        }
    }

    /// Returns how often the message was lost since it was last settled. `hold`: how long the broker lets a delivery be held. A
    /// handler that has run for longer has lost its delivery, even if it never returns; one that has not may have lost it with
    /// a connection.
    pub(crate) fn times(&self, delivery: &Delivery, now: SystemTime, hold: Option<Duration>) -> u32 {
        if self.of.is_empty() {
            return 0;
        }
        let Some(lost) = self.of.get(&Key::of(delivery)) else { return 0 };
        let too_long = |&&since: &&SystemTime| {
            hold.is_some_and(|hold| now.duration_since(since).is_ok_and(|held| held >= hold))
        };
        let running = lost.running.iter().filter(too_long).count();
        // The handler of the first delivery, which nobody noted, runs as well.
        let first = usize::from(running > 0 && lost.times == 0);
        lost.times.saturating_add(u32::try_from(running + first).unwrap_or(u32::MAX))
    }

    fn of(&mut self, delivery: &Delivery) -> &mut Lost {
        let key = Key::of(delivery);
        if !self.of.contains_key(&key) {
            if self.order.len() == MOST_COUNTED
                && let Some(oldest) = self.order.pop_front()
            {
                self.of.remove(&oldest);
            }
            self.order.push_back(key.clone());
        }
        self.of.entry(key).or_default()
    }

    fn remove(&mut self, key: &Key) {
        if self.of.remove(key).is_some() {
            self.order.retain(|other| other != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_core::Message;
    use std::time::UNIX_EPOCH;

    fn delivery(id: usize) -> Delivery {
        Delivery::new(Message::new("").with_id(id.to_string()), "q", UNIX_EPOCH)
    }

    fn times(losses: &Losses, id: usize) -> u32 {
        losses.times(&delivery(id), UNIX_EPOCH, None)
    }

    #[test]
    fn a_handler_that_never_returns_counts_once_the_broker_took_its_delivery_back() {
        let mut losses = Losses::default();
        let hold = Some(Duration::from_secs(60));
        let after =
            |losses: &Losses, secs| losses.times(&delivery(1), UNIX_EPOCH + Duration::from_secs(secs), hold);
        losses.begin(&delivery(1));
        losses.begin(&delivery(1));
        assert_eq!((after(&losses, 59), after(&losses, 60)), (0, 3));
        assert_eq!(
            losses.times(&delivery(1), UNIX_EPOCH + Duration::from_secs(60), None),
            0,
            "held without a limit"
        );
        losses.end(&delivery(1));
        assert_eq!(after(&losses, 60), 2);
        losses.end(&delivery(1));
        losses.end(&delivery(1));
        assert!(losses.of.is_empty() && losses.order.is_empty());
    }

    #[test]
    fn losses_are_counted_until_it_is_settled() {
        let mut losses = Losses::default();
        assert_eq!(
            [losses.note(&delivery(1)), losses.note(&delivery(1)), losses.note(&delivery(2))],
            [1, 2, 1]
        );
        assert_eq!((times(&losses, 1), times(&losses, 3)), (2, 0));
        losses.forget(&delivery(1));
        losses.forget(&delivery(3));
        assert_eq!((times(&losses, 1), times(&losses, 2)), (0, 1));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut losses = Losses::default();
        for id in 0..=MOST_COUNTED {
            losses.note(&delivery(id));
        }
        assert_eq!((times(&losses, 0), times(&losses, 1)), (0, 1));
        assert_eq!((losses.of.len(), losses.order.len()), (MOST_COUNTED, MOST_COUNTED));
    }
}
