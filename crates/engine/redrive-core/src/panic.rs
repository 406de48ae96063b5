//! Turns a handler's panic into an error of that delivery alone.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::disposition::BoxError;

/// The error that stands for a handler's panic.
#[derive(Debug)]
pub struct Panicked {
    message: String,
}

impl Panicked {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }

    fn from_payload(payload: &(dyn Any + Send)) -> Self {
        Self::new(said(payload))
    }
}

fn said(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(not a text)")
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the handler panicked: {}", self.message)
    }
}

impl std::error::Error for Panicked {}

thread_local! {
    static HANDLING: Cell<bool> = const { Cell::new(false) };
    static BACKTRACE: RefCell<Option<Backtrace>> = const { RefCell::new(None) };
}

/// Runs foreign code. Turns a panic into an error, and logs it with its backtrace.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, BoxError> {
    keep_backtraces();
    let before = HANDLING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    HANDLING.set(before);
    result.map_err(|payload| {
        let panicked = Panicked::from_payload(&*payload);
        let backtrace = BACKTRACE.take();
        tracing::error!(
            panic.message = %crate::redact(&panicked.message),
            panic.backtrace = backtrace.as_ref().map(tracing::field::display),
            "the handler panicked"
        );
        panicked.into()
    })
}

/// Runs foreign code that does not decide about a message. Logs a panic, and returns `None`.
pub fn contained<T>(who: &str, run: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(run));
    result
        .map_err(|payload| {
            tracing::error!(panic.message = %crate::redact(said(&*payload)), "{who} panicked");
        })
        .ok()
}

/// Keeps the backtrace of a panic: only the panic hook sees the stack; when the panic is caught, it is gone. The previous hook
/// still runs.
fn keep_backtraces() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if HANDLING.get() {
                BACKTRACE.set(Some(Backtrace::force_capture()));
            }
            before(info);
        }));
    });
}
