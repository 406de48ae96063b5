//! Shares one connection among all callers, and replaces it when it is lost.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// Makes the connections of a [`Reconnecting`].
pub trait Connect: Send + Sync + 'static {
    /// The connection. Clones must refer to the same one.
    type Connection: Clone + Send + Sync + 'static;
    /// The error of an attempt; concurrent callers share it.
    type Error: Clone + Send + 'static;

    /// Makes one attempt to connect. The attempt must end by itself: give it a timeout.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, Self::Error>> + Send;

    /// Returns true if this connection can still be used.
    fn is_usable(&self, connection: &Self::Connection) -> bool;

    /// Returns the error for calls after [`Reconnecting::close`].
    fn closed(&self) -> Self::Error;
}

/// Connects on demand, and again when the connection is lost. Concurrent callers share the attempt's result: a thousand callers
/// cause no more attempts on a broker that is down than one.
///
/// It also works with a client library that reconnects by itself: `is_usable` then always returns `true`, and all callers share
/// the first connection.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redrive_core::TransportError> {
/// use std::sync::Arc;
/// use redrive_core::{TransportError, TransportErrorKind};
/// use redrive_transport::{Connect, Reconnecting};
/// # struct Client;
/// # impl Client {
/// #     async fn connect(_: &str) -> Result<Self, std::io::Error> { Ok(Self) }
/// #     fn is_connected(&self) -> bool { true }
/// # }
///
/// struct Connector { address: String }
///
/// impl Connect for Connector {
///     type Connection = Arc<Client>;
///     type Error = TransportError;
///
///     async fn connect(&self) -> Result<Arc<Client>, TransportError> {
///         let failed = || TransportError::new(TransportErrorKind::Unreachable, format!("connect to {}", self.address));
///         Client::connect(&self.address).await.map(Arc::new).map_err(|source| failed().with_source(source))
///     }
///
///     fn is_usable(&self, client: &Arc<Client>) -> bool {
///         client.is_connected()
///     }
///
///     fn closed(&self) -> TransportError {
///         TransportError::new(TransportErrorKind::Closed, "the transport was closed")
///     }
/// }
///
/// let shared = Reconnecting::new(Connector { address: "localhost:4222".to_owned() });
/// let (one, other) = (shared.connection().await?, shared.connection().await?);
/// assert!(Arc::ptr_eq(&one, &other));
/// shared.close().await;
/// assert!(shared.connection().await.is_err());
/// # Ok(()) }
/// ```
pub struct Reconnecting<C: Connect> {
    connector: C,
    current: Mutex<Current<C>>,
    /// The number of failed attempts.
    failures: AtomicU64,
    closed: AtomicBool,
}

struct Current<C: Connect> {
    connection: Option<C::Connection>,
    /// The time and error of the last attempt; `None` if it succeeded.
    failed: Option<(Instant, C::Error)>,
}

impl<C: Connect> Reconnecting<C> {
    /// The minimum time between a failed attempt and the next one.
    pub const MIN_RETRY_INTERVAL: Duration = Duration::from_millis(100);

    /// Creates a shared connection. The first call of [`connection`](Self::connection) connects.
    pub fn new(connector: C) -> Self {
        let current = Mutex::new(Current { connection: None, failed: None });
        Self { connector, current, failures: AtomicU64::new(0), closed: AtomicBool::new(false) }
    }

    /// Returns the connector.
    pub fn connector(&self) -> &C {
        &self.connector
    }

    /// Returns the current connection, or makes one attempt. Callers that wait for another caller's attempt share its result.
    ///
    /// # Errors
    ///
    /// Fails if the attempt failed, and after [`close`](Self::close).
    pub async fn connection(&self) -> Result<C::Connection, C::Error> {
        let failures = self.failures.load(Ordering::Acquire);
        // Locked while connecting: concurrent callers need the same connection.
        let mut current = self.current.lock().await;
        if self.is_closed() {
            return Err(self.connector.closed());
        }
        if let Some(connection) =
            current.connection.as_ref().filter(|connection| self.connector.is_usable(connection))
        {
            return Ok(connection.clone());
        }
        if let Some((at, error)) = &current.failed {
            // The attempt failed while this caller waited for the lock: it shares the error.
            if self.failures.load(Ordering::Acquire) != failures {
                return Err(error.clone());
            }
            sleep_until(*at + Self::MIN_RETRY_INTERVAL).await;
            if self.is_closed() {
                return Err(self.connector.closed());
            }
        }
        *current = Current { connection: None, failed: None };
        match self.connector.connect().await {
            Ok(connection) => {
                current.connection = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                current.failed = Some((Instant::now(), error.clone()));
                self.failures.fetch_add(1, Ordering::Release);
                Err(error)
            }
        }
    }

    /// Returns the last connection, usable or not. Returns `None` before the first one, while an attempt runs, and after
    /// [`close`](Self::close).
    pub fn last(&self) -> Option<C::Connection> {
        self.current.try_lock().ok()?.connection.clone()
    }

    /// Returns true after [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Closes for good. Returns the last connection, for the caller to close. Waits for a running attempt to end.
    pub async fn close(&self) -> Option<C::Connection> {
        self.closed.store(true, Ordering::Release);
        self.current.lock().await.connection.take()
    }
}

impl<C: Connect + fmt::Debug> fmt::Debug for Reconnecting<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let closed = self.is_closed();
        f.debug_struct("Reconnecting")
            .field("connector", &self.connector)
            .field("closed", &closed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::future::join_all;

    use super::*;

    /// A broker that is up or down.
    #[derive(Default)]
    struct Broker {
        is_up: AtomicBool,
        attempts: AtomicU64,
        usable: AtomicU64,
    }

    impl Connect for Arc<Broker> {
        type Connection = u64;
        type Error = String;

        async fn connect(&self) -> Result<u64, String> {
            let number = self.attempts.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(10)).await;
            if !self.is_up.load(Ordering::Relaxed) {
                return Err(format!("attempt {number} failed"));
            }
            self.usable.store(number, Ordering::Relaxed);
            Ok(number)
        }

        fn is_usable(&self, connection: &u64) -> bool {
            self.usable.load(Ordering::Relaxed) == *connection
        }

        fn closed(&self) -> String {
            "closed".to_owned()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_one_attempt() {
        let broker = Arc::<Broker>::default();
        let shared = Reconnecting::new(Arc::clone(&broker));
        let answers = join_all((0..1000).map(|_| shared.connection())).await;
        assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|error| error == "attempt 0 failed")));
        assert_eq!(broker.attempts.load(Ordering::Relaxed), 1);
        broker.is_up.store(true, Ordering::Relaxed);
        let began = Instant::now();
        let answers = join_all((0..1000).map(|_| shared.connection())).await;
        assert!(answers.iter().all(|answer| *answer == Ok(1)), "later callers share a new attempt");
        assert!(
            began.elapsed() >= Duration::from_millis(100),
            "the new attempt waits for the minimum interval"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_connection_is_replaced_until_close() {
        let broker = Arc::<Broker>::default();
        broker.is_up.store(true, Ordering::Relaxed);
        let shared = Reconnecting::new(Arc::clone(&broker));
        assert_eq!(
            (shared.last(), shared.connection().await, shared.connection().await),
            (None, Ok(0), Ok(0))
        );
        broker.usable.store(u64::MAX, Ordering::Relaxed);
        assert_eq!((shared.last(), shared.connection().await), (Some(0), Ok(1)));
        assert_eq!(shared.close().await, Some(1));
        assert_eq!(shared.connection().await, Err("closed".to_owned()));
        assert!(shared.is_closed() && shared.last().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_of_a_dropped_caller_blocks_no_other() {
        let broker = Arc::<Broker>::default();
        broker.is_up.store(true, Ordering::Relaxed);
        let shared = Reconnecting::new(broker);
        let given_up = tokio::time::timeout(Duration::from_millis(1), shared.connection()).await;
        assert!(given_up.is_err());
        assert_eq!(shared.connection().await, Ok(1));
    }
}
