//! Whether every message ended as it must, whoever was killed on the way.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use redrive::rabbitmq::RabbitMq;
use redrive::shelves::Shelved;
use redrive::{Shelf, Shelves as _};

use crate::delays::Delays;
use crate::fate::{self, ATTEMPTS};
use crate::fleet::Fleet;
use crate::poll_again;
use crate::rabbit::Rabbit;
use crate::worker_log::Log;

/// How often a message may have been handed out once more than it failed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interruptions {
    /// Consumers that were killed.
    pub workers: u32,
    /// Brokers that were killed, and connections that were lost otherwise.
    pub brokers: u32,
    /// Whether each costs the messages in flight an attempt: how a message ends cannot be foretold then.
    pub charged: bool,
}

/// The figures of a run in which every message ended as it must.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Published.
    pub messages: usize,
    /// Of those, acknowledged.
    pub acknowledged: usize,
    /// Of those, on the dead-letter shelf.
    pub dead_lettered: usize,
    /// Came to their end more than once.
    pub more_than_once: usize,
    /// Came a second time and were not handled again.
    pub on_sight: u32,
    /// Acknowledged by a worker that did not live to write it down.
    pub unseen: usize,
    /// How often handlers were called.
    pub runs: u64,
    /// The most of one message.
    pub most_runs: u32,
    /// The most of one message, by the broker's count.
    pub most_hand_outs: u32,
}

/// The ids of those that neither were handled nor rest on the shelf.
#[must_use]
pub fn unended<'a>(ids: &'a [String], log: &Log, rests: &[Shelved]) -> Vec<&'a String> {
    let rests: HashSet<&str> = rests.iter().filter_map(|found| found.message.id()).collect();
    let handled = |id: &String| log.records.get(id).is_some_and(|record| record.handled > 0);
    ids.iter().filter(|id| !handled(id) && !rests.contains(id.as_str())).collect()
}

/// Waits until every message ended, by the log of the first worker, and nothing is left in work queue and delay queues; ends the workers in order, and gives
/// back what rests on the shelf.
///
/// # Panics
/// When that does not come before `deadline`.
pub async fn to_the_end(
    ids: &[String],
    workers: &mut [Fleet],
    transport: &RabbitMq,
    (queue, delays): (&str, Delays),
    url: &str,
    deadline: Instant,
) -> Vec<Shelved> {
    let shelves = transport.shelves();
    loop {
        let rests = shelves.browse(Shelf::DeadLetter, None, usize::MAX).await.unwrap_or_default().entries;
        workers[0].log.catch_up();
        let unended = unended(ids, &workers[0].log, &rests);
        if unended.is_empty() {
            // They may give something back, and duplicates may still be under way.
            for worker in workers.iter_mut() {
                worker.stop().await;
            }
            workers[0].log.catch_up();
            if is_empty(queue, delays, url).await {
                assert_eq!(shelves.count(Shelf::Parking).await.unwrap(), 0, "nothing is parked here");
                return shelves.browse(Shelf::DeadLetter, None, usize::MAX).await.unwrap().entries;
            }
            workers.iter_mut().for_each(Fleet::start);
        }
        let state =
            || format!("{} on the shelf; not ended: {unended:?}; {}", rests.len(), workers[0].state());
        // The whole shelf is browsed each time.
        poll_again(Duration::from_millis(200), deadline, state).await;
    }
}

/// Whether nothing is ready in the work queue and its delay queues.
async fn is_empty(queue: &str, delays: Delays, url: &str) -> bool {
    let rabbit = Rabbit::connect(url).await;
    for queue in delays.queues(queue).into_iter().chain([queue.to_owned()]) {
        if rabbit.ready(&queue).await.expect("the queue is there") > 0 {
            return false;
        }
    }
    true
}

/// The figures of a run.
///
/// # Panics
/// When a message is lost, or did not end as it must.
#[must_use]
pub fn judge(ids: &[String], log: &Log, shelf: &[Shelved], interruptions: Interruptions) -> Verdict {
    let charged = interruptions.charged;
    // A broker that stands still for seconds, or is just coming back, may interrupt once more.
    let interruptions = 2 * (interruptions.workers + interruptions.brokers);
    // Where the broker counts failures and interruptions together, each attempt is a delivery and may have been interrupted.
    let (most_attempts, most_hand_outs) = match charged {
        true => (ATTEMPTS + interruptions, ATTEMPTS + interruptions),
        false => (ATTEMPTS, 1 + interruptions),
    };
    let mut shelved: HashMap<&str, Vec<&Shelved>> = HashMap::new();
    for found in shelf {
        shelved.entry(found.message.id().unwrap_or_default()).or_default().push(found);
    }
    let mut verdict = Verdict {
        messages: ids.len(),
        acknowledged: 0,
        dead_lettered: 0,
        more_than_once: 0,
        on_sight: log.records.values().map(|record| record.on_sight).sum(),
        unseen: 0,
        runs: log.runs,
        most_runs: 0,
        most_hand_outs: 0,
    };
    let (mut lost, mut wrong) = (Vec::new(), Vec::new());
    for id in ids {
        let record = log.records.get(id).cloned().unwrap_or_default();
        let rests = shelved.remove(id.as_str()).unwrap_or_default();
        let ended = record.handled as usize + rests.len();
        match (ended, fate::end(id)) {
            (0, _) => lost.push(id),
            _ if charged && rests.is_empty() => verdict.acknowledged += 1,
            _ if charged => verdict.dead_lettered += 1,
            (_, None) if !rests.is_empty() => wrong.push(format!("{id} succeeds, but is on the shelf")),
            (_, None) => verdict.acknowledged += 1,
            (_, Some(reason)) => {
                verdict.dead_lettered += 1;
                let others = rests.iter().filter(|found| {
                    found.history.reason.as_ref().is_none_or(|found| found.as_str() != reason)
                        || found.history.failures() > ATTEMPTS
                });
                wrong.extend(others.map(|found| format!("{id} must end as {reason}: {:?}", found.history)));
            }
        }
        verdict.more_than_once += usize::from(ended > 1);
        verdict.unseen +=
            usize::from(rests.is_empty() && record.handled > 0 && record.acked + record.on_sight == 0);
        if record.attempt > most_attempts || (ended == 1 && record.runs > ATTEMPTS + interruptions) {
            wrong.push(format!("{id}: too many attempts: {record:?}"));
        }
        if record.handed_out > most_hand_outs {
            wrong.push(format!("{id}: handed out too often: {record:?}"));
        }
        verdict.most_runs = verdict.most_runs.max(record.runs);
        verdict.most_hand_outs = verdict.most_hand_outs.max(record.handed_out);
    }
    wrong.extend(shelved.keys().map(|id| format!("{id} was never published")));
    assert!(lost.is_empty(), "{} of {} messages are LOST: {lost:?}", lost.len(), ids.len());
    assert!(wrong.is_empty(), "{} messages did not end as they must: {wrong:#?}", wrong.len());
    verdict
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} messages, {} acknowledged ({} of them unseen), {} dead-lettered, 0 lost, {} handled to an end more than \
             once, {} deduplicated, {} runs (at most {} of one message, {ATTEMPTS} attempts allowed, handed out at \
             most {} times)",
            self.messages,
            self.acknowledged,
            self.unseen,
            self.dead_lettered,
            self.more_than_once,
            self.on_sight,
            self.runs,
            self.most_runs,
            self.most_hand_outs,
        )
    }
}
