//! Publishes messages in batches: mandatory and confirmed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::{Message, TransportError, TransportErrorKind};
use redrive_transport::{BatchLimits, Lanes};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::frames::Frames;
use super::refusal;
use crate::connection::{ChannelPool, ReconnectingConnection, blocked_by_the_broker, within_unblocked};
use crate::convert::{self, Form};
use crate::delay::MAX_WAIT;
use crate::error;
use crate::frames::{Answer, CopyChannel};
use crate::topology::Route;

/// A batch has one route, so that no message waits or fails because of another queue. A route has at most two batches in progress:
/// a queue that never answers takes few channels from the others.
const LIMITS: BatchLimits = BatchLimits { lanes: 2, beside: 64, items: 256, bytes: 1024 * 1024 };

/// For how long a route is late at least: a consumer's copy is tried again every half a minute.
const LATE_FOR: Duration = Duration::from_secs(300);

/// Publishes on a pool of channels, one batch at a time on each: messages that arrive while a batch waits for its confirms go into
/// the next one. A task carries the batches of a route, so that a caller that gives up does not cancel the messages of others.
#[derive(Debug)]
pub(crate) struct PublishPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    channels: ChannelPool,
    waiting: Mutex<Lanes<Route, Job>>,
    /// Routes on which a consumer's copy got no answer in time, and none was answered since, with the time of the last one. Their copies
    /// are published one by one: a broker that stands still may store every try.
    late: Mutex<HashMap<Route, Instant>>,
    confirm_timeout: Duration,
}

/// A message to publish, with its caller.
#[derive(Debug)]
struct Job {
    message: Message,
    form: Form,
    caller: Caller,
    /// True after a batch whose channel ended without an answer to this message: the broker may have stored it.
    may_be_stored: bool,
    answer: oneshot::Sender<Result<Answer, TransportError>>,
}

/// Who publishes a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Publishes the copy of a message that stays in flight, and tries again until the copy is stored: each try may store one more.
    /// So the time of an alarm does not count towards the confirm timeout.
    Consumer,
    /// Waits for one answer.
    Other,
}

impl PublishPool {
    pub(crate) fn new(channels: ChannelPool, confirm_timeout: Duration) -> Self {
        let (waiting, late) = (Mutex::new(Lanes::new(LIMITS)), Mutex::default());
        Self { shared: Arc::new(Shared { channels, waiting, late, confirm_timeout }) }
    }

    pub(crate) fn connection(&self) -> &ReconnectingConnection {
        self.shared.channels.connection()
    }

    /// Returns the user that publishes the messages.
    pub(crate) fn user(&self) -> Arc<str> {
        self.connection().user()
    }

    pub(crate) async fn close(&self) {
        self.shared.channels.close().await;
    }

    /// Publishes one message and waits for the broker's answer. The text of an error says whether the message may be stored.
    pub(crate) async fn publish(
        &self,
        route: &Route,
        message: Message,
        form: Form,
        caller: Caller,
    ) -> Result<Answer, TransportError> {
        let shared = &self.shared;
        convert::check_short(&route.exchange, "the name of an exchange")?;
        convert::check_short(&route.routing_key, "a routing key")?;
        check_expiration(&message)?;
        let message = convert::for_publishing(message, &self.user(), form);
        let bytes = message.body().len();
        let (answer, answered) = oneshot::channel();
        if shared.waiting().push(route, bytes, Job { message, form, caller, may_be_stored: false, answer }) {
            tokio::spawn(carry_all(Arc::clone(shared), route.clone()));
        }
        // Always polled, so that `is_blocked` also answers messages that wait behind a batch.
        let blocked = || shared.is_blocked() && caller == Caller::Consumer;
        match within_unblocked(shared.confirm_timeout, blocked, answered).await {
            Some(Ok(answer)) => answer,
            // The task panicked, or its runtime ended.
            Some(Err(_)) => Err(unconfirmed(format!("the copy for `{route}` got no answer"))),
            None => {
                shared.note_late(route, caller);
                Err(shared.too_late(route))
            }
        }
    }
}

/// Carries batches of one route until none waits.
async fn carry_all(shared: Arc<Shared>, route: Route) {
    let mut lane = Lane { shared: &shared, route: &route, ended: false };
    loop {
        // First the channel, then the batch, so that messages that arrive meanwhile are included. The yield includes those of callers
        // that are about to run: a batch of one takes as long as a batch of many.
        let permit = shared.channels.permit().await;
        tokio::task::yield_now().await;
        let late = shared.late().contains_key(&route);
        let jobs = if late { shared.waiting().next_one(&route) } else { shared.waiting().next(&route) };
        if jobs.is_empty() {
            lane.ended = true;
            return;
        }
        match permit {
            Ok(_permit) => shared.carry(&route, jobs).await,
            Err(_) => give_up(jobs, &error::closed()),
        }
    }
}

/// Ends its lane if the task panics: otherwise callers would wait forever.
struct Lane<'a> {
    shared: &'a Shared,
    route: &'a Route,
    ended: bool,
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.waiting().end(self.route);
        }
    }
}

impl Shared {
    /// Gives every job of a batch its answer.
    async fn carry(&self, route: &Route, mut jobs: Vec<Job>) {
        jobs.retain(Job::is_awaited);
        if jobs.is_empty() {
            return;
        }
        let Err((jobs, ended)) = self.publish(route, jobs).await else { return };
        // One of the messages may have made the broker close the channel, and the broker does not say which. Publishes them one by one,
        // for separate answers; those that were stored already are stored twice.
        if jobs.len() > 1 && refusal::concerns_whom(&ended).may_spare_others() {
            for mut job in jobs {
                job.may_be_stored = true;
                if let Err((jobs, ended)) = self.publish(route, vec![job]).await {
                    give_up(jobs, &refusal::publishing(&route.to_string(), true, ended));
                }
            }
        } else {
            let alone = jobs.len() == 1;
            give_up(jobs, &refusal::publishing(&route.to_string(), alone, ended));
        }
    }

    /// Publishes them together. If the channel ends, returns those without an answer.
    async fn publish(&self, route: &Route, jobs: Vec<Job>) -> Result<(), (Vec<Job>, lapin::Error)> {
        let (connection, channel) = match self.channels.ready(|| jobs.iter().any(Job::is_awaited)).await {
            Ok(ready) => ready,
            Err(error) => {
                give_up(jobs, &error);
                return Ok(());
            }
        };
        let frame_max = connection.frame_max();
        let mut frames = Frames::new(channel.copies.number(), route, frame_max, jobs.len());
        let jobs = fitting(jobs, frame_max, &mut frames);
        if jobs.is_empty() {
            self.channels.put_back(channel);
            return Ok(());
        }
        // If an alarm begins during a batch, the broker stores the batch after the alarm: giving it up would store it twice.
        // If this ends early, the channel is dropped: with a pending confirm it cannot be used again.
        let publishing = publish(&channel.copies, frames);
        match within_unblocked(self.confirm_timeout, || connection.is_blocked(), publishing).await {
            Some(Ok(answers)) => {
                self.late().remove(route);
                if answers.contains(&Answer::Refused) {
                    self.channels.put_back_refused(channel);
                } else {
                    self.channels.put_back(channel);
                }
                for (job, answer) in jobs.into_iter().zip(answers) {
                    job.answer(Ok(answer));
                }
                Ok(())
            }
            None => {
                // Its timer may end before those of the callers.
                jobs.iter().for_each(|job| self.note_late(route, job.caller));
                give_up(jobs, &self.too_late(route));
                Ok(())
            }
            Some(Err(error)) => Err((jobs, error)),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Lanes<Route, Job>> {
        self.waiting.lock()
    }

    fn late(&self) -> MutexGuard<'_, HashMap<Route, Instant>> {
        self.late.lock()
    }

    /// Forgets routes that no copy was tried on for long: they may carry the keys of single messages.
    fn note_late(&self, route: &Route, caller: Caller) {
        if caller == Caller::Consumer {
            let remembered = self.confirm_timeout.saturating_mul(10).max(LATE_FOR);
            let mut late = self.late();
            late.retain(|_, last| last.elapsed() < remembered);
            late.insert(route.clone(), Instant::now());
        }
    }

    /// Returns true while the broker accepts no messages. Messages that wait for a channel are then refused, like new ones: the
    /// channels may be busy until the alarm is over.
    fn is_blocked(&self) -> bool {
        let blocked = self.channels.connection().is_blocked();
        if blocked {
            let waiting = self.waiting().take_all();
            give_up(waiting, &blocked_by_the_broker());
        }
        blocked
    }

    fn too_late(&self, route: &Route) -> TransportError {
        let within = humantime::format_duration(self.confirm_timeout);
        let alarm = match self.is_blocked() {
            true => "its memory or disk is full, and it may still store it when that is over",
            false => "it may have stored it all the same",
        };
        unconfirmed(format!("RabbitMQ did not confirm the message for `{route}` within {within}: {alarm}"))
    }
}

impl Job {
    fn is_awaited(&self) -> bool {
        !self.answer.is_closed()
    }

    fn answer(self, answer: Result<Answer, TransportError>) {
        use TransportErrorKind::{NotSent, Unconfirmed, Unroutable};
        // What is certain of the second try is not of the first.
        let answer = answer.map_err(|error| match error.kind() {
            NotSent | Unroutable if self.may_be_stored => error.with_kind(Unconfirmed),
            _ => error,
        });
        // An error means that nobody waits any more.
        let _ = self.answer.send(answer);
    }
}

fn give_up(jobs: Vec<Job>, why: &TransportError) {
    for job in jobs {
        job.answer(Err(why.clone()));
    }
}

/// Adds the jobs that still have a caller and fit into a frame to the frames of the batch, and returns them.
fn fitting(jobs: Vec<Job>, frame_max: u32, frames: &mut Frames) -> Vec<Job> {
    let mut fit = Vec::with_capacity(jobs.len());
    for job in jobs.into_iter().filter(Job::is_awaited) {
        let fits = convert::check_header_size(&job.message, frame_max, job.form);
        match fits.and_then(|()| frames.add(&job.message, job.form)) {
            Ok(()) => fit.push(job),
            Err(error) => job.answer(Err(error)),
        }
    }
    fit
}

/// Publishes messages and waits for all answers, in the same order. The channel has no other unconfirmed messages. After an error it has
/// ended, and the result of its messages is not known.
async fn publish(channel: &CopyChannel, frames: Frames) -> lapin::Result<Vec<Answer>> {
    let (written, pieces) = frames.finish();
    let copies = written.len();
    let answers = channel.publish(written, pieces);
    (0..copies).for_each(|_| fail_point(FailPoint::CopyHandedOver));
    let answers = answers.await?;
    for _ in answers.iter().filter(|answer| **answer == Answer::Stored) {
        fail_point(FailPoint::CopyConfirmed);
    }
    Ok(answers)
}

/// Checks an expiration that RabbitMQ would close the channel over: messages beside it would be stored twice.
fn check_expiration(message: &Message) -> Result<(), TransportError> {
    match message.properties().expiration {
        Some(expiration) if expiration > MAX_WAIT => {
            let (expiration, most) =
                (humantime::format_duration(expiration), humantime::format_duration(MAX_WAIT));
            let message = format!("an expiration of {expiration}: RabbitMQ takes {most} at most");
            Err(TransportError::new(TransportErrorKind::Unsupported, message))
        }
        _ => Ok(()),
    }
}

fn unconfirmed(message: String) -> TransportError {
    TransportError::new(TransportErrorKind::Unconfirmed, message)
}

#[cfg(test)]
mod tests {
    use redrive_contract::eventually;

    use super::*;
    use crate::connection::{Address, ConnectionOptions, Role};

    /// Creates a pool for an address where nothing listens.
    fn publisher(confirm_timeout: Duration) -> PublishPool {
        let address = Address::parse("amqp://127.0.0.1:1", |_| None).unwrap();
        let connection =
            ReconnectingConnection::new(Role::Publishing, &ConnectionOptions::default(), address);
        PublishPool::new(ChannelPool::new(connection, 1), confirm_timeout)
    }

    #[tokio::test]
    async fn nothing_is_carried_on_for_those_who_gave_up() {
        let publisher = publisher(Duration::from_millis(20));
        let route = Route::queue("orders");
        for _ in 0..5 {
            let answer = publisher.publish(&route, Message::new("x"), Form::Copy, Caller::Other).await;
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), TransportErrorKind::Unconfirmed);
            assert!(error.to_string().contains("may have stored it"), "{error}");
        }
        eventually("no task goes on", async || Arc::strong_count(&publisher.shared) == 1).await;
        assert!(publisher.shared.waiting().is_empty());
    }

    #[test]
    fn what_is_certain_of_a_second_try_is_not_of_the_first() {
        use TransportErrorKind::{NotSent, Refused, TooLarge, Unconfirmed, Unroutable};
        let answered = |may_be_stored, kind| {
            let (answer, mut answered) = oneshot::channel();
            let (message, form, caller) = (Message::new("x"), Form::Copy, Caller::Other);
            let job = Job { message, form, caller, may_be_stored, answer };
            job.answer(Err(TransportError::new(kind, "")));
            answered.try_recv().expect("an answer").unwrap_err().kind()
        };
        for kind in [NotSent, Unroutable] {
            assert_eq!((answered(false, kind), answered(true, kind)), (kind, Unconfirmed));
        }
        // The broker would have refused the first try for the same reason.
        for kind in [Refused, TooLarge] {
            assert_eq!(answered(true, kind), kind);
        }
    }

    #[tokio::test]
    async fn a_name_that_no_frame_can_carry_is_refused_before_anything_is_tried() {
        let publisher = publisher(Duration::from_secs(60));
        let route = Route::queue("q".repeat(256));
        let answer = publisher.publish(&route, Message::new("x"), Form::Copy, Caller::Other).await;
        assert_eq!(answer.unwrap_err().kind(), TransportErrorKind::TooLarge);
    }
}
