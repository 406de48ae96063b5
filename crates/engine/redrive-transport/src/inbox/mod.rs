//! Passes deliveries from the tasks that take them to the consumer that receives them.
//!
//! [`Inbox`] is the consumer's end, and [`Source`] the end of a task. [`Wish`] is how many deliveries the consumer wants.

mod source;
mod state;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use redrive_core::{Delivery, TransportError};
use tokio::sync::{Notify, watch};

use self::state::State;
pub use source::{Inlet, PanicGuard, Source, Wishes};

/// A delivery in an inbox.
pub trait Arrival: Send + 'static {
    /// Returns true if the delivery can no longer be settled: its connection or lock was lost, and the broker delivers it again.
    /// The consumer does not receive it then.
    fn is_lost(&self) -> bool;

    /// Returns the delivery for [`Interrupted`](redrive_core::transport::Signal::Interrupted) to name if it is lost before it was received
    /// (see [`Source::take_unreceived`]). Default: `None`, for a broker that numbers its deliveries.
    fn unreceived(&self) -> Option<Delivery> {
        None
    }
}

/// The number of deliveries that the consumer wants from the tasks that take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// At most this many deliveries in flight; at least 1.
    Deliveries(u32),
    /// No deliveries for now.
    Nothing,
    /// No more deliveries, ever.
    End,
}

/// The consumer's end: a [`Receiver`](redrive_core::transport::Receiver) receives from it and sets its limit. Clones are the same inbox;
/// when the last clone is dropped, its sources get the [end](Wish::End).
///
/// The inbox does not limit its size: the broker does, by the limit that the sources pass on to it. A source that requests a
/// number of deliveries each time must count by itself: deliveries in flight, received or not, plus requested ones never exceed
/// the limit.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redrive_core::TransportError> {
/// use redrive_transport::{Arrival, Inbox};
///
/// struct Arrived(&'static str);
///
/// impl Arrival for Arrived {
///     fn is_lost(&self) -> bool {
///         false
///     }
/// }
///
/// let inbox = Inbox::new("orders");
/// let mut source = inbox.source();
/// tokio::spawn(async move {
///     while let Some(limit) = source.wanted().await {
///         assert_eq!(limit, 10); // request up to 10 from the broker, then push them:
///         source.push([Arrived("a delivery")]);
///         source.wishes().other_than(limit).await;
///     }
/// });
/// inbox.set_limit(10).await?;
/// let arrived = inbox.receive().await?;
/// assert!(matches!(arrived, Some(Arrived("a delivery"))));
/// # Ok(()) }
/// ```
pub struct Inbox<T: Arrival> {
    shared: Arc<Shared<T>>,
    end_on_drop: Arc<EndOnDrop<T>>,
}

/// The state that both ends share. It must not keep the consumer's end alive.
struct Shared<T> {
    /// For the texts of errors.
    queue: String,
    /// Changed only while `state` is locked.
    wish: watch::Sender<Wish>,
    state: Mutex<State<T>>,
    changed: Notify,
}

/// Ends the sources when the last consumer's end is dropped.
struct EndOnDrop<T>(Arc<Shared<T>>);

impl<T: Arrival> Inbox<T> {
    /// Creates the inbox of a transport for this queue. The first wish is [`Wish::Nothing`].
    pub fn new(queue: impl Into<String>) -> Self {
        let (wish, _) = watch::channel(Wish::Nothing);
        let (queue, changed) = (queue.into(), Notify::new());
        let shared = Arc::new(Shared { queue, wish, state: Mutex::new(State::new()), changed });
        Self { end_on_drop: Arc::new(EndOnDrop(Arc::clone(&shared))), shared }
    }

    /// Creates the end of a task: one for each task that takes deliveries.
    #[must_use]
    pub fn source(&self) -> Source<T> {
        let number = self.shared.state().add_source();
        Source::new(Arc::clone(&self.shared), number, self.wishes())
    }

    /// Creates a guard for a task that takes no deliveries itself, but that deliveries in flight depend on.
    #[must_use]
    pub fn panic_guard(&self) -> PanicGuard<T> {
        PanicGuard::new(Arc::clone(&self.shared))
    }

    /// Returns a view of the wish and its changes.
    #[must_use]
    pub fn wishes(&self) -> Wishes {
        Wishes::new(self.shared.wish.subscribe())
    }

    /// Implements [`Receiver::receive`](redrive_core::transport::Receiver::receive): returns the next delivery, and waits for it. Returns
    /// `None` if no more deliveries come.
    ///
    /// Cancel safe: a delivery leaves the inbox only when the future is ready.
    ///
    /// # Errors
    ///
    /// Returns the error of a source that [failed](Source::fail), until the limit is set again. Always fails after a source
    /// panicked.
    pub async fn receive(&self) -> Result<Option<T>, TransportError> {
        loop {
            if let Some(received) = self.try_receive() {
                return received;
            }
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            // Register before the check: otherwise a change in between would be missed.
            changed.as_mut().enable();
            if let Some(received) = self.try_receive() {
                return received;
            }
            changed.await;
        }
    }

    /// Implements [`Receiver::set_limit`](redrive_core::transport::Receiver::set_limit). A limit of 0 waits until every source has
    /// reported that it has [stopped](Source::stopped), or until another caller sets a higher limit. Setting the current limit
    /// again changes nothing, unless a source has failed: that source then tries again.
    ///
    /// Cancel safe: the limit is set at once; dropping the future ends only the wait.
    ///
    /// # Errors
    ///
    /// Fails for a limit above 0 after the [end](Self::end) or after a source panicked.
    pub async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        if limit == 0 {
            self.shared.set_wish(Wish::Nothing);
            self.wait_until_stopped().await;
            return Ok(());
        }
        let wish = Wish::Deliveries(limit);
        let mut state = self.shared.state();
        if self.is_ended() {
            return Err(self.closed());
        }
        let failed = state.open_all()?;
        // Notify about an unchanged limit only if a source failed, since it waits for that: other sources would start over.
        self.shared.wish.send_if_modified(|before| std::mem::replace(before, wish) != wish || failed);
        drop(state);
        self.shared.changed.notify_waiters();
        Ok(())
    }

    /// Ends the sources: they take no more deliveries, and no limit can be set. Deliveries in the inbox can still be received.
    /// Call it at the beginning of [`Transport::close`](redrive_core::Transport::close).
    pub fn end(&self) {
        self.shared.set_wish(Wish::End);
    }

    /// Closes the inbox: [`receive`](Self::receive) returns `None` from then on. Returns the deliveries that were not received, to
    /// be given back to the broker. Call it at the end of [`Transport::close`](redrive_core::Transport::close), when the
    /// sources have stopped.
    #[must_use = "give these deliveries back to the broker"]
    pub fn close(&self) -> VecDeque<T> {
        self.end();
        let rest = self.shared.state().close();
        self.shared.changed.notify_waiters();
        rest
    }

    /// Returns true after [`end`](Self::end) or [`close`](Self::close).
    #[must_use]
    pub fn is_ended(&self) -> bool {
        *self.shared.wish.borrow() == Wish::End
    }

    /// Returns the error for calls after the end.
    #[must_use]
    pub fn closed(&self) -> TransportError {
        TransportError::closed(&self.shared.queue)
    }

    /// Returns the result of [`receive`](Self::receive); `None` if it must wait.
    fn try_receive(&self) -> Option<Result<Option<T>, TransportError>> {
        let (received, lost) = self.shared.state().receive();
        // Dropped without the lock: a receipt may give its delivery back.
        drop(lost);
        received
    }

    async fn wait_until_stopped(&self) {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let is_wanted = matches!(*self.shared.wish.borrow(), Wish::Deliveries(_));
            if is_wanted || self.shared.state().is_stopped() {
                return;
            }
            changed.await;
        }
    }
}

impl<T> Shared<T> {
    /// Sets the wish. Does nothing after the end.
    fn set_wish(&self, wish: Wish) {
        let state = self.state();
        self.wish.send_if_modified(|before| *before != Wish::End && std::mem::replace(before, wish) != wish);
        drop(state);
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }
}

impl<T> Drop for EndOnDrop<T> {
    fn drop(&mut self) {
        self.0.set_wish(Wish::End);
    }
}

impl<T: Arrival> Clone for Inbox<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), end_on_drop: Arc::clone(&self.end_on_drop) }
    }
}

impl<T: Arrival> fmt::Debug for Inbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wish = *self.shared.wish.borrow();
        f.debug_struct("Inbox")
            .field("queue", &self.shared.queue)
            .field("wish", &wish)
            .finish_non_exhaustive()
    }
}
