//! The tasks that handle deliveries. They stay: a new task for every delivery would cost more than a quick handler, and
//! all of them in one task would wait for each other when a handler computes or blocks.
//!
//! To call a worker costs more than a quick handler too. So one that is done goes on with the next job, and for many jobs
//! that come at once one worker is called, not as many. Nobody waits for another's job because of that: a worker whose
//! job waits for something calls the next one; as long as fewer are at it than there are threads, every batch calls one
//! more; and the [`watch`](Workers::changed) calls another when none is done within [`PATIENCE`].

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, Sleep, sleep};

/// Jobs that wait this long while workers compute or block get one more worker.
const PATIENCE: Duration = Duration::from_millis(2);

/// At most so many deliveries in hand, each with a task of its own while it is.
pub(crate) struct Workers<J> {
    hall: Arc<Hall<J>>,
    tasks: JoinSet<()>,
    engage: Box<Engage<J>>,
    most: usize,
    /// When it is looked whether jobs wait too long; while `watching`.
    look: Pin<Box<Sleep>>,
    watching: bool,
}

/// Engages one more worker.
type Engage<J> = dyn Fn(&mut JoinSet<()>, &Arc<Hall<J>>) + Send;

/// Where jobs wait for a worker, and workers for a job.
struct Hall<J> {
    state: Mutex<State<J>>,
    job: Notify,
    done: Notify,
    /// Of the runtime. More workers that compute are of no use.
    threads: usize,
}

struct State<J> {
    jobs: VecDeque<J>,
    /// Workers that nobody has called yet.
    waiting: usize,
    /// Workers that were called, and did not come yet.
    called: usize,
    /// Workers that take one job after the other: none of them has had to wait for something within its job.
    at_it: usize,
    /// Jobs that were handed over and are not done.
    open: usize,
    /// Workers that did not come to an end.
    alive: usize,
    /// Whether somebody waits for a job to be done. Else nobody is woken for each of them.
    watched: bool,
    /// Whether a job was taken up since this was last looked at.
    taken: bool,
}

impl<J> State<J> {
    /// Whether jobs wait that another worker could be called for. Without one they wait for a place, and not for a call.
    fn some_wait(&self) -> bool {
        self.waiting > 0 && self.jobs.len() > self.called
    }

    /// Whether one more worker is to be engaged: there is one for each job, should they all have to wait for something. It is
    /// counted, and comes by itself.
    fn lacks_one(&mut self, most: usize) -> bool {
        let lacks = self.alive < self.open.min(most);
        self.alive += usize::from(lacks);
        self.called += usize::from(lacks);
        lacks
    }
}

impl<J: Send + 'static> Workers<J> {
    /// Workers that do their jobs with `work`. To be called in a runtime.
    pub(crate) fn new<W, F>(most: usize, work: W) -> Self
    where
        W: Fn(J) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let state = State {
            jobs: VecDeque::new(),
            waiting: 0,
            called: 0,
            at_it: 0,
            open: 0,
            alive: 0,
            watched: false,
            taken: false,
        };
        let threads = Handle::current().metrics().num_workers();
        let hall = Hall { state: Mutex::new(state), job: Notify::new(), done: Notify::new(), threads };
        let engage = move |tasks: &mut JoinSet<()>, hall: &Arc<Hall<J>>| {
            tasks.spawn(worker(Arc::clone(hall), work.clone()));
        };
        Self {
            hall: Arc::new(hall),
            tasks: JoinSet::new(),
            engage: Box::new(engage),
            most,
            look: Box::pin(sleep(PATIENCE)),
            watching: false,
        }
    }

    /// How many jobs are not done.
    pub(crate) fn open(&self) -> usize {
        self.hall.state().open
    }

    /// How many jobs more may be handed over, so that no more than so many are open. If none,
    /// [`changed`](Self::changed) resolves when one is done.
    pub(crate) fn room(&self, most: usize) -> usize {
        let mut state = self.hall.state();
        let room = most.min(self.most).saturating_sub(state.open);
        state.watched = room == 0;
        room
    }

    /// Hands over a job, for which there must be room. After the last of several that come together,
    /// [`call`](Self::call) is to be called.
    pub(crate) fn hand(&mut self, job: J) {
        let engage = {
            let mut state = self.hall.state();
            state.jobs.push_back(job);
            state.open += 1;
            state.lacks_one(self.most)
        };
        if engage {
            (self.engage)(&mut self.tasks, &self.hall);
        }
    }

    /// Has a worker take up the jobs that were handed over.
    pub(crate) fn call(&mut self) {
        let some_wait = {
            let mut state = self.hall.state();
            self.hall.call_one(&mut state);
            state.some_wait()
        };
        if some_wait && !self.watching {
            self.watch_on();
        }
    }

    /// Resolves when a job is done that somebody waits for, or when a worker came to an end, which is none of its duties.
    /// Cancel safe.
    pub(crate) async fn changed(&mut self, ended: impl FnOnce(Result<(), JoinError>)) {
        loop {
            tokio::select! {
                () = self.hall.done.notified() => return,
                Some(task) = self.tasks.join_next() => {
                    if task.as_ref().is_err_and(JoinError::is_panic) {
                        self.replace();
                    }
                    return ended(task);
                }
                () = &mut self.look, if self.watching => self.look_after(),
            }
        }
    }

    /// Resolves when all jobs are done. Cancel safe.
    pub(crate) async fn all_done(&mut self, mut ended: impl FnMut(Result<(), JoinError>)) {
        self.call();
        // None is as many as there is room for: every one that is done is waited for.
        while self.room(1) == 0 {
            self.changed(&mut ended).await;
        }
    }

    /// Drops what is being done, at its next await.
    pub(crate) fn abort_all(&mut self) {
        self.tasks.abort_all();
    }

    /// Sends all workers away, and resolves when they are gone, with all that they share. Cancel safe.
    pub(crate) async fn all_gone(&mut self) {
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
    }

    /// Engages another in place of one that panicked: more jobs may be open than there is room for, and nobody else comes for
    /// the one that waits.
    fn replace(&mut self) {
        let engage = self.hall.state().lacks_one(self.most);
        if engage {
            (self.engage)(&mut self.tasks, &self.hall);
        }
    }

    fn look_after(&mut self) {
        let some_wait = {
            let mut state = self.hall.state();
            if std::mem::take(&mut state.taken) {
                self.hall.call_one(&mut state);
            } else {
                self.hall.call_another(&mut state);
            }
            state.some_wait()
        };
        self.watching = false;
        if some_wait {
            self.watch_on();
        }
    }

    fn watch_on(&mut self) {
        self.watching = true;
        self.look.as_mut().reset(Instant::now() + PATIENCE);
    }
}

async fn worker<J, W, F>(hall: Arc<Hall<J>>, work: W)
where
    W: Fn(J) -> F,
    F: Future<Output = ()>,
{
    // Whoever is engaged is called.
    let mut open = None;
    let mut called = true;
    loop {
        let (job, place) = hall.next(open.take(), called).await;
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
        // However many jobs there are, others of this thread have their turn.
        tokio::task::consume_budget().await;
    }
}

impl<J> Hall<J> {
    /// The next job, after the one before is `done`.
    async fn next<'a>(&'a self, done: Option<Open<'a, J>>, mut called: bool) -> (J, Open<'a, J>) {
        let mut done = done;
        loop {
            let mut call = pin!(self.job.notified());
            let (job, watched) = {
                let mut state = self.state();
                state.called -= usize::from(called);
                let watched = done.take().is_some_and(|open| open.end(&mut state));
                let job = state.jobs.pop_front();
                if job.is_some() {
                    state.at_it += 1;
                    state.taken = true;
                } else {
                    state.waiting += 1;
                    // Whoever is counted as waiting can be called from here on. Calls to nobody become one: of two workers
                    // that were called before they listened the other would never hear of it.
                    call.as_mut().enable();
                }
                (job, watched)
            };
            if watched {
                self.done.notify_one();
            }
            if let Some(job) = job {
                return (job, Open { hall: self, at_it: true });
            }
            call.await;
            called = true;
        }
    }

    /// Calls a worker for the jobs that wait, unless one is coming or enough are at it.
    fn call_one(&self, state: &mut State<J>) {
        if state.called == 0 && state.at_it < self.threads {
            self.call_another(state);
        }
    }

    fn call_another(&self, state: &mut State<J>) {
        if state.waiting > 0 && !state.jobs.is_empty() {
            state.waiting -= 1;
            state.called += 1;
            // The one that was here last: what it needs is still at hand.
            self.job.notify_last();
        }
    }

    fn state(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job that is being done; dropped when it panics, and when it is aborted.
struct Open<'a, J> {
    hall: &'a Hall<J>,
    at_it: bool,
}

impl<J> Open<'_, J> {
    /// The job has to wait for something: others go on meanwhile.
    fn waits(&mut self) {
        if std::mem::take(&mut self.at_it) {
            let mut state = self.hall.state();
            state.at_it -= 1;
            self.hall.call_one(&mut state);
        }
    }

    /// The job is done. Answers whether somebody waits for that.
    fn end(self, state: &mut State<J>) -> bool {
        state.open -= 1;
        state.at_it -= usize::from(self.at_it);
        std::mem::forget(self);
        state.watched
    }
}

impl<J> Drop for Open<'_, J> {
    fn drop(&mut self) {
        let watched = {
            let mut state = self.hall.state();
            state.open -= 1;
            state.at_it -= usize::from(self.at_it);
            // Its worker ends with it.
            state.alive -= 1;
            self.hall.call_one(&mut state);
            state.watched
        };
        if watched {
            self.hall.done.notify_one();
        }
    }
}

#[cfg(test)]
#[path = "workers_tests.rs"]
mod tests;
