//! One queue of a broker in memory, behind a transport with a flaw.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redrive_contract::{Bench, Harness, Place};
use redrive_core::shelves::Selection;
use redrive_core::{BoxError, Delivery, Message, Shelf, Shelves, Value};
use redrive_memory::MemoryBroker;

use crate::Flaw;
use crate::shelves::FlawedShelves;
use crate::transport::{ENDS_WAITS, Flawed};

pub(crate) struct OnMemory(pub(crate) Flaw);

pub(crate) struct Queue {
    broker: MemoryBroker,
    flaw: Flaw,
    lease: Arc<Mutex<Duration>>,
}

const NAME: &str = "orders";
const SHORT_LEASE: Duration = Duration::from_secs(2);

impl Harness for OnMemory {
    type Bench = Queue;

    async fn bench(&self, _clause: &'static str) -> Result<Queue, BoxError> {
        Ok(Queue { broker: MemoryBroker::new(), flaw: self.0, lease: Arc::new(Mutex::new(SHORT_LEASE)) })
    }

    fn control_headers(&self) -> Vec<(&'static str, Value)> {
        vec![(ENDS_WAITS, Value::Bool(true))]
    }
}

impl Bench for Queue {
    type Transport = Flawed;

    async fn transport(&self) -> Result<Flawed, BoxError> {
        Ok(Flawed::new(self.broker.transport(NAME), self.flaw, Arc::clone(&self.lease)))
    }

    async fn publish(&self, message: Message) -> Result<(), BoxError> {
        Ok(self.broker.publish(NAME, message)?)
    }

    async fn kill(&self, transport: &Flawed) -> Result<(), BoxError> {
        transport.die();
        Ok(())
    }

    async fn silence(&self, transport: &Flawed) -> Result<bool, BoxError> {
        transport.fall_silent();
        Ok(true)
    }

    async fn interrupt(&self, transport: &Flawed) -> Result<bool, BoxError> {
        transport.interrupt();
        Ok(true)
    }

    async fn lose(&self, transport: &Flawed, delivery: &Delivery) -> Result<bool, BoxError> {
        Ok(transport.in_flight().lose(delivery.id()))
    }

    async fn lease_for(&self, lease: Duration) -> Result<bool, BoxError> {
        *self.lease.lock() = lease;
        Ok(true)
    }

    async fn cut_after_copy(&self, transport: &Flawed) -> Result<bool, BoxError> {
        transport.cut_after_next_copy();
        Ok(true)
    }

    async fn shelf(&self, shelf: Shelf) -> Result<Vec<Message>, BoxError> {
        Ok(self.broker.shelf(NAME, shelf))
    }

    async fn shelves(&self) -> Result<Option<Box<dyn Shelves>>, BoxError> {
        let shelves = self.broker.shelves(NAME);
        Ok(Some(match self.flaw {
            Flaw::RemovesBeforeItStores | Flaw::HandlesNamePlaces => {
                Box::new(FlawedShelves::new(self.broker.clone(), shelves, self.flaw))
            }
            _ => Box::new(shelves),
        }))
    }

    async fn depth(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(self.broker.depth(NAME) as u64))
    }

    async fn set_writable(&self, place: Place, writable: bool) -> Result<bool, BoxError> {
        match place {
            Place::Shelf(shelf) => self.broker.set_shelf_writable(NAME, shelf, writable),
            _ => self.broker.set_queue_writable(NAME, writable),
        }
        Ok(true)
    }

    async fn recreate_shelf(&self, shelf: Shelf) -> Result<bool, BoxError> {
        self.broker.shelves(NAME).discard(shelf, &Selection::All).await?.into_result()?;
        Ok(true)
    }

    async fn publish_foreign(&self) -> Result<usize, BoxError> {
        self.broker.publish(NAME, Message::new(vec![0xff]))?;
        Ok(1)
    }

    async fn declared(&self) -> Result<Option<BTreeSet<String>>, BoxError> {
        Ok(Some(self.broker.queues().into_iter().collect()))
    }
}
