//! Publishing from a handler, and beside the consumer.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use redrive_consumer::{Consumer, State};
use redrive_core::{BoxError, Delivery, FromDelivery, Message, Publisher, TransportErrorKind};
use redrive_memory::{Memory, MemoryBroker, MemoryOptions};

/// One invoice for each order, with an id that is the same however often the order is handled.
async fn bill(order: String, delivery: Delivery, publisher: Publisher) -> Result<(), BoxError> {
    let invoice = Message::new(order).with_id(format!("invoice-{}", delivery.id()));
    publisher.to("invoices").publish(invoice).await?;
    if delivery.attempt() == 1 {
        return Err("the process might as well have died here".into());
    }
    Ok(())
}

type Seen = Arc<Mutex<Vec<String>>>;

async fn note(State(seen): State<Seen>, delivery: Delivery) {
    seen.lock().unwrap().push(delivery.id().to_owned());
}

async fn emptied(broker: MemoryBroker, queue: &str) {
    while broker.depth(queue) > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_publishes_and_succeeds_then() {
    let broker = MemoryBroker::new();
    let orders = broker.transport("orders");
    orders.publish(Message::new("a lamp").with_id("order-1")).await.unwrap();
    let consumer = Consumer::new(orders).with_dead_letter_backoff([Duration::from_secs(1); 3]).handler(bill);
    let report = consumer.run_until(emptied(broker.clone(), "orders")).await.unwrap();
    assert_eq!((report.acknowledged, report.retried), (1, 1));

    // Published twice, and known by its id.
    assert_eq!(broker.depth("invoices"), 2);
    let invoices = broker.transport("invoices");
    let seen = Seen::default();
    let consumer = Consumer::new(invoices).handler_with(Seen::clone(&seen), note);
    consumer.run_until(emptied(broker, "invoices")).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["invoice-order-1", "invoice-order-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_publisher_works_before_and_beside_its_consumer_and_ends_with_it() {
    let orders = Memory::new("orders");
    let (broker, publisher) = (orders.broker().clone(), orders.publisher());
    publisher.publish(Message::new("before")).await.unwrap();
    let consumer = Consumer::new(orders).handler(async || ());
    let beside = async {
        emptied(broker.clone(), "orders").await;
        publisher.publish(Message::new("beside")).await.unwrap();
        emptied(broker.clone(), "orders").await;
    };
    assert_eq!(consumer.run_until(beside).await.unwrap().acknowledged, 2);
    let late = publisher.publish(Message::new("after")).await.unwrap_err();
    assert_eq!(late.kind(), TransportErrorKind::Closed, "{late}");
}

/// What a handler asks for that was called without a consumer: the message is dead-lettered, and says why.
#[tokio::test]
async fn without_a_consumer_the_error_says_what_to_do() {
    let delivery = Delivery::new(Message::new(""), "orders", SystemTime::UNIX_EPOCH);
    let rejected = <Publisher as FromDelivery<()>>::from_delivery(&delivery, &()).unwrap_err();
    let why = std::error::Error::source(&rejected).unwrap().to_string();
    assert!(why.contains("with_publisher"), "{why}");
    let given = delivery.with_publisher(Memory::new("orders").publisher());
    assert!(<Publisher as FromDelivery<()>>::from_delivery(&given, &()).is_ok());
}

#[tokio::test]
async fn a_queue_that_is_full_in_the_middle_says_so_of_each_message() {
    let orders = Memory::with("orders", MemoryOptions::new().queue_capacity(2));
    let results = orders.publisher().publish_all(["a", "b", "c"].map(Message::new)).await;
    assert!(results[0].is_ok() && results[1].is_ok());
    assert_eq!(results[2].as_ref().unwrap_err().kind(), TransportErrorKind::Full);
    assert_eq!(orders.broker().depth("orders"), 2);
}
