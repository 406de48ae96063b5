//! Knows which quorum queues may be new: a broker that is killed in the first seconds of one loses what it has confirmed there.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::topology::Route;

/// The longest time for which a new queue is spared: a clock cannot tell the end of just any.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Until when no copy is stored in a quorum queue, because it may be younger than
/// [`Options::new_queue_wait`](crate::Options::new_queue_wait): in any, or in the one that is named.
#[derive(Debug, Default)]
pub(crate) struct NewQueues(Mutex<Vec<(Option<String>, Instant)>>);

impl NewQueues {
    /// Notes that a queue, or any, may be new.
    pub(crate) fn note(&self, named: Option<String>, wait: Duration) {
        let ready_at = Instant::now() + wait.min(LONGEST_WAIT);
        let mut waits = self.0.lock();
        waits.retain(|(of, until)| *of != named && *until > Instant::now());
        waits.push((named, ready_at));
    }

    /// Waits until the target of this route is none that may be new. Cancel safe.
    pub(crate) async fn wait_ready(&self, route: &Route) {
        let ready_at = {
            let waits = self.0.lock();
            let of_this =
                |of: &Option<String>| of.as_deref().is_none_or(|queue| *route == Route::queue(queue));
            waits.iter().filter(|(of, _)| of_this(of)).map(|(_, until)| *until).max()
        };
        if let Some(ready_at) = ready_at.filter(|&ready_at| ready_at > Instant::now()) {
            // Boxed: only the first seconds of a queue need it.
            Box::pin(sleep_until(ready_at)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_may_be_new_is_waited_for() {
        let (queues, begun) = (NewQueues::default(), Instant::now());
        let [orders, bills] = ["orders", "bills"].map(Route::queue);
        queues.note(Some("orders".to_owned()), Duration::from_secs(3));
        queues.wait_ready(&bills).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        queues.note(None, Duration::from_secs(1));
        queues.wait_ready(&bills).await;
        assert_eq!(begun.elapsed().as_secs(), 1);
        queues.wait_ready(&orders).await;
        assert_eq!(begun.elapsed().as_secs(), 3);
        // The end of time is bounded.
        queues.note(None, Duration::MAX);
        queues.wait_ready(&bills).await;
        assert_eq!(begun.elapsed().as_secs(), 3 + LONGEST_WAIT.as_secs());
    }
}
