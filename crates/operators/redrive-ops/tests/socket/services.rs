//! Which queues, which versions, how many operators.

use redrive_core::{Shelf, Shelves as _, TransportErrorKind};
use redrive_memory::MemoryBroker;
use redrive_ops::{OperatorSocket, SocketShelves};
use serde_json::json;
use tokio::net::UnixListener;

use crate::raw::Raw;
use crate::{Service, place};

#[tokio::test]
async fn only_the_named_queues_are_served() {
    let (_folder, path) = place();
    let broker = MemoryBroker::new();
    let builder = OperatorSocket::builder().queue("orders", broker.shelves("orders"));
    let socket = builder.queue("bills", broker.shelves("bills")).bind(&path).await.expect("it opens");
    assert_eq!(SocketShelves::queues(&path).await.expect("told"), ["bills", "orders"]);
    let error = SocketShelves::connect(&path, "order").await.expect_err("there is none");
    assert_eq!(error.kind(), TransportErrorKind::Topology);
    assert!(error.to_string().contains("it serves `bills`, `orders`"), "{error}");
    assert_eq!(broker.queues(), Vec::<String>::new(), "asking creates none");
    socket.close().await;
}

#[tokio::test]
async fn one_operator_too_many_is_told_so() {
    let (_folder, path) = place();
    let shelves = MemoryBroker::new().shelves("orders");
    let builder = OperatorSocket::builder().queue("orders", shelves).max_operators(2);
    let socket = builder.bind(&path).await.expect("it opens");
    let one = SocketShelves::connect(&path, "orders").await.expect("connected");
    let _two = SocketShelves::connect(&path, "orders").await.expect("connected");
    let error = SocketShelves::connect(&path, "orders").await.expect_err("one too many");
    assert_eq!(error.kind(), TransportErrorKind::Full);
    assert!(error.to_string().contains("2 connections of operators"), "{error}");
    assert_eq!(one.count(Shelf::DeadLetter).await.expect("counted"), 0, "the others go on");
    drop(one);
    let again = async { while SocketShelves::connect(&path, "orders").await.is_err() {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), again).await.expect("there is room");
    socket.close().await;
}

#[tokio::test]
async fn another_version_is_named() {
    let service = Service::with(0).await;
    let mut newer = Raw::greeted(service.socket.path()).await;
    newer.send(&json!({ "v": 2, "queue": "orders", "what": "ever" })).await;
    let refused = newer.receive().await;
    // Version 2 has a field that this one lacks, or lacks one that it has: the version counts.
    let text = refused.expect("an answer").to_string();
    assert!(text.contains("version 1") && text.contains("version 2"), "{text}");
    assert_eq!(newer.receive().await, None);

    let (_folder, path) = place();
    let listener = UnixListener::bind(&path).expect("bound");
    let newer = async {
        let mut raw = Raw(listener.accept().await.expect("an operator").0);
        raw.send(&json!({ "protocol": "redrive-operators", "v": 2, "news": true })).await;
        raw.receive().await
    };
    let (asked, error) = tokio::join!(newer, SocketShelves::connect(&path, "orders"));
    let error = error.expect_err("it speaks another version");
    assert_eq!((asked, error.kind()), (None, TransportErrorKind::Unsupported));
    assert!(error.to_string().contains("version 2"), "{error}");
}
