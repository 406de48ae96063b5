//! A handler that panics has failed, and takes nobody with it.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Once;
use std::task::Poll;

use crate::disposition::{BoxError, Outcome};

/// The error that a handler's panic becomes.
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

/// Runs a handler's future; its panic becomes an error, and is logged with its backtrace.
pub(crate) async fn catching(handler: impl Future<Output = Outcome>) -> Outcome {
    let mut handler = pin!(handler);
    std::future::poll_fn(|cx| match caught(|| handler.as_mut().poll(cx)) {
        Ok(poll) => poll,
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

/// Runs foreign code; its panic becomes an error, and is logged with its backtrace.
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

/// Runs foreign code that has no say in what becomes of a message; its panic is logged, and nothing else comes of it.
pub(crate) fn contained<T>(who: &str, run: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(run));
    result
        .map_err(|payload| {
            tracing::error!(panic.message = %crate::redact(said(&*payload)), "{who} panicked");
        })
        .ok()
}

/// By the time that a panic is caught its stack is gone; only the panic hook sees it. The hook that was there before
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
        let error = catching(async { panic!("boom {}", 1) }).await.unwrap_err();
        assert_eq!(error.to_string(), "the handler panicked: boom 1");
        assert!(error.is::<Panicked>());
        assert!(matches!(catching(async { Ok(Disposition::Ack) }).await, Ok(Disposition::Ack)));
    }
}
