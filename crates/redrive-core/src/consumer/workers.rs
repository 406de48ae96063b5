//! The tasks that handle deliveries. They stay: a new task for every delivery would cost more than a quick handler, and
//! all of them in one task would wait for each other when a handler computes or blocks.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};

/// At most so many deliveries in hand, each with a task of its own while it is.
pub(crate) struct Workers<J> {
    hall: Arc<Hall<J>>,
    tasks: JoinSet<()>,
    most: usize,
}

/// Where jobs wait for a worker, and workers for a job.
struct Hall<J> {
    state: Mutex<State<J>>,
    job: Notify,
    done: Notify,
}

struct State<J> {
    jobs: VecDeque<J>,
    /// Workers that nobody has called yet.
    waiting: usize,
    /// Jobs that were handed over and are not done.
    open: usize,
    /// Workers that did not come to an end.
    alive: usize,
    /// Whether somebody waits for a job to be done. Else nobody is woken for each of them.
    watched: bool,
}

impl<J: Send + 'static> Workers<J> {
    pub(crate) fn new(most: usize) -> Self {
        let state = State { jobs: VecDeque::new(), waiting: 0, open: 0, alive: 0, watched: false };
        let hall = Hall { state: Mutex::new(state), job: Notify::new(), done: Notify::new() };
        Self { hall: Arc::new(hall), tasks: JoinSet::new(), most }
    }

    /// How many jobs are not done.
    pub(crate) fn open(&self) -> usize {
        self.hall.state().open
    }

    /// Whether fewer than so many jobs are open. If not, [`changed`](Self::changed) resolves when one is done.
    pub(crate) fn has_room(&self, most: usize) -> bool {
        let mut state = self.hall.state();
        let room = state.open < most.min(self.most);
        state.watched = !room;
        room
    }

    /// Has a worker do a job; one that is new does it, and all that come later, with `work`. There must be room.
    pub(crate) fn hand<W, F>(&mut self, job: J, work: &W)
    where
        W: Fn(J) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (call, engage) = {
            let mut state = self.hall.state();
            state.jobs.push_back(job);
            state.open += 1;
            let call = state.waiting > 0;
            let engage = !call && state.alive < self.most;
            state.waiting -= usize::from(call);
            state.alive += usize::from(engage);
            (call, engage)
        };
        if call {
            self.hall.job.notify_one();
        } else if engage {
            self.tasks.spawn(worker(Arc::clone(&self.hall), work.clone()));
        }
        // Else there are as many workers as there may be jobs, and one of them is about to look for its next.
    }

    /// Resolves when a job is done that somebody waits for, or when a worker came to an end, which is none of its duties.
    /// Cancel safe.
    pub(crate) async fn changed(&mut self, ended: impl FnOnce(Result<(), JoinError>)) {
        tokio::select! {
            () = self.hall.done.notified() => {}
            Some(task) = self.tasks.join_next() => ended(task),
        }
    }

    /// Resolves when all jobs are done. Cancel safe.
    pub(crate) async fn all_done(&mut self, mut ended: impl FnMut(Result<(), JoinError>)) {
        // None is as many as there is room for: every one that is done is waited for.
        while !self.has_room(1) {
            self.changed(&mut ended).await;
        }
    }

    /// Drops what is being done, at its next await.
    pub(crate) fn abort_all(&mut self) {
        self.tasks.abort_all();
    }
}

async fn worker<J, W, F>(hall: Arc<Hall<J>>, work: W)
where
    W: Fn(J) -> F,
    F: Future<Output = ()>,
{
    loop {
        let job = hall.next().await;
        let open = Open(&hall);
        work(job).await;
        drop(open);
        // However many jobs there are, others of this thread have their turn.
        tokio::task::consume_budget().await;
    }
}

impl<J> Hall<J> {
    async fn next(&self) -> J {
        loop {
            let mut called = pin!(self.job.notified());
            {
                let mut state = self.state();
                if let Some(job) = state.jobs.pop_front() {
                    return job;
                }
                state.waiting += 1;
                // Whoever is counted as waiting can be called from here on. Calls to nobody become one: of two workers that
                // were called before they listened the other would never hear of it.
                called.as_mut().enable();
            }
            called.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job that is being done; dropped when it is done, when it panics, and when it is aborted.
struct Open<'a, J>(&'a Hall<J>);

impl<J> Drop for Open<'_, J> {
    fn drop(&mut self) {
        let watched = {
            let mut state = self.0.state();
            state.open -= 1;
            // Its worker ends with it.
            state.alive -= usize::from(std::thread::panicking());
            state.watched
        };
        if watched {
            self.0.done.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn a_job_that_panics_leaves_its_place_to_the_next() {
        let mut workers = Workers::new(2);
        let (done, mut told) = mpsc::unbounded_channel();
        let work = move |job: u32| {
            let done = done.clone();
            async move {
                assert_ne!(job % 2, 0, "an even job");
                done.send(job).unwrap();
            }
        };
        let mut panicked = 0;
        for job in 0..20 {
            while !workers.has_room(2) {
                workers.changed(|ended| panicked += u32::from(ended.is_err())).await;
            }
            workers.hand(job, &work);
        }
        workers.all_done(|ended| panicked += u32::from(ended.is_err())).await;
        assert_eq!(workers.open(), 0);
        let mut odd = Vec::new();
        while let Ok(job) = told.try_recv() {
            odd.push(job);
        }
        odd.sort_unstable();
        assert_eq!(odd, (0..20).filter(|job| job % 2 == 1).collect::<Vec<_>>());
        while panicked < 10 {
            workers.changed(|ended| panicked += u32::from(ended.is_err())).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn every_worker_that_is_counted_as_waiting_hears_when_it_is_called() {
        let mut workers = Workers::new(3);
        let (done, mut told) = mpsc::unbounded_channel();
        let together = Arc::new(tokio::sync::Barrier::new(3));
        let work = move |round: u32| {
            let (done, together) = (done.clone(), Arc::clone(&together));
            async move {
                // Ends only when all three are at it.
                together.wait().await;
                done.send(round).unwrap();
            }
        };
        for round in 0..2_000 {
            while !workers.has_room(1) {
                workers.changed(|_| {}).await;
            }
            for _ in 0..3 {
                workers.hand(round, &work);
            }
            for _ in 0..3 {
                let told = tokio::time::timeout(Duration::from_secs(20), told.recv()).await;
                assert_eq!(told, Ok(Some(round)), "a worker was not called");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_job_that_blocks_its_thread_holds_up_no_other() {
        let mut workers = Workers::new(3);
        let (done, mut told) = mpsc::unbounded_channel();
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let work = move |job: u32| {
            let (done, blocked) = (done.clone(), Arc::clone(&blocked));
            async move {
                if job == 0 {
                    let _ = blocked.lock().unwrap().recv();
                }
                done.send(job).unwrap();
            }
        };
        for job in 0..3 {
            workers.hand(job, &work);
        }
        let first = [told.recv().await, told.recv().await];
        assert!(!first.contains(&Some(0)), "{first:?}");
        release.send(()).unwrap();
        assert_eq!(told.recv().await, Some(0));
        workers.all_done(|_| {}).await;
    }
}
