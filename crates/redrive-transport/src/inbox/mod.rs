//! The way from the tasks that take deliveries to the consumer that receives them.
//!
//! [`Inbox`] is the consumer's end, [`Source`] a task's end, and [`Wish`] what the one wants of the others.

mod source;
mod state;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redrive_core::{Delivery, TransportError};
use tokio::sync::{Notify, watch};

use self::state::State;
pub use source::{PanicGuard, Source, Wishes};

/// What arrives in an inbox.
pub trait Arrival: Send + 'static {
    /// Whether it is no longer ours to settle: its connection or lock was lost, and it comes again. It is then not received.
    fn is_lost(&self) -> bool;

    /// What [`Interrupted`](redrive_core::Signal::Interrupted) is to name when it is lost before it was received
    /// ([`Source::take_unreceived`]). Default: nothing, for a broker that numbers its deliveries.
    fn unreceived(&self) -> Option<Delivery> {
        None
    }
}

/// What the consumer wants of the tasks that take deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// This many deliveries in flight at most; 1 or more.
    Deliveries(u32),
    /// No deliveries for now.
    Nothing,
    /// No deliveries any more.
    End,
}

/// The consumer's end: what a [`Receiver`](redrive_core::Receiver) receives from and sets its limit on. Clones are the same
/// inbox; when the last of them is dropped, its sources are told the [end](Wish::End).
///
/// The broker bounds how much waits in it, by the limit that the sources ask it for. Where a source asks the broker for a number
/// of deliveries each time, it counts itself: what is in flight, received or not, and what it has asked for are never more than the
/// limit.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redrive_core::TransportError> {
/// use std::collections::VecDeque;
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
///         assert_eq!(limit, 10); // ask the broker for up to 10, and then:
///         source.push([Arrived("a delivery")]);
///         source.wishes().other_than(limit).await;
///     }
/// });
/// inbox.set_limit(10).await?;
/// let mut batch = VecDeque::new();
/// inbox.receive(&mut batch, 100, |arrived| arrived.0).await?;
/// assert_eq!(batch, ["a delivery"]);
/// # Ok(()) }
/// ```
pub struct Inbox<T: Arrival> {
    shared: Arc<Shared<T>>,
    life: Arc<Life<T>>,
}

/// What both ends share. It must not keep the consumer's end alive.
struct Shared<T> {
    /// For the words of errors.
    queue: String,
    /// Changed only while `state` is locked.
    wish: watch::Sender<Wish>,
    state: Mutex<State<T>>,
    changed: Notify,
}

/// Ends with the last consumer's end.
struct Life<T>(Arc<Shared<T>>);

impl<T: Arrival> Inbox<T> {
    /// An inbox of the transport of this queue. Nothing is wanted yet.
    pub fn new(queue: impl Into<String>) -> Self {
        let (wish, _) = watch::channel(Wish::Nothing);
        let (queue, changed) = (queue.into(), Notify::new());
        let shared = Arc::new(Shared { queue, wish, state: Mutex::new(State::new()), changed });
        Self { life: Arc::new(Life(Arc::clone(&shared))), shared }
    }

    /// A task's end: one for each task that takes deliveries.
    #[must_use]
    pub fn source(&self) -> Source<T> {
        let number = self.shared.state().add_source();
        Source::new(Arc::clone(&self.shared), number, self.wishes())
    }

    /// For a task that takes no deliveries itself and that those in flight depend on.
    #[must_use]
    pub fn panic_guard(&self) -> PanicGuard<T> {
        PanicGuard::new(Arc::clone(&self.shared))
    }

    /// What is wanted, and its changes.
    #[must_use]
    pub fn wishes(&self) -> Wishes {
        Wishes::new(self.shared.wish.subscribe())
    }

    /// For [`Receiver::receive`](redrive_core::Receiver::receive): appends what is there, in its order and `most` at most, and
    /// answers how many; waits for the first. 0: nothing is to come. `into` makes of it what is received.
    ///
    /// Cancel safe: a delivery leaves the inbox only when the future is ready.
    ///
    /// # Errors
    ///
    /// What a source [failed](Source::fail) with, until the limit is set again; and always after a source panicked.
    pub async fn receive<R>(
        &self,
        batch: &mut VecDeque<R>,
        most: usize,
        into: impl Fn(T) -> R,
    ) -> Result<usize, TransportError> {
        loop {
            if let Some(received) = self.receive_now(batch, most, &into) {
                return received;
            }
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            // Register before looking: a change in between would be missed.
            changed.as_mut().enable();
            if let Some(received) = self.receive_now(batch, most, &into) {
                return received;
            }
            changed.await;
        }
    }

    /// For [`Receiver::set_limit`](redrive_core::Receiver::set_limit). With 0 it resolves when every source has said that
    /// nothing more comes from it, or when another caller has asked for deliveries meanwhile. The limit that holds already
    /// changes nothing, unless a source has failed: that one is asked to try again.
    ///
    /// Cancel safe: the limit is set at once; only the waiting ends.
    ///
    /// # Errors
    ///
    /// More than 0 after the [end](Self::end) or after a source panicked.
    pub async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        if limit == 0 {
            self.shared.want(Wish::Nothing);
            self.until_stopped().await;
            return Ok(());
        }
        let wish = Wish::Deliveries(limit);
        let mut state = self.shared.state();
        if self.is_ended() {
            return Err(self.closed());
        }
        let failed = state.open()?;
        // Said again to a source that had given up and waits for this word; to others, what is wanted already would begin again.
        self.shared.wish.send_if_modified(|before| std::mem::replace(before, wish) != wish || failed);
        drop(state);
        self.shared.changed.notify_waiters();
        Ok(())
    }

    /// For the beginning of [`Transport::close`](redrive_core::Transport::close): sources take nothing more, and no limit can be
    /// set. What is there can still be received.
    pub fn end(&self) {
        self.shared.want(Wish::End);
    }

    /// For the end of it, when the sources have stopped: [`receive`](Self::receive) answers 0 from now on. Gives what was not
    /// received, to be given back to the broker.
    #[must_use = "what was not received is to be given back"]
    pub fn close(&self) -> VecDeque<T> {
        self.end();
        let rest = self.shared.state().close();
        self.shared.changed.notify_waiters();
        rest
    }

    /// Whether the end was said.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        *self.shared.wish.borrow() == Wish::End
    }

    /// The error of what is asked for after the end.
    #[must_use]
    pub fn closed(&self) -> TransportError {
        TransportError::closed(&self.shared.queue)
    }

    fn receive_now<R>(
        &self,
        batch: &mut VecDeque<R>,
        most: usize,
        into: impl Fn(T) -> R,
    ) -> Option<Result<usize, TransportError>> {
        let mut count = 0;
        while count < most {
            let (next, lost) = self.shared.state().next();
            // Outside of the lock: what is dropped may give itself back.
            drop(lost);
            let Some(arrived) = next else { break };
            batch.push_back(into(arrived));
            count += 1;
        }
        if count > 0 { Some(Ok(count)) } else { self.shared.state().why_nothing_comes() }
    }

    async fn until_stopped(&self) {
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
    /// Nothing is wanted after the end.
    fn want(&self, wish: Wish) {
        let state = self.state();
        self.wish.send_if_modified(|before| *before != Wish::End && std::mem::replace(before, wish) != wish);
        drop(state);
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Life<T> {
    fn drop(&mut self) {
        self.0.want(Wish::End);
    }
}

impl<T: Arrival> Clone for Inbox<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), life: Arc::clone(&self.life) }
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
