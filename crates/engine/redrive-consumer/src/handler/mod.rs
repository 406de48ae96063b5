//! Async functions as handlers of deliveries.

mod batch;
mod body;
mod extract;
mod future;
mod outcome;
mod router;
mod service;
mod with_stage;

use std::future::Future;

use redrive_core::engine::Stages;
use redrive_core::transport::Needs;
use redrive_core::{
    DeadLetterBackoff, Delivery, FromDelivery, IntoDeadLetterBackoff, Outcome, Rejected, Stage,
};

pub use batch::{Batch, BatchHandler, BatchIter, BatchOutcome, InBatches, IntoBatchOutcome, PerConsumer};
pub use body::Body;
#[cfg(feature = "json")]
pub use body::Json;
pub use extract::{Attempt, Extension, FromRef, Header, State, TypedHeader};
pub(crate) use future::Handling;
pub use outcome::IntoOutcome;
pub use router::{DuplicateRoute, Router, RouterBuilder, UnknownKey};
pub(crate) use service::HandlerService;
pub use with_stage::WithStage;

/// An async function that handles deliveries. It takes up to 8 arguments, each extracted from the delivery ([`FromDelivery`]), and
/// returns an outcome ([`IntoOutcome`]).
///
/// ```
/// use redrive_consumer::{Attempt, State};
/// use redrive_core::BoxError;
/// # #[derive(Clone)] struct Db;
///
/// async fn ship(State(db): State<Db>, Attempt(attempt): Attempt, order: String) -> Result<(), BoxError> {
///     if order.is_empty() && attempt < 3 {
///         return Err("no order yet".into());
///     }
///     Ok(())
/// }
/// ```
///
/// `S` is the state. `Args` only helps the compiler to identify the function, and is never written by hand.
///
/// Functions implement this trait automatically. In an implementation by hand, [`Future`](Self::Future) must be a nameable type:
/// use a boxed future.
///
/// A handler may be dropped at any await: when the grace period of the consumer's shutdown is over, or when the delivery is lost,
/// for example because its lock expired. The message is then redelivered, and costs no attempt.
#[diagnostic::on_unimplemented(
    message = "this is not a handler of deliveries",
    label = "not a handler",
    note = "a handler is an `async fn` with up to 8 arguments that each implement `FromDelivery` (`Json<T>`, `State<S>`, \
            `Attempt`, `String`, `Bytes`, `Headers`, `Message`, `Delivery`, `Publisher`, …)",
    note = "it answers `()`, a `Disposition`, or a `Result` of these whose error is `Into<Box<dyn Error + Send + Sync>>`",
    note = "a handler that takes `State<S>` goes in with `.handler_with(state, handler)`; `S` is that state, or a part of it \
            (`impl FromRef<State> for Part`), and is `Clone`",
    note = "a function that takes a `Batch` goes in with `.in_batches(most, within)`",
    note = "its future must be `Send`",
    note = "with `#[redrive::debug_handler]` on the function the compiler says which of these it is"
)]
pub trait Handler<Args, S>: Clone + Send + Sync + Sized + 'static {
    /// The future that handles one delivery, up to its outcome.
    type Future: Future<Output = Outcome> + Send + 'static;

    /// Handles one delivery.
    fn handle(&self, delivery: Delivery, state: &S) -> Self::Future;

    /// Returns what the handler's own stages need from the transport.
    fn needs(&self) -> Needs {
        Needs::none()
    }

    /// Returns the handler's own stages, for [`Runner::explain`](crate::Runner::explain).
    #[doc(hidden)]
    fn stages(&self) -> Stages {
        Stages::none()
    }

    /// Wraps this handler in a [`Stage`].
    fn with_stage<St: Stage>(self, stage: St) -> WithStage<Self, St, Args, S> {
        WithStage::new(self, stage)
    }

    /// Wraps this handler in retry, backoff and dead-lettering: see [`DeadLetterBackoff`].
    fn with_dead_letter_backoff(
        self,
        preset: impl IntoDeadLetterBackoff,
    ) -> WithStage<Self, DeadLetterBackoff, Args, S> {
        self.with_stage(preset.into_dead_letter_backoff())
    }
}

macro_rules! handler_for_functions {
    ($($arg:ident),*) => {
        // `try` blocks are not stable.
        #[allow(non_snake_case, unused_variables, clippy::redundant_closure_call)]
        impl<F, Fut, R, S, $($arg),*> Handler<(Fut, R, $($arg,)*), S> for F
        where
            F: Fn($($arg),*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output = R> + Send + 'static,
            R: IntoOutcome + 'static,
            S: 'static,
            $($arg: FromDelivery<S> + Send + 'static,)*
        {
            type Future = Handling<Fut>;

            fn handle(&self, delivery: Delivery, state: &S) -> Handling<Fut> {
                // Extracts the arguments at once, so that the future borrows neither the state nor the delivery.
                Handling::new((|| -> Result<Fut, Rejected> {
                    $(let $arg = $arg::from_delivery(&delivery, state)?;)*
                    Ok(self($($arg),*))
                })())
            }
        }
    };
}

handler_for_functions!();
handler_for_functions!(A1);
handler_for_functions!(A1, A2);
handler_for_functions!(A1, A2, A3);
handler_for_functions!(A1, A2, A3, A4);
handler_for_functions!(A1, A2, A3, A4, A5);
handler_for_functions!(A1, A2, A3, A4, A5, A6);
handler_for_functions!(A1, A2, A3, A4, A5, A6, A7);
handler_for_functions!(A1, A2, A3, A4, A5, A6, A7, A8);
