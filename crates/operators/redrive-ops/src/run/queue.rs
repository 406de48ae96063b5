//! Whether the work queue can take more.

use std::fmt;

use redrive_core::shelves::WorkQueue;

/// Why a run sends nothing until that changes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hold {
    /// The work queue has no consumer.
    NoConsumer,
    /// The work queue grows: its consumer is slower than the run.
    QueueGrows,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoConsumer => "the work queue has no consumer",
            Self::QueueGrows => "the work queue grows",
        })
    }
}

/// How many seconds of the run may wait in the work queue.
const MAX_SECONDS: u64 = 5;

/// Compares the work queue with what it was when the run began.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueGuard {
    is_ignored: bool,
    /// Depth before the run sent anything.
    depth_before: Option<u64>,
    hold: Option<Hold>,
}

impl QueueGuard {
    pub(super) fn new(is_ignored: bool) -> Self {
        Self { is_ignored, ..Self::default() }
    }

    pub(super) fn hold(&self) -> Option<Hold> {
        self.hold
    }

    /// Holds the run while nobody consumes, or while more waits than the run sends in some seconds. It goes on once half of that is
    /// gone, so that it does not stop and go with every look.
    pub(super) fn saw(&mut self, queue: WorkQueue, rate: u32, canary: u32) {
        if self.is_ignored {
            return;
        }
        if queue.consumers == Some(0) {
            self.hold = Some(Hold::NoConsumer);
            return;
        }
        let Some(depth) = queue.depth else {
            self.hold = None;
            return;
        };
        let before = *self.depth_before.get_or_insert(depth);
        let most = (u64::from(rate) * MAX_SECONDS).max(canary.into());
        let most = if self.hold == Some(Hold::QueueGrows) { most / 2 } else { most };
        self.hold = (depth > before.saturating_add(most)).then_some(Hold::QueueGrows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_ignore_work_queues_holds_whatever_its_depth() {
        let mut guard = QueueGuard::default();
        guard.saw(WorkQueue::new(Some(0), Some(0)), 1, 5);
        assert_eq!(guard.hold(), Some(Hold::NoConsumer));
        guard.saw(WorkQueue::new(Some(0), Some(1)), 1, 5);
        assert_eq!(guard.hold(), None);
    }

    #[test]
    fn a_queue_ignore_work_queues_holds_nothing_if_the_operator_says_so() {
        let mut guard = QueueGuard::new(true);
        guard.saw(WorkQueue::new(Some(1000), Some(0)), 1, 5);
        assert_eq!(guard.hold(), None);
    }

    #[test]
    fn a_growing_queue_holds_until_half_of_it_is_gone() {
        let mut guard = QueueGuard::default();
        let mut seen = Vec::new();
        for depth in [100, 150, 151, 126, 125, 150, 0] {
            guard.saw(WorkQueue::new(Some(depth), None), 10, 5);
            seen.push(guard.hold().is_some());
        }
        assert_eq!(seen, [false, false, true, true, false, false, false]);
    }

    #[test]
    fn what_the_broker_does_not_tell_holds_nothing() {
        let mut guard = QueueGuard::default();
        guard.saw(WorkQueue::default(), 10, 5);
        assert_eq!(guard.hold(), None);
    }
}
