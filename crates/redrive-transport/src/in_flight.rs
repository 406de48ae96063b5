//! Deliveries that go back when they are dropped.

use std::ops::Deref;

/// How a delivery goes back to its broker.
pub trait GiveBack {
    /// Gives the delivery back. It may be called from any thread, also outside of a runtime: it must not block, and must not call
    /// [`Handle::current`](tokio::runtime::Handle::current). Suitable are [`Batcher::submit`](crate::Batcher::submit) and an
    /// unbounded channel.
    fn give_back(self);
}

/// A delivery in flight. It gives itself back when it is dropped; to settle it, [take](Self::take) it out.
///
/// Settling reads it in place, and takes it out when the broker has answered: if the future of `settle` is dropped before, the
/// delivery goes back.
///
/// ```
/// use redrive_transport::{GiveBack, InFlight};
/// use std::sync::mpsc::{Sender, channel};
///
/// struct Delivery { tag: u64, returns: Sender<u64> }
///
/// impl GiveBack for Delivery {
///     fn give_back(self) {
///         let _ = self.returns.send(self.tag);
///     }
/// }
///
/// let (returns, returned) = channel();
/// let hand = |tag| InFlight::new(Delivery { tag, returns: returns.clone() });
/// drop(hand(1));
/// let settled = hand(2).take();
/// drop(settled);
/// assert_eq!(returned.try_iter().collect::<Vec<_>>(), [1]);
/// ```
#[derive(Debug)]
#[must_use = "dropping it gives the delivery back"]
pub struct InFlight<T: GiveBack>(Option<T>);

impl<T: GiveBack> InFlight<T> {
    /// From now on, dropping it gives it back.
    pub fn new(delivery: T) -> Self {
        Self(Some(delivery))
    }

    /// What is in flight; dropping that does nothing more.
    #[must_use]
    pub fn take(mut self) -> T {
        self.0.take().expect("it is there until it is taken")
    }
}

impl<T: GiveBack> Deref for InFlight<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is there until it is taken")
    }
}

impl<T: GiveBack> Drop for InFlight<T> {
    fn drop(&mut self) {
        if let Some(delivery) = self.0.take() {
            delivery.give_back();
        }
    }
}
