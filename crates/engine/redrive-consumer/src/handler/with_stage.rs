//! A handler with a stage around it, itself a handler.

use std::marker::PhantomData;
use std::sync::Arc;

use redrive_core::engine::Stages;
use redrive_core::transport::Needs;
use redrive_core::{Delivery, Stage};

use super::Handler;
use crate::catching::Catching;
use crate::service::StageFuture;

/// A handler with a [`Stage`] around it; made by [`Handler::with_stage`] and
/// [`Handler::with_dead_letter_backoff`].
pub struct WithStage<H, St, Args, S> {
    handler: H,
    stage: Arc<St>,
    kind: PhantomData<fn() -> (Args, S)>,
}

impl<H, St, Args, S> WithStage<H, St, Args, S> {
    pub(crate) fn new(handler: H, stage: St) -> Self {
        Self { handler, stage: Arc::new(stage), kind: PhantomData }
    }
}

impl<H: Clone, St, Args, S> Clone for WithStage<H, St, Args, S> {
    fn clone(&self) -> Self {
        Self { handler: self.handler.clone(), stage: Arc::clone(&self.stage), kind: PhantomData }
    }
}

impl<H, St: std::fmt::Debug, Args, S> std::fmt::Debug for WithStage<H, St, Args, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WithStage").field("stage", &self.stage).finish_non_exhaustive()
    }
}

/// Tells the compiler that this handler has a stage, and which function is inside.
#[derive(Debug)]
pub struct WithStageArgs<Args>(PhantomData<fn() -> Args>);

// Hides this type from the error message for a function that is no handler.
#[diagnostic::do_not_recommend]
impl<H, St, Args, S> Handler<WithStageArgs<Args>, S> for WithStage<H, St, Args, S>
where
    H: Handler<Args, S>,
    St: Stage,
    Args: 'static,
    S: 'static,
{
    // Catches panics here already: the stage must see them as errors.
    type Future = StageFuture<Catching<H::Future>, St>;

    fn handle(&self, delivery: Delivery, state: &S) -> Self::Future {
        StageFuture::new(&self.stage, delivery, |delivery| {
            Catching::new(|| self.handler.handle(delivery, state))
        })
    }

    fn needs(&self) -> Needs {
        self.stage.needs().and(self.handler.needs())
    }

    fn stages(&self) -> Stages {
        self.handler.stages().inside(&(Arc::clone(&self.stage) as Arc<dyn Stage>))
    }
}
