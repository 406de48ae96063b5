//! The emulator under the eyes of `fe2o3-amqp`, a client that nobody here wrote: mostly what Microsoft's own clients do not
//! show, such as transactions, credit, and answers to nonsense.

mod client;
mod links;
mod management;
mod process;
mod protocols;
mod transactions;

use redrive_servicebus_emulator::{Builder, Emulator, Settings};
use std::time::Duration;

/// A duration of locks; tests move the emulator's clock past it.
const HALF_A_MINUTE: Duration = Duration::from_secs(30);

/// Locks run out when a test says so, and not while the machine stands still.
fn builder() -> Builder {
    Emulator::builder().virtual_clock()
}

/// An emulator with these queues.
async fn emulator(queues: &[&str]) -> Emulator {
    let builder = builder();
    let builder = queues.iter().fold(builder, |builder, queue| builder.queue(*queue, Settings::default()));
    builder.start().await.expect("the emulator starts")
}

/// An emulator with one queue that is set up like this.
async fn with_queue(name: &str, set_up: impl FnOnce(&mut Settings)) -> Emulator {
    let mut settings = Settings::default();
    set_up(&mut settings);
    builder().queue(name, settings).start().await.expect("the emulator starts")
}

/// An emulator with a queue `q`, for clients with this key.
async fn with_key(key: &str) -> Emulator {
    let builder = builder().queue("q", Settings::default()).key("RootManageSharedAccessKey", key);
    builder.start().await.expect("the emulator starts")
}

/// How many messages a queue has, in whatever state.
fn count(emulator: &Emulator, queue: &str) -> usize {
    emulator.entity(queue).expect("the queue").messages().len()
}
