//! Completing and giving back, many at once: whatever is asked for while the broker answers goes into the next request.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot};
use uuid::Uuid;

use crate::connection::Link;
use crate::error::{Refusal, WireError};
use crate::wire::{Disposal, DisposalKind};

/// How many messages are settled by one request.
const AT_ONCE: usize = 100;
/// How many requests are under way at once.
const UNDER_WAY: usize = 4;

/// Takes what is to be settled without properties or reasons of its own.
#[derive(Clone, Debug)]
pub(crate) struct Settler {
    jobs: mpsc::UnboundedSender<Job>,
}

#[derive(Debug)]
struct Job {
    entity: Arc<str>,
    lock: Uuid,
    complete: bool,
    /// None: nobody waits.
    done: Option<oneshot::Sender<Result<(), WireError>>>,
}

impl Settler {
    /// Starts the task that settles. It ends with the last settler.
    pub(crate) fn start(link: Arc<Link>) -> Self {
        let (jobs, queue) = mpsc::unbounded_channel();
        tokio::spawn(run(link, queue));
        Self { jobs }
    }

    /// Completes a message, and waits for the broker's word.
    pub(crate) async fn complete(&self, entity: &Arc<str>, lock: Uuid) -> Result<(), WireError> {
        self.ask(entity, lock, true).await
    }

    /// Gives a message back, counted, and waits for the broker's word.
    pub(crate) async fn give_back(&self, entity: &Arc<str>, lock: Uuid) -> Result<(), WireError> {
        self.ask(entity, lock, false).await
    }

    async fn ask(&self, entity: &Arc<str>, lock: Uuid, complete: bool) -> Result<(), WireError> {
        let (done, waits) = oneshot::channel();
        let job = Job { entity: Arc::clone(entity), lock, complete, done: Some(done) };
        let ended = || WireError::interrupted("the transport ended");
        self.jobs.send(job).map_err(|_| ended())?;
        waits.await.unwrap_or_else(|_| Err(ended()))
    }

    /// The same, with nobody waiting. May be called from any thread; where it fails, the lock runs out.
    pub(crate) fn abandon(&self, entity: &Arc<str>, lock: Uuid) {
        let _ = self.jobs.send(Job { entity: Arc::clone(entity), lock, complete: false, done: None });
    }
}

async fn run(link: Arc<Link>, mut queue: mpsc::UnboundedReceiver<Job>) {
    let under_way = Arc::new(Semaphore::new(UNDER_WAY));
    let mut jobs = Vec::new();
    loop {
        let Ok(room) = Arc::clone(&under_way).acquire_owned().await else { return };
        if queue.recv_many(&mut jobs, AT_ONCE).await == 0 {
            return;
        }
        let link = Arc::clone(&link);
        let jobs = std::mem::take(&mut jobs);
        tokio::spawn(async move {
            let mut groups: HashMap<(Arc<str>, bool), Vec<Job>> = HashMap::new();
            for job in jobs {
                groups.entry((Arc::clone(&job.entity), job.complete)).or_default().push(job);
            }
            for ((entity, complete), jobs) in groups {
                settle(&link, &entity, complete, jobs).await;
            }
            drop(room);
        });
    }
}

async fn settle(link: &Link, entity: &str, complete: bool, jobs: Vec<Job>) {
    let locks: Vec<Uuid> = jobs.iter().map(|job| job.lock).collect();
    match ask(link, entity, complete, &locks).await {
        Ok(()) => answer_all(jobs, &Ok(())),
        // One of them is lost; which one, only each by itself can tell. What was done already is lost then too: nobody acts
        // on that but by not settling it again.
        Err(error) if error.refusal == Refusal::LockLost && jobs.len() > 1 => {
            for job in jobs {
                let settled = ask(link, entity, complete, &[job.lock]).await;
                answer(job, settled);
            }
        }
        Err(error) => answer_all(jobs, &Err(error)),
    }
}

async fn ask(link: &Link, entity: &str, complete: bool, locks: &[Uuid]) -> Result<(), WireError> {
    let kind = if complete { DisposalKind::Complete } else { DisposalKind::Abandon };
    link.live().await?.settle(entity, locks, &Disposal::new(kind)).await
}

fn answer_all(jobs: Vec<Job>, settled: &Result<(), WireError>) {
    for job in jobs {
        answer(job, settled.clone());
    }
}

fn answer(job: Job, settled: Result<(), WireError>) {
    if let Some(done) = job.done {
        // Whoever asked may have stopped waiting.
        let _ = done.send(settled);
    }
}
