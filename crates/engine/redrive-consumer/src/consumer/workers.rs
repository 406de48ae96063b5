//! The tasks that handle deliveries. Tasks are reused: a new task per delivery would cost more than a quick handler. Deliveries
//! do not share one task: they would wait for each other when a handler computes or blocks.
//!
//! Waking a worker also costs more than a quick handler. So a worker that finishes takes the next job, and a batch of jobs wakes
//! one worker. Still, no job waits behind another: a worker whose job is pending wakes the next worker; while fewer workers run
//! than there are threads, every batch wakes one more; and the [`watch`](Workers::changed) wakes another when no job is taken
//! within [`STALL_TIMEOUT`].

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, Sleep, sleep};

/// When jobs wait this long because workers compute or block, one more worker is woken.
const STALL_TIMEOUT: Duration = Duration::from_millis(2);

/// A bounded number of jobs in flight, each in a task of its own while it runs.
pub(crate) struct Workers<J> {
    scheduler: Arc<Scheduler<J>>,
    tasks: JoinSet<()>,
    spawn: Box<Spawn<J>>,
    most: usize,
    /// Time of the next check for stalled jobs; used while `stall_timer_runs`.
    stall_timer: Pin<Box<Sleep>>,
    stall_timer_runs: bool,
}

/// Spawns one more worker.
type Spawn<J> = dyn Fn(&mut JoinSet<()>, &Arc<Scheduler<J>>) + Send;

/// Where jobs wait for a worker, and idle workers wait for a job.
struct Scheduler<J> {
    state: Mutex<State<J>>,
    job: Notify,
    done: Notify,
    /// Number of the runtime's threads. More computing workers than threads are of no use.
    threads: usize,
}

struct State<J> {
    jobs: VecDeque<J>,
    /// Number of idle workers that have not been called yet.
    waiting: usize,
    /// Number of called workers that have not arrived yet.
    called: usize,
    /// Number of workers that take job after job, and whose current job has never been pending.
    running: usize,
    /// Number of jobs handed over and not done.
    open: usize,
    /// Number of workers that have not ended.
    alive: usize,
    /// True if a caller waits for a job to end. Otherwise the end of a job wakes nobody.
    watched: bool,
    /// True if a worker has taken a job since the last check.
    taken: bool,
}

impl<J> State<J> {
    /// Returns true if jobs wait that another worker could be called for. If no worker is idle, jobs wait for a place, not for a
    /// call.
    fn some_wait(&self) -> bool {
        self.waiting > 0 && self.jobs.len() > self.called
    }

    /// Returns true if one more worker must be spawned: each job has its own worker, so that all jobs may be pending at once.
    /// Counts the new worker as called, because it takes a job by itself.
    fn lacks_one(&mut self, most: usize) -> bool {
        let lacks = self.alive < self.open.min(most);
        self.alive += usize::from(lacks);
        self.called += usize::from(lacks);
        lacks
    }
}

impl<J: Send + 'static> Workers<J> {
    /// Creates workers that do their jobs with `work`. Needs a runtime.
    pub(crate) fn new<W, F>(most: usize, work: W) -> Self
    where
        W: Fn(J) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let state = State {
            jobs: VecDeque::new(),
            waiting: 0,
            called: 0,
            running: 0,
            open: 0,
            alive: 0,
            watched: false,
            taken: false,
        };
        let threads = Handle::current().metrics().num_workers();
        let scheduler =
            Scheduler { state: Mutex::new(state), job: Notify::new(), done: Notify::new(), threads };
        let spawn = move |tasks: &mut JoinSet<()>, scheduler: &Arc<Scheduler<J>>| {
            tasks.spawn(worker(Arc::clone(scheduler), work.clone()));
        };
        Self {
            scheduler: Arc::new(scheduler),
            tasks: JoinSet::new(),
            spawn: Box::new(spawn),
            most,
            stall_timer: Box::pin(sleep(STALL_TIMEOUT)),
            stall_timer_runs: false,
        }
    }

    /// Returns the number of jobs that are not done.
    pub(crate) fn open(&self) -> usize {
        self.scheduler.state().open
    }

    /// Returns how many more jobs may be handed over, so that at most `most` are open. If none,
    /// [`changed`](Self::changed) resolves when one is done.
    pub(crate) fn room(&self, most: usize) -> usize {
        let mut state = self.scheduler.state();
        let room = most.min(self.most).saturating_sub(state.open);
        state.watched = room == 0;
        room
    }

    /// Hands over a job; requires room for it. Call [`call`](Self::call) after the last of several jobs handed over together.
    pub(crate) fn hand(&mut self, job: J) {
        let spawn = {
            let mut state = self.scheduler.state();
            state.jobs.push_back(job);
            state.open += 1;
            state.lacks_one(self.most)
        };
        if spawn {
            (self.spawn)(&mut self.tasks, &self.scheduler);
        }
    }

    /// Wakes a worker for the jobs that were handed over.
    pub(crate) fn call(&mut self) {
        let some_wait = {
            let mut state = self.scheduler.state();
            self.scheduler.call_one(&mut state);
            state.some_wait()
        };
        if some_wait && !self.stall_timer_runs {
            self.start_stall_timer();
        }
    }

    /// Resolves when a job that is waited for is done, or when a worker ended, which only a panic or an abort causes. Cancel
    /// safe.
    pub(crate) async fn changed(&mut self, ended: impl FnOnce(Result<(), JoinError>)) {
        loop {
            tokio::select! {
                () = self.scheduler.done.notified() => return,
                Some(task) = self.tasks.join_next() => {
                    if task.as_ref().is_err_and(JoinError::is_panic) {
                        self.replace();
                    }
                    return ended(task);
                }
                () = &mut self.stall_timer, if self.stall_timer_runs => self.on_stall_timer(),
            }
        }
    }

    /// Resolves when all jobs are done. Cancel safe.
    pub(crate) async fn all_done(&mut self, mut ended: impl FnMut(Result<(), JoinError>)) {
        self.call();
        // `room(1)` is 0 while any job is open, and makes `changed` report the end of every job.
        while self.room(1) == 0 {
            self.changed(&mut ended).await;
        }
    }

    /// Drops running jobs at their next await.
    pub(crate) fn abort_all(&mut self) {
        self.tasks.abort_all();
    }

    /// Aborts all workers. Resolves when they are gone, with everything that they share. Cancel safe.
    pub(crate) async fn all_gone(&mut self) {
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
    }

    /// Spawns a worker in place of one that panicked: otherwise, with all places taken, no worker might be left for a waiting
    /// job.
    fn replace(&mut self) {
        let spawn = self.scheduler.state().lacks_one(self.most);
        if spawn {
            (self.spawn)(&mut self.tasks, &self.scheduler);
        }
    }

    fn on_stall_timer(&mut self) {
        let some_wait = {
            let mut state = self.scheduler.state();
            if std::mem::take(&mut state.taken) {
                self.scheduler.call_one(&mut state);
            } else {
                self.scheduler.call_another(&mut state);
            }
            state.some_wait()
        };
        self.stall_timer_runs = false;
        if some_wait {
            self.start_stall_timer();
        }
    }

    fn start_stall_timer(&mut self) {
        self.stall_timer_runs = true;
        self.stall_timer.as_mut().reset(Instant::now() + STALL_TIMEOUT);
    }
}

async fn worker<J, W, F>(scheduler: Arc<Scheduler<J>>, work: W)
where
    W: Fn(J) -> F,
    F: Future<Output = ()>,
{
    // A spawned worker counts as called.
    let mut open = None;
    let mut called = true;
    loop {
        let (job, place) = scheduler.next(open.take(), called).await;
        called = false;
        let place = open.insert(place);
        let mut working = pin!(work(job));
        poll_fn(|cx| {
            let poll = working.as_mut().poll(cx);
            if poll.is_pending() {
                place.waits();
            }
            poll
        })
        .await;
        // Yields to other tasks of this thread from time to time, however many jobs wait.
        tokio::task::consume_budget().await;
    }
}

impl<J> Scheduler<J> {
    /// Ends the previous job if `done` holds it, and returns the next job.
    async fn next<'a>(&'a self, done: Option<Open<'a, J>>, mut called: bool) -> (J, Open<'a, J>) {
        let mut done = done;
        loop {
            let mut call = pin!(None);
            let (job, watched) = {
                let mut state = self.state();
                state.called -= usize::from(called);
                let watched = done.take().is_some_and(|open| open.end(&mut state));
                let job = state.jobs.pop_front();
                if job.is_some() {
                    state.running += 1;
                    state.taken = true;
                } else {
                    state.waiting += 1;
                    // `Notify` coalesces permits: register before waiting, or one of two workers that are woken at once never
                    // hears of it.
                    call.set(Some(self.job.notified()));
                    if let Some(call) = call.as_mut().as_pin_mut() {
                        call.enable();
                    }
                }
                (job, watched)
            };
            if watched {
                self.done.notify_one();
            }
            if let Some(job) = job {
                return (job, Open { scheduler: self, running: true });
            }
            if let Some(call) = call.as_pin_mut() {
                call.await;
            }
            called = true;
        }
    }

    /// Calls a worker for the waiting jobs, unless one is coming or enough are running.
    fn call_one(&self, state: &mut State<J>) {
        if state.called == 0 && state.running < self.threads {
            self.call_another(state);
        }
    }

    fn call_another(&self, state: &mut State<J>) {
        if state.waiting > 0 && !state.jobs.is_empty() {
            state.waiting -= 1;
            state.called += 1;
            // The worker that went idle last: its data is still in the cache.
            self.job.notify_last();
        }
    }

    fn state(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock()
    }
}

/// A job in progress; also dropped if the job panics or is aborted.
struct Open<'a, J> {
    scheduler: &'a Scheduler<J>,
    running: bool,
}

impl<J> Open<'_, J> {
    /// Marks the job as pending: other workers may run meanwhile.
    fn waits(&mut self) {
        if std::mem::take(&mut self.running) {
            let mut state = self.scheduler.state();
            state.running -= 1;
            self.scheduler.call_one(&mut state);
        }
    }

    /// Ends the job. Returns true if a caller waits for that.
    fn end(self, state: &mut State<J>) -> bool {
        state.open -= 1;
        state.running -= usize::from(self.running);
        std::mem::forget(self);
        state.watched
    }
}

impl<J> Drop for Open<'_, J> {
    fn drop(&mut self) {
        let watched = {
            let mut state = self.scheduler.state();
            state.open -= 1;
            state.running -= usize::from(self.running);
            // The worker ends with its job.
            state.alive -= 1;
            self.scheduler.call_one(&mut state);
            state.watched
        };
        if watched {
            self.scheduler.done.notify_one();
        }
    }
}

#[cfg(test)]
#[path = "workers_tests.rs"]
mod tests;
