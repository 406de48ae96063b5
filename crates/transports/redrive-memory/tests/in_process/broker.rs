//! What only the in-process broker has: its clock, its limits, its ways of breaking down.

use std::time::{Duration, SystemTime};

use redrive_contract::Started;
use redrive_core::shelves::{EntryOutcome, Selection};
use redrive_core::transport::{Needs, Settlement};
use redrive_core::{
    Disposition, Failure, Message, Reason, Shelf, Shelves, Transport, TransportErrorKind, secs,
};
use redrive_memory::{Memory, MemoryBroker, MemoryOptions};

async fn started(transport: Memory) -> Started<Memory> {
    Started::open(transport, &Needs::none()).await.expect("it opens")
}

fn moved(message: &Message) -> Settlement {
    Settlement::Shelve { shelf: Shelf::DeadLetter, copy: message.clone() }
}

#[tokio::test(start_paused = true)]
async fn a_ladder_of_hours_runs_in_no_time() {
    let orders = started(Memory::new("orders")).await;
    orders.publish(Message::new("slow").with_id("a")).await.unwrap();
    let begun = orders.now();
    for hours in [1, 4, 24] {
        let received = orders.receive().await.unwrap().unwrap();
        let failure = Failure::new(Reason::RetryableError, "not yet");
        let disposition = Disposition::Retry(Duration::from_secs(hours * 3600), failure);
        let settlement = orders.plan(&received.delivery, disposition);
        orders.settle(received.receipt, settlement).await.unwrap();
    }
    let last = orders.receive().await.unwrap().unwrap();
    assert_eq!(last.delivery.attempt(), 4);
    let virtually = orders.now().duration_since(begun).unwrap();
    assert!(virtually >= Duration::from_secs(29 * 3600) && virtually < Duration::from_secs(29 * 3601));
}

#[tokio::test]
async fn a_full_queue_says_what_to_do() {
    let orders = Memory::with("orders", MemoryOptions::new().queue_capacity(1));
    orders.publish(Message::new("one")).await.unwrap();
    let refused = orders.publish(Message::new("two")).await.unwrap_err();
    assert_eq!(refused.kind(), TransportErrorKind::Full);
    assert!(refused.to_string().contains("queue_capacity"), "{refused}");
}

#[tokio::test]
async fn a_redrive_into_a_full_queue_leaves_the_rest_on_the_shelf() {
    let orders = started(Memory::with("orders", MemoryOptions::new().queue_capacity(2))).await;
    for id in ["a", "b"] {
        orders.publish(Message::new(id).with_id(id)).await.unwrap();
        let received = orders.receive().await.unwrap().unwrap();
        orders.settle(received.receipt, moved(received.delivery.message())).await.unwrap();
    }
    orders.publish(Message::new("c")).await.unwrap();
    let report = orders.shelves().redrive(Shelf::DeadLetter, &Selection::All).await.unwrap();
    let refused = report.into_result().unwrap_err();
    assert_eq!(refused.kind(), TransportErrorKind::Full);
    assert_eq!(orders.broker().shelf("orders", Shelf::DeadLetter)[0].id(), Some("b"));
    assert_eq!(orders.broker().depth("orders"), 2);
}

/// A publisher names the queue of somebody else.
#[tokio::test]
async fn no_header_names_the_queue_of_a_redrive() {
    let broker = MemoryBroker::new();
    let orders = started(broker.transport("orders")).await;
    broker.publish("invoices", Message::new("")).unwrap();
    let forged = Message::new("").with_id("a").with_header("redrive-source-queue", "invoices");
    orders.publish(forged).await.unwrap();
    let received = orders.receive().await.unwrap().unwrap();
    orders.settle(received.receipt, moved(received.delivery.message())).await.unwrap();
    let redriven =
        orders.shelves().redrive(Shelf::DeadLetter, &Selection::All).await.unwrap().into_result().unwrap();
    assert_eq!(redriven, 1);
    assert_eq!((broker.depth("orders"), broker.depth("invoices")), (1, 1));
}

#[tokio::test]
async fn an_interruption_loses_the_receipts_and_receiving_goes_on() {
    let orders = started(Memory::new("orders")).await;
    orders.publish(Message::new("").with_id("a")).await.unwrap();
    let before = orders.receive().await.unwrap().unwrap();
    orders.interrupt();
    let lost = orders.settle(before.receipt, Settlement::Complete).await.unwrap_err();
    assert_eq!(lost.error.kind(), TransportErrorKind::Lost);
    assert_eq!(orders.receive().await.unwrap().unwrap().delivery.broker_delivery_count(), 2);
}

#[tokio::test]
async fn closing_does_not_count() {
    let broker = MemoryBroker::new();
    broker.publish("orders", Message::new("")).unwrap();
    let first = started(broker.transport("orders")).await;
    let held = first.receive().await.unwrap().unwrap();
    first.close().await;
    drop(held);
    let second = started(broker.transport("orders")).await;
    assert_eq!(second.receive().await.unwrap().unwrap().delivery.broker_delivery_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_queue_has_is_shown_in_the_order_of_delivery() {
    let orders = started(Memory::new("orders")).await;
    orders.publisher().publish_after(Message::new("").with_id("late"), secs(60)).await.unwrap();
    orders.publisher().publish_after(Message::new("").with_id("soon"), secs(1)).await.unwrap();
    for id in ["first", "second"] {
        orders.publish(Message::new("").with_id(id)).await.unwrap();
    }
    let _first = orders.receive().await.unwrap().unwrap();
    let shown = |broker: &MemoryBroker| -> Vec<_> {
        let began = broker.now();
        let due = |due_at: SystemTime| due_at.duration_since(began).unwrap();
        let queued = broker.queued("orders").into_iter();
        let shown = queued.map(|it| (it.message.id().unwrap().to_owned(), it.due_at.map(due), it.in_flight));
        shown.collect()
    };
    let row = |id: &str, due, in_flight| (id.to_owned(), due, in_flight);
    assert_eq!(
        shown(orders.broker()),
        [
            row("first", None, true),
            row("second", None, false),
            row("soon", Some(secs(1)), false),
            row("late", Some(secs(60)), false),
        ]
    );
    tokio::time::sleep(secs(1)).await;
    assert_eq!(shown(orders.broker())[2], row("soon", None, false), "its wait is over");
    assert_eq!(orders.broker().queues(), ["orders"]);
}

#[test]
fn publishing_and_dropping_need_no_runtime() {
    let orders = Memory::new("orders");
    orders.broker().publish("orders", Message::new("one")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (received, orders) = runtime.block_on(async {
        let orders = started(orders).await;
        (orders.receive().await.unwrap().unwrap(), orders)
    });
    drop(runtime);
    assert_eq!(orders.broker().held("orders"), 1);
    drop(received);
    assert_eq!(orders.broker().held("orders"), 0);
}

#[tokio::test]
async fn handles_and_cursors_of_another_broker_name_nothing() {
    let with_two = async || {
        let broker = MemoryBroker::new();
        let shelves = broker.shelves("orders");
        for body in ["one", "two"] {
            shelves.restore(Shelf::DeadLetter, Message::new(body)).await.expect("stored");
        }
        let page = shelves.browse(Shelf::DeadLetter, None, 1).await.expect("a page");
        (shelves, page.entries[0].handle.clone(), page.next.expect("there is another one"))
    };
    let (_, old, old_cursor) = with_two().await;
    let (shelves, new, _) = with_two().await;
    assert_ne!(new, old, "another broker has the same handles");
    let report = shelves.discard(Shelf::DeadLetter, &Selection::handles([old.clone(), new])).await;
    let report = report.expect("it begins");
    let outcome =
        |handle| report.entries.iter().find(|entry| (entry.handle == old) == handle).expect("noted");
    assert!(matches!(outcome(true).outcome, EntryOutcome::NotFound), "{report:?}");
    assert!(matches!(outcome(false).outcome, EntryOutcome::Done), "{report:?}");
    let error = shelves.redrive_as(&old, Message::new("edited")).await.expect_err("it is gone");
    assert_eq!(error.kind(), TransportErrorKind::NotFound);
    let error = shelves.browse(Shelf::DeadLetter, Some(&old_cursor), 1).await.expect_err("another shelf");
    assert_eq!(error.kind(), TransportErrorKind::Unsupported);
    assert_eq!(shelves.count(Shelf::DeadLetter).await.expect("counted"), 1);
}
