//! Who waits for a connection, and gives up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;

use futures::task::AtomicWaker;

/// Somebody waits for a connection. Dropped before the [end](Self::end), it has given up.
pub(super) struct Waiter {
    given_up: Option<Arc<Shared>>,
}

/// Whether nobody waits for the connection of a stream any more.
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

    /// The connection is there, and lives on.
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
    /// Whether nobody waits any more. If somebody does, the task is woken once that changes.
    pub(super) fn poll(&self, cx: &Context<'_>) -> bool {
        self.0.reader.register(cx.waker());
        self.0.yes.load(Ordering::Acquire)
    }
}
