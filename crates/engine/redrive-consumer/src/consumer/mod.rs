//! The consumer: built from a transport, layers and a handler, then run.

mod attempt;
mod backoff;
mod control;
mod explain;
mod give_back;
mod group;
mod guarded_count;
mod health;
mod in_flight;
mod intake;
mod isolate;
mod observe;
mod phases;
mod preflight;
mod readiness;
mod reception;
mod refusals;
mod report;
mod run;
mod runner;
mod settling;
mod shared;
#[cfg(feature = "signal")]
mod shutdown;
mod stacks;
mod telemetry;
mod tracer;
mod workers;

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::engine::Stages;
use redrive_core::transport::{DEFAULT_HEADER_BUDGET, Needs};
use redrive_core::{
    BoxError, DeadLetterBackoff, Delivery, Disposition, IntoDeadLetterBackoff, Stage, Transport,
};
use tower_layer::{Identity, Layer, Stack};
use tower_service::Service;

pub use control::ConsumerHandle;
pub use group::{Consumers, ConsumersError, ConsumersHandle};
pub use health::{Health, Phase};
pub use observe::{Event, Observer};
pub use report::{ConsumerError, Report};
pub use runner::Runner;
#[cfg(feature = "signal")]
pub use shutdown::shutdown_signal;
pub use tracer::Tracer;

use self::observe::Observers;
use crate::handler::{Handler, HandlerService};
use crate::rate_limit::RateLimit;
use crate::readiness::NamedLayer;
use crate::redelivery::Suspects;
use crate::service::{ErasedService, StageLayer};

/// Takes messages from a transport, calls a handler for each, and settles every one.
///
/// Layers are added from the outside in, as with `tower::ServiceBuilder`: the first layer sees a delivery first and its
/// outcome last.
///
/// ```no_run
/// # async fn example<T: redrive_core::Transport>(transport: T) -> Result<(), redrive_consumer::ConsumerError> {
/// use std::time::Duration;
/// use redrive_consumer::Consumer;
/// use redrive_core::BoxError;
///
/// async fn ship(order: String) -> Result<(), BoxError> {
///     println!("shipping {order}");
///     Ok(())
/// }
///
/// Consumer::new(transport)
///     .concurrency(16)
///     .with_dead_letter_backoff([Duration::from_secs(1), Duration::from_secs(10)])
///     .handler(ship)
///     .run_until(std::future::pending())
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "a consumer does nothing until it has a handler and is run"]
pub struct Consumer<T, L = Identity> {
    transport: T,
    layer: L,
    settings: Settings,
}

/// Settings that the builder collects without changing its type.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) concurrency: usize,
    pub(crate) prefetch: Option<u32>,
    pub(crate) longest_handling: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) give_up_after: Option<Duration>,
    pub(crate) needs: Needs,
    /// The stages of the builder, outermost first.
    pub(crate) around: Vec<Arc<dyn Stage>>,
    /// All stages, those of the handler included.
    pub(crate) stages: Stages,
    /// Number of layers that are no stages.
    pub(crate) other_layers: usize,
    /// True if a stack that is ready may have reserved something: then it serves one call, and what it has not used goes with it.
    /// Handlers and stages are always ready, and reserve nothing.
    pub(crate) reserves: bool,
    /// That of a configuration: another one is a layer like any other.
    pub(crate) rate_limit: Option<RateLimit>,
    pub(crate) header_budget: usize,
    pub(crate) remembered: usize,
    pub(crate) suspects: Suspects,
    pub(crate) ledger: Option<PathBuf>,
    pub(crate) redactor: Option<Arc<Redactor>>,
    pub(crate) observers: Observers,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
}

pub(crate) type Redactor = dyn Fn(&str) -> String + Send + Sync;

/// Without the type of the transport.
pub(crate) const DEFAULT_CONCURRENCY: u16 = 16;

impl<T: Transport> Consumer<T> {
    /// Default of [`concurrency`](Consumer::concurrency).
    pub const DEFAULT_CONCURRENCY: usize = DEFAULT_CONCURRENCY as usize;
    /// Default of [`grace`](Consumer::grace).
    pub const DEFAULT_GRACE: Duration = Duration::from_secs(30);
    /// Default of [`remember`](Consumer::remember).
    pub const DEFAULT_REMEMBERED: usize = 10_000;

    /// Creates a consumer of this transport, without layers.
    pub fn new(transport: T) -> Self {
        let settings = Settings {
            concurrency: Self::DEFAULT_CONCURRENCY,
            prefetch: None,
            longest_handling: None,
            grace: Self::DEFAULT_GRACE,
            give_up_after: None,
            needs: Needs::none(),
            around: Vec::new(),
            stages: Stages::none(),
            other_layers: 0,
            reserves: false,
            rate_limit: None,
            header_budget: DEFAULT_HEADER_BUDGET,
            remembered: Self::DEFAULT_REMEMBERED,
            suspects: Suspects::default(),
            ledger: None,
            redactor: None,
            observers: Observers::default(),
            tracer: None,
        };
        Self { transport, layer: Identity::new(), settings }
    }
}

impl<T: Transport, L> Consumer<T, L> {
    /// Sets how many deliveries are handled at the same time; at least 1, and at least as many as one
    /// [batch](crate::BatchHandler) has. Default: 16.
    pub fn concurrency(mut self, deliveries: usize) -> Self {
        self.settings.concurrency = deliveries.max(1);
        self
    }

    /// Sets how many deliveries the broker may hand out at the same time, including those being handled. Default: twice the
    /// concurrency.
    pub fn prefetch(mut self, deliveries: u32) -> Self {
        self.settings.prefetch = Some(deliveries.max(1));
        self
    }

    /// Sets the longest wait of one request for messages, where the transport asks for them: a request that got none by then is
    /// followed by the next. A broker that pushes deliveries knows no such wait; the consumer then logs at its start that the setting
    /// has no effect. Default: what the transport chooses.
    pub fn max_wait_time(mut self, wait: Duration) -> Self {
        self.settings.needs.max_wait_time = Some(wait);
        self
    }

    /// Declares how long handling one delivery takes at most: for example the timeout around the handler. The consumer warns at
    /// its start if the broker takes deliveries back before all of them can be handled. This setting cuts no handler short.
    pub fn longest_handling(mut self, time: Duration) -> Self {
        self.settings.longest_handling = Some(time);
        self
    }

    /// Sets how long handlers may take to finish after a shutdown request. After that, the consumer drops the handlers that still
    /// run and gives their messages back without charging an attempt. Default: 30 seconds.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// Ends the consumer with an error ([`ConsumerError::GaveUp`]) when it could not receive for this long: for a program that wants
    /// to be restarted then. A pause does not count, nor does the time in which it can receive from one of several queues, such as the
    /// retry queue of a subscription, whether messages come or not. Default: never. A consumer that has received waits until it can
    /// receive again, whatever the broker refuses: its queue may be disabled, deleted, replaced, or closed to it for a while. Meanwhile
    /// its [health](Health) is not ready and says why.
    ///
    /// ```no_run
    /// # fn example<T: redrive_core::Transport>(transport: T) {
    /// use redrive_consumer::Consumer;
    /// use redrive_core::mins;
    ///
    /// let consumer = Consumer::new(transport).give_up_after(mins(30));
    /// # }
    /// ```
    pub fn give_up_after(mut self, time: Duration) -> Self {
        self.settings.give_up_after = Some(time);
        self
    }

    /// Tells the transport what the layers will ask of it, if the consumer cannot inspect them: for example the waits of a retry
    /// policy inside a `tower::ServiceBuilder`.
    pub fn needs(mut self, needs: Needs) -> Self {
        self.settings.needs = self.settings.needs.and(needs);
        self
    }

    /// Sets how many bytes redrive's own headers may take on a message. Default: 4096.
    pub fn header_budget(mut self, bytes: usize) -> Self {
        self.settings.header_budget = bytes;
        self
    }

    /// Sets how many recently settled deliveries the consumer remembers. If an acknowledgement is lost, the broker delivers the
    /// message again; a remembered message is then deduplicated instead of handled a second time. `0` turns this off. Default: 10
    /// 000.
    ///
    /// Where the broker does not number its messages (RabbitMQ), the consumer recognizes a message by its content, only soon
    /// after an interruption, and only if no identical message is known to be unhandled: a publisher may publish two identical
    /// messages on purpose.
    pub fn remember(mut self, deliveries: usize) -> Self {
        self.settings.remembered = deliveries;
        self
    }

    /// Sets which deliveries are suspected of having killed a process, and are therefore handled alone. Default:
    /// [`Suspects::by_count`]. For this reason a consumer starts with one delivery in flight, and goes up to the configured
    /// number once that delivery turns out to be new.
    pub fn suspects(mut self, suspects: Suspects) -> Self {
        self.settings.suspects = suspects;
        self
    }

    /// Keeps a ledger in this file: one line when a handler begins with a message, one when it ends. If the process dies, exactly
    /// the messages that it had begun with are [suspects](Self::suspects) for the next process with the same ledger. Each such
    /// death counts as a delivery of the message. So even a queue that does not count deliveries (a classic queue of RabbitMQ)
    /// gets rid of a message that kills every process.
    ///
    /// Each consumer of each process needs its own file, in a folder that outlives the process, on a local disk; redrive creates
    /// two more files beside it (`.lock`, `.new`). The ledger costs two small writes per message, to the operating system and not
    /// to the disk: they survive the process, but not always the machine. A message without an id is recognized by its content.
    /// If the file cannot be opened, the consumer does not start. If it cannot be written later, the consumer logs an error and
    /// still handles messages.
    pub fn ledger(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.ledger = Some(path.into());
        self
    }

    /// Passes the text of every failure through one more redactor, after [`redact`](redrive_core::redact), before the text is logged as
    /// a decision or written on a message. The log line of a panic passes only [`redact`](redrive_core::redact), and a panic hook of the
    /// process prints whatever it likes.
    pub fn redactor(mut self, redactor: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.settings.redactor = Some(Arc::new(redactor));
        self
    }

    /// Reports every event of the consumer to this observer. A consumer may have several observers.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.settings.observers.add(observer);
        self
    }

    /// Joins the spans of deliveries to the traces that their messages carry.
    pub fn tracer(mut self, tracer: impl Tracer) -> Self {
        self.settings.tracer = Some(Arc::new(tracer));
        self
    }

    /// Adds a tower layer, inside the existing ones. The log and the [health](Health) name the call, by the place in the code, if the
    /// layer does not become ready.
    #[track_caller]
    pub fn layer<Inner>(mut self, layer: Inner) -> Consumer<T, Stack<NamedLayer<Inner>, L>> {
        self.settings.other_layers += 1;
        self.settings.reserves = true;
        self.with_layer(NamedLayer::new(layer))
    }

    /// Adds a rate limit, inside the existing layers; `None`: one that limits nothing, and reserves nothing.
    #[cfg(feature = "config")]
    pub(crate) fn rate_limited(mut self, limit: Option<RateLimit>) -> Consumer<T, Stack<RateLimit, L>> {
        self.settings.reserves |= limit.is_some();
        self.settings.rate_limit.clone_from(&limit);
        self.with_layer(limit.unwrap_or_else(RateLimit::unlimited))
    }

    fn with_layer<Inner>(self, layer: Inner) -> Consumer<T, Stack<Inner, L>> {
        Consumer { transport: self.transport, layer: Stack::new(layer, self.layer), settings: self.settings }
    }

    /// Adds a [`Stage`], inside the existing layers.
    pub fn stage<St: Stage>(mut self, stage: St) -> Consumer<T, Stack<StageLayer<St>, L>> {
        let needs = stage.needs();
        let layer = StageLayer::new(stage);
        self.settings.around.push(layer.erased());
        self.needs(needs).with_layer(layer)
    }

    /// Adds retry with backoff, dead-lettering, poison detection and parking: a [`RetryPolicy`](redrive_core::RetryPolicy), or a
    /// [`DeadLetterBackoff`] with options.
    ///
    /// ```no_run
    /// # fn example<T: redrive_core::Transport>(transport: T) {
    /// use redrive_consumer::Consumer;
    /// use redrive_core::{DeadLetterBackoff, secs};
    ///
    /// let consumer = Consumer::new(transport)
    ///     .with_dead_letter_backoff(DeadLetterBackoff::new([secs(1), secs(60)]).poison_after(5).park_exhausted());
    /// # }
    /// ```
    pub fn with_dead_letter_backoff(
        self,
        preset: impl IntoDeadLetterBackoff,
    ) -> Consumer<T, Stack<StageLayer<DeadLetterBackoff>, L>> {
        self.stage(preset.into_dead_letter_backoff())
    }

    /// Sets the async function that handles deliveries.
    pub fn handler<H, Args>(self, handler: H) -> Runner<T>
    where
        L: LayerOfHandlers<H, Args, ()>,
    {
        self.handler_with((), handler)
    }

    /// Sets the async function that handles deliveries. It can extract the state with [`State<S>`](crate::State).
    pub fn handler_with<S, H, Args>(self, state: S, handler: H) -> Runner<T>
    where
        L: LayerOfHandlers<H, Args, S>,
    {
        let (needs, stages) = (L::needs_of(&handler), L::stages_of(&handler));
        let settings = Settings { needs: self.settings.needs.clone().and(needs), stages, ..self.settings };
        Runner::new(self.transport, self.layer.around(handler, state), settings)
    }

    /// Sets a tower service, instead of a function, that handles deliveries.
    pub fn service<S>(mut self, service: S) -> Runner<T>
    where
        L: Layer<S>,
        L::Service: Service<Delivery, Response = Disposition> + Clone + Send + 'static,
        <L::Service as Service<Delivery>>::Error: Into<BoxError>,
        <L::Service as Service<Delivery>>::Future: Send + 'static,
    {
        self.settings.reserves = true;
        let service = self.layer.layer(service);
        Runner::new(self.transport, ErasedService::new(service), self.settings)
    }
}

/// A consumer's layers that accept this handler: together they make a `tower` service that takes a [`Delivery`], answers with a
/// [`Disposition`], is `Clone + Send + 'static`, and fails with an `Into<BoxError>`. One trait holds all these bounds, so that
/// the compiler reports a missing one once.
pub trait LayerOfHandlers<H, Args, S> {
    #[doc(hidden)]
    fn needs_of(handler: &H) -> Needs;
    #[doc(hidden)]
    fn stages_of(handler: &H) -> Stages;
    #[doc(hidden)]
    fn around(&self, handler: H, state: S) -> ErasedService;
}

impl<L, H, Args, S> LayerOfHandlers<H, Args, S> for L
where
    H: Handler<Args, S>,
    Args: 'static,
    S: Send + Sync + 'static,
    L: Layer<HandlerService<H, Args, S>>,
    L::Service: Service<Delivery, Response = Disposition> + Clone + Send + 'static,
    <L::Service as Service<Delivery>>::Error: Into<BoxError>,
    <L::Service as Service<Delivery>>::Future: Send + 'static,
{
    fn needs_of(handler: &H) -> Needs {
        handler.needs()
    }

    fn stages_of(handler: &H) -> Stages {
        handler.stages()
    }

    fn around(&self, handler: H, state: S) -> ErasedService {
        ErasedService::new(self.layer(HandlerService::new(handler, state)))
    }
}

impl<T, L> fmt::Debug for Consumer<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { concurrency, prefetch, grace, needs, .. } = &self.settings;
        f.debug_struct("Consumer")
            .field("concurrency", concurrency)
            .field("prefetch", prefetch)
            .field("grace", grace)
            .field("needs", needs)
            .finish_non_exhaustive()
    }
}

impl Settings {
    pub(crate) fn remembered(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.remembered)
    }
}
