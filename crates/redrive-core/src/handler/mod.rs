//! Async functions as handlers of deliveries.

mod extract;
mod future;
mod outcome;
pub(crate) mod panic;
mod service;
mod with_stage;

use std::future::Future;

#[cfg(feature = "json")]
pub use extract::Json;
pub use extract::{Attempt, FromDelivery, Rejected, State};
pub(crate) use future::Handling;
pub use outcome::IntoOutcome;
pub use panic::Panicked;
pub(crate) use service::HandlerService;
pub use with_stage::WithStage;

use crate::delivery::Delivery;
use crate::disposition::Outcome;
use crate::layers::DeadLetterBackoff;
use crate::needs::Needs;
use crate::retry::RetryPolicy;
use crate::stage::Stage;

/// An async function that handles deliveries: up to 8 arguments, each of which can be extracted from a delivery
/// ([`FromDelivery`]), and an answer that says what it came to ([`IntoOutcome`]).
///
/// ```
/// use redrive_core::{Attempt, BoxError, State};
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
/// `S` is the state; `Args` only tells the compiler which function this is, and is never written by hand.
///
/// Functions implement it by themselves. Where a type does, its [`Future`](Self::Future) must have a name: a boxed one will do.
///
/// A handler may be dropped at any await: when the consumer shuts down and its grace period is over, and when the delivery is
/// lost, as with a lock that ran out. The message then comes again, and no attempt is charged.
#[diagnostic::on_unimplemented(
    message = "this is not a handler of deliveries",
    label = "not a handler",
    note = "a handler is an `async fn` with up to 8 arguments that each implement `FromDelivery` (`Json<T>`, `State<S>`, \
            `Attempt`, `String`, `Bytes`, `Headers`, `Message`, `Delivery`, `Publisher`, …)",
    note = "it answers `()`, a `Disposition`, or a `Result` of these whose error is `Into<Box<dyn Error + Send + Sync>>`",
    note = "a handler that takes `State<S>` goes in with `.handler_with(state, handler)`"
)]
pub trait Handler<Args, S>: Clone + Send + Sync + Sized + 'static {
    /// The handling of one delivery, until it is decided what becomes of it.
    type Future: Future<Output = Outcome> + Send + 'static;

    /// Handles one delivery.
    fn call(&self, delivery: Delivery, state: &S) -> Self::Future;

    /// What the handler's own stages will ask of the transport.
    fn needs(&self) -> Needs {
        Needs::none()
    }

    /// This handler with a [`Stage`] around it.
    fn with_stage<St: Stage>(self, stage: St) -> WithStage<Self, St, Args, S> {
        WithStage::new(self, stage)
    }

    /// This handler with retry, backoff and dead-lettering around it: see [`DeadLetterBackoff`].
    fn with_dead_letter_backoff(
        self,
        policy: impl RetryPolicy,
    ) -> WithStage<Self, DeadLetterBackoff, Args, S> {
        self.with_stage(DeadLetterBackoff::new(policy))
    }

    /// The same, with options.
    fn with_dead_letter_backoff_and(
        self,
        policy: impl RetryPolicy,
        options: impl FnOnce(DeadLetterBackoff) -> DeadLetterBackoff,
    ) -> WithStage<Self, DeadLetterBackoff, Args, S> {
        self.with_stage(options(DeadLetterBackoff::new(policy)))
    }
}

macro_rules! handler_for_functions {
    ($($arg:ident),*) => {
        // There are no `try` blocks yet.
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

            fn call(&self, delivery: Delivery, state: &S) -> Handling<Fut> {
                // Arguments are taken out at once, so that the future needs neither the state nor the delivery.
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
