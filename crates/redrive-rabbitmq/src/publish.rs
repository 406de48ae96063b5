//! Copies, stored for good: persistent, mandatory, confirmed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lapin::options::ConfirmSelectOptions;
use lapin::{BasicProperties, Channel};
use redrive_core::{Message, TransportError, TransportErrorKind};
use tokio::sync::{Semaphore, oneshot};

use crate::batch;
pub(crate) use crate::batch::Answer;
use crate::connection::{Backoff, Link, Live, answered, within_unblocked};
use crate::convert;
use crate::error;
use crate::lanes::{Route, Waiting};

/// Publishes on a pool of channels, one batch at a time on each: what comes in while a batch waits for its answers goes
/// with the next. Each batch is carried by a task of its own, so that nobody is harmed by a caller that goes away.
#[derive(Debug)]
pub(crate) struct Publisher {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    link: Link,
    permits: Semaphore,
    idle: Mutex<Vec<Slot>>,
    waiting: Mutex<Waiting<Job>>,
    /// One lane at a time tries to connect; the others have what it gets.
    connecting: tokio::sync::Mutex<()>,
    confirm_timeout: Duration,
}

/// A channel in confirm mode with nothing on its route.
#[derive(Debug)]
struct Slot {
    channel: Channel,
    epoch: u64,
}

/// A message to be published, and who waits for the answer.
#[derive(Debug)]
struct Job {
    message: Message,
    persistent: bool,
    /// As long as it was not sent.
    properties: Option<BasicProperties>,
    answer: oneshot::Sender<Result<Answer, TransportError>>,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) exchange: &'a str,
    pub(crate) routing_key: &'a str,
}

impl Publisher {
    pub(crate) fn new(link: Link, channels: usize, confirm_timeout: Duration) -> Self {
        let permits = Semaphore::new(channels.min(Semaphore::MAX_PERMITS));
        let shared = Shared {
            link,
            permits,
            idle: Mutex::default(),
            waiting: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            confirm_timeout,
        };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.shared.link
    }

    /// Publishes one message and waits for the broker's answer. An error means that it is not known whether it was
    /// stored, or that it certainly was not.
    pub(crate) async fn publish(
        &self,
        target: Target<'_>,
        message: Message,
        persistent: bool,
    ) -> Result<Answer, TransportError> {
        let shared = &self.shared;
        let message = convert::for_publishing(message, &shared.link.user());
        let properties = Some(convert::properties(&message, persistent)?);
        let route = Route {
            exchange: convert::short(target.exchange, "the name of an exchange")?,
            routing_key: convert::short(target.routing_key, "a routing key")?,
        };
        let bytes = message.body().len();
        let (answer, answered) = oneshot::channel();
        let job = Job { message, persistent, properties, answer };
        if shared.waiting().push(&route, bytes, job) {
            tokio::spawn(run_lane(Arc::clone(shared), route.clone()));
        }
        match within_unblocked(shared.confirm_timeout, || shared.link.is_blocked(), answered).await {
            Some(Ok(answer)) => answer,
            // Nobody carries it: the lane broke, or its runtime ended.
            Some(Err(_)) => {
                Err(not_stored(format!("the copy for `{}` was given up unanswered", route.shown())))
            }
            None => Err(shared.too_late(&route)),
        }
    }

    pub(crate) async fn close(&self) {
        self.shared.permits.close();
        self.shared.idle().clear();
        self.shared.link.close().await;
    }
}

/// Carries batches for one target until nothing waits.
async fn run_lane(shared: Arc<Shared>, route: Route) {
    let mut lane = Lane { shared: &shared, route: &route, ended: false };
    loop {
        // First the channel, then the batch: what comes in until then goes along.
        let permit = shared.permits.acquire().await;
        let jobs = shared.waiting().next(&route);
        if jobs.is_empty() {
            lane.ended = true;
            return;
        }
        match permit {
            Ok(_permit) => shared.carry(&route, jobs).await,
            Err(_) => give_up(jobs, error::closed),
        }
    }
}

/// Whatever ends a lane: nobody waits for ever.
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
        jobs.retain(Job::is_waited_for);
        if jobs.is_empty() {
            return;
        }
        let Err((jobs, ended)) = self.publish(route, jobs).await else { return };
        // One of them made the broker close the channel, and which is not told. Each for itself they have an answer of
        // their own; what had been stored already is stored twice.
        if jobs.len() > 1 && is_about_one_message(&ended) {
            for job in jobs {
                if let Err((jobs, ended)) = self.publish(route, vec![job]).await {
                    give_up(jobs, || error::publishing(&route.shown(), ended.clone()));
                }
            }
        } else {
            give_up(jobs, || error::publishing(&route.shown(), ended.clone()));
        }
    }

    /// Publishes them together. An error gives back those that have no answer, because the channel ended.
    async fn publish(&self, route: &Route, mut jobs: Vec<Job>) -> Result<(), (Vec<Job>, lapin::Error)> {
        let (live, slot) = match self.ready(&jobs).await {
            Ok((live, slot)) => {
                jobs = fitting(jobs, live.frame_max());
                (live, slot)
            }
            Err(error) => {
                let kind = error.kind();
                give_up(jobs, || TransportError::new(kind, error.to_string()));
                return Ok(());
            }
        };
        if jobs.is_empty() {
            self.put_back(slot);
            return Ok(());
        }
        let copies: Vec<_> = jobs
            .iter_mut()
            .map(|job| {
                let properties = job.properties.take();
                (&job.message, properties.unwrap_or_default())
            })
            .collect();
        // From here on the slot is gone when anything ends early: with an answer still to come it is of no use.
        // What is on its way when an alarm begins is stored when it ends: given up before, it would be stored twice.
        let publishing = batch::publish(&slot.channel, route, copies);
        match within_unblocked(self.confirm_timeout, || live.is_blocked(), publishing).await {
            Some(Ok(answers)) => {
                self.put_back(slot);
                for (job, answer) in jobs.into_iter().zip(answers) {
                    job.answer(Ok(answer));
                }
                Ok(())
            }
            None => {
                give_up(jobs, || self.too_late(route));
                Ok(())
            }
            Some(Err(error)) => Err((jobs, error)),
        }
    }

    /// A channel to publish on, now.
    async fn ready(&self, jobs: &[Job]) -> Result<(Arc<Live>, Slot), TransportError> {
        let live = self.connected(jobs).await?;
        if live.is_blocked() {
            return Err(not_stored("RabbitMQ takes no messages: its memory or disk is full".to_owned()));
        }
        let slot = self.slot(&live).await?;
        Ok((live, slot))
    }

    /// The publishing connection, however often it must be tried, as long as anybody waits: a lane that went on without
    /// would outlive the transport, and keep all that comes in meanwhile.
    async fn connected(&self, jobs: &[Job]) -> Result<Arc<Live>, TransportError> {
        let _one_at_a_time = self.connecting.lock().await;
        let mut backoff = Backoff::default();
        loop {
            match self.link.live().await {
                Ok(live) => return Ok(live),
                Err(error) if error.kind() == TransportErrorKind::Closed => return Err(error),
                Err(error) if !jobs.iter().any(Job::is_waited_for) => return Err(error),
                Err(error) => {
                    let pause = backoff.next();
                    tracing::warn!(%error, ?pause, "cannot publish, trying again");
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn slot(&self, live: &Live) -> Result<Slot, TransportError> {
        let usable = |slot: &Slot| slot.epoch == live.epoch && slot.channel.status().connected();
        while let Some(slot) = self.idle().pop() {
            if usable(&slot) {
                return Ok(slot);
            }
        }
        let not_stored = |error| error::publishing("a channel to publish on", error);
        let channel = live.channel().await.map_err(|error| {
            TransportError::new(TransportErrorKind::NotStored, error.to_string()).with_source(error)
        })?;
        answered(&channel, channel.confirm_select(ConfirmSelectOptions::default()))
            .await
            .map_err(not_stored)?;
        Ok(Slot { channel, epoch: live.epoch })
    }

    fn put_back(&self, slot: Slot) {
        if slot.channel.status().connected() {
            self.idle().push(slot);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Slot>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<Job>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn too_late(&self, route: &Route) -> TransportError {
        let within = humantime::format_duration(self.confirm_timeout);
        not_stored(format!("RabbitMQ did not confirm the copy for `{}` within {within}", route.shown()))
    }
}

impl Job {
    fn is_waited_for(&self) -> bool {
        !self.answer.is_closed()
    }

    fn answer(self, answer: Result<Answer, TransportError>) {
        // Who no longer waits does not want to know.
        let _ = self.answer.send(answer);
    }
}

fn give_up(jobs: Vec<Job>, why: impl Fn() -> TransportError) {
    for job in jobs {
        job.answer(Err(why()));
    }
}

/// Those that somebody waits for and that fit a frame, ready to be sent.
fn fitting(jobs: Vec<Job>, frame_max: u32) -> Vec<Job> {
    let ready = |mut job: Job| {
        if !job.is_waited_for() {
            return None;
        }
        let fits = check_size(&job.message, frame_max).and_then(|()| match job.properties {
            Some(_) => Ok(()),
            None => convert::properties(&job.message, job.persistent)
                .map(|properties| job.properties = Some(properties)),
        });
        match fits {
            Ok(()) => Some(job),
            Err(error) => {
                job.answer(Err(error));
                None
            }
        }
    };
    jobs.into_iter().filter_map(ready).collect()
}

/// True when the broker closed the channel over what one message is: others may go.
fn is_about_one_message(error: &lapin::Error) -> bool {
    error::refusal(error).is_some_and(|(code, _)| code == 406)
}

fn not_stored(message: String) -> TransportError {
    TransportError::new(TransportErrorKind::NotStored, message)
}

/// How many bytes properties and headers of a copy may take: they must fit one frame, and the broker adds to them
/// later, unchecked.
pub(crate) fn max_header_bytes(frame_max: u32) -> Option<usize> {
    const ADDED_LATER: u32 = 16 * 1024;
    match frame_max {
        0 => None,
        small if small < 2 * ADDED_LATER => Some(small as usize / 2),
        usual => Some((usual - ADDED_LATER) as usize),
    }
}

/// The client library does not look: a header that is too large would end the connection, and everything on it.
fn check_size(message: &Message, frame_max: u32) -> Result<(), TransportError> {
    let (size, Some(most)) = (message.encoded_header_len(), max_header_bytes(frame_max)) else {
        return Ok(());
    };
    if size <= most {
        return Ok(());
    }
    let message = format!("the headers take {size} bytes, and a frame of RabbitMQ has room for {most}");
    Err(TransportError::new(TransportErrorKind::TooLarge, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use crate::connection::Role;
    use crate::options::ConnectionOptions;

    #[tokio::test]
    async fn nothing_is_carried_on_for_those_who_gave_up() {
        // Nobody listens there.
        let address = Address::parse("amqp://127.0.0.1:1", |_| None).unwrap();
        let link = Link::new(Role::Publishing, &ConnectionOptions::default(), address);
        let publisher = Publisher::new(link, 1, Duration::from_millis(20));
        let target = Target { exchange: "", routing_key: "orders" };
        for _ in 0..5 {
            let answer = publisher.publish(target, Message::new("x"), true).await;
            assert_eq!(answer.unwrap_err().kind(), TransportErrorKind::NotStored);
        }
        let ended = async {
            while Arc::strong_count(&publisher.shared) > 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), ended).await.expect("the lane goes on for nobody");
        assert!(publisher.shared.waiting().is_empty());
    }

    #[test]
    fn there_is_room_for_what_the_broker_adds() {
        assert_eq!(max_header_bytes(131_072), Some(114_688));
        assert_eq!(max_header_bytes(8192), Some(4096));
        assert_eq!(max_header_bytes(0), None);
    }

    #[test]
    fn headers_that_fit_no_frame_are_refused() {
        let message = Message::new("x").with_header("large", "l".repeat(200_000));
        assert_eq!(check_size(&message, 131_072).unwrap_err().kind(), TransportErrorKind::TooLarge);
        assert!(check_size(&Message::new("x"), 131_072).is_ok());
    }
}
