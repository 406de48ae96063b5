//! Polling for what no event tells, where `redrive_contract::eventually` is too little: the loop also watches something
//! else, as the life of a process, and the test has a deadline of its own.

use std::time::{Duration, Instant};

use tokio::time::Sleep;

/// Resolves when the next poll is due.
///
/// # Panics
/// When the deadline is over; `state` is what there is by then.
pub fn poll_again(every: Duration, deadline: Instant, state: impl FnOnce() -> String) -> Sleep {
    assert!(Instant::now() < deadline, "not in time: {}", state());
    tokio::time::sleep(every)
}
