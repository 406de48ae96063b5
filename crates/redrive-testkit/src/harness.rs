//! What the suite needs from whoever brings a transport.

use std::future::Future;
use std::sync::Arc;

use redrive_core::{BoxError, Delivery, Message, Shelf, Shelves, Transport, Value};

use crate::started::Started;

/// One kind of broker, as it is configured: `RabbitMQ 4.3 with quorum queues`, for example. Made again for every
/// clause; gives each clause a [`Bench`] of its own.
pub trait Harness: Send + Sync + 'static {
    /// A queue on that broker.
    type Bench: Bench;

    /// A bench with an empty queue and empty shelves that nobody else uses. `clause` is fit for a name; clauses run at the same
    /// time, and again in other test runs: add the number of the process.
    ///
    /// # Errors
    ///
    /// When the broker cannot be reached or prepared; the clause then fails.
    fn bench(&self, clause: &'static str) -> impl Future<Output = Result<Self::Bench, BoxError>> + Send;

    /// Why a clause does not apply to this broker; `None` when it does. What is left out here is named, with the
    /// reason, on the standard error of the test run. Leave out what the broker cannot do, never what the
    /// transport does not do yet.
    fn does_not_apply(&self, clause: &str) -> Option<String> {
        let _ = clause;
        None
    }

    /// A message as the bench publishes it, where it has to add something that the broker asks for, such as a session.
    fn as_published(&self, message: Message) -> Message {
        message
    }

    /// A message that the broker refuses for what it is, whatever is in the queue: one that is too large, for example. `None`
    /// where it refuses none: the clauses are then reported as not applying.
    fn refused(&self) -> Option<Message> {
        None
    }

    /// A queue that is not there. `None` where there is none such, as on a broker that makes a queue when it is named: the clause
    /// is then reported as not applying.
    fn missing_queue(&self) -> Option<&'static str> {
        None
    }

    /// Whether the broker can carry a header of this type. AMQP 0-9-1 knows no UUIDs, for example.
    fn carries(&self, value: &Value) -> bool {
        let _ = value;
        true
    }
}

/// One queue with its shelves, for one clause.
///
/// The suite opens a transport before it publishes or looks at a shelf, so that a transport which declares its
/// queues when it is opened has done so.
pub trait Bench: Send + Sync + 'static {
    /// The transport to be examined.
    type Transport: Transport;

    /// One more transport on this queue, not opened. Those alive at the same time are competing consumers; one
    /// after the other they are successive processes.
    ///
    /// What a broker gives back after a time (a lock, an acknowledgement that is missing), it should give back after about two
    /// seconds here: the suite waits up to four minutes for a delivery, but it waits for many.
    ///
    /// # Errors
    ///
    /// When it cannot be made; the clause then fails.
    fn transport(&self) -> impl Future<Output = Result<Self::Transport, BoxError>> + Send;

    /// Publishes a message to the queue as any publisher would, not through the transport; returns once the
    /// broker has it.
    ///
    /// # Errors
    ///
    /// When the broker does not take it; the clause then fails.
    fn publish(&self, message: Message) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Does to a transport what the death of its process does: the connection is gone, nothing is settled, nothing
    /// is given back in order. It must stay dead: where a proxy between transport and broker is cut, its port stays taken, or the
    /// transport reconnects through the next proxy that gets it.
    ///
    /// # Errors
    ///
    /// When that cannot be done; the clause then fails.
    fn kill(&self, transport: &Self::Transport) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Cuts the connection of a transport, which can connect again at once. `false` where a transport has no connection: the clause
    /// is then reported as not applying.
    ///
    /// # Errors
    ///
    /// When it should work and does not; the clause then fails.
    fn interrupt(&self, transport: &Self::Transport) -> impl Future<Output = Result<bool, BoxError>> + Send {
        let _ = transport;
        async { Ok(false) }
    }

    /// Takes a delivery out of the hand of a transport that lives on, as a lock does that runs out: the broker hands the
    /// message out again. `false` where that does not happen on this broker: the clauses are then reported as not applying.
    ///
    /// # Errors
    ///
    /// When it should work and does not; the clause then fails.
    fn lose(
        &self,
        transport: &Self::Transport,
        delivery: &Delivery,
    ) -> impl Future<Output = Result<bool, BoxError>> + Send {
        let _ = (transport, delivery);
        async { Ok(false) }
    }

    /// Everything that rests on a shelf; it stays there.
    ///
    /// # Errors
    ///
    /// When it cannot be read; the clause then fails.
    fn shelf(&self, shelf: Shelf) -> impl Future<Output = Result<Vec<Message>, BoxError>> + Send;

    /// The operators' side of this queue. `None` where the transport has none (yet): its clauses are then
    /// reported as not applying.
    ///
    /// # Errors
    ///
    /// When it cannot be made; the clause then fails.
    fn shelves(&self) -> impl Future<Output = Result<Option<Box<dyn Shelves>>, BoxError>> + Send {
        async { Ok(None) }
    }

    /// How many messages the queue has: ready, waiting for their time, and in the hand of a consumer. `None` where
    /// the broker cannot say: the suite then relies on what arrives.
    ///
    /// # Errors
    ///
    /// When the broker cannot be asked; the clause then fails.
    fn depth(&self) -> impl Future<Output = Result<Option<u64>, BoxError>> + Send {
        async { Ok(None) }
    }

    /// Makes a shelf refuse whatever is to be stored there, or take it again. `false` where that cannot be done:
    /// the clauses are then reported as not applying.
    ///
    /// # Errors
    ///
    /// When it should work and does not; the clause then fails.
    fn set_shelf_writable(
        &self,
        shelf: Shelf,
        writable: bool,
    ) -> impl Future<Output = Result<bool, BoxError>> + Send {
        let _ = (shelf, writable);
        async { Ok(false) }
    }

    /// Another queue on the same broker which gets whatever is published to this one, as another subscriber of
    /// the same topic does; where the broker has no topics, just another queue. `None` where that cannot be had.
    ///
    /// # Errors
    ///
    /// When it cannot be made; the clause then fails.
    fn neighbour(&self) -> impl Future<Output = Result<Option<Self>, BoxError>> + Send
    where
        Self: Sized,
    {
        async { Ok(None) }
    }

    /// Removes what the bench made on the broker. Called at the end, also when the clause failed. Transports have
    /// been closed by then.
    fn tidy_up(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// The transport that a harness brings.
pub type TransportOf<H> = <<H as Harness>::Bench as Bench>::Transport;
/// The receipt of the transport that a harness brings.
pub type ReceiptOf<H> = redrive_core::ReceiptOf<TransportOf<H>>;
/// The transport that a harness brings, opened.
pub type StartedOf<H> = Started<Arc<TransportOf<H>>>;
