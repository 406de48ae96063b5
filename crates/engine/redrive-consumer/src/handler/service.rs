//! A handler with its state, as the innermost tower service.

use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use redrive_core::{BoxError, Delivery, Disposition};
use tower_service::Service;

use super::Handler;
use crate::catching::Catching;

/// Runs a handler, always ready.
pub struct HandlerService<H, Args, S> {
    handler: H,
    state: Arc<S>,
    args: PhantomData<fn() -> Args>,
}

impl<H, Args, S> HandlerService<H, Args, S> {
    pub(crate) fn new(handler: H, state: S) -> Self {
        Self { handler, state: Arc::new(state), args: PhantomData }
    }
}

impl<H: Clone, Args, S> Clone for HandlerService<H, Args, S> {
    fn clone(&self) -> Self {
        Self { handler: self.handler.clone(), state: Arc::clone(&self.state), args: PhantomData }
    }
}

impl<H, Args, S> std::fmt::Debug for HandlerService<H, Args, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandlerService")
    }
}

impl<H, Args, S> Service<Delivery> for HandlerService<H, Args, S>
where
    H: Handler<Args, S>,
    Args: 'static,
    S: Send + Sync + 'static,
{
    type Response = Disposition;
    type Error = BoxError;
    type Future = Catching<H::Future>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, delivery: Delivery) -> Self::Future {
        // Extracting the arguments runs foreign code too (`Deserialize`), which may panic before there is a future.
        Catching::new(|| self.handler.handle(delivery, &self.state))
    }
}
