//! The consumer: built from a transport, layers and a handler, then run.

mod backoff;
mod context;
mod control;
mod give_back;
mod guarded_count;
mod in_flight_log;
mod in_hand;
mod isolate;
mod ledger_state;
mod losses;
mod memory;
mod observe;
mod preflight;
mod report;
mod run;
mod settle;
mod settled_cache;
mod signal_state;
mod suspects;
mod telemetry;
mod work;
mod workers;

use std::fmt;
use std::future::Future;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::{Identity, Layer, Stack};
use tower_service::Service;

pub use control::ConsumerHandle;
pub use observe::{Event, Observer};
pub use report::{ConsumerError, Report};
pub use suspects::Suspects;

use crate::delivery::Delivery;
use crate::disposition::{BoxError, Disposition};
use crate::handler::{Handler, HandlerService};
use crate::layers::DeadLetterBackoff;
use crate::needs::Needs;
use crate::retry::RetryPolicy;
use crate::service::{ErasedService, StageLayer};
use crate::settlement::DEFAULT_HEADER_BUDGET;
use crate::stage::Stage;
use crate::transport::Transport;

/// Takes messages from a transport, has a handler handle them, and settles every one.
///
/// Layers are added from the outside in, as with `tower::ServiceBuilder`: the first sees a delivery first and its
/// outcome last.
///
/// ```no_run
/// # async fn example<T: redrive_core::Transport>(transport: T) -> Result<(), redrive_core::ConsumerError> {
/// use std::time::Duration;
/// use redrive_core::{BoxError, Consumer};
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

/// What the builder collects besides types.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) concurrency: usize,
    pub(crate) prefetch: Option<u32>,
    pub(crate) longest_handling: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) needs: Needs,
    pub(crate) header_budget: usize,
    pub(crate) remembered: usize,
    pub(crate) suspects: Suspects,
    pub(crate) ledger: Option<PathBuf>,
    pub(crate) redactor: Option<Arc<Redactor>>,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
}

pub(crate) type Redactor = dyn Fn(&str) -> String + Send + Sync;

impl<T: Transport> Consumer<T> {
    /// The default of [`concurrency`](Consumer::concurrency).
    pub const DEFAULT_CONCURRENCY: usize = 16;
    /// The default of [`grace`](Consumer::grace).
    pub const DEFAULT_GRACE: Duration = Duration::from_secs(30);
    /// The default of [`remember`](Consumer::remember).
    pub const DEFAULT_REMEMBERED: usize = 10_000;

    /// A consumer of this transport, without layers.
    pub fn new(transport: T) -> Self {
        let settings = Settings {
            concurrency: Self::DEFAULT_CONCURRENCY,
            prefetch: None,
            longest_handling: None,
            grace: Self::DEFAULT_GRACE,
            needs: Needs::none(),
            header_budget: DEFAULT_HEADER_BUDGET,
            remembered: Self::DEFAULT_REMEMBERED,
            suspects: Suspects::default(),
            ledger: None,
            redactor: None,
            observers: Vec::new(),
        };
        Self { transport, layer: Identity::new(), settings }
    }
}

impl<T: Transport, L> Consumer<T, L> {
    /// Sets how many deliveries are handled at the same time; at least 1. Default: 16.
    pub fn concurrency(mut self, deliveries: usize) -> Self {
        self.settings.concurrency = deliveries.max(1);
        self
    }

    /// Sets how many deliveries the broker may have handed out at the same time, those being handled included. Default: twice
    /// the concurrency.
    pub fn prefetch(mut self, deliveries: u32) -> Self {
        self.settings.prefetch = Some(deliveries.max(1));
        self
    }

    /// How long handling one delivery takes at most: for example what the timeout around the handler says. Where the
    /// broker takes deliveries back sooner than they can all be handled, the consumer warns at its start. Nothing is cut
    /// short by this.
    pub fn longest_handling(mut self, time: Duration) -> Self {
        self.settings.longest_handling = Some(time);
        self
    }

    /// Sets how long handlers may take to finish after a shutdown was asked for. Then those that still run are dropped, and their
    /// messages given back without charging an attempt. Default: 30 seconds.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// Tells the transport what layers that the consumer cannot look into will ask of it: for example the waits of a
    /// retry policy inside a `tower::ServiceBuilder`.
    pub fn needs(mut self, needs: Needs) -> Self {
        self.settings.needs = self.settings.needs.and(needs);
        self
    }

    /// Sets how many bytes redrive's own headers may take on a message. Default: 4096.
    pub fn header_budget(mut self, bytes: usize) -> Self {
        self.settings.header_budget = bytes;
        self
    }

    /// Sets how many recently settled deliveries are remembered, so that one whose acknowledgement was lost is deduplicated when
    /// it comes again, and not handled a second time. `0` remembers none. Default: 10 000.
    ///
    /// Where the broker does not number its messages (RabbitMQ), a message is known again by its content, soon after an
    /// interruption, and only if none like it is known to be unhandled: a publisher may publish the same thing twice, and
    /// mean it.
    pub fn remember(mut self, deliveries: usize) -> Self {
        self.settings.remembered = deliveries;
        self
    }

    /// Sets which deliveries may be the reason why a process died, and are handled alone. Default: [`Suspects::by_count`]. A
    /// consumer therefore begins with one delivery in flight, and takes as many as configured once that one turns out to be new.
    pub fn suspects(mut self, suspects: Suspects) -> Self {
        self.settings.suspects = suspects;
        self
    }

    /// Keeps a ledger in this file: one line when a handler begins with a message, one when it ends. What a process
    /// that died had begun with, and nothing else, is a [suspect](Self::suspects) when it comes to the next process with
    /// the same ledger; and how often that happened counts as deliveries of the message, so that also a queue that does
    /// not count (a classic queue of RabbitMQ) is rid of a message that kills every process.
    ///
    /// Each consumer of each process needs a file of its own, in a folder that outlives the process, on a local disk; two
    /// more are written beside it (`.lock`, `.new`). It costs two small writes per message, to the operating system
    /// and not to the disk: they outlive the process, not always the machine. A message without an id is known by
    /// its content. When
    /// it cannot be opened the consumer does not start; when it cannot be written later, an error is logged and messages
    /// are handled all the same.
    pub fn ledger(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.ledger = Some(path.into());
        self
    }

    /// Passes the text of every failure through one more redactor, after [`redact`](crate::redact), before it is
    /// logged as a decision or written on a message. The log line of a panic passes only the first; and a panic hook of
    /// the process prints what it likes.
    pub fn redactor(mut self, redactor: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.settings.redactor = Some(Arc::new(redactor));
        self
    }

    /// Reports everything that happens to this observer. A consumer may have several.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.settings.observers.push(Arc::new(observer));
        self
    }

    /// Adds a tower layer, inside of those that are there already.
    pub fn layer<Inner>(self, layer: Inner) -> Consumer<T, Stack<Inner, L>> {
        Consumer { transport: self.transport, layer: Stack::new(layer, self.layer), settings: self.settings }
    }

    /// Adds a [`Stage`], inside of what is there already.
    pub fn stage<St: Stage>(self, stage: St) -> Consumer<T, Stack<StageLayer<St>, L>> {
        let needs = stage.needs();
        self.needs(needs).layer(StageLayer::new(stage))
    }

    /// Adds retry with backoff, dead-lettering, poison detection and parking: see [`DeadLetterBackoff`].
    pub fn with_dead_letter_backoff(
        self,
        policy: impl RetryPolicy,
    ) -> Consumer<T, Stack<StageLayer<DeadLetterBackoff>, L>> {
        self.stage(DeadLetterBackoff::new(policy))
    }

    /// The same, with options.
    ///
    /// ```no_run
    /// # fn example<T: redrive_core::Transport>(transport: T) {
    /// use std::time::Duration;
    /// use redrive_core::Consumer;
    ///
    /// let consumer = Consumer::new(transport).with_dead_letter_backoff_and(
    ///     [Duration::from_secs(1), Duration::from_secs(60)],
    ///     |preset| preset.poison_after(5).park_exhausted(),
    /// );
    /// # }
    /// ```
    pub fn with_dead_letter_backoff_and(
        self,
        policy: impl RetryPolicy,
        options: impl FnOnce(DeadLetterBackoff) -> DeadLetterBackoff,
    ) -> Consumer<T, Stack<StageLayer<DeadLetterBackoff>, L>> {
        self.stage(options(DeadLetterBackoff::new(policy)))
    }

    /// Handles deliveries with this async function.
    pub fn handler<H, Args>(self, handler: H) -> Runner<T>
    where
        H: Handler<Args, ()>,
        Args: 'static,
        L: Layer<HandlerService<H, Args, ()>>,
        L::Service: Service<Delivery, Response = Disposition> + Clone + Send + 'static,
        <L::Service as Service<Delivery>>::Error: Into<BoxError>,
        <L::Service as Service<Delivery>>::Future: Send + 'static,
    {
        self.handler_with((), handler)
    }

    /// Handles deliveries with this async function, which can ask for the state with
    /// [`State<S>`](crate::State).
    pub fn handler_with<S, H, Args>(self, state: S, handler: H) -> Runner<T>
    where
        S: Send + Sync + 'static,
        H: Handler<Args, S>,
        Args: 'static,
        L: Layer<HandlerService<H, Args, S>>,
        L::Service: Service<Delivery, Response = Disposition> + Clone + Send + 'static,
        <L::Service as Service<Delivery>>::Error: Into<BoxError>,
        <L::Service as Service<Delivery>>::Future: Send + 'static,
    {
        let settings = Settings { needs: self.settings.needs.clone().and(handler.needs()), ..self.settings };
        let service = self.layer.layer(HandlerService::new(handler, state));
        Runner::new(self.transport, ErasedService::new(service), settings)
    }

    /// Handles deliveries with a tower service instead of a function.
    pub fn service<S>(self, service: S) -> Runner<T>
    where
        L: Layer<S>,
        L::Service: Service<Delivery, Response = Disposition> + Clone + Send + 'static,
        <L::Service as Service<Delivery>>::Error: Into<BoxError>,
        <L::Service as Service<Delivery>>::Future: Send + 'static,
    {
        let service = self.layer.layer(service);
        Runner::new(self.transport, ErasedService::new(service), self.settings)
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

/// A consumer with its handler, ready to run.
#[must_use = "a consumer does nothing until it is run"]
pub struct Runner<T> {
    transport: Arc<T>,
    service: ErasedService,
    settings: Settings,
    control: control::Control,
}

impl<T: Transport> Runner<T> {
    fn new(transport: T, service: ErasedService, mut settings: Settings) -> Self {
        let derived = u32::try_from(settings.concurrency.saturating_mul(2)).unwrap_or(u32::MAX);
        // Below the concurrency, handlers would wait for nothing.
        settings.needs.prefetch = settings.prefetch.unwrap_or(derived);
        let Settings { needs, concurrency, longest_handling, .. } = &mut settings;
        needs.longest_hold = preflight::longest_hold(*longest_handling, *concurrency, needs.prefetch);
        Self { transport: Arc::new(transport), service, settings, control: control::Control::new() }
    }

    /// To stop, pause and resume the consumer from elsewhere.
    #[must_use]
    pub fn handle(&self) -> ConsumerHandle {
        self.control.handle()
    }

    /// Runs until the [`handle`](Self::handle) stops it.
    ///
    /// # Errors
    ///
    /// As [`run_until`](Self::run_until).
    pub async fn run(self) -> Result<Report, ConsumerError> {
        self.run_until(std::future::pending()).await
    }

    /// Runs until `shutdown` resolves or the [`handle`](Self::handle) stops it: then takes no more messages, gives back
    /// what no handler has begun with, lets handlers finish within the grace period, gives back what they did not
    /// finish, and closes the transport.
    ///
    /// Not cancel safe in the sense of a clean end: dropping the future drops the handlers, and what they worked on
    /// comes again. Nothing is lost.
    ///
    /// # Errors
    ///
    /// Before the first message: when the broker cannot honour the configuration, or cannot be started. Later: only for
    /// what time does not mend, such as a queue that somebody deleted. An interruption of the broker is no error.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<Report, ConsumerError> {
        run::run(self.transport, self.service, self.settings, self.control, shutdown).await
    }
}

impl<T> fmt::Debug for Runner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("needs", &self.settings.needs).finish_non_exhaustive()
    }
}

impl Settings {
    pub(crate) fn remembered(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.remembered)
    }
}
