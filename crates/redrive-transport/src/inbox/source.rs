//! The end of a task that takes deliveries.

use std::fmt;
use std::sync::Arc;

use redrive_core::{Delivery, TransportError, TransportErrorKind};
use tokio::sync::watch;

use super::{Arrival, Shared, Wish};

/// The end of one task that takes deliveries from a broker. Dropped in a panic, it has the consumer told so: otherwise that would
/// wait for ever.
pub struct Source<T: Arrival> {
    shared: Arc<Shared<T>>,
    number: usize,
    wishes: Wishes,
}

/// What is wanted, and its changes. Each clone sees every change by itself.
#[derive(Clone, Debug)]
pub struct Wishes(watch::Receiver<Wish>);

impl<T: Arrival> Source<T> {
    pub(super) fn new(shared: Arc<Shared<T>>, number: usize, wishes: Wishes) -> Self {
        Self { shared, number, wishes }
    }

    /// Waits until deliveries are wanted, and answers how many in flight at most; `None` at the end. Until then it says that nothing
    /// comes from here: call it only when everything that the broker handed out is [pushed](Self::push).
    ///
    /// Cancel safe.
    pub async fn wanted(&mut self) -> Option<u32> {
        loop {
            // Looked at before `stopped`: a change after this look ends the wait below. The other way round a limit that is
            // taken back in between would be seen here, and this source would never say that it has stopped.
            let wish = self.wishes.see();
            if let Wish::Deliveries(limit) = wish {
                return Some(limit);
            }
            self.stopped();
            if wish == Wish::End {
                return None;
            }
            self.wishes.changed().await;
        }
    }

    /// What is wanted, to wait for a change beside other work.
    #[must_use]
    pub fn wishes(&self) -> Wishes {
        self.wishes.clone()
    }

    /// What is wanted now.
    #[must_use]
    pub fn wish(&self) -> Wish {
        self.wishes.now()
    }

    /// Waits for a change of what is wanted, and answers it. A change back counts. Cancel safe.
    pub async fn changed(&mut self) -> Wish {
        self.wishes.changed().await
    }

    /// Says that nothing more comes from here until deliveries are wanted again. Does nothing while they are wanted.
    pub fn stopped(&self) {
        {
            let mut state = self.shared.state();
            // While nobody can want something else.
            if matches!(self.wishes.now(), Wish::Deliveries(_)) {
                return;
            }
            state.stopped(self.number);
        }
        self.shared.changed.notify_waiters();
    }

    /// What the broker handed out, in its order.
    pub fn push(&self, arrived: impl IntoIterator<Item = T>) {
        let was_empty = self.shared.state().push(arrived);
        // As long as something is there nobody waits.
        if was_empty {
            self.shared.changed.notify_waiters();
        }
    }

    /// Only a person can help: [`receive`](super::Inbox::receive) answers this error until the limit is set again, which
    /// [changes](Self::changed) the wish. Does nothing where the wish has changed since it was last seen here: try again then.
    ///
    /// Await [`changed`](Self::changed) next, in both cases: deliveries are still [wanted](Self::wanted), and that answers at once.
    pub fn fail(&self, error: TransportError) {
        {
            let mut state = self.shared.state();
            if self.wishes.0.has_changed().unwrap_or(true) {
                return;
            }
            state.fail(error);
        }
        self.shared.changed.notify_waiters();
    }

    /// What was lost before it was received, since this was asked for the last time: for
    /// [`Interrupted`](redrive_core::Signal::Interrupted).
    #[must_use]
    pub fn take_unreceived(&self) -> Vec<Delivery> {
        let (unreceived, lost) = self.shared.state().take_unreceived();
        // Outside of the lock: what is dropped may give itself back.
        drop(lost);
        unreceived
    }
}

impl Wishes {
    pub(super) fn new(wishes: watch::Receiver<Wish>) -> Self {
        Self(wishes)
    }

    /// What is wanted now.
    #[must_use]
    pub fn now(&self) -> Wish {
        *self.0.borrow()
    }

    /// Waits for a change, and answers it. A change back counts. Cancel safe.
    pub async fn changed(&mut self) -> Wish {
        match self.0.changed().await {
            Ok(()) => *self.0.borrow_and_update(),
            Err(_) => Wish::End,
        }
    }

    /// Resolves when something else than this many deliveries is wanted; at once where it is so already. Cancel safe.
    pub async fn other_than(&mut self, limit: u32) {
        // Where nobody can want anything any more, that is another wish too.
        let _ = self.0.wait_for(|wish| *wish != Wish::Deliveries(limit)).await;
    }

    fn see(&mut self) -> Wish {
        *self.0.borrow_and_update()
    }
}

impl<T: Arrival> Drop for Source<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.break_off();
        }
        self.shared.state().stopped(self.number);
        self.shared.changed.notify_waiters();
    }
}

/// Held by a task that takes no deliveries itself and that those in flight depend on, for example one that renews their locks.
/// Dropped in a panic, it has the consumer told so.
pub struct PanicGuard<T: Arrival>(Arc<Shared<T>>);

impl<T: Arrival> PanicGuard<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Self {
        Self(shared)
    }
}

impl<T: Arrival> Drop for PanicGuard<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.break_off();
        }
    }
}

impl<T: Arrival> fmt::Debug for PanicGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PanicGuard").finish_non_exhaustive()
    }
}

impl<T: Arrival> Shared<T> {
    fn break_off(&self) {
        let message = format!(
            "a task that takes deliveries of `{}` panicked (see the log): connect another transport, or restart the process",
            self.queue
        );
        self.state().break_off(TransportError::new(TransportErrorKind::Other, message));
        self.changed.notify_waiters();
    }
}

impl<T: Arrival> fmt::Debug for Source<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("number", &self.number)
            .field("wish", &self.wish())
            .finish_non_exhaustive()
    }
}
