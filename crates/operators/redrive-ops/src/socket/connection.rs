//! One connection, as the operator sees it.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use redrive_core::shelves::{ParseCursorError, ShelfCursor, ShelfPage, ShelfReport};
use redrive_core::{TransportError, TransportErrorKind};
use serde::de::DeserializeOwned;
use tokio::io::BufStream;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::frame::{self, TooLarge};
use super::wire::{Answer, Greeting, LeaseOf, Opening, PROTOCOL, ResultJson, VERSION, shelved};
use crate::export::ExportedEntry;

/// How long a service may take to let an operator in.
const OPENING: Duration = Duration::from_secs(10);
/// How long a service may take for an action on a shelf before it begins to answer.
const ANSWER: Duration = Duration::from_secs(120);

/// A connection to a service, for the shelves of one queue.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufStream<UnixStream>,
    /// True if the service collects reports for this connection.
    pub(super) has_reports: bool,
    /// True if the connection has the lease of its shelf.
    pub(super) is_leased: bool,
}

/// An answer, with what follows its first frame.
#[derive(Debug)]
pub(super) enum Answered {
    Answer(Answer),
    Page(ShelfPage),
    /// And how many entries the lease of the connection holds.
    Report(ShelfReport, u64),
}

/// Why a request has no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// The service did not get the request.
    NotAsked(TransportError),
    /// The service refuses it.
    Refused(TransportError),
    /// The service may have done it, or not.
    Unanswered(TransportError),
}

impl Failed {
    pub(super) fn into_error(self) -> TransportError {
        match self {
            Self::NotAsked(error) | Self::Refused(error) | Self::Unanswered(error) => error,
        }
    }
}

/// Returns the queues that a service serves.
///
/// # Errors
///
/// The same as [`Connection::open`].
pub(super) async fn queues(path: &Path) -> Result<Vec<String>, TransportError> {
    in_time(path, async { Ok(greeted(path).await?.1.queues) }).await
}

impl Connection {
    /// Connects, and opens a queue.
    ///
    /// # Errors
    ///
    /// If nobody listens, or lets this process in; if it is no service of redrive, or one of another version; if it does not serve the
    /// queue.
    pub(super) async fn open(
        path: &Path,
        queue: &str,
        reports: bool,
        lease: Option<LeaseOf>,
    ) -> Result<Self, TransportError> {
        in_time(path, async {
            let (mut stream, _) = greeted(path).await?;
            let opening = Opening { v: VERSION, queue: queue.to_owned(), reports, lease };
            let opening = encode(&opening)?;
            write(&mut stream, &opening).await.map_err(|error| lost(path, &error))?;
            match next(&mut stream, path).await? {
                Answer::Opened { reports, leased } => {
                    Ok(Self { stream, has_reports: reports, is_leased: leased })
                }
                Answer::Refused(error) => Err(error.into()),
                other => Err(strange(path, format!("{other:?}"))),
            }
        })
        .await
    }

    /// Sends a request, and reads the whole answer. After an error other than [`Failed::Refused`] the connection is of no use.
    pub(super) async fn exchange(&mut self, path: &Path, request: &[u8]) -> Result<Answered, Failed> {
        // A frame that is not whole asks for nothing.
        let written = write(&mut self.stream, request).await;
        written.map_err(|error| Failed::NotAsked(lost(path, &error)))?;
        let answered = match timeout(ANSWER, next::<Answer>(&mut self.stream, path)).await {
            Ok(Ok(Answer::Refused(error))) => return Err(Failed::Refused(error.into())),
            Ok(Ok(answer)) => self.rest(path, answer).await,
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let text = format!("the service at {} does not answer", path.display());
                Err(TransportError::new(TransportErrorKind::Unreachable, text))
            }
        };
        match answered {
            Ok(answered) => answered,
            Err(error) => {
                let text =
                    format!("{error}. Whether the last request was carried out is not known: look again");
                Err(Failed::Unanswered(TransportError::new(error.kind(), text)))
            }
        }
    }

    /// Reads what follows the first frame. The inner error is that of the service.
    async fn rest(&mut self, path: &Path, first: Answer) -> Result<Result<Answered, Failed>, TransportError> {
        let stream = &mut self.stream;
        Ok(Ok(match first {
            Answer::Page { entries, next } => {
                let next = next.map(|text| text.parse());
                let next: Option<ShelfCursor> =
                    next.transpose().map_err(|error: ParseCursorError| strange(path, error))?;
                let mut page = ShelfPage::new(Vec::new(), next);
                for _ in 0..entries {
                    let frame = next_frame(stream, path).await?;
                    let line = std::str::from_utf8(&frame).map_err(|error| strange(path, error))?;
                    match ExportedEntry::from_line(line) {
                        Ok(line) => page.entries.push(shelved(line)),
                        Err(error) => match serde_json::from_slice(&frame) {
                            Ok(Answer::Refused(error)) => return Ok(Err(Failed::Refused(error.into()))),
                            _ => return Err(strange(path, error)),
                        },
                    }
                }
                Answered::Page(page)
            }
            Answer::Report { results, stopped, left_out, held } => {
                let mut report = ShelfReport::default();
                for _ in 0..results {
                    let (handle, id, outcome) = next::<ResultJson>(stream, path).await?.into_parts();
                    report.note(handle, id.as_deref(), outcome);
                }
                report.stopped = stopped.map(Into::into);
                report.left_out = left_out;
                Answered::Report(report, held)
            }
            answer => Answered::Answer(answer),
        }))
    }
}

/// Writes a value as a frame.
///
/// # Errors
///
/// If it is too large.
pub(super) fn encode(value: &impl serde::Serialize) -> Result<Vec<u8>, TransportError> {
    frame::encode(value).map_err(|TooLarge { length }| {
        let max = frame::MAX_FRAME;
        let text = format!(
            "the request has {length} bytes as JSON, and at most {max} can pass: name fewer entries, or make the message smaller"
        );
        TransportError::new(TransportErrorKind::TooLarge, text)
    })
}

async fn greeted(path: &Path) -> Result<(BufStream<UnixStream>, Greeting), TransportError> {
    let stream = UnixStream::connect(path).await.map_err(|error| no_connection(path, error))?;
    let mut stream = BufStream::new(stream);
    let greeting: Greeting = next(&mut stream, path).await?;
    if greeting.protocol != PROTOCOL {
        return Err(strange(path, format!("it speaks `{}`", greeting.protocol)));
    }
    if greeting.v != VERSION {
        let text = format!(
            "the service at {} speaks version {} of the operators' protocol, and this program version {VERSION}: use the redrive of the \
             version with which the service is built",
            path.display(),
            greeting.v
        );
        return Err(TransportError::new(TransportErrorKind::Unsupported, text));
    }
    match greeting.refused {
        Some(error) => Err(error.into()),
        None => Ok((stream, greeting)),
    }
}

async fn write(stream: &mut BufStream<UnixStream>, frame: &[u8]) -> io::Result<()> {
    frame::write(stream, frame).await?;
    frame::flush(stream).await
}

async fn next<T: DeserializeOwned>(
    stream: &mut BufStream<UnixStream>,
    path: &Path,
) -> Result<T, TransportError> {
    let frame = next_frame(stream, path).await?;
    serde_json::from_slice(&frame).map_err(|error| strange(path, error))
}

async fn next_frame(stream: &mut BufStream<UnixStream>, path: &Path) -> Result<Vec<u8>, TransportError> {
    match frame::read(stream).await {
        Ok(Some(frame)) => Ok(frame),
        Ok(None) => Err(lost(path, &ErrorKind::UnexpectedEof.into())),
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(strange(path, error)),
        Err(error) => Err(lost(path, &error)),
    }
}

async fn in_time<T>(
    path: &Path,
    work: impl Future<Output = Result<T, TransportError>>,
) -> Result<T, TransportError> {
    timeout(OPENING, work).await.unwrap_or_else(|_| {
        let text = format!(
            "no service answers at {}: is it the operators' socket of a running service?",
            path.display()
        );
        Err(TransportError::new(TransportErrorKind::Unreachable, text))
    })
}

fn no_connection(path: &Path, error: io::Error) -> TransportError {
    let path = path.display();
    let (kind, text) = match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => (
            TransportErrorKind::Unreachable,
            format!("no service listens at {path}: see whether it runs, and opens this socket for operators"),
        ),
        ErrorKind::PermissionDenied => (
            TransportErrorKind::Unauthorized,
            format!(
                "this user may not use {path}: ask the user of the service, or see `OperatorSocketBuilder::mode`"
            ),
        ),
        _ => (TransportErrorKind::Unreachable, format!("cannot connect to {path}: {error}")),
    };
    TransportError::new(kind, text).with_source(error)
}

fn lost(path: &Path, error: &io::Error) -> TransportError {
    let text = match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
            format!("the service at {} closed the connection", path.display())
        }
        _ => format!("the connection to the service at {} was lost: {error}", path.display()),
    };
    TransportError::new(TransportErrorKind::Unreachable, text)
}

fn strange(path: &Path, what: impl Display) -> TransportError {
    let text = format!("{} is no operators' socket of this version of redrive: {what}", path.display());
    TransportError::new(TransportErrorKind::Topology, text)
}
