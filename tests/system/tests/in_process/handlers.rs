//! Handlers that several tests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redrive::BoxError;

pub(crate) async fn succeed() {}

pub(crate) async fn fail() -> Result<(), BoxError> {
    Err("no answer".into())
}

/// Counts how often the handler runs.
pub(crate) fn counted<F, H>(
    runs: &Arc<AtomicUsize>,
    handler: H,
) -> impl Fn() -> F + Clone + Send + Sync + 'static + use<F, H>
where
    H: Fn() -> F + Clone + Send + Sync + 'static,
{
    let runs = Arc::clone(runs);
    move || {
        runs.fetch_add(1, Ordering::SeqCst);
        handler()
    }
}
