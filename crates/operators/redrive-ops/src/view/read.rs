//! Reads a shelf.

use std::ops::ControlFlow;
use std::time::SystemTime;

use redrive_core::shelves::Shelved;
use redrive_core::{Headers, Shelf, Shelves, TransportError, Value};

use super::{ShelfView, ViewOptions};

impl ShelfView {
    /// Reads a shelf once, in one [scan](Shelves::scan). The entries stay where they are.
    ///
    /// An entry that comes or goes meanwhile may be in the view or not. The transport's page says what reading a shelf costs, and
    /// whether it holds entries for a moment.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redrive_core::BoxError> {
    /// use std::time::SystemTime;
    ///
    /// use redrive_consumer::Consumer;
    /// use redrive_core::{Message, NoRetry, Shelf, millis};
    /// use redrive_memory::MemoryBroker;
    /// use redrive_ops::{Filter, ShelfView, SnapshotOptions, ViewOptions};
    ///
    /// async fn ship(order: String) -> Result<(), String> {
    ///     Err(format!("order {order} has no address"))
    /// }
    ///
    /// let broker = MemoryBroker::new();
    /// for order in 1..=3 {
    ///     let tenant = if order == 2 { "blue" } else { "green" };
    ///     broker.publish("orders", Message::new(order.to_string()).with_header("tenant", tenant))?;
    /// }
    /// # let done = async { while broker.depth("orders") > 0 { tokio::time::sleep(millis(1)).await } };
    /// let consumer = Consumer::new(broker.transport("orders")).with_dead_letter_backoff(NoRetry).handler(ship);
    /// consumer.run_until(done).await?;
    ///
    /// let now = SystemTime::now();
    /// let shelves = broker.shelves("orders");
    /// let view = ShelfView::read(&shelves, Shelf::DeadLetter, &ViewOptions::new(), now).await?;
    /// let groups = view.entries().summary(&SnapshotOptions::new()).groups;
    /// assert_eq!((groups.len(), groups[0].count), (1, 3));
    ///
    /// let filter: Filter = r#"error~"no address" header.tenant:blue"#.parse()?;
    /// let page = view.matching(&filter, now).page(0, 50);
    /// assert_eq!((page.total, page.entries[0].entry.message.body().as_ref()), (1, &b"2"[..]));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If the broker cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the read. Nothing is lost. What it held is given back a little later: wait for
    /// [`Shelves::given_back`] before the process ends, which RabbitMQ would count as a delivery.
    pub async fn read(
        shelves: &dyn Shelves,
        shelf: Shelf,
        options: &ViewOptions,
        now: SystemTime,
    ) -> Result<Self, TransportError> {
        let mut entries = Vec::new();
        let mut bytes = 0_usize;
        let mut truncated = false;
        let mut each = |entry: Shelved| {
            bytes = bytes.saturating_add(size(&entry));
            // Reads one more than the limit, to know whether there are more.
            truncated = entries.len() == options.limit || bytes > options.max_bytes;
            if truncated {
                return ControlFlow::Break(());
            }
            entries.push(entry);
            ControlFlow::Continue(())
        };
        let holder = shelves.scan(shelf, &mut each).await?;
        Ok(Self { holder, ..Self::new(shelf, now, entries, truncated) })
    }
}

/// Estimates the memory of an entry. Its history repeats texts of the headers.
fn size(entry: &Shelved) -> usize {
    /// Properties, ids, and what the allocator adds.
    const ENTRY: usize = 1024;
    ENTRY + entry.message.body().len() + 2 * size_of_table(entry.message.headers())
}

fn size_of_table(table: &Headers) -> usize {
    table.iter().map(|(name, value)| size_of::<String>() + name.len() + size_of_value(value)).sum()
}

/// A list of small values takes many times the bytes that it has in a message.
fn size_of_value(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::RawString(bytes) | Value::Bytes(bytes) => bytes.len(),
            Value::List(values) => values.iter().map(size_of_value).sum(),
            Value::Table(table) => size_of_table(table),
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use redrive_core::Message;
    use redrive_core::shelves::EntryHandle;

    use super::*;

    #[test]
    fn bodies_headers_and_what_is_nested_count() {
        let size = |message| size(&Shelved::new(EntryHandle::new(Shelf::DeadLetter, "1"), message));
        let list = Value::List(vec![Value::Bool(true); 1_000]);
        let table = Value::Table(Headers::from_iter([("list", list.clone())]));
        assert!(size(Message::new(vec![0; 5_000])) > 5_000);
        assert!(size(Message::new("").with_header("text", "x".repeat(5_000))) > 10_000);
        assert!(size(Message::new("").with_header("list", list)) > 48_000);
        assert!(size(Message::new("").with_header("table", table)) > 48_000);
    }
}
