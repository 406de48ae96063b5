//! Groups concurrent requests into batches.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::lanes::{BatchLimits, Lanes};

/// Processes the batches of a [`Batcher`].
pub trait BatchWorker: Send + Sync + 'static {
    /// The key of a batch, for example the target. Only items with the same key share a batch.
    type Key: Clone + Eq + Hash + Send + Sync + 'static;
    /// One request.
    type Item: Send + 'static;
    /// The result of one item.
    type Answer: Send + 'static;

    /// Returns the limits of the batches of each key.
    fn limits(&self) -> BatchLimits;

    /// Returns the size of an item in bytes, for [`BatchLimits::bytes`]. Default: 0, so that only the number of items counts.
    fn size(&self, item: &Self::Item) -> usize {
        let _ = item;
        0
    }

    /// Processes a batch. Returns one answer for each item, in the same order. Items whose callers have stopped waiting are
    /// processed too.
    fn work(&self, key: &Self::Key, items: Vec<Self::Item>)
    -> impl Future<Output = Vec<Self::Answer>> + Send;
}

/// Accepts single requests and processes them in batches: requests that arrive while a batch is being processed form the next
/// one. A single request is processed at once. Clones share the batches.
///
/// [`submit`](Self::submit) works outside of a runtime, so that a dropped receipt can [give its delivery back](crate::GiveBack).
/// [`new`](Self::new) needs a runtime: if a transport can be created outside of one, create the batcher in
/// [`open`](redrive_core::Transport::open).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use redrive_transport::{BatchLimits, BatchWorker, Batcher};
///
/// struct Acknowledge;
///
/// impl BatchWorker for Acknowledge {
///     type Key = &'static str; // the queue
///     type Item = u64;         // the delivery tag
///     type Answer = Result<(), String>;
///
///     fn limits(&self) -> BatchLimits {
///         BatchLimits { lanes: 1, beside: 1, items: 100, bytes: usize::MAX }
///     }
///
///     async fn work(&self, queue: &&'static str, tags: Vec<u64>) -> Vec<Result<(), String>> {
///         // One request to the broker, which answers for each item:
///         tags.iter().map(|tag| if *tag > 0 { Ok(()) } else { Err(format!("{queue} has no 0")) }).collect()
///     }
/// }
///
/// let acknowledge = Batcher::new(Acknowledge);
/// assert_eq!(acknowledge.request(&"orders", 7).await, Some(Ok(())));
/// assert_eq!(acknowledge.request(&"orders", 0).await, Some(Err("orders has no 0".to_owned())));
/// acknowledge.submit(&"orders", 8);
/// # }
/// ```
pub struct Batcher<W: BatchWorker> {
    shared: Arc<Shared<W>>,
}

struct Shared<W: BatchWorker> {
    worker: W,
    lanes: Mutex<Lanes<W::Key, Job<W>>>,
    /// Needed because callers may be outside of a runtime, for example when a receipt is dropped.
    runtime: Handle,
}

struct Job<W: BatchWorker> {
    item: W::Item,
    /// `None` for a submitted item: nobody waits for its answer.
    reply: Option<oneshot::Sender<W::Answer>>,
}

impl<W: BatchWorker> Batcher<W> {
    /// Creates a batcher that runs its tasks on the current runtime.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime.
    #[must_use]
    pub fn new(worker: W) -> Self {
        let lanes = Mutex::new(Lanes::new(worker.limits()));
        Self { shared: Arc::new(Shared { worker, lanes, runtime: Handle::current() }) }
    }

    /// Submits an item and waits for its result. Returns `None` if the worker panicked or its runtime ended: the item may or may
    /// not have been processed.
    ///
    /// Dropping the future does not cancel the item.
    pub async fn request(&self, key: &W::Key, item: W::Item) -> Option<W::Answer> {
        let (reply, answer) = oneshot::channel();
        self.push(key, Job { item, reply: Some(reply) });
        answer.await.ok()
    }

    /// Submits an item without waiting for its result. May be called from any thread, also outside of a runtime.
    pub fn submit(&self, key: &W::Key, item: W::Item) {
        self.push(key, Job { item, reply: None });
    }

    fn push(&self, key: &W::Key, job: Job<W>) {
        let bytes = self.shared.worker.size(&job.item);
        if self.shared.lanes().push(key, bytes, job) {
            let lane = Lane { shared: Arc::clone(&self.shared), key: key.clone(), ended: false };
            self.shared.runtime.spawn(lane.run());
        }
    }
}

impl<W: BatchWorker> Shared<W> {
    fn lanes(&self) -> MutexGuard<'_, Lanes<W::Key, Job<W>>> {
        self.lanes.lock()
    }
}

/// A task that processes batches of one key, one at a time, until no item waits.
struct Lane<W: BatchWorker> {
    shared: Arc<Shared<W>>,
    key: W::Key,
    ended: bool,
}

impl<W: BatchWorker> Lane<W> {
    async fn run(mut self) {
        loop {
            // Yields so that callers about to submit join this batch: a batch of one takes as long as a batch of many.
            tokio::task::yield_now().await;
            let jobs = self.shared.lanes().next(&self.key);
            if jobs.is_empty() {
                self.ended = true;
                return;
            }
            let (items, replies): (Vec<_>, Vec<_>) =
                jobs.into_iter().map(|job| (job.item, job.reply)).unzip();
            let answers = self.shared.worker.work(&self.key, items).await;
            for (reply, answer) in replies.into_iter().zip(answers) {
                if let Some(reply) = reply {
                    // An error means that the caller has stopped waiting.
                    let _ = reply.send(answer);
                }
            }
        }
    }
}

/// Removes a lane that panicked or was aborted: otherwise its callers would wait forever.
impl<W: BatchWorker> Drop for Lane<W> {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.lanes().end(&self.key);
        }
    }
}

impl<W: BatchWorker> Clone for Batcher<W> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<W: BatchWorker> fmt::Debug for Batcher<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    /// Doubles numbers, and records the batches. Each batch needs one permit.
    #[derive(Clone)]
    struct Doubling {
        batches: Arc<Mutex<Vec<Vec<u32>>>>,
        permits: Arc<Semaphore>,
        panics: Arc<AtomicBool>,
    }

    impl BatchWorker for Doubling {
        type Key = &'static str;
        type Item = u32;
        type Answer = u32;

        fn limits(&self) -> BatchLimits {
            BatchLimits { lanes: 1, beside: 1, items: 10, bytes: usize::MAX }
        }

        async fn work(&self, _: &&'static str, items: Vec<u32>) -> Vec<u32> {
            self.batches.lock().push(items.clone());
            self.permits.acquire().await.unwrap().forget();
            assert!(!self.panics.load(Ordering::Relaxed), "the test asked for a panic");
            items.iter().map(|n| n * 2).collect()
        }
    }

    fn doubling(permits: usize) -> (Doubling, Batcher<Doubling>) {
        let permits = Arc::new(Semaphore::new(permits));
        let worker = Doubling { batches: Arc::default(), permits, panics: Arc::default() };
        (worker.clone(), Batcher::new(worker))
    }

    #[tokio::test]
    async fn concurrent_requests_share_batches_and_each_has_its_answer() {
        let (worker, batcher) = doubling(100);
        let answers = join_all((0..25).map(|n| batcher.request(&"a", n))).await;
        assert_eq!(answers, (0..25).map(|n| Some(n * 2)).collect::<Vec<_>>());
        let sizes: Vec<_> = worker.batches.lock().iter().map(Vec::len).collect();
        assert_eq!(sizes, [10, 10, 5]);
    }

    #[tokio::test]
    async fn another_key_is_not_delayed() {
        let (worker, batcher) = doubling(0);
        let first = tokio::spawn({
            let batcher = batcher.clone();
            async move { batcher.request(&"a", 1).await }
        });
        let second = tokio::spawn(async move { batcher.request(&"b", 2).await });
        while worker.batches.lock().len() < 2 {
            tokio::task::yield_now().await;
        }
        worker.permits.add_permits(2);
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (Some(2), Some(4)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_to_a_panicking_worker_returns_none() {
        let (worker, batcher) = doubling(100);
        let request = |n| tokio::time::timeout(std::time::Duration::from_secs(1), batcher.request(&"a", n));
        worker.panics.store(true, Ordering::Relaxed);
        assert_eq!(request(1).await, Ok(None));
        worker.panics.store(false, Ordering::Relaxed);
        assert_eq!(request(1).await, Ok(Some(2)), "the next request starts a new lane");
    }

    #[tokio::test]
    async fn a_thread_without_a_runtime_can_submit() {
        let (worker, batcher) = doubling(100);
        std::thread::spawn(move || batcher.submit(&"a", 7)).join().unwrap();
        while worker.batches.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(*worker.batches.lock(), [[7]]);
    }
}
