//! One operator, as the service sees it.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redrive_core::shelves::{Lease, Reports, Selection, ShelfCursor, ShelfPage, ShelfReport, Shelved};
use redrive_core::{Message, Shelf, Shelves, TransportError, TransportErrorKind};
use tokio::io::BufStream;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::frame::{self, TooLarge};
use super::wire::{
    Answer, ErrorJson, HolderJson, LeaseOf, MAX_PAGE, Opening, Request, ResultJson, VERSION, Version,
};
use crate::export::{ExportedEntry, MessageJson, rfc3339};

/// The queues that are served, by name.
pub(super) type Queues = BTreeMap<String, Arc<dyn Shelves>>;

/// How long an operator may take to name a queue.
const OPENING: Duration = Duration::from_secs(10);
/// How long an operator may take to read the rest of an answer once the socket is closed.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// Greets an operator, and does what it asks until one of the two ends closes. An action that has begun is done to its end.
pub(super) async fn serve(
    stream: UnixStream,
    greeting: Arc<[u8]>,
    queues: Arc<Queues>,
    mut closed: watch::Receiver<()>,
) {
    let process = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let mut stream = BufStream::new(stream);
    let opened = tokio::select! {
        _ = closed.changed() => return,
        opened = timeout(OPENING, open(&mut stream, &greeting, &queues)) => opened,
    };
    let ended = match opened {
        Ok(Ok(Some(desk))) => {
            debug!(queue = desk.queue, process, "an operator has connected");
            work(stream, desk, closed).await
        }
        Ok(Ok(None)) => Ok(()),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::new(ErrorKind::TimedOut, "it did not name a queue")),
    };
    if let Err(error) = ended {
        debug!(process, %error, "an operator was disconnected");
    }
}

/// The shelves of one queue, for one operator.
struct PeerShelves {
    queue: String,
    shelves: Arc<dyn Shelves>,
    reports: Option<Box<dyn Reports>>,
    lease: Option<Box<dyn Lease>>,
}

/// Greets, and opens the queue that the operator names. `None`: the operator went away, or was refused.
async fn open(
    stream: &mut BufStream<UnixStream>,
    greeting: &[u8],
    queues: &Queues,
) -> io::Result<Option<PeerShelves>> {
    frame::write(stream, greeting).await?;
    frame::flush(stream).await?;
    let Some(opening) = frame::read(stream).await? else { return Ok(None) };
    let (answer, opened) = match opening_of(&opening, queues).await {
        Ok(opened) => {
            let (reports, leased) = (opened.reports.is_some(), opened.lease.is_some());
            (Answer::Opened { reports, leased }, Some(opened))
        }
        Err(error) => (Answer::Refused((&error).into()), None),
    };
    send(stream, &answer).await?;
    frame::flush(stream).await?;
    Ok(opened)
}

async fn opening_of(opening: &[u8], queues: &Queues) -> Result<PeerShelves, TransportError> {
    // The version first: what another version says is not known.
    let Version { v } = serde_json::from_slice(opening).map_err(malformed)?;
    if v != VERSION {
        let text = format!(
            "the service speaks version {VERSION} of the operators' protocol, and was asked in version {v}"
        );
        return Err(TransportError::new(TransportErrorKind::Unsupported, text));
    }
    let Opening { queue, reports, lease, .. } = serde_json::from_slice(opening).map_err(malformed)?;
    let Some(shelves) = queues.get(&queue) else {
        let known: Vec<_> = queues.keys().take(20).map(|name| format!("`{name}`")).collect();
        let text =
            format!("the service serves no queue `{queue}` to operators: it serves {}", known.join(", "));
        return Err(TransportError::new(TransportErrorKind::Topology, text));
    };
    let mut desk = PeerShelves { queue, shelves: Arc::clone(shelves), reports: None, lease: None };
    if let Some(LeaseOf { shelf }) = lease
        && let Some(leased) = desk.shelves.lease(shelf).await?
    {
        (desk.shelves, desk.lease) = (Arc::from(leased.shelves), Some(leased.lease));
    }
    if reports {
        desk.collect_reports().await?;
    }
    Ok(desk)
}

/// Answers requests, one after the other. The lease ends with the connection.
async fn work(
    stream: BufStream<UnixStream>,
    mut desk: PeerShelves,
    closed: watch::Receiver<()>,
) -> io::Result<()> {
    let ended = answer_all(stream, &mut desk, closed).await;
    if let Some(lease) = desk.lease {
        lease.end().await;
    }
    ended
}

async fn answer_all(
    mut stream: BufStream<UnixStream>,
    desk: &mut PeerShelves,
    mut closed: watch::Receiver<()>,
) -> io::Result<()> {
    loop {
        let request = tokio::select! {
            _ = closed.changed() => return Ok(()),
            request = frame::read(&mut stream) => request?,
        };
        let Some(request) = request else { return Ok(()) };
        let request = match serde_json::from_slice(&request) {
            Ok(request) => request,
            Err(error) => {
                // Whatever this is: no further request can be read reliably.
                send(&mut stream, &Answer::Refused((&malformed(error)).into())).await?;
                return frame::flush(&mut stream).await;
            }
        };
        // Not together with `closed`: what has begun is done, whoever still waits for it.
        let answer = desk.perform(request).await;
        let held = desk.lease.as_ref().map_or(0, |lease| lease.held());
        let queue = &*desk.queue;
        let sending = async {
            answer.send(queue, held, &mut stream).await?;
            frame::flush(&mut stream).await
        };
        tokio::select! {
            sent = sending => sent?,
            () = async { let _ = closed.changed().await; sleep(LAST_ANSWER).await } => return Ok(()),
        }
    }
}

/// An answer, with what follows its first frame.
enum Performed {
    Answer(Answer),
    Page(ShelfPage),
    Report(ShelfReport),
}

impl PeerShelves {
    async fn perform(&mut self, request: Request<'_>) -> Performed {
        self.try_perform(request)
            .await
            .unwrap_or_else(|error| Performed::Answer(Answer::Refused((&error).into())))
    }

    async fn collect_reports(&mut self) -> Result<(), TransportError> {
        if let Some(reported) = self.shelves.reported().await? {
            (self.shelves, self.reports) = (Arc::from(reported.shelves), Some(reported.reports));
        }
        Ok(())
    }

    async fn try_perform(&mut self, request: Request<'_>) -> Result<Performed, TransportError> {
        if matches!(request, Request::CollectReports) {
            self.collect_reports().await?;
            let (reports, leased) = (self.reports.is_some(), self.lease.is_some());
            return Ok(Performed::Answer(Answer::Opened { reports, leased }));
        }
        let shelves = &*self.shelves;
        Ok(Performed::Answer(match request {
            Request::Count { shelf } => Answer::Count(shelves.count(shelf).await?),
            Request::Holder { shelf } => Answer::Holder(shelves.holder(shelf).await?.map(HolderJson::from)),
            Request::CountWithHolder { shelf } => {
                let (count, holder) = shelves.count_with_holder(shelf).await?;
                Answer::Counted { count, holder: holder.map(HolderJson::from) }
            }
            Request::Oldest { shelf } => Answer::Oldest(shelves.oldest(shelf).await?.and_then(rfc3339)),
            Request::Browse { shelf, after, limit } => return browse(shelves, shelf, after, limit).await,
            Request::Redrive { shelf, which } => {
                return shelves.redrive(shelf, &Selection::from(which)).await.map(Performed::Report);
            }
            Request::Park { which } => {
                return shelves.park(&Selection::from(which)).await.map(Performed::Report);
            }
            Request::Discard { shelf, which } => {
                return shelves.discard(shelf, &Selection::from(which)).await.map(Performed::Report);
            }
            Request::Replace { entry, message } => {
                let replaced = shelves.replace(&entry, read(message)?).await?;
                Answer::Replaced(replaced.map(|handle| handle.to_string()))
            }
            Request::RedriveAs { entry, message } => {
                shelves.redrive_as(&entry, read(message)?).await?;
                Answer::Done
            }
            Request::Restore { shelf, message } => {
                shelves.restore(shelf, read(message)?).await?;
                Answer::Done
            }
            Request::WorkQueue => {
                let seen = shelves.work_queue().await?;
                Answer::WorkQueue { depth: seen.depth, consumers: seen.consumers }
            }
            Request::CollectReports => Answer::Done,
            Request::PauseLease => {
                if let Some(lease) = &self.lease {
                    lease.pause().await;
                }
                Answer::Done
            }
            Request::EndLease => {
                if let Some(lease) = &self.lease {
                    lease.end().await;
                }
                Answer::Done
            }
            Request::TakeReports => match &mut self.reports {
                Some(reports) => Answer::Reports(reports.take().await?),
                None => {
                    let text = format!("no reports of `{}` are collected on this connection", self.queue);
                    return Err(TransportError::new(TransportErrorKind::Closed, text));
                }
            },
        }))
    }
}

async fn browse(
    shelves: &dyn Shelves,
    shelf: Shelf,
    after: Option<String>,
    limit: usize,
) -> Result<Performed, TransportError> {
    let after: Option<ShelfCursor> = after.map(|text| text.parse()).transpose().map_err(malformed)?;
    shelves.browse(shelf, after.as_ref(), limit.min(MAX_PAGE)).await.map(Performed::Page)
}

impl Performed {
    async fn send(self, queue: &str, held: u64, stream: &mut BufStream<UnixStream>) -> io::Result<()> {
        match self {
            Self::Answer(answer) => send(stream, &answer).await,
            Self::Page(page) => {
                let next = page.next.map(|cursor| cursor.to_string());
                send(stream, &Answer::Page { entries: page.entries.len(), next }).await?;
                let now = SystemTime::now();
                for entry in page.entries {
                    match line(queue, &entry, now) {
                        Ok(line) => frame::write(stream, &line).await?,
                        Err(error) => return send(stream, &Answer::Refused((&error).into())).await,
                    }
                }
                Ok(())
            }
            Self::Report(report) => {
                let stopped = report.stopped.as_ref().map(ErrorJson::from);
                let (results, left_out) = (report.entries.len(), report.left_out);
                send(stream, &Answer::Report { results, stopped, left_out, held }).await?;
                for result in &report.entries {
                    send(stream, &ResultJson::from(result)).await?;
                }
                Ok(())
            }
        }
    }
}

/// Returns an entry as the line of an export.
fn line(queue: &str, entry: &Shelved, now: SystemTime) -> Result<Vec<u8>, TransportError> {
    let refused = |kind, why| {
        let text = format!("the socket cannot show `{}`: {why}", entry.handle);
        TransportError::new(kind, text)
    };
    let line = ExportedEntry::new(queue, entry, now).to_line();
    let line = line.map_err(|error| refused(TransportErrorKind::Unsupported, error.to_string()))?;
    frame::check(line.into_bytes()).map_err(|TooLarge { length }| {
        let max = frame::MAX_FRAME;
        let why =
            format!("it has {length} bytes as JSON, and {max} can pass: act on it in the service itself");
        refused(TransportErrorKind::TooLarge, why)
    })
}

/// Writes a value as a frame. Does not flush.
async fn send(stream: &mut BufStream<UnixStream>, value: &impl serde::Serialize) -> io::Result<()> {
    match frame::encode(value) {
        Ok(frame) => frame::write(stream, &frame).await,
        Err(TooLarge { length }) => {
            let text = format!("an answer of {length} bytes is too large");
            Err(io::Error::new(ErrorKind::InvalidInput, text))
        }
    }
}

fn read(message: MessageJson<'_>) -> Result<Message, TransportError> {
    message.into_message().map_err(malformed)
}

fn malformed(error: impl std::fmt::Display) -> TransportError {
    let text = format!("the service could not read the request, and did nothing: {error}");
    TransportError::new(TransportErrorKind::Unsupported, text)
}
