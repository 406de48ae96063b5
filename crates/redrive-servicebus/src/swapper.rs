//! Replacing messages by their copies, several in one transaction: whatever is asked for while the broker works at some goes
//! into the next. A transaction of one's own costs four answers of the broker for every message.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::connection::Link;
use crate::error::{Refusal, WireError};
use crate::wire::Swap;

/// How many messages are replaced in one transaction. Service Bus allows 100 in all; fewer are sooner done.
const AT_ONCE: usize = 20;
/// How many transactions are under way at once.
const UNDER_WAY: usize = 4;

/// Takes what is to be replaced.
#[derive(Clone, Debug)]
pub(crate) struct Swapper {
    jobs: mpsc::UnboundedSender<Job>,
}

#[derive(Debug)]
struct Job {
    swap: Swap,
    done: oneshot::Sender<Result<(), WireError>>,
}

impl Swapper {
    /// Starts the task that replaces. It ends with the last swapper.
    pub(crate) fn start(link: Arc<Link>) -> Self {
        let (jobs, queue) = mpsc::unbounded_channel();
        tokio::spawn(run(link, queue));
        Self { jobs }
    }

    /// Stores a copy and completes its original, both or neither, and waits for the broker's word. It is done, or not done,
    /// to its end also where nobody waits any more.
    pub(crate) async fn replace(&self, swap: Swap) -> Result<(), WireError> {
        let (done, waits) = oneshot::channel();
        let ended = || WireError::interrupted("the transport ended");
        self.jobs.send(Job { swap, done }).map_err(|_| ended())?;
        waits.await.unwrap_or_else(|_| Err(ended()))
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
            for together in groups(jobs) {
                replace(&link, together).await;
            }
            drop(room);
        });
    }
}

/// What may go into one transaction: from one place to one other. Messages of sessions go alone.
fn groups(jobs: Vec<Job>) -> Vec<Vec<Job>> {
    let mut alone = Vec::new();
    let mut together: HashMap<(String, String), Vec<Job>> = HashMap::new();
    for job in jobs {
        if job.swap.session.is_some() {
            alone.push(vec![job]);
        } else {
            together.entry((job.swap.entity.clone(), job.swap.target.clone())).or_default().push(job);
        }
    }
    alone.extend(together.into_values());
    alone
}

async fn replace(link: &Link, jobs: Vec<Job>) {
    match ask(link, jobs.iter().map(|job| job.swap.clone()).collect()).await {
        // All of it was taken back because of one of them; which one, only each by itself can tell.
        Err(error) if jobs.len() > 1 && is_of_one(&error) => {
            for job in jobs {
                let replaced = ask(link, vec![job.swap]).await;
                // Whoever asked may have stopped waiting.
                let _ = job.done.send(replaced);
            }
        }
        replaced => {
            for job in jobs {
                let _ = job.done.send(replaced.clone());
            }
        }
    }
}

/// Whether an error may be the fault of one message, and not of the connection or of the namespace.
fn is_of_one(error: &WireError) -> bool {
    !matches!(error.refusal, Refusal::Interrupted | Refusal::NoTransactions)
}

async fn ask(link: &Link, swaps: Vec<Swap>) -> Result<(), WireError> {
    link.live().await?.replace(swaps).await
}

#[cfg(test)]
mod tests {
    use fe2o3_amqp_types::messaging::{AmqpValue, Body};
    use serde_amqp::Value;
    use uuid::Uuid;

    use super::*;

    fn job(entity: &str, target: &str) -> Job {
        let swap = Swap {
            target: target.to_owned(),
            message: crate::convert::WireMessage::from(Body::Value(AmqpValue(Value::Null))),
            entity: entity.to_owned(),
            lock: Uuid::nil(),
            session: None,
        };
        Job { swap, done: oneshot::channel().0 }
    }

    #[test]
    fn only_what_goes_the_same_way_goes_together() {
        let jobs = vec![job("a", "a"), job("a", "park"), job("a", "a"), job("b", "a")];
        let mut sizes: Vec<usize> = groups(jobs).iter().map(Vec::len).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 1, 2]);
    }

    #[test]
    fn what_ended_with_the_connection_is_not_tried_one_by_one() {
        assert!(!is_of_one(&WireError::interrupted("gone")));
        assert!(is_of_one(&WireError::new(Refusal::LockLost, "one of them")));
        assert!(is_of_one(&WireError::new(Refusal::Other, "too large")));
    }
}
