//! Which layer keeps a stack from being ready.

use std::cell::Cell;
use std::fmt;
use std::panic::Location;
use std::task::{Context, Poll};

use redrive_core::Delivery;
use tower_layer::Layer;
use tower_service::Service;

thread_local! {
    /// Set by the innermost service that was not ready in the poll that is running on this thread: `poll_ready` is a plain call
    /// from layer to layer, and most layers are foreign, so nothing else could hand it out.
    static WAITS_FOR: Cell<Option<WaitsFor>> = const { Cell::new(None) };
}

/// What a stack waits for that is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// The next permit of a [`RateLimit`](crate::RateLimit): it comes by itself.
    RateLimit,
    Layer(LayerName),
    /// The tower service that is called instead of a handler.
    Service,
}

impl WaitsFor {
    /// Names what is not ready in the poll that is running.
    pub(crate) fn name(self) {
        WAITS_FOR.set(Some(self));
    }

    /// Runs one poll. Returns what was named in it, if it is pending.
    pub(crate) fn named_in<R>(poll: impl FnOnce() -> Poll<R>) -> (Poll<R>, Option<Self>) {
        WAITS_FOR.set(None);
        let poll = poll();
        let named = poll.is_pending().then(|| WAITS_FOR.take().unwrap_or(Self::Service));
        (poll, named)
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RateLimit => f.write_str("the rate limit"),
            Self::Layer(name) => name.fmt(f),
            Self::Service => f.write_str("the service"),
        }
    }
}

/// A call of [`Consumer::layer`](crate::Consumer::layer): the type of the layer, and where in the code it was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayerName {
    type_name: &'static str,
    at: &'static Location<'static>,
}

impl fmt::Display for LayerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (added at {}:{})", without_paths(self.type_name), self.at.file(), self.at.line())
    }
}

/// Returns the name of a type without the modules of its parts, and without its parameters: a `ServiceBuilder` would fill a page.
fn without_paths(type_name: &str) -> &str {
    let name = type_name.split('<').next().unwrap_or(type_name);
    name.rsplit("::").next().unwrap_or(name)
}

/// A layer that can be named when it is not ready; made by [`Consumer::layer`](crate::Consumer::layer).
#[derive(Clone, Debug)]
pub struct NamedLayer<L> {
    layer: L,
    name: LayerName,
}

impl<L> NamedLayer<L> {
    #[track_caller]
    pub(crate) fn new(layer: L) -> Self {
        let name = LayerName { type_name: std::any::type_name::<L>(), at: Location::caller() };
        Self { layer, name }
    }
}

impl<L: Layer<S>, S> Layer<S> for NamedLayer<L> {
    type Service = NamedService<L::Service>;

    fn layer(&self, inner: S) -> Self::Service {
        NamedService { service: self.layer.layer(inner), name: self.name }
    }
}

/// The service of a [`NamedLayer`].
#[derive(Debug)]
pub struct NamedService<S> {
    service: S,
    name: LayerName,
}

// By hand: a test holds that the compiler names the service that is not `Clone`.
impl<S: Clone> Clone for NamedService<S> {
    fn clone(&self) -> Self {
        Self { service: self.service.clone(), name: self.name }
    }
}

impl<S: Service<Delivery>> Service<Delivery> for NamedService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let poll = self.service.poll_ready(cx);
        // What is further inside was polled first, and has named itself.
        if poll.is_pending() && WAITS_FOR.get().is_none() {
            WaitsFor::Layer(self.name).name();
        }
        poll
    }

    fn call(&mut self, delivery: Delivery) -> S::Future {
        self.service.call(delivery)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RateLimit;
    use redrive_core::{BoxError, Disposition, secs};
    use std::task::Waker;
    use tower::ServiceBuilder;
    use tower::limit::ConcurrencyLimitLayer;
    use tower::util::BoxCloneService;

    fn handler() -> BoxCloneService<Delivery, Disposition, BoxError> {
        BoxCloneService::new(tower::service_fn(async |_: Delivery| Ok(Disposition::Ack)))
    }

    fn named<S: Service<Delivery>>(stack: &mut S) -> Option<WaitsFor> {
        WaitsFor::named_in(|| stack.poll_ready(&mut Context::from_waker(Waker::noop()))).1
    }

    #[tokio::test]
    async fn the_layer_that_is_not_ready_is_named_and_not_those_around_it() {
        let none_left = || NamedLayer::new(ServiceBuilder::new().concurrency_limit(0).into_inner());
        let stack = |layer: NamedLayer<_>| {
            let inside = NamedLayer::new(ConcurrencyLimitLayer::new(1)).layer(handler());
            NamedLayer::new(ConcurrencyLimitLayer::new(1)).layer(layer.layer(inside))
        };
        let line = line!() - 5;
        let Some(waits) = named(&mut stack(none_left())) else { panic!("ready") };
        let expected = format!("Stack (added at {}:{line})", file!());
        assert_eq!(waits.to_string(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_limit_and_a_service_are_told_apart() {
        let mut limited = NamedLayer::new(RateLimit::new(1, secs(60))).layer(handler());
        assert_eq!(named(&mut limited), None);
        let _ = limited.call(Delivery::new(redrive_core::Message::new(""), "q", std::time::UNIX_EPOCH)).await;
        assert_eq!(named(&mut limited), Some(WaitsFor::RateLimit));
        assert_eq!(named(&mut tower::limit::ConcurrencyLimit::new(handler(), 0)), Some(WaitsFor::Service));
    }

    #[test]
    fn names_are_short() {
        assert_eq!(
            without_paths("tower::limit::concurrency::layer::ConcurrencyLimitLayer"),
            "ConcurrencyLimitLayer"
        );
        assert_eq!(without_paths("tower_layer::stack::Stack<a::B<C>, d::E>"), "Stack");
        assert_eq!(without_paths("u8"), "u8");
    }
}
