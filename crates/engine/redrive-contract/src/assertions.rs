//! Assertions about what is left, and where.

use redrive_core::transport::Settlement;
use redrive_core::{Message, Shelf};
use tokio::time::timeout;

use crate::case::{Case, QUIET};
use crate::eventually::{eventually, found};
use crate::harness::{Bench, Harness, StartedOf};

impl<H: Harness> Case<H> {
    /// Checks that nothing is left: the next message published is the next and only one to arrive.
    pub(crate) async fn nothing_is_left(&self, transport: &StartedOf<H>) {
        const SENTINEL: &str = "published-last";
        self.publish_ids(&[SENTINEL]).await;
        let received = self.next(transport).await;
        assert_eq!(received.delivery.id(), SENTINEL, "a message came that should be gone");
        self.settle(transport, received.receipt, Settlement::Complete).await;
        self.nothing_comes(transport).await;
        // A broker may update its count with a short delay.
        eventually("the queue's depth is 0", async || {
            let depth = self.bench.depth().await;
            depth.unwrap_or_else(|error| panic!("the harness does not tell the depth: {error}")).unwrap_or(0)
                == 0
        })
        .await;
    }

    /// Checks that nothing arrives within [`QUIET`].
    pub(crate) async fn nothing_comes(&self, transport: &StartedOf<H>) {
        match timeout(QUIET, transport.receive()).await {
            Err(_) => {}
            Ok(Ok(Some(received))) => {
                panic!("message `{}` came, and none should", received.delivery.id());
            }
            Ok(Ok(None)) => panic!("`receive` answers that there is no more, in the middle of its life"),
            Ok(Err(error)) => panic!("`receive` fails: {error}"),
        }
    }

    /// Returns the messages on the shelf once there are `count`. Fails if there never are, or if there are more.
    pub(crate) async fn on_shelf(&self, shelf: Shelf, count: usize) -> Vec<Message> {
        let what = format!("{count} messages rest on the {shelf} shelf");
        found(&what, async || {
            let messages = self.read_shelf(shelf).await;
            assert!(messages.len() <= count, "{} messages rest on the {shelf} shelf", messages.len());
            (messages.len() == count).then_some(messages)
        })
        .await
    }

    pub(crate) async fn read_shelf(&self, shelf: Shelf) -> Vec<Message> {
        let messages = self.bench.shelf(shelf).await;
        messages.unwrap_or_else(|error| panic!("the harness does not read the {shelf} shelf: {error}"))
    }
}
