//! Operators reach the in-process broker of a service by a socket, with the command line of redrive.
//!
//! ```console
//! $ cargo run --package services -- socket
//! $ cargo run --package redrive-cli -- --broker unix:/tmp/redrive-example.sock watch
//! ```

use std::path::Path;

use redrive::memory::MemoryBroker;
use redrive::ops::OperatorSocket;
use redrive::prelude::*;

async fn ship(order: String) -> Result<(), String> {
    if order.contains("address") { Ok(()) } else { Err(format!("{order}: no address")) }
}

/// Closed when what is returned is dropped.
async fn let_operators_in(broker: &MemoryBroker, path: &Path) -> Result<OperatorSocket, BoxError> {
    Ok(OperatorSocket::builder().queue("orders", broker.shelves("orders")).bind(path).await?)
}

pub(crate) async fn run(broker: &MemoryBroker) -> Result<(), BoxError> {
    // A service of your own has a folder that only its user can write to, such as `/run/shop`.
    let path = std::env::temp_dir().join("redrive-example.sock");
    let _operators = let_operators_in(broker, &path).await?;
    for body in ["1 lamp, address: here", "2 chairs", "3 tables"] {
        broker.publish("orders", Message::new(body))?;
    }
    println!("In another terminal: redrive --broker unix:{} watch", path.display());
    println!("Edit an order until it has an address. Ctrl-C ends the service.");
    let consumer = Consumer::new(broker.transport("orders"))
        .with_dead_letter_backoff([millis(100), millis(200)])
        .handler(ship);
    consumer.run_until(shutdown_signal()).await?;
    Ok(())
}

#[cfg(test)]
#[tokio::test]
async fn an_operator_mends_an_order_from_outside() -> Result<(), BoxError> {
    use redrive::NoRetry;
    use redrive::ops::SocketShelves;

    let broker = MemoryBroker::new();
    let path = std::env::temp_dir().join(format!("redrive-example-{}.sock", std::process::id()));
    let operators = let_operators_in(&broker, &path).await?;
    broker.publish("orders", Message::new("2 chairs"))?;
    let serve = async || {
        let consumer =
            Consumer::new(broker.transport("orders")).with_dead_letter_backoff(NoRetry).handler(ship);
        consumer.run_until(crate::empty(&broker, &["orders"])).await
    };
    assert_eq!(serve().await?.dead_lettered, 1);

    let shelves = SocketShelves::connect(&path, "orders").await?;
    let entry = shelves.browse(Shelf::DeadLetter, None, 1).await?.entries.remove(0);
    shelves.redrive_as(&entry.handle, entry.message.with_body("2 chairs, address: here")).await?;
    assert_eq!(serve().await?.acknowledged, 1);
    operators.close().await;
    std::fs::remove_file(path.with_extension("sock.lock"))?;
    Ok(())
}
