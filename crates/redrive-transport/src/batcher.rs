//! Requests that come together go together.

use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::lanes::{BatchLimits, Lanes};

/// What a [`Batcher`] does with a batch.
pub trait BatchWorker: Send + Sync + 'static {
    /// What goes together has the same key, for example its target.
    type Key: Clone + Eq + Hash + Send + Sync + 'static;
    /// One request.
    type Item: Send + 'static;
    /// What its asker learns.
    type Answer: Send + 'static;

    /// How much goes together.
    fn limits(&self) -> BatchLimits;

    /// How many bytes an item counts. Default: 0, where only the number of items counts.
    fn size(&self, item: &Self::Item) -> usize {
        let _ = item;
        0
    }

    /// Carries a batch out: one answer for each item, in their order. An item is carried out also when its asker has stopped
    /// waiting.
    fn work(&self, key: &Self::Key, items: Vec<Self::Item>)
    -> impl Future<Output = Vec<Self::Answer>> + Send;
}

/// Takes requests one by one and carries them out in batches: whatever is asked for while a batch is on its way goes into the
/// next. A request alone waits for nobody. Clones share the lanes.
///
/// [`tell`](Self::tell) may be called where no runtime is: with it a receipt that is dropped goes [back](crate::GiveBack). A
/// transport that is made outside of a runtime makes its batcher when it is opened.
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
///     type Item = u64;         // the number of a delivery
///     type Answer = Result<(), String>;
///
///     fn limits(&self) -> BatchLimits {
///         BatchLimits { lanes: 1, beside: 1, items: 100, bytes: usize::MAX }
///     }
///
///     async fn work(&self, queue: &&'static str, numbers: Vec<u64>) -> Vec<Result<(), String>> {
///         // One request to the broker, and its answer for each:
///         numbers.iter().map(|number| if *number > 0 { Ok(()) } else { Err(format!("{queue} has no 0")) }).collect()
///     }
/// }
///
/// let acknowledge = Batcher::new(Acknowledge);
/// assert_eq!(acknowledge.ask(&"orders", 7).await, Some(Ok(())));
/// assert_eq!(acknowledge.ask(&"orders", 0).await, Some(Err("orders has no 0".to_owned())));
/// acknowledge.tell(&"orders", 8);
/// # }
/// ```
pub struct Batcher<W: BatchWorker> {
    shared: Arc<Shared<W>>,
}

struct Shared<W: BatchWorker> {
    worker: W,
    lanes: Mutex<Lanes<W::Key, Job<W>>>,
    /// Askers may be outside of a runtime: receipts that are dropped.
    runtime: Handle,
}

struct Job<W: BatchWorker> {
    item: W::Item,
    /// None: nobody waits.
    asker: Option<oneshot::Sender<W::Answer>>,
}

impl<W: BatchWorker> Batcher<W> {
    /// A batcher whose lanes run on the runtime of the caller.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    #[must_use]
    pub fn new(worker: W) -> Self {
        let lanes = Mutex::new(Lanes::new(worker.limits()));
        Self { shared: Arc::new(Shared { worker, lanes, runtime: Handle::current() }) }
    }

    /// Has an item carried out, and waits for its answer. `None`: it will have no answer, as the worker panicked or its runtime
    /// ended; nobody knows what became of it.
    ///
    /// Dropping the future takes nothing back.
    pub async fn ask(&self, key: &W::Key, item: W::Item) -> Option<W::Answer> {
        let (asker, answer) = oneshot::channel();
        self.push(key, Job { item, asker: Some(asker) });
        answer.await.ok()
    }

    /// The same with nobody waiting. May be called in any thread, also outside of a runtime.
    pub fn tell(&self, key: &W::Key, item: W::Item) {
        self.push(key, Job { item, asker: None });
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
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that carries the batches of one key until nothing waits.
struct Lane<W: BatchWorker> {
    shared: Arc<Shared<W>>,
    key: W::Key,
    ended: bool,
}

impl<W: BatchWorker> Lane<W> {
    async fn run(mut self) {
        loop {
            // Who is about to ask goes along: a batch of one costs as much waiting as a batch of many.
            tokio::task::yield_now().await;
            let jobs = self.shared.lanes().next(&self.key);
            if jobs.is_empty() {
                self.ended = true;
                return;
            }
            let (items, askers): (Vec<_>, Vec<_>) = jobs.into_iter().map(|job| (job.item, job.asker)).unzip();
            let answers = self.shared.worker.work(&self.key, items).await;
            for (asker, answer) in askers.into_iter().zip(answers) {
                if let Some(asker) = asker {
                    // Its asker may have stopped waiting.
                    let _ = asker.send(answer);
                }
            }
        }
    }
}

/// Whatever ends a lane: nobody waits for ever.
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

    /// Doubles numbers, while it is allowed to; notes the batches.
    #[derive(Clone)]
    struct Doubling {
        batches: Arc<Mutex<Vec<Vec<u32>>>>,
        allowed: Arc<Semaphore>,
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
            self.batches.lock().unwrap().push(items.clone());
            self.allowed.acquire().await.unwrap().forget();
            assert!(!self.panics.load(Ordering::Relaxed), "as the test asks");
            items.iter().map(|n| n * 2).collect()
        }
    }

    fn doubling(allowed: usize) -> (Doubling, Batcher<Doubling>) {
        let allowed = Arc::new(Semaphore::new(allowed));
        let worker = Doubling { batches: Arc::default(), allowed, panics: Arc::default() };
        (worker.clone(), Batcher::new(worker))
    }

    #[tokio::test]
    async fn what_comes_together_goes_together_and_each_has_its_answer() {
        let (worker, batcher) = doubling(100);
        let answers = join_all((0..25).map(|n| batcher.ask(&"a", n))).await;
        assert_eq!(answers, (0..25).map(|n| Some(n * 2)).collect::<Vec<_>>());
        let sizes: Vec<_> = worker.batches.lock().unwrap().iter().map(Vec::len).collect();
        assert_eq!(sizes, [10, 10, 5]);
    }

    #[tokio::test]
    async fn another_key_does_not_wait() {
        let (worker, batcher) = doubling(0);
        let first = tokio::spawn({
            let batcher = batcher.clone();
            async move { batcher.ask(&"a", 1).await }
        });
        let second = tokio::spawn(async move { batcher.ask(&"b", 2).await });
        while worker.batches.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        worker.allowed.add_permits(2);
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (Some(2), Some(4)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_worker_that_panics_is_not_answered() {
        let (worker, batcher) = doubling(100);
        let ask = |n| tokio::time::timeout(std::time::Duration::from_secs(1), batcher.ask(&"a", n));
        worker.panics.store(true, Ordering::Relaxed);
        assert_eq!(ask(1).await, Ok(None));
        worker.panics.store(false, Ordering::Relaxed);
        assert_eq!(ask(1).await, Ok(Some(2)), "the next one has a lane of its own");
    }

    #[tokio::test]
    async fn a_thread_without_a_runtime_can_tell() {
        let (worker, batcher) = doubling(100);
        std::thread::spawn(move || batcher.tell(&"a", 7)).join().unwrap();
        while worker.batches.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(*worker.batches.lock().unwrap(), [[7]]);
    }
}
