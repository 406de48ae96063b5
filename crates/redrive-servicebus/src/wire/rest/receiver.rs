//! Messages coming in by HTTP: requests that wait for one message each, as many as there is room for once messages come, and
//! one alone while there are none.
//!
//! A request that is given up may have locked a message all the same: none is. What comes when nobody wants it any more is
//! kept for the next receiver, and given back when there is none.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::warn;

use super::{Arrived, Handle, Inner, SHORTEST_WAIT, WireError, WireReceiver, lock};

/// How much longer than it should a waiting request may take before a pause goes on without it.
const LATE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct RestReceiver {
    inner: Arc<Inner>,
    source: Arc<str>,
    shared: Arc<Shared>,
    arrivals: mpsc::UnboundedReceiver<Result<Arrived, WireError>>,
    over: watch::Receiver<bool>,
}

#[derive(Debug, Default)]
struct Shared {
    room: Mutex<Room>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Room {
    /// How many more may be taken by `next`.
    allowed: u32,
    /// How many of these are here already.
    arrived: u32,
    /// No more requests.
    ending: bool,
    /// The longest wait of a request, where the consumer asks for less than the options.
    longest_wait: Option<Duration>,
}

impl RestReceiver {
    pub(super) fn start(inner: Arc<Inner>, source: &str, first: Vec<Arrived>) -> Self {
        let source: Arc<str> = source.into();
        let shared = Arc::new(Shared::default());
        let (to, arrivals) = mpsc::unbounded_channel();
        for arrived in first {
            lock(&shared.room).arrived += 1;
            let _ = to.send(Ok(arrived));
        }
        let (ends, over) = watch::channel(false);
        let feed =
            Feed { inner: Arc::clone(&inner), source: Arc::clone(&source), shared: Arc::clone(&shared), to };
        tokio::spawn(async move {
            feed.run().await;
            ends.send_replace(true);
        });
        Self { inner, source, shared, arrivals, over }
    }

    fn end(&self) {
        lock(&self.shared.room).ending = true;
        self.shared.changed.notify_one();
    }

    fn taken(&self, arrived: &Result<Arrived, WireError>) {
        if arrived.is_ok() {
            let mut room = lock(&self.shared.room);
            room.arrived = room.arrived.saturating_sub(1);
            room.allowed = room.allowed.saturating_sub(1);
        }
    }
}

#[async_trait]
impl WireReceiver for RestReceiver {
    async fn next(&mut self) -> Result<Arrived, WireError> {
        let arrived = self.arrivals.recv().await;
        let arrived = arrived.unwrap_or_else(|| Err(WireError::interrupted("nothing more is asked for")));
        self.taken(&arrived);
        arrived
    }

    fn next_now(&mut self) -> Option<Result<Arrived, WireError>> {
        let arrived = self.arrivals.try_recv().ok()?;
        self.taken(&arrived);
        Some(arrived)
    }

    async fn allow(&mut self, more: u32) -> Result<(), WireError> {
        lock(&self.shared.room).allowed = more;
        self.shared.changed.notify_one();
        Ok(())
    }

    fn wait_at_most(&mut self, longest: Duration) {
        lock(&self.shared.room).longest_wait = Some(longest.max(SHORTEST_WAIT));
    }

    async fn drain(&mut self) -> Result<(), WireError> {
        self.end();
        // What comes even later is kept for the next receiver, or given back at the close.
        let _ = timeout(self.inner.poll_wait + LATE, self.over.wait_for(|over| *over)).await;
        Ok(())
    }

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

/// The task that asks.
struct Feed {
    inner: Arc<Inner>,
    source: Arc<str>,
    shared: Arc<Shared>,
    to: mpsc::UnboundedSender<Result<Arrived, WireError>>,
}

/// When a request began to wait, and what it got.
type Polled = (Instant, Result<Option<Arrived>, WireError>);

impl Feed {
    async fn run(self) {
        let mut polls: JoinSet<Polled> = JoinSet::new();
        let mut width: usize = 1;
        let mut not_before = Instant::now();
        let mut ended = self.inner.ended.subscribe();
        loop {
            let rests = not_before > Instant::now();
            match self.missing(polls.len()) {
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
                        self.hand_on(arrived);
                    }
                    Ok((asked_at, Ok(None))) => {
                        width = 1;
                        // One that did not wait as long as it was asked to must not be asked again and again.
                        not_before = asked_at + self.poll_wait();
                    }
                    Ok((_, Err(error))) => {
                        // The intake makes another receiver. Messages of requests that are still waiting are kept for that one.
                        lock(&self.shared.room).ending = true;
                        let _ = self.to.send(Err(error));
                    }
                    Err(panicked) => warn!(entity = %self.source, error = %panicked, "a request was given up"),
                },
                () = self.shared.changed.notified() => {}
                () = sleep_until(not_before), if rests => {}
                // Given up where they are: what they lock comes again when its lock runs out.
                _ = ended.wait_for(|ended| *ended) => return,
            }
        }
    }

    /// How many more requests there is room for; `None` when there are to be no more.
    fn missing(&self, under_way: usize) -> Option<usize> {
        let room = lock(&self.shared.room);
        let wanted = usize::try_from(room.allowed.saturating_sub(room.arrived)).unwrap_or(usize::MAX);
        (!room.ending).then(|| wanted.saturating_sub(under_way))
    }

    fn poll_wait(&self) -> Duration {
        let longest = lock(&self.shared.room).longest_wait;
        longest.map_or(self.inner.poll_wait, |longest| longest.min(self.inner.poll_wait))
    }

    fn hand_on(&self, arrived: Arrived) {
        lock(&self.shared.room).arrived += 1;
        if let Err(SendError(Ok(arrived))) = self.to.send(Ok(arrived)) {
            self.inner.keep_spare(&self.source, arrived);
        }
    }
}
