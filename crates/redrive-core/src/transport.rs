//! What a broker must be able to do, and what it says about itself.

use std::future::Future;
use std::time::{Duration, SystemTime};

use crate::delivery::Delivery;
use crate::in_place::InPlace;
use crate::needs::Needs;
use crate::settlement::Settlement;

/// A broker, as the consumer sees it: deliveries come in, settlements go out. A transport decides
/// nothing; what must be done arrives complete, in a [`Settlement`].
///
/// The contract stands clause by clause in the suite of `redrive-testkit`; how to write a transport
/// is told in `docs/writing-a-transport.md`.
///
/// # Life
///
/// [`start`](Self::start) once, then [`receive`](Self::receive) and [`settle`](Self::settle) any number
/// of times, from any task; [`pause`](Self::pause) and [`resume`](Self::resume) in between;
/// [`close`](Self::close) at the end.
///
/// An interruption (broker restarted, connection lost) is the transport's own to mend, with backoff and
/// jitter: `receive` waits it out. Deliveries in hand at that moment come again, and settling them
/// answers [`TransportErrorKind::Lost`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Transport`",
    note = "use one of redrive's transports (`Memory`, `RabbitMq`, …), connected: did you forget `.await?`"
)]
pub trait Transport: Send + Sync + 'static {
    /// The right to settle one delivery. Moved, hence used at most once; gives the delivery back to the
    /// broker when dropped.
    type Receipt: Send + 'static;

    /// What this broker can do, as it is configured. Asked before the start for the preflight, and
    /// again after it.
    fn capabilities(&self) -> Capabilities;

    /// Declares or verifies what `needs` asks for, then begins to take deliveries. A configuration that the
    /// broker cannot honour is refused here, before the first message is taken.
    ///
    /// # Errors
    ///
    /// When the broker cannot be reached at all, refuses the credentials, or has something else under the
    /// names that are needed.
    fn start(&self, needs: &Needs) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// The next delivery. `None` when there is none to come: after [`pause`](Self::pause) and
    /// [`close`](Self::close), once what had been handed out before was received.
    ///
    /// Cancel safe: a delivery is never lost with the future.
    ///
    /// # Errors
    ///
    /// Only what time does not mend, such as a queue that was deleted and must not be declared again.
    fn receive(&self)
    -> impl Future<Output = Result<Option<Received<Self::Receipt>>, TransportError>> + Send;

    /// Carries a settlement out. A copy is stored for good (confirmed by the broker) before the original is
    /// removed: a crash in between leaves two, never none.
    ///
    /// `Ok` means that nothing is left to decide or to store. The removal of the original may still be on its way, for as
    /// long as the transport's documentation says: when the connection ends first the delivery comes again.
    ///
    /// Not cancel safe: when the future is dropped the delivery may or may not be settled; if not, it comes
    /// again.
    ///
    /// # Errors
    ///
    /// The delivery then counts as unsettled. Where it is still in hand the error carries its receipt, to try
    /// again with; where it is lost the delivery comes again by itself.
    fn settle(
        &self,
        receipt: Self::Receipt,
        settlement: Settlement,
    ) -> impl Future<Output = Result<(), SettleError<Self::Receipt>>> + Send;

    /// Asks the broker to hand out no more. What it had handed out already still comes from
    /// [`receive`](Self::receive), which then answers `None`. Settling goes on.
    ///
    /// # Errors
    ///
    /// None that matter to the caller in most brokers: a connection that is lost hands out nothing either.
    fn pause(&self) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// Takes deliveries again after [`pause`](Self::pause).
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    fn resume(&self) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// From the next [`start`](Self::start) or [`resume`](Self::resume) on, holds at most so many deliveries; `None`:
    /// as many as [`Needs::prefetch`] says. Whatever is in hand of a process that dies is counted against it by the
    /// broker: the consumer asks for 1 while it handles messages alone that may be the reason why processes die.
    ///
    /// A transport that cannot do this leaves it: suspects are then handled alone all the same, but what is held beside
    /// them is counted with them.
    fn narrow(&self, most: Option<u32>) {
        let _ = most;
    }

    /// How long ago deliveries in hand were last lost with their connection and began to come again, though this process
    /// lived on, by a clock that nobody sets; `None`: never, or not known. They come with a higher count for which nobody is
    /// to blame.
    fn since_interruption(&self) -> Option<Duration> {
        None
    }

    /// What was handed out and not received before an [interruption](Delivery::after_interruptions): it was thrown away, and
    /// comes again. Each is answered once, before the first delivery after the interruption is received; `None`: there were
    /// too many to be kept. Asked for at the start by whoever will ask again; before that nothing need be kept.
    ///
    /// A transport whose deliveries have [numbers of the broker](Delivery::with_broker_number) leaves it.
    fn unreceived(&self) -> Option<Vec<Delivery>> {
        Some(Vec::new())
    }

    /// Ends the work: what is still in hand goes back to the broker, and connections are closed in
    /// order. `receive` answers `None` from here on.
    fn close(&self) -> impl Future<Output = ()> + Send;

    /// Resolves when what could not be stored is worth trying again at once, for example because a broker that was out
    /// of memory takes messages again. Listens from the call on, not only from the first poll. Never resolves where nothing
    /// tells; the consumer tries again by and by in any case.
    fn recovered(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Resolves when this delivery is no longer ours to settle while its connection lives: when its lock ran out, for
    /// example. The consumer then drops its handler, and the receipt; no attempt is charged, and the message comes again by
    /// itself. Asked for once, before the handler begins.
    ///
    /// Cancel safe. Never resolves where nothing tells, as by default: the handler then runs to its end, and settling answers
    /// [`TransportErrorKind::Lost`]. Must not resolve for a delivery that can still be settled.
    fn lost(&self, receipt: &Self::Receipt) -> impl Future<Output = ()> + Send + 'static {
        let _ = receipt;
        std::future::pending()
    }

    /// The time, for everything that is written on messages. A transport on virtual time answers with that.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// A delivery, and the right to settle it.
#[derive(Debug)]
#[must_use = "dropping the receipt gives the delivery back"]
pub struct Received<R> {
    /// What goes through the layers.
    pub delivery: Delivery,
    /// What stays with the consumer.
    pub receipt: R,
}

/// What a transport can do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The broker's name as OpenTelemetry spells it (`messaging.system`): `rabbitmq`, `servicebus`, …
    pub system: &'static str,
    /// The queue (or subscription) that is consumed.
    pub queue: String,
    /// The longest wait that the broker can hold a message for; `None`: any.
    pub longest_wait: Option<Duration>,
    /// The waits that the broker can hold a message for in one hop, shortest first; a wait in between takes the next
    /// longer one. Longer waits are made of several hops, so that none is cut short. Known after the start; `None`: any.
    pub hops: Option<Vec<Duration>>,
    /// Whether the broker counts how often it handed a message out.
    pub counts_hand_outs: bool,
    /// Whether giving a delivery back raises that count.
    pub release_counts: bool,
    /// After how many hand-outs the broker itself takes a message away; `None`: never, or not known.
    pub hand_out_limit: Option<u32>,
    /// How many deliveries the transport may have in hand, where it takes more than [`Needs::prefetch`] by itself; `None`:
    /// never more than that.
    pub most_in_hand: Option<u32>,
    /// After how long the broker takes back a delivery that is not settled; `None`: never, or not known.
    pub hold_limit: Option<Duration>,
    /// Whether [`Settlement::Reject`] reaches the dead-letter shelf without a copy being published.
    pub native_dead_letter: bool,
    /// Whether what is dead-lettered shall go that way: without a copy, hence without its story. Only with
    /// [`native_dead_letter`](Self::native_dead_letter).
    pub prefers_native_dead_letter: bool,
    /// What the broker does about retries by itself, without copies; `None`: every retry is a copy.
    pub in_place: Option<InPlace>,
    /// Whether a message waits at least as long as those that were rescheduled before it, whatever its own wait.
    pub waits_in_line: bool,
    /// Whether a copy that was stored to come back after a wait is never lost, even when the broker crashes just as it
    /// comes back. Where it may be, a delivery that comes again is handled again, although its copy was stored.
    pub keeps_delayed_copies: bool,
    /// How many bytes properties and headers of a copy may take; `None`: any number.
    pub max_header_bytes: Option<usize>,
    /// Whether a retried message keeps its place before later ones.
    pub keeps_order: bool,
}

impl Capabilities {
    /// The capabilities of a broker without limits that counts hand-outs: a start to change from.
    #[must_use]
    pub fn new(system: &'static str, queue: impl Into<String>) -> Self {
        Self {
            system,
            queue: queue.into(),
            longest_wait: None,
            hops: None,
            counts_hand_outs: true,
            release_counts: false,
            hand_out_limit: None,
            most_in_hand: None,
            hold_limit: None,
            native_dead_letter: false,
            prefers_native_dead_letter: false,
            in_place: None,
            waits_in_line: false,
            keeps_delayed_copies: true,
            max_header_bytes: None,
            keeps_order: false,
        }
    }
}

/// Why a transport could not do what was asked: what was tried, on what, and what to do next. Never
/// contains a password.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    kind: TransportErrorKind,
    message: String,
    #[source]
    source: Option<crate::BoxError>,
}

impl TransportError {
    /// An error of this kind; `message` says what was tried, on what, and what to do next.
    #[must_use]
    pub fn new(kind: TransportErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same error with the one that caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<crate::BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of error this is.
    #[must_use]
    pub fn kind(&self) -> TransportErrorKind {
        self.kind
    }
}

/// The kinds of [`TransportError`], as far as callers act on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// The broker does not answer. Trying again later may help.
    Unreachable,
    /// The broker refuses the credentials, or the right to do this.
    Unauthorized,
    /// Something else stands under a name that is needed, or it is missing.
    Topology,
    /// The configuration asks for what this broker cannot do.
    Unsupported,
    /// The copy was not stored: target missing, or no confirmation in time. The consumer pauses its intake and tries
    /// again.
    NotStored,
    /// The copy was not stored: its target has no room. Where it was to come back, the consumer keeps the delivery in hand,
    /// goes on with others, which makes room, and handles it again when its wait is over.
    Full,
    /// The copy will never be stored as it is: too large for the broker.
    TooLarge,
    /// The delivery is no longer ours to settle; it comes again.
    Lost,
    /// What was named is not there any more: an entry of a shelf, by its handle.
    NotFound,
    /// The transport was closed.
    Closed,
    /// Anything else.
    Other,
}

/// Why a delivery was not settled.
#[derive(Debug)]
pub struct SettleError<R> {
    /// What happened.
    pub error: TransportError,
    /// The right to settle the delivery, when it is still in hand. Dropping it gives the delivery back.
    pub receipt: Option<R>,
    /// True when the copy is known to be stored, and only the removal of the original is in doubt. When the original
    /// comes again it must not be copied again.
    pub copy_stored: bool,
}

impl<R> SettleError<R> {
    /// The delivery is no longer in hand.
    #[must_use]
    pub fn lost(error: TransportError) -> Self {
        Self { error, receipt: None, copy_stored: false }
    }

    /// The delivery is no longer in hand, but its copy is stored: only the removal of the original is in doubt.
    #[must_use]
    pub fn lost_after_copy(error: TransportError) -> Self {
        Self { error, receipt: None, copy_stored: true }
    }

    /// The delivery is still in hand: its settlement can be tried again.
    #[must_use]
    pub fn held(error: TransportError, receipt: R) -> Self {
        Self { error, receipt: Some(receipt), copy_stored: false }
    }
}
