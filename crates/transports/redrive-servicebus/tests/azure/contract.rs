//! The transport contract, on queues of Azure.

use redrive_brokers::report;
use redrive_contract::{Bench, Harness, Verdict, run_all};
use redrive_core::{BoxError, Message, Shelf, Shelves};
use redrive_servicebus::ServiceBus;

use crate::namespace::{Place, on_azure};

/// The most clauses that run at the same time. Each one mostly waits, and has its own queue.
const MAX_CONCURRENT_CLAUSES: usize = 8;

#[test]
fn the_contract_holds() {
    if !on_azure() {
        return;
    }
    let verdicts = run_all(|| OnAzure, MAX_CONCURRENT_CLAUSES);
    let kept = verdicts.iter().filter(|(_, verdict)| *verdict == Some(Verdict::Kept)).count();
    report(&format!("Azure Service Bus itself: {kept} of {} clauses of the contract kept", verdicts.len()));
    let failed: Vec<_> =
        verdicts.iter().filter(|(_, verdict)| verdict.is_none()).map(|(name, _)| name).collect();
    assert!(failed.is_empty(), "not kept: {failed:?}");
}

struct OnAzure;

struct Queue {
    place: Place,
    publisher: ServiceBus,
}

impl Queue {
    async fn new(place: Place) -> Result<Self, BoxError> {
        let publisher = ServiceBus::connect(&place.namespace.connection_string, &*place.name).await?;
        Ok(Self { place, publisher })
    }
}

impl Harness for OnAzure {
    type Bench = Queue;

    async fn bench(&self, clause: &'static str) -> Result<Queue, BoxError> {
        Queue::new(Place::new(clause).await?).await
    }

    fn missing_queue(&self) -> Option<&'static str> {
        Some("no-such-queue")
    }

    fn refused(&self) -> Option<Message> {
        Some(Message::new(vec![0; 300 << 10]).with_id("refused"))
    }

    fn does_not_apply(&self, clause: &str) -> Option<String> {
        match clause {
            "replace_removes_exactly_its_entry" => {
                Some("nobody can send to a dead-letter queue of Service Bus".to_owned())
            }
            "a_message_without_an_id_gets_one" => {
                Some("Service Bus itself gives an id to a message that was sent without one".to_owned())
            }
            "a_large_body_is_carried" => Some("the Standard tier takes 256 KiB at most".to_owned()),
            _ => None,
        }
    }
}

impl Bench for Queue {
    type Transport = ServiceBus;

    async fn transport(&self) -> Result<ServiceBus, BoxError> {
        Ok(ServiceBus::connect(&self.place.namespace.connection_string, &*self.place.name).await?)
    }

    async fn publish(&self, message: Message) -> Result<(), BoxError> {
        Ok(self.publisher.publish(message).await?)
    }

    /// Crashes the process. Its messages are redelivered when their locks expire, well within the timeout of the suite.
    async fn kill(&self, transport: &ServiceBus) -> Result<(), BoxError> {
        transport.crash().await;
        Ok(())
    }

    async fn shelf(&self, shelf: Shelf) -> Result<Vec<Message>, BoxError> {
        let shelved = self.publisher.shelves().browse(shelf, None, 10_000).await?.entries;
        Ok(shelved.into_iter().map(|shelved| shelved.message).collect())
    }

    async fn shelves(&self) -> Result<Option<Box<dyn Shelves>>, BoxError> {
        Ok(Some(Box::new(self.publisher.shelves())))
    }

    async fn neighbour(&self) -> Result<Option<Self>, BoxError> {
        Ok(Some(Self::new(self.place.beside().await?).await?))
    }

    async fn tidy_up(&self) {
        self.place.end().await;
    }
}
