//! The memory transport keeps every clause of the contract: on several threads, and on the paused clock.

use redrive_core::{BoxError, Message, Shelf, Shelves};
use redrive_memory::{Memory, MemoryBroker, MemoryOptions};
use redrive_testkit::contract::{Bench, Harness, conformance};

/// A broker with these limits for every clause.
struct InMemory(MemoryOptions);

/// One queue of it.
struct Queue {
    broker: MemoryBroker,
    name: String,
}

impl Harness for InMemory {
    type Bench = Queue;

    async fn bench(&self, clause: &'static str) -> Result<Queue, BoxError> {
        Ok(Queue { broker: MemoryBroker::with(self.0.clone()), name: clause.to_owned() })
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
        Ok(Some(Box::new(self.broker.shelves(&self.name))))
    }

    async fn depth(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(self.broker.depth(&self.name) as u64))
    }

    async fn set_shelf_writable(&self, shelf: Shelf, writable: bool) -> Result<bool, BoxError> {
        self.broker.set_shelf_writable(&self.name, shelf, writable);
        Ok(true)
    }

    async fn neighbour(&self) -> Result<Option<Self>, BoxError> {
        Ok(Some(Self { broker: self.broker.clone(), name: format!("{}-neighbour", self.name) }))
    }
}

conformance!(on_threads, InMemory(MemoryOptions::new()));
conformance!(on_paused_time, InMemory(MemoryOptions::new()), paused);
conformance!(with_a_hand_out_limit, InMemory(MemoryOptions::new().delivery_limit(5)), paused);
