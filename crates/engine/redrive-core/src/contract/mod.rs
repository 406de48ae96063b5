//! The contract between the consumer and a transport.

mod outline;
mod signals;
mod unconnected;

use std::future::Future;
use std::sync::Arc;
use std::time::SystemTime;

use crate::delivery::Delivery;
use crate::facts::Facts;
use crate::needs::Needs;
use crate::publisher::Publisher;
use crate::settlement::Settlement;
use crate::transport_error::{OpenError, SettleError, TransportError};

pub use outline::{Finding, Outline, Rest, Severity};
pub use signals::{Signal, Signals};
pub use unconnected::{NoReceiver, Unconnected};

/// A broker, as the consumer sees it. A transport decides nothing: a [`Settlement`] tells it completely what to do.
///
/// The suite in `redrive-contract` tests the contract, clause by clause;
/// [Writing a transport](https://github.com/redrive-rs/redrive/blob/main/docs/writing-a-transport.md) explains how to write one.
///
/// # Life cycle
///
/// 1. [`open`](Self::open), once: connects, refuses what the broker cannot honour, prepares the queues, and returns the
///    [`Receiver`] and the [`Facts`]. Before that nothing can be received: there is no receiver.
/// 2. [`Receiver::set_limit`] with more than 0: deliveries come. 0 stops them, and more than 0 starts them again, any
///    number of times. [`Receiver::receive`] and [`Receiver::settle`] are called any number of times, from any task.
/// 3. [`close`](Self::close), at the end: after it, the receiver returns no more deliveries.
///
/// A transport repairs an interruption (broker restarted, connection lost) itself, with backoff and jitter: `receive` waits
/// until it is over. Deliveries in flight at that moment are redelivered, and settling them returns
/// [`TransportErrorKind::Lost`](crate::TransportErrorKind::Lost).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Transport`",
    note = "use one of redrive's transports (`Memory`, `RabbitMq`, …), connected: did you forget `.await?`"
)]
pub trait Transport: Send + Sync + 'static {
    /// The receiver that [`open`](Self::open) returns.
    type Receiver: Receiver;

    /// Returns the queue (or subscription) that is consumed. Deliveries carry the same name
    /// ([`Delivery::queue`]).
    fn queue(&self) -> &str;

    /// Connects, compares `needs` with what the broker can do ([`Needs::check`]), and refuses what it cannot honour before
    /// anything is declared. Then declares or verifies the queues. Nothing is handed out before
    /// [`set_limit`](Receiver::set_limit).
    ///
    /// The [`Facts`] are what is known now. Later changes, and all other events that are not deliveries, go to `signals`.
    ///
    /// The future may be dropped before it is ready, if the consumer is asked to end during its start; [`close`](Self::close)
    /// follows.
    ///
    /// A transport has one receiver: after an error `open` may be called again; after a success it returns an error.
    ///
    /// # Errors
    ///
    /// [`OpenError::Refused`] if the broker cannot honour the needs. [`OpenError::Failed`] if it cannot be reached, refuses the
    /// credentials, or has something else under the names that are needed; also if the transport was opened before, or closed.
    fn open(
        &self,
        needs: &Needs,
        signals: Signals,
    ) -> impl Future<Output = Result<(Self::Receiver, Facts), OpenError>> + Send;

    /// Returns a publisher to the consumed queue, or to its topic. It works before the transport is opened and beside the
    /// consumer, and returns [`TransportErrorKind::Closed`](crate::TransportErrorKind::Closed) after [`close`](Self::close). It
    /// declares at most that queue and what the queue requires.
    fn publisher(&self) -> Publisher;

    /// Ends the work: gives deliveries in flight back to the broker, and closes connections in order. From then on
    /// [`Receiver::receive`] returns `None`. Closing twice is harmless, and so is closing a transport that was never opened.
    fn close(&self) -> impl Future<Output = ()> + Send;

    /// Returns what this transport would do with messages that fail, for a consumer with these needs. Pure: it asks no broker,
    /// and declares, publishes and receives nothing. [`open`](Self::open) and [`Receiver::settle`] then do exactly that.
    ///
    /// By default, no limits are known.
    fn outline(&self, needs: &Needs) -> Outline {
        let _ = needs;
        Outline::new(Facts::new("a broker"))
    }

    /// Returns the outline after a comparison with the broker: what [`open`](Self::open) would refuse or warn of, and what cannot
    /// be found out. Changes nothing at the broker: nothing is declared, published or received.
    ///
    /// May be called any number of times before `open`. Cancel safe.
    ///
    /// # Errors
    ///
    /// If the broker cannot be asked.
    fn preflight(&self, needs: &Needs) -> impl Future<Output = Result<Outline, TransportError>> + Send {
        let outline = self.outline(needs).with(Finding::unchecked(
            "this transport does not compare what is needed with what is at the broker",
        ));
        async { Ok(outline) }
    }

    /// Returns the current time, for everything that is written on messages. A transport on virtual time returns that time.
    fn now(&self) -> SystemTime;
}

/// Receives and settles deliveries.
pub trait Receiver: Send + Sync + 'static {
    /// The right to settle one delivery. Settling consumes it. When dropped, it gives the delivery back to the broker, in any
    /// thread and also outside a runtime.
    type Receipt: Send + 'static;

    /// Returns the next delivery, in their order; waits until there is one. Returns `None` if none will come: while the limit is 0
    /// and everything handed out before was received (so also before the first [`set_limit`](Self::set_limit)), and after the
    /// [end](Transport::close).
    ///
    /// One at a time, so that the caller takes none that it has no room for; a transport that gets several at once keeps the
    /// others (see `Inbox` of `redrive-transport`).
    ///
    /// Cancel safe: a delivery is taken only when the future becomes ready, so that a dropped future loses none.
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::TransportErrorKind::Closed) if nothing can ever be received again. Any other error is a refusal that the
    /// transport does not wait out itself, such as a queue that was deleted: the consumer decides whether it goes on. It then calls
    /// [`set_limit`](Self::set_limit) again after a wait. A transport that tries again by itself signals
    /// [`Disconnected`](Signal::Disconnected) instead.
    fn receive(&self)
    -> impl Future<Output = Result<Option<Received<Self::Receipt>>, TransportError>> + Send;

    /// Carries a settlement out. The broker confirms that it has stored the copy before the original is removed: a crash in
    /// between leaves two, never none.
    ///
    /// `Ok` means that nothing is left to decide or to store. The removal of the original may still be under way, for as long as
    /// the transport's documentation says; if the connection ends first, the delivery is redelivered.
    ///
    /// Not cancel safe: if the future is dropped, the delivery may or may not be settled; if not, it is redelivered.
    ///
    /// # Errors
    ///
    /// The delivery counts as unsettled. If it is still in flight, the error carries its receipt, for another try; if it is lost,
    /// the delivery is redelivered.
    fn settle(
        &self,
        receipt: Self::Receipt,
        settlement: Settlement,
    ) -> impl Future<Output = Result<(), SettleError<Self::Receipt>>> + Send;

    /// Sets the maximum number of deliveries that the broker may hand out before they are settled, at most [`Needs::prefetch`].
    /// Initially 0.
    ///
    /// 0: the broker hands out no more. Resolves when no more deliveries come in. [`receive`](Self::receive) still returns what
    /// was handed out before, and then `None`. Settling goes on.
    ///
    /// More than 0: the broker hands out up to this many. If the broker counts by subscription, deliveries handed out before the
    /// change do not count; if a small limit is not possible, the transport's page says so. Setting the current limit again
    /// changes nothing. After an error of `receive`, this starts receiving again.
    ///
    /// May be called from several tasks at once: the call that begins last wins. The earlier calls resolve too, at the latest
    /// with that one.
    ///
    /// The consumer sets 1 while it handles suspects alone: the broker charges every delivery that a dying process has in flight.
    ///
    /// # Errors
    ///
    /// With more than 0: if the transport was closed, or cannot receive. With 0: only if the intake could not be stopped in
    /// order.
    fn set_limit(&self, limit: u32) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// Resolves when this delivery is lost while its connection lives, for example because its lock expired. The consumer then
    /// drops its handler and the receipt; no attempt is charged, and the message is redelivered. Called once, before the
    /// handler begins.
    ///
    /// Cancel safe. By default, and if the transport cannot notice the loss, it never resolves: the handler then runs to its end,
    /// and settling returns [`TransportErrorKind::Lost`](crate::TransportErrorKind::Lost). Must not resolve for a delivery that can
    /// still be settled.
    fn lost(&self, receipt: &Self::Receipt) -> impl Future<Output = ()> + Send + 'static {
        let _ = receipt;
        std::future::pending()
    }
}

/// The receipt of a transport's deliveries.
pub type ReceiptOf<T> = <<T as Transport>::Receiver as Receiver>::Receipt;

/// A delivery, and the right to settle it.
#[derive(Debug)]
#[must_use = "dropping the receipt gives the delivery back"]
pub struct Received<R> {
    /// The part that passes through the layers.
    pub delivery: Delivery,
    /// The part that stays with the consumer.
    pub receipt: R,
}

#[diagnostic::do_not_recommend]
impl<T: Transport> Transport for Arc<T> {
    type Receiver = T::Receiver;

    fn queue(&self) -> &str {
        (**self).queue()
    }

    fn open(
        &self,
        needs: &Needs,
        signals: Signals,
    ) -> impl Future<Output = Result<(Self::Receiver, Facts), OpenError>> + Send {
        (**self).open(needs, signals)
    }

    fn publisher(&self) -> Publisher {
        (**self).publisher()
    }

    fn close(&self) -> impl Future<Output = ()> + Send {
        (**self).close()
    }

    fn outline(&self, needs: &Needs) -> Outline {
        (**self).outline(needs)
    }

    fn preflight(&self, needs: &Needs) -> impl Future<Output = Result<Outline, TransportError>> + Send {
        (**self).preflight(needs)
    }

    fn now(&self) -> SystemTime {
        (**self).now()
    }
}
