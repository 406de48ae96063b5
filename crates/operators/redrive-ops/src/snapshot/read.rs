//! Reads a shelf.

use std::ops::ControlFlow;
use std::time::SystemTime;

use redrive_core::shelves::Shelved;
use redrive_core::{Shelf, Shelves, TransportError};

use super::{ShelfSnapshot, SnapshotFold, SnapshotOptions};

/// Reads a shelf once, in one [scan](Shelves::scan), into a snapshot. The entries stay where they are.
///
/// An entry that comes or goes meanwhile may be counted or not. The transport's page says what reading a shelf costs, and whether
/// it holds entries for a moment.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), redrive_core::BoxError> {
/// use redrive_consumer::Consumer;
/// use redrive_core::{Message, NoRetry, Shelf, millis};
/// use redrive_memory::MemoryBroker;
/// use redrive_ops::{SnapshotOptions, snapshot};
///
/// async fn ship(order: String) -> Result<(), String> {
///     Err(format!("order {order} has no address"))
/// }
///
/// let broker = MemoryBroker::new();
/// for order in 1..=3 {
///     broker.publish("orders", Message::new(order.to_string()))?;
/// }
/// # let done = async { while broker.depth("orders") > 0 { tokio::time::sleep(millis(1)).await } };
/// let consumer = Consumer::new(broker.transport("orders")).with_dead_letter_backoff(NoRetry).handler(ship);
/// consumer.run_until(done).await?;
///
/// let snapshot = snapshot(&broker.shelves("orders"), Shelf::DeadLetter, &SnapshotOptions::new()).await?;
/// assert_eq!(snapshot.count, 3);
/// for group in &snapshot.groups {
///     println!("{} {} × {}: {}", group.id, group.count, group.template.reason(), group.template.text());
/// }
/// assert_eq!(snapshot.groups[0].template.text(), "order <number> has no address");
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// If the broker cannot be reached.
///
/// # Cancel safety
///
/// Dropping the future ends the read. Nothing is lost; RabbitMQ counts a delivery for each entry that was read.
pub async fn snapshot(
    shelves: &dyn Shelves,
    shelf: Shelf,
    options: &SnapshotOptions,
) -> Result<ShelfSnapshot, TransportError> {
    let mut fold = SnapshotFold::new(shelf, options, SystemTime::now());
    let mut truncated = false;
    let mut each = |entry: Shelved| {
        // Reads one more than the limit, to know whether there are more.
        truncated = fold.count() == options.limit;
        if truncated {
            return ControlFlow::Break(());
        }
        fold.add(&entry);
        ControlFlow::Continue(())
    };
    let holder = shelves.scan(shelf, &mut each).await?;
    Ok(ShelfSnapshot { holder, ..fold.finish(truncated) })
}
