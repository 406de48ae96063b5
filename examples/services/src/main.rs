//! Small services, one file each, on the in-process broker:
//!
//! ```console
//! $ cargo run --package services -- health
//! ```
//!
//! In a service of your own another broker is another line: `RabbitMq::connect("amqp://…", "orders").await?` in the place of
//! `broker.transport("orders")`.

mod batches;
mod configured;
mod deciding;
mod extractors;
mod health;
mod kinds;
mod operator;
mod publishing;
#[cfg(unix)]
mod socket;

use redrive::memory::MemoryBroker;
use redrive::prelude::*;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let broker = MemoryBroker::new();
    match std::env::args().nth(1).as_deref() {
        Some("batches") => batches::run(&broker).await,
        Some("configured") => configured::run(&broker).await,
        Some("deciding") => deciding::run(&broker).await,
        Some("extractors") => extractors::run(&broker).await,
        Some("health") => health::run(&broker).await,
        Some("kinds") => kinds::run(&broker).await,
        Some("operator") => operator::run(&broker).await,
        Some("publishing") => publishing::run(&broker).await,
        #[cfg(unix)]
        Some("socket") => socket::run(&broker).await,
        _ => Err(
            "which one? batches, configured, deciding, extractors, health, kinds, operator, publishing, socket"
                .into(),
        ),
    }
}

/// Resolves once these queues are empty: the end of an example. A service takes `shutdown_signal()` instead.
async fn empty(broker: &MemoryBroker, queues: &[&str]) {
    while queues.iter().any(|queue| broker.depth(queue) > 0) {
        tokio::time::sleep(millis(10)).await;
    }
}
