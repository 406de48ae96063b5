//! Shelves under a process that dies at a step.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use redrive_core::shelves::{EntryHandle, Holder, Selection, ShelfCursor, ShelfPage, ShelfReport, WorkQueue};
use redrive_core::{Message, Shelf, Shelves, TransportError, TransportErrorKind};
use redrive_memory::{MemoryBroker, MemoryShelves};
use tokio::sync::Notify;

use super::Scene;

/// Where the process dies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Death {
    /// Before anything of the step is done.
    Before,
    /// When half of its entries are done.
    Half,
    /// When half of its entries are done, and of the next one a copy is stored.
    BetweenCopyAndRemoval,
    /// When all of it is done and nothing is written.
    After,
    /// While it looks for fates.
    Looking,
}

/// Shelves under a process that dies at a step.
pub(super) struct Mortal {
    /// What the looks at the work queue see, one after another.
    looks: AtomicU32,
    work_queue: fn(u32) -> Result<WorkQueue, TransportError>,
    broker: MemoryBroker,
    shelves: MemoryShelves,
    death: Death,
    /// How many steps or looks pass before.
    steps: AtomicU32,
    pub(super) died: Notify,
    /// How often the dead-letter shelf was scanned: it has one page.
    pub(super) scans: AtomicU32,
    /// In how many of them, the first ones, somebody else holds all entries.
    pub(super) hidden: u32,
    /// Which of them somebody else keeps from their turn.
    pub(super) busy_scans: Range<u32>,
    /// Which tries of a step somebody else keeps from their turn.
    pub(super) busy_tries: Range<u32>,
    tries: AtomicU32,
}

impl Mortal {
    pub(super) fn new(scene: &Scene, death: Death, steps: u32) -> Self {
        let (broker, shelves) = (scene.broker.clone(), scene.shelves.clone());
        let [looks, scans, steps] = [0, 0, steps].map(AtomicU32::new);
        let work_queue = |_| Ok(WorkQueue::default());
        Self {
            broker,
            shelves,
            death,
            steps,
            died: Notify::new(),
            looks,
            work_queue,
            scans,
            hidden: 0,
            busy_scans: 0..0,
            busy_tries: 0..0,
            tries: AtomicU32::new(0),
        }
    }

    /// Shelves of a process that lives, and of a work queue that is seen as `work_queue` says.
    pub(super) fn watching(scene: &Scene, work_queue: fn(u32) -> Result<WorkQueue, TransportError>) -> Self {
        Self { work_queue, ..Self::new(scene, Death::Before, u32::MAX) }
    }

    fn is_last(&self) -> bool {
        self.steps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    }

    async fn die<T>(&self) -> T {
        self.died.notify_one();
        std::future::pending().await
    }
}

fn busy() -> TransportError {
    TransportError::new(TransportErrorKind::Busy, "another look has the shelf")
}

#[async_trait]
impl Shelves for Mortal {
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError> {
        if self.death == Death::Looking && self.is_last() {
            self.die::<()>().await;
        }
        self.shelves.count(shelf).await
    }

    async fn holder(&self, _shelf: Shelf) -> Result<Option<Holder>, TransportError> {
        Ok(None)
    }

    async fn browse(
        &self,
        shelf: Shelf,
        after: Option<&ShelfCursor>,
        limit: usize,
    ) -> Result<ShelfPage, TransportError> {
        let scan = self.scans.fetch_add(u32::from(shelf == Shelf::DeadLetter), Ordering::Relaxed);
        if scan < self.hidden {
            return Ok(ShelfPage::default());
        }
        if shelf == Shelf::DeadLetter && self.busy_scans.contains(&scan) {
            return Err(busy());
        }
        self.shelves.browse(shelf, after, limit).await
    }

    async fn redrive(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        if self.busy_tries.contains(&self.tries.fetch_add(1, Ordering::Relaxed)) {
            return Err(busy());
        }
        if self.death == Death::Looking || !self.is_last() {
            return self.shelves.redrive(shelf, which).await;
        }
        let Selection::Handles(handles) = which else { panic!("{which:?}") };
        let mut handles: Vec<_> = handles.iter().cloned().collect();
        handles.sort();
        let done = match self.death {
            Death::Before => 0,
            Death::After => handles.len(),
            _ => handles.len() / 2,
        };
        let rest = handles.split_off(done);
        let _ = self.shelves.redrive(shelf, &Selection::handles(handles)).await?;
        if let (Death::BetweenCopyAndRemoval, Some(next)) = (self.death, rest.first()) {
            let entries = self.shelves.browse(shelf, None, 10_000).await?.entries;
            let entry = entries.iter().find(|entry| entry.handle == *next).expect("it is there");
            self.broker.publish("orders", redrive_core::transport::redriven(&entry.message))?;
        }
        self.die().await
    }

    async fn park(&self, which: &Selection) -> Result<ShelfReport, TransportError> {
        self.shelves.park(which).await
    }

    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        self.shelves.discard(shelf, which).await
    }

    async fn replace(
        &self,
        entry: &EntryHandle,
        message: Message,
    ) -> Result<Option<EntryHandle>, TransportError> {
        self.shelves.replace(entry, message).await
    }

    async fn redrive_as(&self, entry: &EntryHandle, message: Message) -> Result<(), TransportError> {
        self.shelves.redrive_as(entry, message).await
    }

    async fn work_queue(&self) -> Result<WorkQueue, TransportError> {
        (self.work_queue)(self.looks.fetch_add(1, Ordering::Relaxed))
    }
}
