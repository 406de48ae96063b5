//! The memory transport keeps every clause of the contract: on several threads, on the paused clock, and with operators in another
//! process.

use redrive_contract::{Bench, Harness, Place, conformance};
use redrive_core::{BoxError, Message, Shelf, Shelves};
use redrive_memory::{Memory, MemoryBroker, MemoryOptions};

/// A broker with these limits for every clause.
struct InMemory(MemoryOptions);

/// The same, whose operators come by a socket, as from another process.
#[cfg(unix)]
struct BySocket;

/// One queue of it.
struct Queue {
    broker: MemoryBroker,
    name: String,
    #[cfg(unix)]
    socket: Option<(redrive_ops::OperatorSocket, tempfile::TempDir)>,
}

impl Queue {
    fn new(broker: MemoryBroker, name: impl Into<String>) -> Self {
        Self {
            broker,
            name: name.into(),
            #[cfg(unix)]
            socket: None,
        }
    }
}

impl Harness for InMemory {
    type Bench = Queue;

    async fn bench(&self, clause: &'static str) -> Result<Queue, BoxError> {
        Ok(Queue::new(MemoryBroker::with(self.0.clone()), clause))
    }
}

#[cfg(unix)]
impl Harness for BySocket {
    type Bench = Queue;

    async fn bench(&self, clause: &'static str) -> Result<Queue, BoxError> {
        let mut queue = Queue::new(MemoryBroker::new(), clause);
        let folder = tempfile::tempdir()?;
        let socket = redrive_ops::OperatorSocket::builder().queue(clause, queue.broker.shelves(clause));
        queue.socket = Some((socket.bind(folder.path().join("redrive.sock")).await?, folder));
        Ok(queue)
    }
}

impl Bench for Queue {
    type Transport = Memory;

    async fn transport(&self) -> Result<Memory, BoxError> {
        Ok(self.broker.transport(&self.name))
    }

    async fn publish(&self, message: Message) -> Result<(), BoxError> {
        Ok(self.broker.publish(&self.name, message)?)
    }

    async fn kill(&self, transport: &Memory) -> Result<(), BoxError> {
        transport.crash();
        Ok(())
    }

    async fn interrupt(&self, transport: &Memory) -> Result<bool, BoxError> {
        transport.interrupt();
        Ok(true)
    }

    async fn shelf(&self, shelf: Shelf) -> Result<Vec<Message>, BoxError> {
        Ok(self.broker.shelf(&self.name, shelf))
    }

    async fn shelves(&self) -> Result<Option<Box<dyn Shelves>>, BoxError> {
        #[cfg(unix)]
        if let Some((socket, _)) = &self.socket {
            let shelves = redrive_ops::SocketShelves::connect(socket.path(), &self.name).await?;
            return Ok(Some(Box::new(shelves)));
        }
        Ok(Some(Box::new(self.broker.shelves(&self.name))))
    }

    async fn depth(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(self.broker.depth(&self.name) as u64))
    }

    async fn set_writable(&self, place: Place, writable: bool) -> Result<bool, BoxError> {
        match place {
            Place::Shelf(shelf) => self.broker.set_shelf_writable(&self.name, shelf, writable),
            _ => self.broker.set_queue_writable(&self.name, writable),
        }
        Ok(true)
    }

    async fn neighbour(&self) -> Result<Option<Self>, BoxError> {
        Ok(Some(Self::new(self.broker.clone(), format!("{}-neighbour", self.name))))
    }
}

conformance!(on_threads, InMemory(MemoryOptions::new()));
// Another clock: what waits, and what a timer ends.
conformance!(
    on_paused_time,
    InMemory(MemoryOptions::new()),
    paused,
    of [rescheduling, returning, counting, receiving, pausing, closing, sharing, publishing, starting, leases]
);
// The broker moves a message by itself: what counts deliveries, what gives a message back, and the shelf that it ends on.
conformance!(
    with_a_hand_out_limit,
    InMemory(MemoryOptions::new().delivery_limit(5)),
    paused,
    of [returning, dying, interrupting, losing, counting, shelving, closing, starting]
);
// Another way for operators: what they do and see.
#[cfg(unix)]
conformance!(by_the_operators_socket, BySocket, of [sharing, operating, entries, pages, leases]);
