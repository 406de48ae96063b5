//! The end of the service.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use redrive_core::text::plural;
use redrive_core::{Shelves, TransportError, TransportErrorKind};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{info, warn};

use super::claim::{BindError, Claim};
use super::frame;
use super::peer::{self, Queues};
use super::wire::{Greeting, PROTOCOL, VERSION};

/// How many operators are let in at the same time, by default. The page of `redrive serve` needs one for each queue and each run.
const MAX_OPERATORS: usize = 64;
/// The default permissions: for the user of the service.
const OWNER_ONLY: u32 = 0o600;

/// A Unix domain socket by which operators reach the shelves of this process: for `redrive --broker unix:PATH`, and for
/// [`SocketShelves`](super::SocketShelves). Closed, and its file removed, when it is dropped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redrive_core::BoxError> {
/// use redrive_core::{Message, Shelf, Shelves};
/// use redrive_memory::Memory;
/// use redrive_ops::{OperatorSocket, SocketShelves};
///
/// # let temporary = tempfile::tempdir()?;
/// # let path = temporary.path().join("redrive.sock");
/// let orders = Memory::new("orders");
/// let socket = OperatorSocket::builder().queue("orders", orders.shelves()).bind(&path).await?;
///
/// // In another process:
/// let shelves = SocketShelves::connect(&path, "orders").await?;
/// assert_eq!(shelves.count(Shelf::DeadLetter).await?, 0);
///
/// socket.close().await;
/// # Ok(()) }
/// ```
///
/// Whoever may use the socket may read, redrive, change and discard what is on the shelves: only processes of the same user may,
/// unless [`mode`](OperatorSocketBuilder::mode) says otherwise. Consumers never wait for operators: who does not read an answer is
/// disconnected after 30 seconds.
#[must_use = "the socket is closed when this is dropped"]
pub struct OperatorSocket {
    claim: Claim,
    closing: watch::Sender<()>,
    accepting: JoinHandle<()>,
}

/// Queues whose shelves are to be served. See [`OperatorSocket::builder`].
#[derive(Default)]
#[must_use = "call `bind`"]
pub struct OperatorSocketBuilder {
    queues: Queues,
    mode: Option<u32>,
    max_operators: Option<usize>,
}

impl OperatorSocket {
    /// Begins with no queues.
    pub fn builder() -> OperatorSocketBuilder {
        OperatorSocketBuilder::default()
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.claim.path()
    }

    /// Lets nobody in any more, removes the file, and waits until actions that have begun are done.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the rest happens in the background.
    pub async fn close(self) {
        let Self { claim, closing, accepting } = self;
        drop((claim, closing));
        // A panic there was reported, and there is nothing left to close.
        let _ = accepting.await;
    }
}

impl fmt::Debug for OperatorSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorSocket").field("path", &self.path()).finish_non_exhaustive()
    }
}

impl OperatorSocketBuilder {
    /// Serves the shelves of this queue. Operators reach no queue that is not named here.
    pub fn queue(mut self, name: impl Into<String>, shelves: impl Shelves + 'static) -> Self {
        self.queues.insert(name.into(), Arc::new(shelves));
        self
    }

    /// Sets the permissions of the socket. Default: `0o600`, for the user of the service. With `0o660` its group may use it as well.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Sets how many connections there may be at the same time. Default: 64. More are refused, and say so.
    pub fn max_operators(mut self, max: usize) -> Self {
        self.max_operators = Some(max);
        self
    }

    /// Opens the socket. A socket that a dead process left at this path is replaced; that of a living one is not. Beside it is a file
    /// `PATH.lock`, which stays.
    ///
    /// # Errors
    ///
    /// If another process has the socket, if there is a file that is no socket, or if the operating system refuses it, for example
    /// because the path is too long (108 bytes on Linux).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O.
    pub async fn bind(self, path: impl Into<PathBuf>) -> Result<OperatorSocket, BindError> {
        let mut claim = Claim::new(path.into()).await?;
        let listener = claim.listen(self.mode.unwrap_or(OWNER_ONLY))?;
        let (closing, closed) = watch::channel(());
        let service = Service {
            queues: Arc::new(self.queues),
            max_operators: self.max_operators.unwrap_or(MAX_OPERATORS),
            path: claim.path().to_owned(),
        };
        info!(path = %claim.path().display(), queues = ?service.queues.keys(), "operators can connect");
        let accepting = tokio::spawn(service.accept(listener, closed));
        Ok(OperatorSocket { claim, closing, accepting })
    }
}

impl fmt::Debug for OperatorSocketBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorSocketBuilder")
            .field("queues", &self.queues.keys())
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

struct Service {
    queues: Arc<Queues>,
    max_operators: usize,
    path: PathBuf,
}

impl Service {
    /// Lets operators in until it is closed; then waits until all have gone.
    async fn accept(self, listener: UnixListener, mut closed: watch::Receiver<()>) {
        let greeting = frame::encode(&self.greeting(None)).expect("the names of queues are no 64 MiB");
        let greeting: Arc<[u8]> = greeting.into();
        let mut peers = JoinSet::new();
        loop {
            tokio::select! {
                // Whether closed or dropped.
                _ = closed.changed() => break,
                Some(_) = peers.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) if peers.len() < self.max_operators => {
                        let queues = Arc::clone(&self.queues);
                        peers.spawn(peer::serve(stream, Arc::clone(&greeting), queues, closed.clone()));
                    }
                    Ok((stream, _)) => self.refuse(&stream),
                    Err(error) => {
                        warn!(path = %self.path.display(), %error, "the connection of an operator could not be accepted");
                        // Out of file descriptors, for example: that does not end at once.
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                },
            }
        }
        drop(listener);
        while peers.join_next().await.is_some() {}
    }

    fn refuse(&self, stream: &UnixStream) {
        let text = format!(
            "the service has {} of operators already: end a page or a run of redrive",
            plural(self.max_operators, "connection")
        );
        warn!(path = %self.path.display(), "the connection of an operator was refused: {text}");
        let refused = TransportError::new(TransportErrorKind::Full, text);
        let Ok(greeting) = frame::encode(&self.greeting(Some(&refused))) else { return };
        let length = u32::try_from(greeting.len()).unwrap_or(u32::MAX).to_be_bytes();
        // The buffer of a new connection is empty: nothing to wait for.
        let _ = stream.try_write(&[&length[..], &greeting].concat());
    }

    fn greeting(&self, refused: Option<&TransportError>) -> Greeting {
        let queues = if refused.is_some() { Vec::new() } else { self.queues.keys().cloned().collect() };
        Greeting { protocol: PROTOCOL.to_owned(), v: VERSION, refused: refused.map(Into::into), queues }
    }
}
