//! Which messages were handled, and when.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result};
use tokio::sync::Notify;

use super::Finish;
use crate::task;

/// The handler of all contestants: it notes which message came, so that none can be counted twice or left out.
#[derive(Debug)]
pub(crate) struct Tally {
    wanted: u64,
    seen: Vec<AtomicU64>,
    handled: AtomicU64,
    duplicates: AtomicU64,
    settled: AtomicU64,
    began: OnceLock<Instant>,
    ended: OnceLock<Instant>,
    all_settled: Notify,
}

impl Tally {
    /// For messages numbered from 0 to `wanted` − 1.
    pub(crate) fn new(wanted: u64) -> Self {
        let words = usize::try_from(wanted.div_ceil(64)).expect("they fit into memory");
        Self {
            wanted,
            seen: (0..words).map(|_| AtomicU64::new(0)).collect(),
            handled: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            began: OnceLock::new(),
            ended: OnceLock::new(),
            all_settled: Notify::new(),
        }
    }

    /// Notes the message with this body, and gives back its number.
    pub(crate) fn handle(&self, body: &[u8]) -> u64 {
        self.began.get_or_init(Instant::now);
        let number = task::number(body).expect("a message of this run begins with its number");
        let word = usize::try_from(number / 64).expect("it fits into memory");
        let bit = 1 << (number % 64);
        if self.seen[word].fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            self.handled.fetch_add(1, Ordering::Relaxed);
        } else {
            self.duplicates.fetch_add(1, Ordering::Relaxed);
        }
        number
    }

    pub(crate) fn all_handled(&self) -> bool {
        self.handled.load(Ordering::Relaxed) >= self.wanted
    }

    /// Notes that this many more messages were settled, as far as the client can know.
    pub(crate) fn settled(&self, messages: u64) {
        let settled = self.settled.fetch_add(messages, Ordering::Relaxed) + messages;
        if settled >= self.wanted {
            self.ended.get_or_init(Instant::now);
            self.all_settled.notify_one();
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Resolves once everything is settled; for one waiter.
    pub(crate) async fn until_settled(&self) {
        if !self.is_settled() {
            self.all_settled.notified().await;
        }
    }

    pub(super) fn finish(&self) -> Result<Finish> {
        let began = self.began.get().context("no message came")?;
        let ended = self.ended.get().context("not everything was settled")?;
        Ok(Finish {
            seconds: (*ended - *began).as_secs_f64(),
            messages: self.handled.load(Ordering::Relaxed),
            duplicates: self.duplicates.load(Ordering::Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_comes_twice_counts_once() {
        let tally = Tally::new(2);
        for number in [0, 1, 1] {
            assert_eq!(tally.handle(&task::body(number, 8)), number);
        }
        assert!(tally.all_handled() && !tally.is_settled());
        tally.settled(2);
        let finish = tally.finish().unwrap();
        assert_eq!((finish.messages, finish.duplicates), (2, 1));
    }

    #[test]
    fn nothing_is_reported_before_all_is_settled() {
        let tally = Tally::new(2);
        tally.handle(&task::body(0, 8));
        tally.settled(1);
        assert!(tally.finish().is_err());
    }
}
