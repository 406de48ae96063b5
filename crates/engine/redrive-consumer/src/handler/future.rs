//! The future of a function that is called as a handler.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use redrive_core::{Outcome, Rejected};

use super::IntoOutcome;

pin_project! {
    /// The future of a function that is a [`Handler`](super::Handler): the function's future, or the error of an argument that could
    /// not be extracted.
    #[derive(Debug)]
    pub struct Handling<F> {
        #[pin]
        running: Option<F>,
        rejected: Option<Rejected>,
    }
}

impl<F> Handling<F> {
    pub(crate) fn new(begun: Result<F, Rejected>) -> Self {
        match begun {
            Ok(running) => Self { running: Some(running), rejected: None },
            Err(rejected) => Self { running: None, rejected: Some(rejected) },
        }
    }
}

impl<F> Future for Handling<F>
where
    F: Future,
    F::Output: IntoOutcome,
{
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let this = self.project();
        match this.running.as_pin_mut() {
            Some(running) => Poll::Ready(ready!(running.poll(cx)).into_outcome()),
            None => Poll::Ready(Err(this.rejected.take().expect("polled after it was ready").into())),
        }
    }
}
