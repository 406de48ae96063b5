//! The inbox's end for a task that takes deliveries.

use std::fmt;
use std::sync::{Arc, Weak};

use redrive_core::{Delivery, TransportError, TransportErrorKind};
use tokio::sync::watch;

use super::state::Added;
use super::{Arrival, Shared, Wish};

/// The end of one task that takes deliveries from a broker. If the task panics, the drop makes
/// [`receive`](super::Inbox::receive) fail instead of waiting forever.
pub struct Source<T: Arrival> {
    shared: Arc<Shared<T>>,
    number: usize,
    wishes: Wishes,
}

/// Adds deliveries to an inbox from where they are read, so that no task of a source stands between; see [`Source::inlet`]. It
/// does not keep the inbox alive: deliveries in it may keep the connection, and the connection this. Clones are the same.
pub struct Inlet<T: Arrival>(Weak<Shared<T>>);

/// A view of the consumer's [`Wish`] and its changes. Each clone sees every change.
#[derive(Clone, Debug)]
pub struct Wishes(watch::Receiver<Wish>);

impl<T: Arrival> Source<T> {
    pub(super) fn new(shared: Arc<Shared<T>>, number: usize, wishes: Wishes) -> Self {
        Self { shared, number, wishes }
    }

    /// Waits until the consumer wants deliveries, and returns the maximum number in flight; returns `None` at the end. While it
    /// waits, this source counts as [stopped](Self::stopped): [push](Self::push) everything that the broker delivered first.
    ///
    /// Cancel safe.
    pub async fn wanted(&mut self) -> Option<u32> {
        loop {
            // Read the wish before `stopped`: a change after the read ends the wait below. In the other order, `stopped` may
            // do nothing because a limit is set; if that limit is withdrawn before the read, this source never reports its stop.
            let wish = self.wishes.read();
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

    /// Returns a view of the wish, to wait for a change beside other work.
    #[must_use]
    pub fn wishes(&self) -> Wishes {
        self.wishes.clone()
    }

    /// Returns the current wish.
    #[must_use]
    pub fn wish(&self) -> Wish {
        self.wishes.now()
    }

    /// Waits for a change of the wish, and returns the new one. Also returns if the value changed and changed back. Cancel safe.
    pub async fn changed(&mut self) -> Wish {
        self.wishes.changed().await
    }

    /// Reports that no more deliveries come from this source until the consumer wants some again. Does nothing while it wants
    /// some.
    pub fn stopped(&self) {
        {
            let mut state = self.shared.state();
            // Checked while the state is locked: the wish cannot change meanwhile.
            if matches!(self.wishes.now(), Wish::Deliveries(_)) {
                return;
            }
            state.source_stopped(self.number);
        }
        self.shared.changed.notify_waiters();
    }

    /// Adds deliveries to the inbox, in the broker's order. Those that come after [`Inbox::close`](super::Inbox::close) are
    /// dropped, which gives them back.
    pub fn push(&self, arrived: impl IntoIterator<Item = T>) {
        self.shared.push(arrived);
    }

    /// Returns an end that only adds deliveries, for the task that reads them from the connection. What it adds comes from this
    /// source: nothing more may come once this one has [stopped](Self::stopped).
    #[must_use]
    pub fn inlet(&self) -> Inlet<T> {
        Inlet(Arc::downgrade(&self.shared))
    }

    /// Reports an error after which this source tries nothing more, such as a connection that was closed for good: [`receive`](super::Inbox::receive) returns it until the limit is set
    /// again, which [changes](Self::changed) the wish. Does nothing if the wish has changed since this source last read it: try
    /// again then.
    ///
    /// Await [`changed`](Self::changed) next, in both cases: deliveries are still wanted, so [`wanted`](Self::wanted) would
    /// return at once.
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

    /// Returns the deliveries that were lost before they were received, since the last call: for
    /// [`Interrupted`](redrive_core::transport::Signal::Interrupted).
    #[must_use]
    pub fn take_unreceived(&self) -> Vec<Delivery> {
        let (unreceived, lost) = self.shared.state().take_unreceived();
        // Dropped without the lock: a receipt may give its delivery back.
        drop(lost);
        unreceived
    }
}

impl Wishes {
    pub(super) fn new(wishes: watch::Receiver<Wish>) -> Self {
        Self(wishes)
    }

    /// Returns the current wish.
    #[must_use]
    pub fn now(&self) -> Wish {
        *self.0.borrow()
    }

    /// Waits for a change, and returns the new wish. Also returns if the value changed and changed back. Cancel safe.
    pub async fn changed(&mut self) -> Wish {
        match self.0.changed().await {
            Ok(()) => *self.0.borrow_and_update(),
            Err(_) => Wish::End,
        }
    }

    /// Waits until the consumer wants anything but this many deliveries; returns at once if it already does. Cancel safe.
    pub async fn other_than(&mut self, limit: u32) {
        // An error means that the inbox is gone: that counts as another wish.
        let _ = self.0.wait_for(|wish| *wish != Wish::Deliveries(limit)).await;
    }

    /// Returns the current wish, and marks it as seen.
    fn read(&mut self) -> Wish {
        *self.0.borrow_and_update()
    }
}

impl<T: Arrival> Drop for Source<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.mark_broken();
        }
        self.shared.state().source_stopped(self.number);
        self.shared.changed.notify_waiters();
    }
}

/// Makes [`receive`](super::Inbox::receive) fail if the task that holds it panics. For tasks that take no deliveries
/// themselves, but that deliveries in flight depend on, for example a task that renews their locks.
pub struct PanicGuard<T: Arrival>(Arc<Shared<T>>);

impl<T: Arrival> PanicGuard<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Self {
        Self(shared)
    }
}

impl<T: Arrival> Drop for PanicGuard<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.mark_broken();
        }
    }
}

impl<T: Arrival> fmt::Debug for PanicGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PanicGuard").finish_non_exhaustive()
    }
}

impl<T: Arrival> Inlet<T> {
    /// As [`Source::push`]. Without source and inbox the deliveries are dropped, which gives them back.
    pub fn push(&self, arrived: impl IntoIterator<Item = T>) {
        match self.0.upgrade() {
            Some(inbox) => inbox.push(arrived),
            None => arrived.into_iter().for_each(drop),
        }
    }
}

impl<T: Arrival> Clone for Inlet<T> {
    fn clone(&self) -> Self {
        Self(Weak::clone(&self.0))
    }
}

impl<T: Arrival> fmt::Debug for Inlet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inlet").finish_non_exhaustive()
    }
}

impl<T: Arrival> Shared<T> {
    fn push(&self, arrived: impl IntoIterator<Item = T>) {
        let added = self.state().push(arrived);
        match added {
            // Nobody waits while the inbox is not empty.
            Added::More => {}
            Added::First => self.changed.notify_waiters(),
            // Dropped without the lock: a receipt may give its delivery back.
            Added::Closed(late) => drop(late),
        }
    }

    fn mark_broken(&self) {
        let message = format!(
            "a task that takes deliveries of `{}` panicked (see the log): connect another transport, or restart the process",
            self.queue
        );
        self.state().mark_broken(TransportError::new(TransportErrorKind::Closed, message));
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
