//! The shelves of a queue, for operators.
//!
//! | module | does |
//! |---|---|
//! | [`scan`] | scans one shelf |
//! | [`window`] | takes many messages of a queue at once |
//! | [`work`] | works on the entries of a shelf |
//! | [`fingerprint`] | identifies an entry |
//! | [`numbers`] | numbers identical entries |
//! | [`open_scans`] | the scans that hold messages |
//! | [`cursor`] | the entries that were shown |
//! | [`delivery_limit`] | protects messages that the broker removes if they are looked at too often |
//! | [`lease`] | work in many steps |
//! | [`turn`] | one scan after the other |
//! | [`lock`] | a queue that only one client can have |
//! | [`owners`] | whose an entry is, on a shelf that others share |
//! | [`reports`] | reports of consumers about redriven messages |

mod cursor;
mod delivery_limit;
mod fingerprint;
mod lease;
mod lock;
mod numbers;
mod open_scans;
mod owners;
mod refusal;
mod reports;
mod scan;
mod turn;
mod window;
mod work;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use redrive_core::shelves::{
    EntryHandle, Holder, Leased, Reported, Selection, ShelfCursor, ShelfPage, ShelfReport, Shelved, WorkQueue,
};
use redrive_core::{Message, Shelf, Shelves, TransportError, TransportErrorKind};
use tokio::sync::Mutex;

use crate::connection::{Connection, uninterrupted};
use crate::convert::Form;
use crate::delivery_channel::DeliveryChannel;
use crate::publish::{Caller, RefusedInTurn};
use crate::shared::Shared;
use crate::topology::{self, Route};
use cursor::Shown;
use delivery_limit::ReadEffect;
use lease::{LeaseGuard, ShelfLease};
pub(crate) use numbers::TakenNumbers;
use open_scans::OpenScans;
use owners::Owners;
use reports::RabbitMqReports;
use scan::ShelfScan;
use turn::Turn;
use work::{Action, for_good};

/// Maximum number of messages of a shelf whose oldest entry is looked for.
const OLDEST_OF: u64 = 10_000;

/// The dead-letter queue and the parking queue of one work queue; made by
/// [`RabbitMq::shelves`](crate::RabbitMq::shelves).
///
/// Messages are read from the head of the queue with a consumer, held until the work is done, and then given back in order. Only
/// messages that are there when the work begins are touched. Looks and actions of redrive on one shelf take turns, by an exclusive queue
/// `redrive-look.…`. Messages that other clients hold, because they consume the shelf, are not seen, and a handle of one is not found; a
/// [scan](Shelves::scan) tells that there are such clients.
///
/// RabbitMQ does not number its messages. A [handle](EntryHandle) is a hash of the whole message, so that a message that differs
/// in anything is another entry. Identical entries are numbered. If a process removes one of them from the shelf, the others keep
/// their numbers in that process; any other process counts them again from the head.
#[derive(Debug, Clone)]
pub struct RabbitMqShelves {
    shared: Arc<Shared>,
    taken: Arc<TakenNumbers>,
    /// Where consumers report what they handled.
    reports: Option<Arc<str>>,
    lease: Option<Arc<ShelfLease>>,
    owners: Arc<Owners>,
    open_scans: OpenScans,
    /// What reading does to the messages of queues that were asked about.
    read_effects: Arc<Mutex<HashMap<String, ReadEffect>>>,
    /// Copies that were refused one after the other.
    refused: Arc<RefusedInTurn>,
}

impl RabbitMqShelves {
    pub(crate) fn new(shared: Arc<Shared>, taken: Arc<TakenNumbers>) -> Self {
        let owners = Owners::new(shared.plan.names.clone(), shared.options.shelves_shared_with.clone());
        let owners = Arc::new(owners);
        let (open_scans, read_effects, refused) = (OpenScans::default(), Arc::default(), Arc::default());
        Self { shared, taken, reports: None, lease: None, owners, open_scans, read_effects, refused }
    }

    /// Begins a look when no other scan of redrive holds messages of the shelf.
    async fn begin_look(&self, shelf: Shelf, patience: Duration) -> Result<ShelfScan, TransportError> {
        let connection = self.connection().await?;
        let turn = self.turn(&connection, shelf, patience).await?;
        self.begin_scan(shelf, connection, turn).await
    }

    async fn connection(&self) -> Result<Arc<Connection>, TransportError> {
        let shared = Arc::clone(&self.shared);
        uninterrupted(async move { shared.connections.consuming().await }).await
    }

    async fn begin_scan(
        &self,
        shelf: Shelf,
        connection: Arc<Connection>,
        turn: Turn,
    ) -> Result<ShelfScan, TransportError> {
        let this = self.clone();
        uninterrupted(async move { this.open_scan(shelf, connection, turn).await }).await
    }

    async fn open_scan(
        &self,
        shelf: Shelf,
        connection: Arc<Connection>,
        turn: Turn,
    ) -> Result<ShelfScan, TransportError> {
        let queue = self.shared.plan.names.shelf(shelf)?.to_owned();
        let read_effect = self.read_effect(&queue).await?;
        match read_effect {
            ReadEffect::KeepsAll => return Err(refusal::is_a_stream(&queue)),
            ReadEffect::Counts(limit) => return Err(refusal::looks_are_counted(&queue, limit)),
            ReadEffect::Safe | ReadEffect::MovesToTheEnd | ReadEffect::SafeBelow(_) => {}
        }
        let open = self.open_scans.open();
        let channel = DeliveryChannel::immediate(Arc::clone(&connection)).await?;
        let (taken, owners) = (Arc::clone(&self.taken), Arc::clone(&self.owners));
        Ok(ShelfScan::new(connection, channel, queue, shelf, taken, owners, read_effect, turn, open))
    }

    /// Returns what reading does to the messages of a queue; asks the broker once about one that another program named.
    async fn read_effect(&self, queue: &str) -> Result<ReadEffect, TransportError> {
        let options = &self.shared.options;
        if options.names.has_chosen(queue) {
            return Ok(ReadEffect::Safe);
        }
        let mut asked = self.read_effects.lock().await;
        if let Some(read_effect) = asked.get(queue) {
            return Ok(*read_effect);
        }
        let control = self.shared.queues.control().await?;
        topology::queue_state(&control, queue).await?;
        let mut read_effect = ReadEffect::at(&control, queue).await?;
        if options.accepts_low_delivery_limit && read_effect != ReadEffect::KeepsAll {
            read_effect = ReadEffect::Safe;
        }
        asked.insert(queue.to_owned(), read_effect);
        Ok(read_effect)
    }
}

#[async_trait]
impl Shelves for RabbitMqShelves {
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError> {
        let shared = Arc::clone(&self.shared);
        let counting = async move {
            let control = shared.queues.control().await?;
            topology::count(&control, shared.plan.names.shelf(shelf)?).await
        };
        uninterrupted(counting).await.map(u64::from)
    }

    async fn holder(&self, shelf: Shelf) -> Result<Option<Holder>, TransportError> {
        self.count_with_holder(shelf).await.map(|(_, holder)| holder)
    }

    /// Counts when no look or action of redrive holds messages, for which it waits a second at most. What a run or another consumer holds,
    /// RabbitMQ does not tell.
    async fn count_with_holder(&self, shelf: Shelf) -> Result<(u64, Option<Holder>), TransportError> {
        let connection = self.connection().await?;
        let turn = match self.turn(&connection, shelf, self.count_waits()).await {
            Err(error) if error.kind() == TransportErrorKind::Busy => {
                return Ok((self.count(shelf).await?, Some(Holder::Look)));
            }
            turn => turn?,
        };
        let counted = turn.count(&connection, self.shared.plan.names.shelf(shelf)?).await;
        turn.end().await;
        counted.map(|(count, holder)| (count.into(), holder))
    }

    /// Not known while another client may hold messages of the shelf, and for a shelf of more than 10 000 messages: once all of a quorum
    /// queue was looked at, a look at one message has to read all of it, to keep the order.
    async fn oldest(&self, shelf: Shelf) -> Result<Option<SystemTime>, TransportError> {
        if self.count(shelf).await? > OLDEST_OF {
            return Ok(None);
        }
        let mut scan = match self.begin_look(shelf, Duration::ZERO).await {
            Err(error) if error.kind() == TransportErrorKind::Busy => return Ok(None),
            begun => begun?,
        };
        // Somebody may hold the oldest.
        if scan.look_for_holders().await?.is_some() {
            let _ = scan.end().await;
            return Ok(None);
        }
        let page = page(scan, shelf, Shown::default(), 1).await?;
        Ok(page.entries.first().and_then(|entry| entry.shelved_at))
    }

    /// Scans the shelf from its head, past everything that was shown before: the smaller the pages, the longer it takes to read them
    /// all. The cursor has about 33 characters for each entry shown so far.
    async fn browse(
        &self,
        shelf: Shelf,
        after: Option<&ShelfCursor>,
        limit: usize,
    ) -> Result<ShelfPage, TransportError> {
        if limit == 0 {
            return ShelfPage::empty(shelf, after);
        }
        let shown = Shown::before(shelf, after)?;
        page(self.begin_look(shelf, self.shared.options.turn_within).await?, shelf, shown, limit).await
    }

    /// Scans the shelf once. Holds all entries until the end, without their messages.
    async fn scan(
        &self,
        shelf: Shelf,
        each: &mut (dyn FnMut(Shelved) -> ControlFlow<()> + Send),
    ) -> Result<Option<Holder>, TransportError> {
        let mut scan = self.begin_look(shelf, self.shared.options.turn_within).await?;
        let outcome = look_at_all(&mut scan, each).await;
        let holder = scan.end().await;
        outcome?;
        holder
    }

    async fn redrive(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        Ok(self.work(shelf, which, &Action::Redrive).await?.report)
    }

    async fn park(&self, which: &Selection) -> Result<ShelfReport, TransportError> {
        Ok(self.work(Shelf::DeadLetter, which, &Action::Park).await?.report)
    }

    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        Ok(self.work(shelf, which, &Action::Remove).await?.report)
    }

    async fn replace(
        &self,
        entry: &EntryHandle,
        message: Message,
    ) -> Result<Option<EntryHandle>, TransportError> {
        self.work_on(entry, Action::Replace(message)).await
    }

    async fn redrive_as(&self, entry: &EntryHandle, message: Message) -> Result<(), TransportError> {
        self.work_on(entry, Action::RedriveAs(message)).await.map(drop)
    }

    async fn restore(&self, shelf: Shelf, message: Message) -> Result<(), TransportError> {
        let queue = self.shared.plan.names.shelf(shelf)?;
        self.shared.copies.store(&Route::queue(queue), for_good(&message), Form::OnShelf, Caller::Other).await
    }

    fn as_restored(&self, message: &Message) -> Message {
        let stored = self.as_stored(&for_good(message));
        // What cannot be stored at all is refused by the broker's rules, with its reason.
        stored.unwrap_or_else(|_| message.clone())
    }

    async fn given_back(&self) {
        self.open_scans.all_ended().await;
    }

    /// Asks with a passive declaration. Messages that wait for a retry in delay queues are not counted.
    async fn work_queue(&self) -> Result<WorkQueue, TransportError> {
        let shared = Arc::clone(&self.shared);
        let reading =
            async move { topology::queue_state(&*shared.queues.control().await?, shared.queue()).await };
        let state = uninterrupted(reading).await?;
        Ok(WorkQueue::new(Some(state.messages.into()), Some(state.consumers.into())))
    }

    /// Declares an exclusive queue `redrive-reports.…`, which ends with the connection.
    async fn reported(&self) -> Result<Option<Reported>, TransportError> {
        let shared = Arc::clone(&self.shared);
        let declaring = async move { RabbitMqReports::declare(shared.queues.control().await?).await };
        let reports = uninterrupted(declaring).await?;
        let shelves = Self { reports: Some(reports.queue().into()), ..self.clone() };
        Ok(Some(Reported::new(shelves, reports)))
    }

    /// Declares an exclusive queue `redrive-lease.…` that ends with the lease. If another connection has it, this is tried again for 2 s:
    /// its process may just have been killed. A user who may not declare it gets no lease, which is logged as a warning.
    async fn lease(&self, shelf: Shelf) -> Result<Option<Leased>, TransportError> {
        let Some(lease) = ShelfLease::take(Arc::clone(&self.shared), shelf).await? else { return Ok(None) };
        let shelves = Self { lease: Some(Arc::clone(&lease)), ..self.clone() };
        Ok(Some(Leased::new(shelves, LeaseGuard(lease))))
    }
}

/// Passes all entries on.
async fn look_at_all(
    scan: &mut ShelfScan,
    each: &mut (dyn FnMut(Shelved) -> ControlFlow<()> + Send),
) -> Result<(), TransportError> {
    scan.look_for_holders().await?;
    while let Some(found) = scan.next().await? {
        scan.keep(&found);
        if each(found.shelved).is_break() {
            break;
        }
    }
    Ok(())
}

/// Reads one page, and ends the scan.
async fn page(
    mut scan: ShelfScan,
    shelf: Shelf,
    mut shown: Shown,
    limit: usize,
) -> Result<ShelfPage, TransportError> {
    let mut page = Vec::new();
    let mut outcome = Ok(());
    while page.len() < limit {
        match scan.next().await {
            Ok(Some(found)) => {
                scan.keep(&found);
                if shown.note(found.name) {
                    page.push(found.shelved);
                }
            }
            Ok(None) => break,
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    let has_more = scan.has_more();
    let _ = scan.end().await;
    outcome?;
    Ok(ShelfPage::new(page, has_more.then(|| shown.cursor(shelf))))
}
