//! Receives messages by polling. Each request waits for one message. There is one request while no messages come, and more, up to
//! the demand, once they do.
//!
//! No request is cancelled before the connection ends, because it may have locked a message. A message that arrives when the
//! receiver has ended is kept for the next one, and given back when the connection closes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::warn;

use super::{Arrived, Handle, Inner, MIN_POLL_WAIT, WireError, WireReceiver};

/// The time that a pause waits for a request beyond the wait of the request.
const LATE_POLL_GRACE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct RestReceiver {
    inner: Arc<Inner>,
    source: Arc<str>,
    state: Arc<PollerState>,
    arrivals: mpsc::UnboundedReceiver<Result<Arrived, WireError>>,
    over: watch::Receiver<bool>,
}

/// The state that the receiver shares with its poller.
#[derive(Debug, Default)]
struct PollerState {
    demand: Mutex<Demand>,
    changed: Notify,
}

/// The messages that the receiver wants.
#[derive(Debug, Default)]
struct Demand {
    /// The number of messages that `next` may still return.
    allowed: u32,
    /// The number of these that have already arrived.
    arrived: u32,
    /// True if no more requests are sent.
    ending: bool,
    /// The longest wait of a request, if the consumer allows less than the options.
    longest_wait: Option<Duration>,
}

impl RestReceiver {
    pub(super) fn start(inner: Arc<Inner>, source: &str, first: Vec<Arrived>) -> Self {
        let source: Arc<str> = source.into();
        let state = Arc::new(PollerState::default());
        let (to, arrivals) = mpsc::unbounded_channel();
        for arrived in first {
            state.demand.lock().arrived += 1;
            let _ = to.send(Ok(arrived));
        }
        let (ends, over) = watch::channel(false);
        let poller =
            Poller { inner: Arc::clone(&inner), source: Arc::clone(&source), state: Arc::clone(&state), to };
        tokio::spawn(async move {
            poller.run().await;
            ends.send_replace(true);
        });
        Self { inner, source, state, arrivals, over }
    }

    fn end(&self) {
        self.state.demand.lock().ending = true;
        self.state.changed.notify_one();
    }

    fn taken(&self, arrived: &Result<Arrived, WireError>) {
        if arrived.is_ok() {
            let mut demand = self.state.demand.lock();
            demand.arrived = demand.arrived.saturating_sub(1);
            demand.allowed = demand.allowed.saturating_sub(1);
        }
    }
}

#[async_trait]
impl WireReceiver for RestReceiver {
    async fn next(&mut self) -> Result<Arrived, WireError> {
        let arrived = self.arrivals.recv().await;
        let arrived = arrived.unwrap_or_else(|| Err(WireError::interrupted("the receiver has ended")));
        self.taken(&arrived);
        arrived
    }

    fn next_now(&mut self) -> Option<Result<Arrived, WireError>> {
        let arrived = self.arrivals.try_recv().ok()?;
        self.taken(&arrived);
        Some(arrived)
    }

    async fn allow(&mut self, more: u32) -> Result<(), WireError> {
        self.state.demand.lock().allowed = more;
        self.state.changed.notify_one();
        Ok(())
    }

    fn set_max_wait(&mut self, longest: Duration) {
        self.state.demand.lock().longest_wait = Some(longest.max(MIN_POLL_WAIT));
    }

    async fn drain(&mut self) -> Result<(), WireError> {
        self.end();
        // A message that arrives even later is kept for the next receiver, or given back when the connection closes.
        let _ = timeout(self.inner.poll_wait + LATE_POLL_GRACE, self.over.wait_for(|over| *over)).await;
        Ok(())
    }

    /// Messages are not released on a link: a receiver is dropped when it has ended, so that nothing stays in it.
    async fn ended(&mut self) {}

    fn handle(&self) -> Arc<dyn Handle> {
        Arc::<Inner>::clone(&self.inner)
    }

    async fn close(self: Box<Self>) {}
}

impl Drop for RestReceiver {
    fn drop(&mut self) {
        self.end();
        self.arrivals.close();
        while let Ok(arrived) = self.arrivals.try_recv() {
            if let Ok(arrived) = arrived {
                self.inner.keep_spare(&self.source, arrived);
            }
        }
    }
}

/// The task that polls for messages.
struct Poller {
    inner: Arc<Inner>,
    source: Arc<str>,
    state: Arc<PollerState>,
    to: mpsc::UnboundedSender<Result<Arrived, WireError>>,
}

/// The time when a request was sent, and its result.
type Polled = (Instant, Result<Option<Arrived>, WireError>);

impl Poller {
    async fn run(self) {
        let mut polls: JoinSet<Polled> = JoinSet::new();
        let mut width: usize = 1;
        let mut not_before = Instant::now();
        let mut ended = self.inner.ended.subscribe();
        let mut spare = self.inner.spare.subscribe();
        // Some may have come since the receiver was created.
        spare.mark_changed();
        loop {
            let rests = not_before > Instant::now();
            let missing = self.missing(polls.len());
            let is_wanted = missing.is_some();
            match missing {
                None if polls.is_empty() => return,
                Some(missing) if !rests => {
                    let wait = self.poll_wait();
                    for _ in 0..missing.min(width.saturating_sub(polls.len())) {
                        let (inner, source) = (Arc::clone(&self.inner), Arc::clone(&self.source));
                        let asked_at = Instant::now();
                        polls.spawn(async move { (asked_at, inner.peek_lock(&source, wait).await) });
                    }
                }
                _ => {}
            }
            tokio::select! {
                Some(polled) = polls.join_next() => match polled {
                    Ok((_, Ok(Some(arrived)))) => {
                        width = (width * 2).min(self.inner.polls);
                        self.deliver(arrived);
                    }
                    Ok((asked_at, Ok(None))) => {
                        width = 1;
                        // A server that answers before the requested wait must not cause a busy loop.
                        not_before = asked_at + self.poll_wait();
                    }
                    Ok((_, Err(error))) => {
                        // The intake creates a new receiver, which gets the messages of the requests that still wait: they are before its own.
                        self.state.demand.lock().ending = true;
                        let _ = self.to.send(Err(error));
                    }
                    Err(panicked) => warn!(entity = %self.source, error = %panicked, "a request to Service Bus panicked"),
                },
                Ok(()) = spare.changed(), if is_wanted => {
                    self.inner.take_spare(&self.source).into_iter().for_each(|arrived| self.deliver(arrived));
                }
                () = self.state.changed.notified() => {}
                () = sleep_until(not_before), if rests => {}
                // The requests are cancelled: messages that they lock are redelivered when their locks expire.
                _ = ended.wait_for(|ended| *ended) => return,
            }
        }
    }

    /// Returns the number of requests to add, or `None` if no more are sent.
    fn missing(&self, under_way: usize) -> Option<usize> {
        let demand = self.state.demand.lock();
        let wanted = usize::try_from(demand.allowed.saturating_sub(demand.arrived)).unwrap_or(usize::MAX);
        (!demand.ending).then(|| wanted.saturating_sub(under_way))
    }

    fn poll_wait(&self) -> Duration {
        let longest = self.state.demand.lock().longest_wait;
        longest.map_or(self.inner.poll_wait, |longest| longest.min(self.inner.poll_wait))
    }

    fn deliver(&self, arrived: Arrived) {
        self.state.demand.lock().arrived += 1;
        if let Err(SendError(Ok(arrived))) = self.to.send(Ok(arrived)) {
            self.inner.keep_spare(&self.source, arrived);
        }
    }
}
