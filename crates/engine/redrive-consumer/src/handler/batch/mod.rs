//! Several messages in one call of a handler, each with its own outcome.

mod gather;
mod items;
mod outcome;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::Map;
use redrive_core::transport::Needs;
use redrive_core::{Delivery, Disposition, FromDelivery, Outcome, Publisher, Rejected};
use tokio::sync::oneshot;

pub use self::items::{Batch, Iter as BatchIter};
pub use self::outcome::{BatchOutcome, IntoBatchOutcome};

use self::gather::{Gatherer, Member};
use super::{Handler, Handling, State};

/// An async function that handles several deliveries at once. Its last argument is a [`Batch`] of the items extracted from each
/// delivery ([`FromDelivery`]). Up to 4 arguments before it are shared by all deliveries ([`PerConsumer`]).
///
/// ```
/// use redrive_consumer::{Batch, BatchHandler, Consumer, State};
/// use redrive_core::{BoxError, millis, secs};
/// # #[derive(Clone)] struct Db;
/// # impl Db { async fn insert(&self, _: &Batch<String>) -> Result<(), BoxError> { Ok(()) } }
///
/// async fn insert(State(db): State<Db>, orders: Batch<String>) -> Result<(), BoxError> {
///     db.insert(&orders).await
/// }
///
/// # fn example<T: redrive_core::Transport>(transport: T, db: Db) {
/// let consumer = Consumer::new(transport)
///     .with_dead_letter_backoff([secs(1), secs(10)])
///     .handler_with(db, insert.in_batches(100, millis(200)));
/// # }
/// ```
///
/// Its return value ([`IntoBatchOutcome`]) decides:
///
/// | return value | result |
/// |---|---|
/// | `()`, `Ok(())`, a [`Disposition`](redrive_core::Disposition) | the outcome of every item |
/// | a `Vec`, or `Ok` of one | one outcome for each item, in their order; these are final |
/// | a `Vec` of another length | a permanent error of every item |
/// | `Err`, or a panic, with one item in the batch | the error of this item |
/// | `Err`, or a panic, with several | the batch is split: its halves are handled separately, until each failing item is alone |
/// | `Err` marked as [`Throttled`](redrive_core::Throttled) | the error of every item; the batch is not split |
///
/// In every case an item has one outcome and costs at most one attempt, and layers see it like any delivery. An argument that
/// cannot be extracted fails its own item, before the batch. After a split, the function is called again with items that it has
/// seen: undo what a failed call did, for example in a transaction.
#[diagnostic::on_unimplemented(
    message = "this is not a handler of batches",
    label = "not a handler of batches",
    note = "it is an `async fn` whose last argument is a `Batch<T>` with `T: FromDelivery`; before it, up to 4 arguments that are \
            the same for every delivery: `State<S>`, `Publisher`",
    note = "it answers `()`, a `Disposition`, a `Vec` with one answer for each item, or a `Result` of these",
    note = "with `#[redrive::debug_handler]` on the function the compiler says which of these it is"
)]
pub trait BatchHandler<Args, S>: Clone + Send + Sync + Sized + 'static {
    /// The arguments that all deliveries share.
    type Shared: Clone + Send + 'static;
    /// The item that is extracted from each delivery.
    type Item: Send + Sync + 'static;
    /// The future that handles one batch.
    type Future: Future<Output = BatchOutcome> + Send + 'static;

    /// Extracts the arguments from one delivery.
    ///
    /// # Errors
    ///
    /// If one of them is not there, or cannot be read.
    fn extract(delivery: &Delivery, state: &S) -> Result<(Self::Shared, Self::Item), Rejected>;

    /// Handles one batch.
    fn handle_batch(&self, shared: Self::Shared, batch: Batch<Self::Item>) -> Self::Future;

    /// Makes a [`Handler`] that handles at most `most` deliveries in one call, and fewer when `within` has passed since the first
    /// of them arrived.
    ///
    /// The consumer's [`concurrency`](crate::Consumer::concurrency) is raised to `most`: it counts deliveries. With twice as much, a
    /// batch is gathered while another is handled.
    fn in_batches(self, most: usize, within: Duration) -> InBatches<Self, Args, S> {
        InBatches { gatherer: Arc::new(Gatherer::new(self, most.max(1), within)) }
    }
}

/// An argument of a [`BatchHandler`] that is the same for every delivery of a consumer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` differs from delivery to delivery: it cannot be an argument beside the `Batch`",
    note = "extract it with each item, in a tuple: `Batch<({Self}, …)>`"
)]
pub trait PerConsumer {}

impl<T> PerConsumer for State<T> {}
impl PerConsumer for Publisher {}

macro_rules! batch_handler_for_functions {
    ($($arg:ident),*) => {
        #[allow(non_snake_case, unused_variables)]
        impl<F, Fut, R, S, T, $($arg),*> BatchHandler<(Fut, R, T, $($arg,)*), S> for F
        where
            F: Fn($($arg,)* Batch<T>) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output = R> + Send + 'static,
            R: IntoBatchOutcome + 'static,
            S: 'static,
            T: FromDelivery<S> + Send + Sync + 'static,
            $($arg: PerConsumer + FromDelivery<S> + Clone + Send + 'static,)*
        {
            type Shared = ($($arg,)*);
            type Item = T;
            type Future = Map<Fut, fn(R) -> BatchOutcome>;

            fn extract(delivery: &Delivery, state: &S) -> Result<(Self::Shared, T), Rejected> {
                Ok((($($arg::from_delivery(delivery, state)?,)*), T::from_delivery(delivery, state)?))
            }

            fn handle_batch(&self, ($($arg,)*): Self::Shared, batch: Batch<T>) -> Self::Future {
                self($($arg,)* batch).map(R::into_batch_outcome)
            }
        }
    };
}

batch_handler_for_functions!();
batch_handler_for_functions!(A1);
batch_handler_for_functions!(A1, A2);
batch_handler_for_functions!(A1, A2, A3);
batch_handler_for_functions!(A1, A2, A3, A4);

/// A [`Handler`] that gathers deliveries into batches; made by [`BatchHandler::in_batches`]. Clones gather together, the deliveries of
/// each consumer in batches of their own.
pub struct InBatches<H: BatchHandler<Args, S>, Args, S> {
    gatherer: Arc<Gatherer<H, Args, S>>,
}

impl<H: BatchHandler<Args, S>, Args, S> Clone for InBatches<H, Args, S> {
    fn clone(&self) -> Self {
        Self { gatherer: Arc::clone(&self.gatherer) }
    }
}

impl<H: BatchHandler<Args, S>, Args, S> fmt::Debug for InBatches<H, Args, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gatherer { most, within, .. } = &*self.gatherer;
        f.debug_struct("InBatches").field("most", most).field("within", within).finish_non_exhaustive()
    }
}

/// Tells the compiler that this is a handler of batches, and around which function.
#[derive(Debug)]
pub struct InBatchesArgs<Args>(PhantomData<fn() -> Args>);

type Answer = Map<oneshot::Receiver<Outcome>, fn(Result<Outcome, oneshot::error::RecvError>) -> Outcome>;

#[diagnostic::do_not_recommend]
impl<H, Args, S> Handler<InBatchesArgs<Args>, S> for InBatches<H, Args, S>
where
    H: BatchHandler<Args, S>,
    Args: 'static,
    S: 'static,
{
    type Future = Handling<Answer>;

    fn handle(&self, delivery: Delivery, state: &S) -> Self::Future {
        Handling::new(H::extract(&delivery, state).map(|extracted| {
            let (answer, outcome) = oneshot::channel();
            self.gatherer.add(Member::new(state, extracted, answer));
            outcome.map(answered as fn(_) -> _)
        }))
    }

    fn needs(&self) -> Needs {
        let mut needs = Needs::none();
        needs.concurrency = self.gatherer.most;
        needs
    }
}

fn answered(outcome: Result<Outcome, oneshot::error::RecvError>) -> Outcome {
    // Only where the runtime that the batches ran on has ended: that is no failure of the message.
    outcome.unwrap_or(Ok(Disposition::Release))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use tokio::runtime::Runtime;

    use super::*;
    use redrive_core::{Message, secs};

    #[test]
    fn the_end_of_the_runtime_of_a_batch_is_no_failure_of_its_messages() {
        async fn hangs(_: Batch<String>) {
            std::future::pending::<()>().await;
        }
        let other = Runtime::new().unwrap();
        let delivery = Delivery::new(Message::new("x"), "orders", UNIX_EPOCH);
        let entered = other.enter();
        let answer = hangs.in_batches(1, secs(1)).handle(delivery, &());
        drop(entered);
        drop(other);
        let outcome = Runtime::new().unwrap().block_on(answer);
        assert!(matches!(outcome, Ok(Disposition::Release)), "{outcome:?}");
    }
}
