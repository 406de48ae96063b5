//! Turns a handler's panic into an error of that delivery alone.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Once;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::disposition::{BoxError, Outcome};

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

pin_project! {
    /// A handler's future that turns a panic into an error, and logs it with its backtrace.
    #[derive(Debug)]
    pub struct Catching<F> {
        #[pin]
        handling: Option<F>,
        panicked: Option<BoxError>,
    }
}

impl<F> Catching<F> {
    /// Creates the future with `begin`, which may panic too.
    pub(crate) fn new(begin: impl FnOnce() -> F) -> Self {
        match caught(begin) {
            Ok(handling) => Self { handling: Some(handling), panicked: None },
            Err(panicked) => Self { handling: None, panicked: Some(panicked) },
        }
    }
}

impl<F: Future<Output = Outcome>> Future for Catching<F> {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let this = self.project();
        match this.handling.as_pin_mut() {
            Some(handling) => {
                caught(|| handling.poll(cx)).unwrap_or_else(|panicked| Poll::Ready(Err(panicked)))
            }
            None => Poll::Ready(Err(this.panicked.take().expect("polled after it was ready"))),
        }
    }
}

/// Runs foreign code. Turns a panic into an error, and logs it with its backtrace.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, BoxError> {
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
pub(crate) fn contained<T>(who: &str, run: impl FnOnce() -> T) -> Option<T> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Disposition;

    #[tokio::test]
    async fn a_panic_becomes_an_error() {
        let error = Catching::new(|| async { panic!("boom {}", 1) }).await.unwrap_err();
        assert_eq!(error.to_string(), "the handler panicked: boom 1");
        assert!(error.is::<Panicked>());
        assert!(matches!(Catching::new(|| async { Ok(Disposition::Ack) }).await, Ok(Disposition::Ack)));
    }

    #[tokio::test]
    async fn so_does_one_before_there_is_a_future() {
        let begin = || -> std::future::Ready<Outcome> { panic!("boom") };
        assert!(Catching::new(begin).await.unwrap_err().is::<Panicked>());
    }
}
