//! The faulty transport fails as configured, the losing one loses what it should, and the recording one records everything.
//! Without faults, all fulfil the contract of the inner transport.

use redrive_contract::{
    Bench, Fault, Faulty, Harness, LockLossTransport, Place, Recording, Started, conformance,
};
use redrive_core::transport::{Needs, Settlement};
use redrive_core::{BoxError, Delivery, Message, Shelf, Shelves, TransportError, TransportErrorKind};
use redrive_memory::{Memory, MemoryBroker};

struct Wrapped;

struct Queue(MemoryBroker);

impl Harness for Wrapped {
    type Bench = Queue;

    async fn bench(&self, _clause: &'static str) -> Result<Queue, BoxError> {
        Ok(Queue(MemoryBroker::new()))
    }
}

impl Bench for Queue {
    type Transport = Recording<Faulty<LockLossTransport<Memory>>>;

    async fn transport(&self) -> Result<Self::Transport, BoxError> {
        Ok(Recording::new(Faulty::new(LockLossTransport::new(self.0.transport("orders")))))
    }

    async fn publish(&self, message: Message) -> Result<(), BoxError> {
        Ok(self.0.publish("orders", message)?)
    }

    async fn kill(&self, transport: &Self::Transport) -> Result<(), BoxError> {
        transport.inner().inner().inner().crash();
        Ok(())
    }

    async fn lose(&self, transport: &Self::Transport, delivery: &Delivery) -> Result<bool, BoxError> {
        Ok(transport.inner().inner().in_flight().lose(delivery.id()))
    }

    async fn shelf(&self, shelf: Shelf) -> Result<Vec<Message>, BoxError> {
        Ok(self.0.shelf("orders", shelf))
    }

    async fn shelves(&self) -> Result<Option<Box<dyn Shelves>>, BoxError> {
        Ok(Some(Box::new(self.0.shelves("orders"))))
    }

    async fn set_writable(&self, place: Place, writable: bool) -> Result<bool, BoxError> {
        match place {
            Place::Shelf(shelf) => self.0.set_shelf_writable("orders", shelf, writable),
            _ => self.0.set_queue_writable("orders", writable),
        }
        Ok(true)
    }
}

conformance!(recording_faulty_and_lock_loss, Wrapped, paused);

async fn started(transport: Faulty<Memory>) -> Started<Faulty<Memory>> {
    transport.inner().publish(Message::new("body").with_id("a")).await.expect("there is room");
    Started::open(transport, &Needs::none()).await.expect("it opens")
}

fn onto_the_shelf(delivery: &Delivery) -> Settlement {
    Settlement::Shelve { shelf: Shelf::DeadLetter, copy: delivery.message().clone() }
}

#[tokio::test]
async fn a_refused_settlement_gives_the_receipt_back() {
    let fault = Fault::Refused(TransportErrorKind::Unconfirmed);
    let transport = started(Faulty::new(Memory::new("orders")).fail_settle(1, fault)).await;
    let received = transport.receive().await.unwrap().unwrap();
    let refused = transport.settle(received.receipt, Settlement::Complete).await.unwrap_err();
    assert_eq!(refused.error.kind(), TransportErrorKind::Unconfirmed);
    transport.settle(refused.receipt.unwrap(), Settlement::Complete).await.unwrap();
    assert_eq!(transport.inner().broker().depth("orders"), 0);
}

#[tokio::test]
async fn a_settlement_lost_before_leaves_the_message() {
    let transport = started(Faulty::new(Memory::new("orders")).fail_settle(1, Fault::LostBefore)).await;
    let received = transport.receive().await.unwrap().unwrap();
    let settlement = onto_the_shelf(&received.delivery);
    let lost = transport.settle(received.receipt, settlement).await.unwrap_err();
    assert_eq!(lost.error.kind(), TransportErrorKind::Lost);
    assert!(lost.receipt.is_none());
    assert!(transport.inner().broker().shelf("orders", Shelf::DeadLetter).is_empty());
    assert_eq!(transport.receive().await.unwrap().unwrap().delivery.broker_delivery_count(), 2);
}

#[tokio::test]
async fn a_settlement_lost_after_leaves_the_message_and_its_copy() {
    let transport = started(Faulty::new(Memory::new("orders")).fail_settle(1, Fault::LostAfter)).await;
    let received = transport.receive().await.unwrap().unwrap();
    let settlement = onto_the_shelf(&received.delivery);
    let lost = transport.settle(received.receipt, settlement).await.unwrap_err();
    assert_eq!(lost.error.kind(), TransportErrorKind::Lost);
    assert_eq!(transport.inner().broker().shelf("orders", Shelf::DeadLetter).len(), 1);
    // The original is redelivered, even after its receipt was dropped.
    drop(transport.receive().await.unwrap().unwrap());
    let again = transport.receive().await.unwrap().unwrap();
    assert_eq!((again.delivery.id(), again.delivery.broker_delivery_count()), ("a", 3));
    transport.settle(again.receipt, Settlement::Complete).await.unwrap();
    assert!(transport.second_copies().is_empty());
}

#[tokio::test]
async fn a_second_copy_is_noticed() {
    let transport = started(Faulty::new(Memory::new("orders")).fail_settle(1, Fault::LostAfter)).await;
    let received = transport.receive().await.unwrap().unwrap();
    let settlement = onto_the_shelf(&received.delivery);
    transport.settle(received.receipt, settlement.clone()).await.unwrap_err();
    let again = transport.receive().await.unwrap().unwrap();
    transport.settle(again.receipt, settlement.clone()).await.unwrap();
    assert_eq!(transport.second_copies(), [settlement]);
}

#[tokio::test]
async fn a_broken_receive_takes_no_message() {
    let transport = Faulty::new(Memory::new("orders")).on_receive(|number| {
        (number == 1).then(|| TransportError::new(TransportErrorKind::Topology, "the queue was deleted"))
    });
    let transport = started(transport).await;
    assert_eq!(transport.receive().await.unwrap_err().kind(), TransportErrorKind::Topology);
    assert_eq!(transport.receive().await.unwrap().unwrap().delivery.broker_delivery_count(), 1);
}

#[tokio::test]
async fn the_record_has_every_settlement_with_its_outcome() {
    let fault = Fault::Refused(TransportErrorKind::Unconfirmed);
    let inner = Faulty::new(Memory::new("orders")).fail_settle(1, fault);
    inner.inner().publish(Message::new("body").with_id("a")).await.expect("there is room");
    let transport = Started::open(Recording::new(inner), &Needs::none()).await.expect("it opens");
    let log = transport.log();
    let received = transport.receive().await.unwrap().unwrap();
    let settlement = onto_the_shelf(&received.delivery);
    let refused = transport.settle(received.receipt, settlement.clone()).await.unwrap_err();
    transport.settle(refused.receipt.unwrap(), settlement).await.unwrap();
    let outcomes: Vec<_> = log.of("a").iter().map(|recorded| recorded.outcome).collect();
    assert_eq!(outcomes, [Err(TransportErrorKind::Unconfirmed), Ok(())]);
    assert_eq!(log.all()[1].copy().and_then(Message::id), Some("a"));
}
