//! Shelves with a flaw. What its clauses do not need is left to the defaults of the trait.

use async_trait::async_trait;
use redrive_core::shelves::{
    EntryHandle, EntryOutcome, Holder, Selection, ShelfCursor, ShelfPage, ShelfReport,
};
use redrive_core::{Message, Shelf, Shelves, TransportError};
use redrive_memory::{MemoryBroker, MemoryShelves};

use crate::Flaw;

pub(crate) struct FlawedShelves {
    broker: MemoryBroker,
    inner: MemoryShelves,
    flaw: Flaw,
}

impl FlawedShelves {
    pub(crate) fn new(broker: MemoryBroker, inner: MemoryShelves, flaw: Flaw) -> Self {
        Self { broker, inner, flaw }
    }

    /// Removes first, and then publishes.
    async fn redrive_in_the_wrong_order(
        &self,
        shelf: Shelf,
        which: &Selection,
    ) -> Result<ShelfReport, TransportError> {
        let entries = self.inner.browse(shelf, None, usize::MAX).await?.entries;
        let mut report = ShelfReport::default();
        for entry in entries.into_iter().filter(|entry| which.includes(entry)) {
            self.inner.discard(shelf, &entry.handle.clone().into()).await?.into_result()?;
            let copy = redrive_core::transport::redriven(&entry.message);
            let outcome = match self.broker.publish("orders", copy) {
                Ok(()) => EntryOutcome::Done,
                Err(error) => EntryOutcome::Failed(error),
            };
            report.note(entry.handle, entry.message.id(), outcome);
        }
        Ok(report)
    }

    /// Returns what is in the places that these handles name.
    async fn in_their_places(&self, shelf: Shelf, which: &Selection) -> Result<Selection, TransportError> {
        let Selection::Handles(handles) = which else { return Ok(which.clone()) };
        let entries = self.inner.browse(shelf, None, usize::MAX).await?.entries;
        let places = handles.iter().filter_map(|handle| handle.entry().parse::<usize>().ok());
        Ok(Selection::handles(
            places.filter_map(|place| entries.get(place)).map(|entry| entry.handle.clone()),
        ))
    }
}

#[async_trait]
impl Shelves for FlawedShelves {
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError> {
        self.inner.count(shelf).await
    }

    async fn holder(&self, shelf: Shelf) -> Result<Option<Holder>, TransportError> {
        self.inner.holder(shelf).await
    }

    async fn browse(
        &self,
        shelf: Shelf,
        after: Option<&ShelfCursor>,
        limit: usize,
    ) -> Result<ShelfPage, TransportError> {
        let mut page = self.inner.browse(shelf, after, limit).await?;
        if self.flaw == Flaw::HandlesNamePlaces {
            for (place, entry) in page.entries.iter_mut().enumerate() {
                entry.handle = EntryHandle::new(shelf, place.to_string());
            }
        }
        Ok(page)
    }

    async fn redrive(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        match self.flaw {
            Flaw::RemovesBeforeItStores => self.redrive_in_the_wrong_order(shelf, which).await,
            _ => self.inner.redrive(shelf, which).await,
        }
    }

    async fn park(&self, which: &Selection) -> Result<ShelfReport, TransportError> {
        self.inner.park(which).await
    }

    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        match self.flaw {
            Flaw::HandlesNamePlaces => {
                self.inner.discard(shelf, &self.in_their_places(shelf, which).await?).await
            }
            _ => self.inner.discard(shelf, which).await,
        }
    }

    async fn replace(
        &self,
        entry: &EntryHandle,
        message: Message,
    ) -> Result<Option<EntryHandle>, TransportError> {
        self.inner.replace(entry, message).await
    }

    async fn redrive_as(&self, entry: &EntryHandle, message: Message) -> Result<(), TransportError> {
        self.inner.redrive_as(entry, message).await
    }
}
