//! The operators' side of a queue.

use async_trait::async_trait;
use redrive_core::{Message, Selection, Shelf, Shelved, Shelves, TransportError};

use crate::broker::MemoryBroker;
use crate::error::Refusal;
use crate::state::State;

/// The shelves of one queue on a [`MemoryBroker`].
#[derive(Clone, Debug)]
pub struct MemoryShelves {
    broker: MemoryBroker,
    queue: String,
}

impl MemoryShelves {
    pub(crate) fn of(broker: MemoryBroker, queue: String) -> Self {
        Self { broker, queue }
    }

    /// Stores the selected messages of a shelf elsewhere, then takes them off, in one go.
    fn clear(
        &self,
        shelf: Shelf,
        which: &Selection,
        store: impl FnMut(&mut State, &Message) -> Result<(), Refusal>,
    ) -> Result<u64, TransportError> {
        let options = self.broker.options();
        let cleared = self.broker.lock().clear_shelf((&self.queue, shelf), which, options, store);
        self.broker.changed().notify_waiters();
        cleared.map_err(|refusal| refusal.on(&self.queue))
    }
}

#[async_trait]
impl Shelves for MemoryShelves {
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError> {
        let count = self.broker.look(&self.queue, |queue| queue.shelf(shelf).len());
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    async fn browse(&self, shelf: Shelf, limit: usize) -> Result<Vec<Shelved>, TransportError> {
        let first: Vec<Message> =
            self.broker.look(&self.queue, |queue| queue.shelf(shelf).iter().take(limit).cloned().collect());
        Ok(first.into_iter().map(Shelved::new).collect())
    }

    async fn redrive(&self, shelf: Shelf, which: &Selection) -> Result<u64, TransportError> {
        let options = self.broker.options();
        self.clear(shelf, which, |state, message| state.send_back(&self.queue, message, options))
    }

    async fn park(&self, which: &Selection) -> Result<u64, TransportError> {
        let options = self.broker.options();
        self.clear(Shelf::DeadLetter, which, |state, message| {
            state.queue(&self.queue, options).store_on_shelf(Shelf::Parking, message.clone())
        })
    }

    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<u64, TransportError> {
        self.clear(shelf, which, |_, _| Ok(()))
    }
}
