//! Notices when the caller that waits for a connection gives up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;

use futures::task::AtomicWaker;

/// Held by the caller that waits for a connection. Dropping it before [`end`](Self::end) means that the caller has given up.
pub(super) struct Waiter {
    given_up: Option<Arc<Shared>>,
}

/// Tells whether nobody waits for a stream's connection any more.
#[derive(Default)]
pub(super) struct GivenUp(Arc<Shared>);

#[derive(Default)]
struct Shared {
    yes: AtomicBool,
    reader: AtomicWaker,
}

impl Waiter {
    pub(super) fn new() -> (Self, GivenUp) {
        let shared = Arc::<Shared>::default();
        (Self { given_up: Some(Arc::clone(&shared)) }, GivenUp(shared))
    }

    /// Ends the wait: the connection is open, and stays open.
    pub(super) fn end(mut self) {
        self.given_up = None;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(given_up) = &self.given_up {
            given_up.yes.store(true, Ordering::Release);
            given_up.reader.wake();
        }
    }
}

impl GivenUp {
    /// Returns true if nobody waits any more. Otherwise wakes the task once that changes.
    pub(super) fn poll(&self, cx: &Context<'_>) -> bool {
        self.0.reader.register(cx.waker());
        self.0.yes.load(Ordering::Acquire)
    }
}
