//! The tasks that carry batches.

use std::sync::Arc;

use lapin::BasicProperties;
use redrive_core::TransportError;

use super::{Answer, Job, Shared, batch, size};
use crate::connection::within_unblocked;
use crate::convert;
use crate::delay::Way;
use crate::error;

/// Carries batches that go one way until nothing waits.
pub(super) async fn run(shared: Arc<Shared>, way: Way) {
    let mut lane = Lane { shared: &shared, way: &way, ended: false };
    loop {
        // First the channel, then the batch: what comes in until then goes along. So does what those bring who are about
        // to: a batch of one costs as much waiting as a batch of many.
        let permit = shared.channels.permit().await;
        tokio::task::yield_now().await;
        let jobs = shared.waiting().next(&way);
        if jobs.is_empty() {
            lane.ended = true;
            return;
        }
        match permit {
            Ok(_permit) => shared.carry(&way, jobs).await,
            Err(_) => give_up(jobs, error::closed),
        }
    }
}

/// Whatever ends a lane: nobody waits for ever.
struct Lane<'a> {
    shared: &'a Shared,
    way: &'a Way,
    ended: bool,
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.waiting().end(self.way);
        }
    }
}

impl Shared {
    /// Gives every job of a batch its answer.
    async fn carry(&self, way: &Way, mut jobs: Vec<Job>) {
        jobs.retain(Job::is_waited_for);
        if jobs.is_empty() {
            return;
        }
        let Err((jobs, ended)) = self.publish(way, jobs).await else { return };
        // One of them made the broker close the channel, and which is not told. Each for itself they have an answer of
        // their own; what had been stored already is stored twice.
        if jobs.len() > 1 && is_about_one_message(&ended) {
            for job in jobs {
                if let Err((jobs, ended)) = self.publish(way, vec![job]).await {
                    give_up(jobs, || error::publishing(&way.to_string(), ended.clone()));
                }
            }
        } else {
            give_up(jobs, || error::publishing(&way.to_string(), ended.clone()));
        }
    }

    /// Publishes them together. An error gives back those that have no answer, because the channel ended.
    async fn publish(&self, way: &Way, jobs: Vec<Job>) -> Result<(), (Vec<Job>, lapin::Error)> {
        let (live, slot) = match self.channels.ready(|| jobs.iter().any(Job::is_waited_for)).await {
            Ok(ready) => ready,
            Err(error) => {
                let kind = error.kind();
                give_up(jobs, || TransportError::new(kind, error.to_string()));
                return Ok(());
            }
        };
        let (jobs, properties) = fitting(jobs, live.frame_max());
        if jobs.is_empty() {
            self.channels.put_back(slot);
            return Ok(());
        }
        let copies = jobs.iter().map(|job| &job.message).zip(properties);
        // From here on the slot is gone when anything ends early: with an answer still to come it is of no use.
        // What is on its way when an alarm begins is stored when it ends: given up before, it would be stored twice.
        let publishing = batch::publish(&slot.channel, way, copies);
        match within_unblocked(self.confirm_timeout, || live.is_blocked(), publishing).await {
            Some(Ok(answers)) => {
                if answers.contains(&Answer::Refused) {
                    self.channels.put_back_refused(slot);
                } else {
                    self.channels.put_back(slot);
                }
                for (job, answer) in jobs.into_iter().zip(answers) {
                    job.answer(Ok(answer));
                }
                Ok(())
            }
            None => {
                give_up(jobs, || self.too_late(way));
                Ok(())
            }
            Some(Err(error)) => Err((jobs, error)),
        }
    }
}

fn give_up(jobs: Vec<Job>, why: impl Fn() -> TransportError) {
    for job in jobs {
        job.answer(Err(why()));
    }
}

/// Those that somebody waits for and that fit a frame, and their properties.
fn fitting(jobs: Vec<Job>, frame_max: u32) -> (Vec<Job>, Vec<BasicProperties>) {
    let mut properties = Vec::with_capacity(jobs.len());
    let mut fit = Vec::with_capacity(jobs.len());
    for job in jobs.into_iter().filter(Job::is_waited_for) {
        let fits = size::check(&job.message, frame_max);
        match fits.and_then(|()| convert::properties(&job.message, job.persistent)) {
            Ok(written) => {
                properties.push(written);
                fit.push(job);
            }
            Err(error) => job.answer(Err(error)),
        }
    }
    (fit, properties)
}

/// True when the broker closed the channel over what one message is: others may go. An end of the connection is about none of
/// them: the fault may be anybody's on it.
fn is_about_one_message(error: &lapin::Error) -> bool {
    error::refusal(error).is_some_and(|(code, _)| code == 406)
}
