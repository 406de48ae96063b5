//! The adapter between stages and tower: all pinning and readiness of redrive is in this file.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use redrive_core::{BoxError, Delivery, Disposition, Outcome, Stage, panic};
use tower_layer::Layer;
use tower_service::Service;

use crate::readiness::WaitsFor;

/// Makes a tower layer from a [`Stage`].
///
/// The layer only requires `Service<Delivery, Response = Disposition>` of the services that it wraps, and adds no waiting.
#[derive(Debug)]
pub struct StageLayer<St> {
    stage: Arc<St>,
}

impl<St: Stage> StageLayer<St> {
    /// Creates a layer that runs this stage around the inner service.
    pub fn new(stage: St) -> Self {
        Self { stage: Arc::new(stage) }
    }

    /// Returns the stage with its type erased.
    pub(crate) fn erased(&self) -> Arc<dyn Stage> {
        Arc::clone(&self.stage) as Arc<dyn Stage>
    }

    /// Returns the stage.
    #[must_use]
    pub fn stage(&self) -> &St {
        &self.stage
    }
}

impl<St> Clone for StageLayer<St> {
    fn clone(&self) -> Self {
        Self { stage: Arc::clone(&self.stage) }
    }
}

impl<S, St> Layer<S> for StageLayer<St> {
    type Service = StageService<S, St>;

    fn layer(&self, inner: S) -> Self::Service {
        StageService { inner, stage: Arc::clone(&self.stage) }
    }
}

/// A service with a [`Stage`] around it; made by [`StageLayer`].
#[derive(Debug)]
pub struct StageService<S, St> {
    inner: S,
    stage: Arc<St>,
}

impl<S: Clone, St> Clone for StageService<S, St> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), stage: Arc::clone(&self.stage) }
    }
}

impl<S, St> Service<Delivery> for StageService<S, St>
where
    S: Service<Delivery, Response = Disposition>,
    S::Error: Into<BoxError>,
    St: Stage,
{
    type Response = Disposition;
    type Error = BoxError;
    type Future = StageFuture<S::Future, St>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, delivery: Delivery) -> Self::Future {
        StageFuture::new(&self.stage, delivery, |delivery| self.inner.call(delivery))
    }
}

pin_project! {
    /// The future of [`StageService`].
    #[derive(Debug)]
    pub struct StageFuture<F, St> {
        #[pin]
        progress: Progress<F, St>,
    }
}

pin_project! {
    #[project = ProgressProjected]
    #[derive(Debug)]
    enum Progress<F, St> {
        // The stage decided before the inner service.
        TurnedAway { disposition: Option<Disposition> },
        // The inner service runs; the stage decides after it.
        Inside { #[pin] inner: F, delivery: Delivery, stage: Arc<St> },
    }
}

impl<F, St: Stage> StageFuture<F, St> {
    pub(crate) fn new(stage: &Arc<St>, delivery: Delivery, inner: impl FnOnce(Delivery) -> F) -> Self {
        let progress = match stage.admit(&delivery) {
            ControlFlow::Break(disposition) => Progress::TurnedAway { disposition: Some(disposition) },
            ControlFlow::Continue(()) => {
                Progress::Inside { inner: inner(delivery.clone()), delivery, stage: Arc::clone(stage) }
            }
        };
        Self { progress }
    }
}

impl<F, E, St> Future for StageFuture<F, St>
where
    F: Future<Output = Result<Disposition, E>>,
    E: Into<BoxError>,
    St: Stage,
{
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        Poll::Ready(match self.project().progress.project() {
            ProgressProjected::TurnedAway { disposition } => {
                Ok(disposition.take().expect("polled after it was ready"))
            }
            ProgressProjected::Inside { inner, delivery, stage } => {
                let outcome = ready!(inner.poll(cx)).map_err(Into::into);
                stage.resolve(delivery, outcome)
            }
        })
    }
}

/// The whole stack with its type erased; done once, at the end of the builder. It reserves memory for the future of one call, so
/// that no call allocates.
pub struct ErasedService {
    stack: Pin<Box<dyn Stack>>,
    /// What it waited for when it was polled last, if it was not ready.
    waits_for: Option<WaitsFor>,
}

impl ErasedService {
    pub(crate) fn new<S>(service: S) -> Self
    where
        S: Service<Delivery, Response = Disposition> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        Self { stack: Box::pin(WithRoom { service, running: None }), waits_for: None }
    }

    /// Waits until it is ready for one call. A panic becomes an error. Cancel safe: readiness that was reached stays with this clone.
    pub(crate) async fn ready(&mut self) -> Result<(), BoxError> {
        std::future::poll_fn(|cx| {
            let (poll, waits_for) =
                WaitsFor::named_in(|| match panic::caught(|| self.stack.as_mut().poll_ready(cx)) {
                    Ok(poll) => poll,
                    Err(panicked) => Poll::Ready(Err(panicked)),
                });
            self.waits_for = waits_for;
            poll
        })
        .await
    }

    /// Returns what it waits for, if it was not ready when it was polled last.
    pub(crate) fn waits_for(&self) -> Option<WaitsFor> {
        self.waits_for
    }

    /// Makes one call. A panic becomes an error; the handler's panics are caught around the handler, this catches those of foreign
    /// layers. If the future is dropped before it ends, the call ends when this service is dropped.
    pub(crate) async fn call(&mut self, delivery: Delivery) -> Outcome {
        panic::caught(|| self.stack.as_mut().begin(delivery))?;
        std::future::poll_fn(|cx| match panic::caught(|| self.stack.as_mut().poll_outcome(cx)) {
            Ok(poll) => poll,
            Err(panicked) => Poll::Ready(Err(panicked)),
        })
        .await
    }
}

impl std::fmt::Debug for ErasedService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ErasedService")
    }
}

impl Clone for ErasedService {
    fn clone(&self) -> Self {
        self.stack.cloned()
    }
}

trait Stack: Send {
    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>>;
    fn begin(self: Pin<&mut Self>, delivery: Delivery);
    fn poll_outcome(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome>;
    fn cloned(&self) -> ErasedService;
}

pin_project! {
    struct WithRoom<S: Service<Delivery>> {
        service: S,
        #[pin]
        running: Option<S::Future>,
    }
}

impl<S> Stack for WithRoom<S>
where
    S: Service<Delivery, Response = Disposition> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.project().service.poll_ready(cx).map_err(Into::into)
    }

    fn begin(self: Pin<&mut Self>, delivery: Delivery) {
        let mut this = self.project();
        let running = this.service.call(delivery);
        this.running.set(Some(running));
    }

    fn poll_outcome(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut this = self.project();
        let running = this.running.as_mut().as_pin_mut().expect("polled after it was ready");
        let outcome = ready!(running.poll(cx)).map_err(Into::into);
        // Drops at once what the call held.
        this.running.set(None);
        Poll::Ready(outcome)
    }

    fn cloned(&self) -> ErasedService {
        ErasedService::new(self.service.clone())
    }
}
