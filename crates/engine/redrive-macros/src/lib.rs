//! The macros of [redrive](https://docs.rs/redrive), which re-exports them.

mod check;

use proc_macro::TokenStream;

/// Has the compiler say what is wrong with a handler, at the argument or the answer that it is about.
///
/// Without it, a function that is no handler is refused where it is given to the consumer, and the message cannot name the cause. The
/// function itself stays as it is; the checks cost nothing at run time. It knows handlers of deliveries and of batches.
///
/// ```
/// use redrive::prelude::*;
///
/// #[redrive::debug_handler]
/// async fn ship(order: String, Attempt(attempt): Attempt) -> Result<(), BoxError> {
///     println!("attempt {attempt}: {order}");
///     Ok(())
/// }
/// ```
///
/// The state is that of the only `State<S>` among the arguments. Where there are several, or parts of a state, name it:
///
/// ```
/// # use redrive::prelude::*;
/// # use redrive::FromRef;
/// # #[derive(Clone)] struct Db;
/// # #[derive(Clone)] struct App { db: Db }
/// # impl FromRef<App> for Db { fn from_ref(app: &App) -> Self { app.db.clone() } }
/// #[redrive::debug_handler(state = App)]
/// async fn ship(State(db): State<Db>, State(app): State<App>) {}
/// ```
#[proc_macro_attribute]
pub fn debug_handler(options: TokenStream, function: TokenStream) -> TokenStream {
    check::expand(options.into(), &function.into()).into()
}
