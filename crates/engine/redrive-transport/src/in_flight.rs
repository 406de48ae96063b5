//! Gives deliveries back when they are dropped.

use std::ops::Deref;

/// Gives a delivery back to its broker.
pub trait GiveBack {
    /// Gives the delivery back. It may be called from any thread, also outside of a runtime: it must not block, and must not call
    /// [`Handle::current`](tokio::runtime::Handle::current). Suitable are [`Batcher::submit`](crate::Batcher::submit) and an
    /// unbounded channel.
    fn give_back(self);
}

/// Wraps a delivery in flight, and gives it back when dropped.
///
/// To settle the delivery, read it through the wrapper and call [`take`](Self::take) after the broker's answer: if the future of
/// `settle` is dropped earlier, the delivery is given back.
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
/// let delivery = |tag| InFlight::new(Delivery { tag, returns: returns.clone() });
/// drop(delivery(1));
/// let settled = delivery(2).take();
/// drop(settled);
/// assert_eq!(returned.try_iter().collect::<Vec<_>>(), [1]);
/// ```
#[derive(Debug)]
#[must_use = "dropping it gives the delivery back"]
pub struct InFlight<T: GiveBack>(Option<T>);

impl<T: GiveBack> InFlight<T> {
    /// Wraps a delivery. Dropping the wrapper gives it back.
    pub fn new(delivery: T) -> Self {
        Self(Some(delivery))
    }

    /// Returns the delivery. Dropping it no longer gives it back.
    #[must_use]
    pub fn take(mut self) -> T {
        self.0.take().expect("the delivery is present until `take`")
    }
}

impl<T: GiveBack> Deref for InFlight<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("the delivery is present until `take`")
    }
}

impl<T: GiveBack> Drop for InFlight<T> {
    fn drop(&mut self) {
        if let Some(delivery) = self.0.take() {
            delivery.give_back();
        }
    }
}
