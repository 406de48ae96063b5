//! The connection that a transport has, and gets again when it is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::address::Address;
use crate::error::WireError;
use crate::wire::{self, Protocol, Wire};

/// The connection, opened when it is needed.
#[derive(Debug)]
pub(crate) struct Link {
    address: Arc<Address>,
    protocol: Protocol,
    current: Mutex<Current>,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Current {
    wire: Option<Arc<dyn Wire>>,
    /// When the last try to connect failed, and why.
    failed: Option<(Instant, WireError)>,
}

impl Link {
    pub(crate) fn new(address: Address, protocol: Protocol) -> Self {
        Self {
            address: Arc::new(address),
            protocol,
            current: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// The connection that stands, or a new one.
    pub(crate) async fn live(&self) -> Result<Arc<dyn Wire>, WireError> {
        let asked = Instant::now();
        // Held while connecting: everybody else needs the same connection.
        let mut current = self.current.lock().await;
        if self.is_closed() {
            return Err(WireError::interrupted("the transport was closed"));
        }
        if let Some(wire) = current.wire.as_ref().filter(|wire| wire.is_live()) {
            return Ok(Arc::clone(wire));
        }
        // Whoever waited for a try that failed has its answer too. Else each of a thousand would try after the other.
        if let Some((_, error)) = current.failed.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(error.clone());
        }
        match wire::open(Arc::clone(&self.address), self.protocol).await {
            Ok(wire) => {
                *current = Current { wire: Some(Arc::clone(&wire)), failed: None };
                Ok(wire)
            }
            Err(error) => {
                current.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// True once nothing goes over it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Closes it in order; there is none from here on.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(wire) = self.current.lock().await.wire.take() {
            wire.close().await;
        }
    }

    /// Ends it as the death of the process would.
    pub(crate) async fn abort(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(wire) = self.current.lock().await.wire.take() {
            wire.abort();
            wire.ended().await;
        }
    }
}

/// How long to wait before connecting again: longer each time, and never all at once.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    failures: u32,
}

impl Pace {
    const SHORTEST: Duration = Duration::from_millis(100);
    pub(crate) const LONGEST: Duration = Duration::from_secs(20);

    /// After a failure.
    pub(crate) async fn wait(&mut self) {
        let longest = Self::SHORTEST.saturating_mul(1 << self.failures.min(10)).min(Self::LONGEST);
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(longest.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    }

    /// After a success.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn whoever_waited_for_a_try_that_failed_does_not_try_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
        let port = listener.local_addr().expect("it is bound").port();
        let text = format!(
            "Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
        );
        let link = Arc::new(Link::new(Address::parse(&text).expect("it is well-formed"), Protocol::Amqp));
        let tries: Vec<_> = (0..3)
            .map(|_| {
                let link = Arc::clone(&link);
                tokio::spawn(async move { link.live().await.map(drop) })
            })
            .collect();
        let (first, _) = listener.accept().await.expect("one connects");
        // All of them wait for that one by now, however slow this machine is: they share its one thread.
        drop(first);
        for answer in tries {
            answer.await.expect("it does not panic").expect_err("nobody speaks AMQP there");
        }
        let another = futures::FutureExt::now_or_never(listener.accept());
        assert!(another.is_none(), "somebody tried again");
    }
}
