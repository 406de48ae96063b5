//! What the suite needs from the author of a transport.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::{BoxError, Delivery, Message, Shelf, Shelves, Transport, Value};

use crate::started::Started;

/// One kind of broker in one configuration: for example `RabbitMQ 4.3 with quorum queues`. It is created for every clause, and
/// gives each clause its own [`Bench`].
pub trait Harness: Send + Sync + 'static {
    /// A queue on that broker.
    type Bench: Bench;

    /// Creates a bench with an empty queue and empty shelves that nobody else uses. `clause` can be part of a name. Clauses run
    /// at the same time, and in several test runs: add the process id.
    ///
    /// # Errors
    ///
    /// If the broker cannot be reached or prepared; the clause then fails.
    fn bench(&self, clause: &'static str) -> impl Future<Output = Result<Self::Bench, BoxError>> + Send;

    /// Returns why a clause does not apply to this broker; `None` if it does. The test run prints each clause left out here, with
    /// the reason, on its standard error. Leave out what the broker cannot do, never what the transport does not do yet.
    fn does_not_apply(&self, clause: &str) -> Option<String> {
        let _ = clause;
        None
    }

    /// Adds to a message what the broker demands of published messages, such as a session.
    fn as_published(&self, message: Message) -> Message {
        message
    }

    /// Returns a message that the broker refuses because of its content, whatever is in the queue: for example one that is too
    /// large. `None` if the broker refuses none: the clauses are then reported as not applying.
    fn refused(&self) -> Option<Message> {
        None
    }

    /// Returns true if the broker refuses messages while a queue is new, as RabbitMQ 3.10 does in the first second of a quorum queue:
    /// they are then published again. Elsewhere a refusal fails the clause.
    fn refuses_in_new_queues(&self) -> bool {
        false
    }

    /// Returns the name of a queue that does not exist. `None` if there is no such name, as on a broker that creates a queue when
    /// it is named: the clause is then reported as not applying.
    fn missing_queue(&self) -> Option<&'static str> {
        None
    }

    /// Returns true if the broker can carry a header of this type. AMQP 0-9-1 has no UUIDs, for example.
    fn carries(&self, value: &Value) -> bool {
        let _ = value;
        true
    }

    /// Returns headers that tell this broker, or this transport, what to do with a message: a time to live, a delay, other
    /// recipients, a key for deduplication, the counters that the broker writes. Foreign publishers may write them too; they must
    /// do nothing on a message that a transport carries. The values are ones that would do harm. Empty if there are none.
    fn control_headers(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// How much later than its wait a message may come back when nothing else happens. Default: 5 s, less than a transport that
    /// looks for due messages every ten seconds needs, and more than a busy machine does.
    fn lateness(&self) -> Duration {
        Duration::from_secs(5)
    }
}

/// A place where a transport stores messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The consumed queue: what is published, and what operators send back.
    Queue,
    /// The place in which copies wait. On some brokers it is the queue itself.
    Waiting,
    /// A shelf.
    Shelf(Shelf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue => f.write_str("queue"),
            Self::Waiting => f.write_str("place of waiting copies"),
            Self::Shelf(shelf) => write!(f, "{shelf} shelf"),
        }
    }
}

/// One queue with its shelves, for one clause.
///
/// The suite opens a transport before it publishes or reads a shelf, so that a transport that declares its queues when it is
/// opened has done so.
pub trait Bench: Send + Sync + 'static {
    /// The transport under test.
    type Transport: Transport;

    /// Creates one more transport on this queue, not opened. Transports alive at the same time are competing consumers; one after
    /// the other they are successive processes.
    ///
    /// A broker that gives messages back after a time (an expired lock, a missing acknowledgement) should do so after about two
    /// seconds here: the suite waits up to four minutes for each delivery, and there are many.
    ///
    /// # Errors
    ///
    /// If it cannot be created; the clause then fails.
    fn transport(&self) -> impl Future<Output = Result<Self::Transport, BoxError>> + Send;

    /// Publishes a message to the queue as any publisher would, not through the transport. Returns once the broker has it.
    ///
    /// # Errors
    ///
    /// If the broker does not accept it; the clause then fails.
    fn publish(&self, message: Message) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Kills a transport as the death of its process does: the connection is gone, nothing is settled, nothing is given back in
    /// order. The transport must stay dead: if a proxy between transport and broker is cut, keep its port, or the transport
    /// reconnects through the next proxy that gets the port.
    ///
    /// # Errors
    ///
    /// If it cannot be killed; the clause then fails.
    fn kill(&self, transport: &Self::Transport) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Cuts the connection of a transport, which can reconnect at once. Returns `false` if the transport has no connection: the
    /// clause is then reported as not applying.
    ///
    /// # Errors
    ///
    /// If the broker supports this and it failed; the clause then fails.
    fn interrupt(&self, transport: &Self::Transport) -> impl Future<Output = Result<bool, BoxError>> + Send {
        let _ = transport;
        async { Ok(false) }
    }

    /// Makes a living transport lose a delivery, as an expired lock does: the broker hands the message out again. Returns `false`
    /// if that does not happen on this broker: the clauses are then reported as not applying.
    ///
    /// # Errors
    ///
    /// If the broker supports this and it failed; the clause then fails.
    fn lose(
        &self,
        transport: &Self::Transport,
        delivery: &Delivery,
    ) -> impl Future<Output = Result<bool, BoxError>> + Send {
        let _ = (transport, delivery);
        async { Ok(false) }
    }

    /// Returns all messages on a shelf; they stay there.
    ///
    /// # Errors
    ///
    /// If the shelf cannot be read; the clause then fails.
    fn shelf(&self, shelf: Shelf) -> impl Future<Output = Result<Vec<Message>, BoxError>> + Send;

    /// Returns the operators' view of this queue. `None` if the transport has none (yet): its clauses are then reported as not
    /// applying.
    ///
    /// # Errors
    ///
    /// If it cannot be created; the clause then fails.
    fn shelves(&self) -> impl Future<Output = Result<Option<Box<dyn Shelves>>, BoxError>> + Send {
        async { Ok(None) }
    }

    /// Returns how many messages the queue has: ready, waiting for their time, and held by a consumer. `None` if the broker
    /// cannot tell: the suite then relies on what arrives.
    ///
    /// # Errors
    ///
    /// If the broker cannot be asked; the clause then fails.
    fn depth(&self) -> impl Future<Output = Result<Option<u64>, BoxError>> + Send {
        async { Ok(None) }
    }

    /// Makes a place refuse every message, or accept messages again. Returns `false` if that is not possible: the clauses are
    /// then reported as not applying.
    ///
    /// # Errors
    ///
    /// If it is possible and failed; the clause then fails.
    fn set_writable(
        &self,
        place: Place,
        writable: bool,
    ) -> impl Future<Output = Result<bool, BoxError>> + Send {
        let _ = (place, writable);
        async { Ok(false) }
    }

    /// Makes the broker hold each delivery for at least this long before it gives it back by itself: for transports that are made
    /// from now on. Returns `false` if its deliveries are not leased for a time: a delivery that is not given back then never
    /// comes again, and other clauses find that.
    ///
    /// # Errors
    ///
    /// If the broker supports this and it failed; the clause then fails.
    fn lease_for(&self, lease: Duration) -> impl Future<Output = Result<bool, BoxError>> + Send {
        let _ = lease;
        async { Ok(false) }
    }

    /// Prepares a fault of the next settlement of this transport that stores a copy: the broker stores the copy, and then the
    /// connection is cut, before the original is removed and, if the harness can choose, before the broker's confirmation
    /// arrives. The transport can reconnect. Returns `false` if that is not possible: the clause is then reported as not
    /// applying.
    ///
    /// # Errors
    ///
    /// If it is possible and failed; the clause then fails.
    fn cut_after_copy(
        &self,
        transport: &Self::Transport,
    ) -> impl Future<Output = Result<bool, BoxError>> + Send {
        let _ = transport;
        async { Ok(false) }
    }

    /// Makes the connection of a transport silent: nothing arrives any more on either side, and neither side learns of it.
    /// Returns `false` if that is not possible: the clause is then reported as not applying.
    ///
    /// # Errors
    ///
    /// If it is possible and failed; the clause then fails.
    fn silence(&self, transport: &Self::Transport) -> impl Future<Output = Result<bool, BoxError>> + Send {
        let _ = transport;
        async { Ok(false) }
    }

    /// Deletes a shelf with everything on it, and creates it again as it was. Returns `false` if shelves cannot be deleted: the
    /// clause is then reported as not applying.
    ///
    /// # Errors
    ///
    /// If it is possible and failed; the clause then fails.
    fn recreate_shelf(&self, shelf: Shelf) -> impl Future<Output = Result<bool, BoxError>> + Send {
        let _ = shelf;
        async { Ok(false) }
    }

    /// Returns the names of everything that exists on the broker for this bench: queues, exchanges, streams, subscriptions. `None`
    /// if the broker cannot tell, or if a transport declares nothing: the clause is then reported as not applying.
    ///
    /// # Errors
    ///
    /// If the broker cannot be asked; the clause then fails.
    fn declared(&self) -> impl Future<Output = Result<Option<BTreeSet<String>>, BoxError>> + Send {
        async { Ok(None) }
    }

    /// Publishes one message of each kind that foreign publishers can send to this broker and that the transport would never write
    /// itself: bytes that are no text where text is expected, types without a counterpart, missing parts. Returns how many. 0 if
    /// there is none: the clause is then reported as not applying.
    ///
    /// # Errors
    ///
    /// If the broker does not accept one; the clause then fails.
    fn publish_foreign(&self) -> impl Future<Output = Result<usize, BoxError>> + Send {
        async { Ok(0) }
    }

    /// Returns another queue on the same broker which receives what is published to this one, like another subscriber of the same
    /// topic; if the broker has no topics, just another queue. `None` if that is not possible.
    ///
    /// # Errors
    ///
    /// If it cannot be created; the clause then fails.
    fn neighbour(&self) -> impl Future<Output = Result<Option<Self>, BoxError>> + Send
    where
        Self: Sized,
    {
        async { Ok(None) }
    }

    /// Removes what the bench created on the broker. The suite calls it at the end, even if the clause failed, after closing the
    /// transports.
    fn tidy_up(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Transport of a harness.
pub type TransportOf<H> = <<H as Harness>::Bench as Bench>::Transport;
/// Receipt of a harness's transport.
pub type ReceiptOf<H> = redrive_core::transport::ReceiptOf<TransportOf<H>>;
/// Transport of a harness, opened.
pub type StartedOf<H> = Started<Arc<TransportOf<H>>>;
