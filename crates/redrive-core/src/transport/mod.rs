//! What a broker must be able to do: the contract between the consumer and a transport.

mod error;
mod facts;
mod outline;
mod signals;
mod unconnected;

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::SystemTime;

use crate::delivery::Delivery;
use crate::needs::Needs;
use crate::publisher::Publisher;
use crate::settlement::Settlement;

pub use error::{OpenError, SettleError, TransportError, TransportErrorKind};
pub use facts::{Counting, Delays, Facts, HeaderLimit, Limits, NativeDeadLetter};
pub use outline::{Finding, Outline, Rest, Severity};
pub use signals::{Signal, Signals};
pub use unconnected::{NoReceiver, Unconnected};

/// A broker, as the consumer sees it. A transport decides nothing; what must be done arrives complete, in a
/// [`Settlement`].
///
/// The contract stands clause by clause in the suite of `redrive-testkit`; how to write a transport is told in
/// [Writing a transport](https://github.com/redrive-rs/redrive/blob/main/docs/writing-a-transport.md).
///
/// # Life
///
/// 1. [`open`](Self::open), once: it connects, refuses what the broker cannot honour, prepares the queues, and gives the
///    [`Receiver`] and the [`Facts`]. Before that nothing can be received: there is no receiver.
/// 2. [`Receiver::set_limit`] with more than 0: deliveries come. 0 stops them, and more than 0 brings them again, any
///    number of times. [`Receiver::receive`] and [`Receiver::settle`] are called any number of times, from any task.
/// 3. [`close`](Self::close), at the end: the receiver has nothing more to give.
///
/// A transport repairs an interruption (broker restarted, connection lost) itself, with backoff and jitter: `receive` waits
/// until it is over. Deliveries in flight at that moment come again, and settling them answers
/// [`TransportErrorKind::Lost`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Transport`",
    note = "use one of redrive's transports (`Memory`, `RabbitMq`, …), connected: did you forget `.await?`"
)]
pub trait Transport: Send + Sync + 'static {
    /// What [`open`](Self::open) gives.
    type Receiver: Receiver;

    /// The queue (or subscription) that is consumed: the name that deliveries have too
    /// ([`Delivery::queue`]).
    fn queue(&self) -> &str;

    /// Connects, compares `needs` with what the broker can do ([`Needs::check`]) and refuses what it cannot honour before
    /// anything is declared, then declares or verifies the queues. Nothing is handed out before
    /// [`set_limit`](Receiver::set_limit).
    ///
    /// The [`Facts`] are what is known now. Whatever of them changes later, and all else that happens beside the
    /// deliveries, goes to `signals`.
    ///
    /// It may be dropped before it is ready, when the consumer is asked to end during its start; [`close`](Self::close) follows.
    ///
    /// A transport has one receiver: after an error `open` may be tried again, after a success it answers an error.
    ///
    /// # Errors
    ///
    /// [`OpenError::Refused`] when the broker cannot honour the needs. [`OpenError::Failed`] when it cannot be reached,
    /// refuses the credentials, or has something else under the names that are needed; and when the transport was opened
    /// before, or closed.
    fn open(
        &self,
        needs: &Needs,
        signals: Signals,
    ) -> impl Future<Output = Result<(Self::Receiver, Facts), OpenError>> + Send;

    /// Publishes to the queue that is consumed, or to its topic. Works before it is opened and beside the consumer, and answers
    /// [`TransportErrorKind::Closed`] after [`close`](Self::close). Declares that queue at most, and what it cannot be without.
    fn publisher(&self) -> Publisher;

    /// Ends the work: gives back to the broker what is in flight, and closes connections in order.
    /// [`Receiver::receive`] answers from here on that there is no more. Closing twice, and closing what was never opened,
    /// is harmless.
    fn close(&self) -> impl Future<Output = ()> + Send;

    /// What this transport would do with messages that fail, for a consumer with these needs. Pure: it asks no broker, and
    /// declares, publishes and receives nothing. What it says is what [`open`](Self::open) and [`Receiver::settle`] then do.
    ///
    /// The default knows of no limit.
    fn outline(&self, needs: &Needs) -> Outline {
        let _ = needs;
        Outline::new(Facts::new("a broker"))
    }

    /// The same, compared with what is at the broker: what [`open`](Self::open) would refuse or warn of, and what cannot be
    /// found out. It changes nothing at the broker: nothing is declared, published or received.
    ///
    /// It may be called any number of times before `open`. Cancel safe.
    ///
    /// # Errors
    ///
    /// When the broker cannot be asked.
    fn preflight(&self, needs: &Needs) -> impl Future<Output = Result<Outline, TransportError>> + Send {
        let outline = self.outline(needs).with(Finding::unchecked(
            "this transport does not compare what is needed with what is at the broker",
        ));
        async { Ok(outline) }
    }

    /// The time, for everything that is written on messages. A transport on virtual time answers with that.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// Deliveries come in, settlements go out.
pub trait Receiver: Send + Sync + 'static {
    /// The right to settle one delivery. Moved, hence used at most once; gives the delivery back to the
    /// broker when dropped, in any thread and outside of a runtime too.
    type Receipt: Send + 'static;

    /// Appends the deliveries that are there to `batch`, in their order, `most` of them at most, and answers how many;
    /// waits until there is one. 0: there is none to come. That is so while the limit is 0 and what had been handed out
    /// before was received, hence also before the first [`set_limit`](Self::set_limit); and after the
    /// [end](Transport::close). `most` is 1 or more.
    ///
    /// A queue of the caller, who uses it again, saves an allocation for each batch.
    ///
    /// Cancel safe: `batch` is changed in the moment in which the future is ready, and a delivery is never lost with the
    /// future.
    ///
    /// # Errors
    ///
    /// Only what time does not mend, such as a queue that was deleted and must not be declared again.
    fn receive(
        &self,
        batch: &mut VecDeque<Received<Self::Receipt>>,
        most: usize,
    ) -> impl Future<Output = Result<usize, TransportError>> + Send;

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
    /// The delivery then counts as unsettled. Where it is still in flight the error carries its receipt, to try
    /// again with; where it is lost the delivery comes again by itself.
    fn settle(
        &self,
        receipt: Self::Receipt,
        settlement: Settlement,
    ) -> impl Future<Output = Result<(), SettleError<Self::Receipt>>> + Send;

    /// How many deliveries the broker may have handed out and not seen settled, never more than [`Needs::prefetch`]. 0 in the
    /// beginning.
    ///
    /// 0: the broker hands out no more. Resolves when nothing more comes in; what had been handed out before still comes
    /// from [`receive`](Self::receive), which then answers 0. Settling goes on.
    ///
    /// More: the broker hands out up to as many. Where it counts by subscription, what was handed out before the limit
    /// changed does not count; where nothing smaller can be asked for, the transport says so on its page. The limit that
    /// holds already changes nothing. Where `receive` answered an error, it begins again.
    ///
    /// May be called from several tasks at once: the limit of the call that begins last holds. The calls before it resolve
    /// as well, at the latest with that one.
    ///
    /// The consumer asks for 1 while it handles messages alone that may be the reason why processes die: whatever a
    /// process that dies has in flight is counted against it by the broker.
    ///
    /// # Errors
    ///
    /// More than 0, and the transport was closed, or deliveries cannot be taken; 0 only where the intake could not be
    /// stopped in order.
    fn set_limit(&self, limit: u32) -> impl Future<Output = Result<(), TransportError>> + Send;

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
}

/// The receipt of a transport's deliveries.
pub type ReceiptOf<T> = <<T as Transport>::Receiver as Receiver>::Receipt;

/// A delivery, and the right to settle it.
#[derive(Debug)]
#[must_use = "dropping the receipt gives the delivery back"]
pub struct Received<R> {
    /// What goes through the layers.
    pub delivery: Delivery,
    /// What stays with the consumer.
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
