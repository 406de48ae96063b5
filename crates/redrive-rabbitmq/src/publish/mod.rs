//! Copies, stored for good: persistent, mandatory, confirmed.
//!
//! | module | is |
//! |---|---|
//! | [`waiting`] | what waits to be sent, and which of it goes together |
//! | [`lane`] | the tasks that carry one batch after the other |
//! | [`channels`] | what they are carried on |
//! | [`batch`] | one batch: sent, and what became of it |
//! | [`size`] | what fits a frame |

mod batch;
mod channels;
mod lane;
mod size;
mod waiting;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redrive_core::{Message, TransportError, TransportErrorKind};
use tokio::sync::oneshot;

pub(crate) use batch::Answer;
use channels::Channels;
pub(crate) use size::max_header_bytes;
use waiting::Waiting;

use crate::connection::{Link, within_unblocked};
use crate::convert;
use crate::delay::Way;

/// Publishes on a pool of channels, one batch at a time on each: what comes in while a batch waits for its answers goes
/// with the next. Each batch is carried by a task of its own, so that nobody is harmed by a caller that goes away.
#[derive(Debug)]
pub(crate) struct PublishPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    channels: Channels,
    waiting: Mutex<Waiting<Job>>,
    confirm_timeout: Duration,
}

/// A message to be published, and who waits for the answer.
#[derive(Debug)]
struct Job {
    message: Message,
    persistent: bool,
    answer: oneshot::Sender<Result<Answer, TransportError>>,
}

/// Whether the time in which the broker takes no messages counts towards the time for a confirm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AlarmTime {
    /// For a consumer's copy: given up during an alarm it would be tried again, and stored twice when that is over. Meanwhile
    /// its original is safe.
    DoesNotCount,
    /// For somebody who waits for the answer.
    Counts,
}

impl PublishPool {
    pub(crate) fn new(link: Link, channels: usize, confirm_timeout: Duration) -> Self {
        let channels = Channels::new(link, channels);
        Self { shared: Arc::new(Shared { channels, waiting: Mutex::default(), confirm_timeout }) }
    }

    pub(crate) fn link(&self) -> &Link {
        self.shared.channels.link()
    }

    /// Publishes one message and waits for the broker's answer. An error means that it is not known whether it was
    /// stored, or that it certainly was not.
    pub(crate) async fn publish(
        &self,
        way: &Way,
        message: Message,
        persistent: bool,
        alarm_time: AlarmTime,
    ) -> Result<Answer, TransportError> {
        let shared = &self.shared;
        convert::check_short(&way.exchange, "the name of an exchange")?;
        convert::check_short(&way.routing_key, "a routing key")?;
        let message = convert::for_publishing(message, &self.link().user());
        let bytes = message.body().len();
        let (answer, answered) = oneshot::channel();
        if shared.waiting().push(way, bytes, Job { message, persistent, answer }) {
            tokio::spawn(lane::run(Arc::clone(shared), way.clone()));
        }
        // Asked in any case: it answers those who wait behind what is on its way.
        let blocked = || shared.is_blocked() && alarm_time == AlarmTime::DoesNotCount;
        match within_unblocked(shared.confirm_timeout, blocked, answered).await {
            Some(Ok(answer)) => answer,
            // Nobody carries it: the lane broke, or its runtime ended.
            Some(Err(_)) => Err(not_stored(format!("the copy for `{way}` was given up unanswered"))),
            None => Err(shared.too_late(way)),
        }
    }

    pub(crate) async fn close(&self) {
        self.shared.channels.close().await;
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting<Job>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True while the broker takes no messages. What waits for a lane is then refused, as what comes now is: a lane may be
    /// busy until the alarm is over.
    fn is_blocked(&self) -> bool {
        let blocked = self.channels.link().is_blocked();
        if blocked {
            self.waiting().take_all().into_iter().for_each(|job| job.answer(Err(blocked_by_the_broker())));
        }
        blocked
    }

    fn too_late(&self, way: &Way) -> TransportError {
        let within = humantime::format_duration(self.confirm_timeout);
        let alarm = match self.is_blocked() {
            true => "its memory or disk is full, and it may still store it when that is over",
            false => "it may have stored it all the same",
        };
        not_stored(format!("RabbitMQ did not confirm the message for `{way}` within {within}: {alarm}"))
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

fn blocked_by_the_broker() -> TransportError {
    not_stored("RabbitMQ takes no messages: its memory or disk is full".to_owned())
}

fn not_stored(message: String) -> TransportError {
    TransportError::new(TransportErrorKind::NotStored, message)
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
        let publisher = PublishPool::new(link, 1, Duration::from_millis(20));
        let way = Way::queue("orders");
        for _ in 0..5 {
            let answer = publisher.publish(&way, Message::new("x"), true, AlarmTime::Counts).await;
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), TransportErrorKind::NotStored);
            assert!(error.to_string().contains("may have stored it"), "{error}");
        }
        let ended = async {
            while Arc::strong_count(&publisher.shared) > 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), ended).await.expect("the lane goes on for nobody");
        assert!(publisher.shared.waiting().is_empty());
    }

    #[tokio::test]
    async fn a_name_that_no_frame_can_carry_is_refused_before_anything_is_tried() {
        let address = Address::parse("amqp://127.0.0.1:1", |_| None).unwrap();
        let link = Link::new(Role::Publishing, &ConnectionOptions::default(), address);
        let publisher = PublishPool::new(link, 1, Duration::from_secs(60));
        let way = Way::queue("q".repeat(256));
        let answer = publisher.publish(&way, Message::new("x"), true, AlarmTime::Counts).await;
        assert_eq!(answer.unwrap_err().kind(), TransportErrorKind::TooLarge);
    }
}
