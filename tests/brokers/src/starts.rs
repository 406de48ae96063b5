//! Nodes of this machine start in turns: more at once than it has processors starve each other, and every test that runs meanwhile.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::install::{self, Lock};

/// Time between two tries to get a turn.
const AGAIN: Duration = Duration::from_millis(100);

static WAITING: Mutex<Waiting> = Mutex::new(Waiting { threads: 0, since: None, before: Duration::ZERO });

/// The time in which threads of this process wait for a turn.
#[derive(Debug)]
struct Waiting {
    threads: usize,
    /// Since when at least one waits.
    since: Option<Instant>,
    /// For how long at least one waited before.
    before: Duration,
}

impl Waiting {
    fn begin(&mut self, now: Instant) {
        self.threads += 1;
        self.since.get_or_insert(now);
    }

    fn end(&mut self, now: Instant) {
        self.threads -= 1;
        if self.threads == 0 {
            self.before = self.until(now);
            self.since = None;
        }
    }

    fn until(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

/// A thread that waits, until it is dropped.
struct Waiter;

impl Waiter {
    fn new() -> Self {
        WAITING.lock().unwrap_or_else(PoisonError::into_inner).begin(Instant::now());
        Self
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        WAITING.lock().unwrap_or_else(PoisonError::into_inner).end(Instant::now());
    }
}

/// Returns for how long this process had a thread that waited for a turn: a test that is given a time limit cannot help that.
#[must_use]
pub fn waited() -> Duration {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner).until(Instant::now())
}

/// Waits for a turn to start a node.
pub(crate) fn turn() -> Result<Lock> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let folder = install::cache().unwrap_or_else(std::env::temp_dir);
    fs::create_dir_all(&folder)?;
    let _waiter = Waiter::new();
    loop {
        for place in 0..processors {
            if let Some(turn) = Lock::try_take(&folder.join(format!("node-starts-{place}")))? {
                return Ok(turn);
            }
        }
        thread::sleep(AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_which_several_wait_counts_once() {
        let mut waiting = Waiting { threads: 0, since: None, before: Duration::ZERO };
        let start = Instant::now();
        let at = |secs| start + Duration::from_secs(secs);
        let waited = |waiting: &Waiting, secs| waiting.until(at(secs)).as_secs();
        waiting.begin(at(1));
        waiting.begin(at(2));
        assert_eq!(waited(&waiting, 4), 3);
        waiting.end(at(5));
        waiting.end(at(6));
        assert_eq!(waited(&waiting, 9), 5, "nobody waits any more");
        waiting.begin(at(10));
        assert_eq!(waited(&waiting, 12), 7);
    }
}
