//! Operators on the socket of a service.
#![cfg(all(unix, feature = "socket"))]

mod actions;
mod files;
mod hostile;
mod raw;
mod same;
mod services;

use std::path::PathBuf;

use redrive_core::{Message, Shelf, Shelves as _};
use redrive_memory::MemoryBroker;
use redrive_ops::{OperatorSocket, SocketShelves};
use tempfile::TempDir;

/// Less than the 30 seconds after which the other end is given up.
const BEFORE_A_STALL: std::time::Duration = std::time::Duration::from_secs(20);

/// A service with a queue `orders`, and its socket.
struct Service {
    broker: MemoryBroker,
    socket: OperatorSocket,
    _folder: TempDir,
}

impl Service {
    /// Starts it with this many messages on the dead-letter shelf.
    async fn with(messages: usize) -> Self {
        let broker = MemoryBroker::new();
        for number in 0..messages {
            let message = Message::new(format!("order {number}")).with_id(number.to_string());
            broker.shelves("orders").restore(Shelf::DeadLetter, message).await.expect("stored");
        }
        let (folder, path) = place();
        let socket = OperatorSocket::builder().queue("orders", broker.shelves("orders")).bind(path).await;
        Self { broker, socket: socket.expect("it opens"), _folder: folder }
    }

    async fn operator(&self) -> SocketShelves {
        SocketShelves::connect(self.socket.path(), "orders").await.expect("connected")
    }

    fn shelved(&self) -> usize {
        self.broker.shelf("orders", Shelf::DeadLetter).len()
    }
}

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("redrive.sock");
    (folder, path)
}

/// Waits for what another task does soon.
async fn soon(what: &str, holds: impl Fn() -> bool) {
    let waited = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), waited)
        .await
        .unwrap_or_else(|_| panic!("{what}"));
}
