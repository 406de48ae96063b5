//! The end of the operator: shelves of a service in another process.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use async_trait::async_trait;
use redrive_core::shelves::{
    EntryHandle, EntryOutcome, Holder, Lease, Leased, Reported, Reports, Selection, ShelfCursor, ShelfPage,
    ShelfReport, WorkQueue,
};
use redrive_core::{Message, Shelf, Shelves, TransportError, TransportErrorKind};
use tokio::sync::Mutex;

use super::connection::{self, Answered, Connection, Failed};
use super::wire::{Answer, LeaseOf, Request, Which};
use crate::export::{MessageJson, UnwritableValue};

/// The shelves of a queue of a service in another process, which opened an [`OperatorSocket`](super::OperatorSocket).
///
/// It connects again when it is used after the connection was lost, for example because the service was restarted. Calls on one value
/// are carried out one after the other; another value has another connection.
///
/// If the connection is lost in the middle of an action, it is not known whether the service carried it out: `redrive`, `park` and
/// `discard` then report that the named entries [failed](EntryOutcome::Failed), and that the work
/// [stopped](ShelfReport::stopped). Browse again to see which of them are still there.
pub struct SocketShelves {
    path: Arc<Path>,
    queue: Arc<str>,
    /// If these shelves are leased, so is each connection.
    lease: Option<LeaseOf>,
    held: Arc<AtomicU64>,
    connection: SharedConnection,
}

/// `None` while it is used, and after it was lost.
type SharedConnection = Arc<Mutex<Option<Connection>>>;

impl SocketShelves {
    /// Connects to the service whose socket this is.
    ///
    /// # Errors
    ///
    /// [`Unreachable`](TransportErrorKind::Unreachable) if nobody listens; [`Unauthorized`](TransportErrorKind::Unauthorized) if this
    /// user may not use the socket; [`Topology`](TransportErrorKind::Topology) if the service does not serve the queue, or if it is no
    /// service of redrive; [`Unsupported`](TransportErrorKind::Unsupported) if it speaks another version of the protocol;
    /// [`Full`](TransportErrorKind::Full) if it lets no more operators in.
    pub async fn connect(path: impl Into<PathBuf>, queue: impl Into<String>) -> Result<Self, TransportError> {
        let (path, queue) = (path.into(), queue.into());
        let connection = Connection::open(&path, &queue, false, None).await?;
        Ok(Self::on(path.into(), queue.into(), None, connection))
    }

    fn on(path: Arc<Path>, queue: Arc<str>, lease: Option<LeaseOf>, connection: Connection) -> Self {
        let connection = Arc::new(Mutex::new(Some(connection)));
        Self { path, queue, lease, held: Arc::default(), connection }
    }

    /// The same shelves on the same connection.
    fn same(&self) -> Self {
        let Self { path, queue, lease, held, connection } = self;
        Self {
            path: Arc::clone(path),
            queue: Arc::clone(queue),
            lease: *lease,
            held: Arc::clone(held),
            connection: Arc::clone(connection),
        }
    }

    /// Returns the queues that the service serves, in alphabetical order.
    ///
    /// # Errors
    ///
    /// The same as [`connect`](Self::connect).
    pub async fn queues(path: impl AsRef<Path>) -> Result<Vec<String>, TransportError> {
        connection::queues(path.as_ref()).await
    }

    async fn ask(&self, request: Request<'_>) -> Result<Answered, Failed> {
        let request = connection::encode(&request).map_err(Failed::Refused)?;
        let mut shared = self.connection.lock().await;
        // Taken out: if this future is dropped, the connection is in the middle of something.
        if let Some(mut connection) = shared.take() {
            match connection.exchange(&self.path, &request).await {
                // It was lost since it was used last.
                Err(Failed::NotAsked(_)) => {}
                answered => return kept(&mut shared, connection, answered),
            }
        }
        let connected = Connection::open(&self.path, &self.queue, false, self.lease).await;
        let mut connection = connected.map_err(Failed::NotAsked)?;
        let answered = connection.exchange(&self.path, &request).await;
        kept(&mut shared, connection, answered)
    }

    async fn answer(&self, request: Request<'_>) -> Result<Answer, TransportError> {
        match self.ask(request).await {
            Ok(Answered::Answer(answer)) => Ok(answer),
            Ok(other) => Err(self.strange(&other)),
            Err(failed) => Err(failed.into_error()),
        }
    }

    async fn act(&self, request: Request<'_>, which: &Selection) -> Result<ShelfReport, TransportError> {
        match self.ask(request).await {
            Ok(Answered::Report(report, held)) => {
                self.held.store(held, Ordering::Relaxed);
                Ok(report)
            }
            Ok(other) => Err(self.strange(&other)),
            Err(Failed::Unanswered(error)) => Ok(unanswered(which, error)),
            Err(failed) => Err(failed.into_error()),
        }
    }

    fn strange(&self, answer: &dyn fmt::Debug) -> TransportError {
        let text = format!("the service at {} answers something else: {answer:?}", self.path.display());
        TransportError::new(TransportErrorKind::Other, text)
    }
}

/// Keeps a connection that is in step.
fn kept(
    shared: &mut Option<Connection>,
    connection: Connection,
    answered: Result<Answered, Failed>,
) -> Result<Answered, Failed> {
    if matches!(answered, Ok(_) | Err(Failed::Refused(_))) {
        *shared = Some(connection);
    }
    answered
}

/// The report of an action that the service carried out or not.
fn unanswered(which: &Selection, error: TransportError) -> ShelfReport {
    let mut report = ShelfReport::default();
    if let Selection::Handles(handles) = which {
        let mut handles: Vec<_> = handles.iter().cloned().collect();
        handles.sort();
        for handle in handles {
            report.note(handle, None, EntryOutcome::Failed(error.clone()));
        }
    }
    report.stopped = Some(error);
    report
}

fn json(message: &Message) -> Result<MessageJson<'_>, TransportError> {
    MessageJson::of(message).map_err(|error: UnwritableValue| {
        let text = format!("the message cannot be sent to the service: {error}");
        TransportError::new(TransportErrorKind::Unsupported, text)
    })
}

#[async_trait]
impl Shelves for SocketShelves {
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError> {
        match self.answer(Request::Count { shelf }).await? {
            Answer::Count(count) => Ok(count),
            other => Err(self.strange(&other)),
        }
    }

    async fn holder(&self, shelf: Shelf) -> Result<Option<Holder>, TransportError> {
        match self.answer(Request::Holder { shelf }).await? {
            Answer::Holder(holder) => Ok(holder.map(Holder::from)),
            other => Err(self.strange(&other)),
        }
    }

    async fn count_with_holder(&self, shelf: Shelf) -> Result<(u64, Option<Holder>), TransportError> {
        match self.answer(Request::CountWithHolder { shelf }).await? {
            Answer::Counted { count, holder } => Ok((count, holder.map(Holder::from))),
            other => Err(self.strange(&other)),
        }
    }

    async fn oldest(&self, shelf: Shelf) -> Result<Option<SystemTime>, TransportError> {
        match self.answer(Request::Oldest { shelf }).await? {
            Answer::Oldest(time) => {
                let time = time.map(|text| humantime::parse_rfc3339(&text));
                time.transpose().map_err(|error| self.strange(&error))
            }
            other => Err(self.strange(&other)),
        }
    }

    async fn browse(
        &self,
        shelf: Shelf,
        after: Option<&ShelfCursor>,
        limit: usize,
    ) -> Result<ShelfPage, TransportError> {
        let mut all = ShelfPage::new(Vec::new(), after.cloned());
        // The service has smaller pages.
        loop {
            let after = all.next.map(|cursor| cursor.to_string());
            let left = limit - all.entries.len();
            let page = match self.ask(Request::Browse { shelf, after, limit: left }).await {
                Ok(Answered::Page(page)) if page.entries.len() <= left => page,
                Ok(other) => return Err(self.strange(&other)),
                Err(failed) => return Err(failed.into_error()),
            };
            all.next = page.next;
            let is_over = page.entries.is_empty() || page.entries.len() == left || all.next.is_none();
            all.entries.extend(page.entries);
            if is_over {
                return Ok(all);
            }
        }
    }

    async fn redrive(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        self.act(Request::Redrive { shelf, which: Which::try_from(which)? }, which).await
    }

    async fn park(&self, which: &Selection) -> Result<ShelfReport, TransportError> {
        self.act(Request::Park { which: Which::try_from(which)? }, which).await
    }

    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        self.act(Request::Discard { shelf, which: Which::try_from(which)? }, which).await
    }

    async fn replace(
        &self,
        entry: &EntryHandle,
        message: Message,
    ) -> Result<Option<EntryHandle>, TransportError> {
        let request = Request::Replace { entry: entry.clone(), message: json(&message)? };
        match self.answer(request).await? {
            Answer::Replaced(handle) => {
                handle.map(|text| text.parse()).transpose().map_err(|error| self.strange(&error))
            }
            other => Err(self.strange(&other)),
        }
    }

    async fn redrive_as(&self, entry: &EntryHandle, message: Message) -> Result<(), TransportError> {
        let request = Request::RedriveAs { entry: entry.clone(), message: json(&message)? };
        match self.answer(request).await? {
            Answer::Done => Ok(()),
            other => Err(self.strange(&other)),
        }
    }

    async fn restore(&self, shelf: Shelf, message: Message) -> Result<(), TransportError> {
        match self.answer(Request::Restore { shelf, message: json(&message)? }).await? {
            Answer::Done => Ok(()),
            other => Err(self.strange(&other)),
        }
    }

    async fn work_queue(&self) -> Result<WorkQueue, TransportError> {
        match self.answer(Request::WorkQueue).await? {
            Answer::WorkQueue { depth, consumers } => Ok(WorkQueue::new(depth, consumers)),
            other => Err(self.strange(&other)),
        }
    }

    /// Opens a connection of its own, for which the service collects reports as long as it lasts; leased shelves have one already.
    async fn reported(&self) -> Result<Option<Reported>, TransportError> {
        if self.lease.is_some() {
            return match self.answer(Request::CollectReports).await? {
                Answer::Opened { reports: true, .. } => {
                    Ok(Some(Reported::new(self.same(), SocketReports(self.same()))))
                }
                Answer::Opened { .. } => Ok(None),
                other => Err(self.strange(&other)),
            };
        }
        let connection = Connection::open(&self.path, &self.queue, true, None).await?;
        if !connection.has_reports {
            return Ok(None);
        }
        let shelves = Self::on(Arc::clone(&self.path), Arc::clone(&self.queue), None, connection);
        let reports = SocketReports(shelves.same());
        Ok(Some(Reported::new(shelves, reports)))
    }

    /// Opens a connection of its own, which has the lease as long as it lasts. `None` if the service has no leases.
    async fn lease(&self, shelf: Shelf) -> Result<Option<Leased>, TransportError> {
        let lease = Some(LeaseOf { shelf });
        let connection = Connection::open(&self.path, &self.queue, false, lease).await?;
        if !connection.is_leased {
            return Ok(None);
        }
        let shelves = Self::on(Arc::clone(&self.path), Arc::clone(&self.queue), lease, connection);
        let lease = SocketLease(shelves.same());
        Ok(Some(Leased::new(shelves, lease)))
    }
}

impl fmt::Debug for SocketShelves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketShelves")
            .field("path", &self.path)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// A lease, on the connection of its shelves.
struct SocketLease(SocketShelves);

#[async_trait]
impl Lease for SocketLease {
    fn held(&self) -> u64 {
        self.0.held.load(Ordering::Relaxed)
    }

    async fn pause(&self) {
        // If the connection is lost, so is the lease, and nothing is held.
        let _ = self.0.answer(Request::PauseLease).await;
        self.0.held.store(0, Ordering::Relaxed);
    }

    async fn end(&self) {
        let _ = self.0.answer(Request::EndLease).await;
        self.0.held.store(0, Ordering::Relaxed);
    }
}

impl Drop for SocketLease {
    fn drop(&mut self) {
        // It lasts as long as the connection. If that is used now, it ends with the shelves.
        if let Ok(mut connection) = self.0.connection.try_lock() {
            *connection = None;
        }
    }
}

/// Reports, on the connection of the shelves that ask for them.
struct SocketReports(SocketShelves);

#[async_trait]
impl Reports for SocketReports {
    async fn take(&mut self) -> Result<Vec<EntryHandle>, TransportError> {
        match self.0.answer(Request::TakeReports).await? {
            Answer::Reports(handles) => Ok(handles),
            other => Err(self.0.strange(&other)),
        }
    }
}

impl Drop for SocketReports {
    fn drop(&mut self) {
        // The service collects as long as the connection lasts. If it is used now, it lasts as long as the shelves; and so does a lease.
        if self.0.lease.is_none()
            && let Ok(mut connection) = self.0.connection.try_lock()
        {
            *connection = None;
        }
    }
}
