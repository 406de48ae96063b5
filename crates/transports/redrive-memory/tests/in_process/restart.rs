//! One consumer after the other in one process.

use std::path::PathBuf;

use redrive_consumer::Consumer;
use redrive_core::Message;
use redrive_memory::MemoryBroker;

/// A ledger in a folder of its own, gone with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_consumer_may_have_the_ledger_as_soon_as_the_last_one_has_ended() {
    let folder = Folder(std::env::temp_dir().join(format!("redrive-restart-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    for round in 0..300 {
        let broker = MemoryBroker::new();
        for _ in 0..32 {
            broker.publish("orders", Message::new("")).unwrap();
        }
        let consumer = Consumer::new(broker.transport("orders"))
            .ledger(folder.0.join("ledger"))
            .handler(async || tokio::task::yield_now().await);
        let all_handled = async {
            while broker.depth("orders") > 0 {
                tokio::task::yield_now().await;
            }
        };
        consumer.run_until(all_handled).await.unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
}
