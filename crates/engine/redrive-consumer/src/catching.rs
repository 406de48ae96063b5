//! A future that turns a panic into an error of its delivery alone.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use redrive_core::{BoxError, Outcome, panic::caught};

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

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_core::Disposition;
    use redrive_core::panic::Panicked;

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
