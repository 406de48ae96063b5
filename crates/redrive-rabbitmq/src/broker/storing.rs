//! Copies stored in the queues.

use std::sync::PoisonError;
use std::time::Duration;

use redrive_core::{Message, Origin, TransportError, TransportErrorKind};
use tokio::time::Instant;

use super::Broker;
use crate::delay::Way;
use crate::error;
use crate::publish::{AlarmTime, Answer};
use crate::topology::{Part, Topology};

impl Broker {
    /// Stores a copy in a queue, for good. On success it is confirmed and lies in the queue.
    pub(crate) async fn store(
        &self,
        way: &Way,
        copy: Message,
        alarm_time: AlarmTime,
    ) -> Result<(), TransportError> {
        self.until_grown_up().await;
        self.publish_to(way, copy, true, alarm_time).await
    }

    /// Publishes this way, and waits until it lies in a queue. What is ours and not there (yet, or any more) is declared,
    /// where that is ours to do.
    pub(crate) async fn publish_to(
        &self,
        way: &Way,
        message: Message,
        persistent: bool,
        alarm_time: AlarmTime,
    ) -> Result<(), TransportError> {
        let answer = self.publisher()?.publish(way, message.clone(), persistent, alarm_time).await;
        if !(is_missing(&answer) && self.is_ours_to_declare(way)) {
            return stored(answer?, way.shown());
        }
        // In a box: hardly any message needs the room.
        Box::pin(self.publish_once_declared(way, message, persistent, alarm_time)).await
    }

    async fn publish_once_declared(
        &self,
        way: &Way,
        message: Message,
        persistent: bool,
        alarm_time: AlarmTime,
    ) -> Result<(), TransportError> {
        // Those that are live now are subscribed to a queue that is gone; not those that come after.
        let sessions = if *way == Way::queue(self.queue()) { self.sessions() } else { Vec::new() };
        self.declare_again(way).await.map_err(|error| {
            let message = format!("the message was not stored: {error}");
            TransportError::new(TransportErrorKind::NotStored, message).with_source(error)
        })?;
        // RabbitMQ 3.10 may not tell the consumer of a deleted quorum queue that is declared again at once.
        sessions.iter().for_each(|session| session.end());
        self.until_grown_up().await;
        stored(self.publisher()?.publish(way, message, persistent, alarm_time).await?, way.shown())
    }

    /// Where a copy goes to be held back for `wait`; `origin` is how its original came, where that is known.
    pub(crate) fn way(
        &self,
        wait: Duration,
        copy: &mut Message,
        origin: Option<&Origin>,
    ) -> Result<Way, TransportError> {
        if wait.is_zero() {
            return Ok(Way::queue(self.queue()));
        }
        let mode = self.mode();
        let way = match origin {
            Some(origin) => mode.way_from(origin, wait, copy),
            None => mode.way(wait, copy),
        };
        way.ok_or_else(|| self.no_delay_queue(wait))
    }

    pub(super) fn no_delay_queue(&self, wait: Duration) -> TransportError {
        let message = format!(
            "no delay queue of `{}` holds a message for {}: name this wait in the consumer's retry policy, or with \
             `Options::wait`",
            self.queue(),
            humantime::format_duration(wait)
        );
        TransportError::new(TransportErrorKind::Unsupported, message)
    }

    pub(super) async fn until_grown_up(&self) {
        let young_until = *self.young_until.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(grown_up) = young_until.filter(|&grown_up| grown_up > Instant::now()) {
            // In a box: it is waited for in the first seconds only.
            Box::pin(tokio::time::sleep_until(grown_up)).await;
        }
    }

    /// True when this way leads to what redrive declares.
    fn is_ours_to_declare(&self, way: &Way) -> bool {
        let leads_here = |part: &Part| match part {
            Part::Queue(queue) => *way == Way::queue(&queue.name),
            Part::Exchange(exchange) => *way.exchange == *exchange.name,
            Part::Binding(_) => false,
        };
        let queues = self.plan.queues();
        let ours = queues.iter().any(|queue| *way == Way::queue(&queue.name));
        let mode = self.mode();
        let waiting = mode.parts().iter().any(leads_here) || mode.spare(way).is_some();
        ours && self.options.topology == Topology::Declare
            || waiting && self.options.delay.is_declared(self.options.topology)
    }
}

/// True when there was no queue to take it, or no exchange.
pub(super) fn is_missing(answer: &Result<Answer, TransportError>) -> bool {
    match answer {
        Ok(answer) => matches!(answer, Answer::Returned(_)),
        Err(error) => error::is_missing_exchange(error),
    }
}

/// Only one answer means that the message lies in the queue.
pub(crate) fn stored(answer: Answer, target: &str) -> Result<(), TransportError> {
    let (kind, message) = match answer {
        Answer::Stored => return Ok(()),
        Answer::Returned(text) => (
            TransportErrorKind::NotStored,
            format!("the message was not stored: `{target}` leads to no queue ({text}); declare the queue"),
        ),
        Answer::Refused => (
            TransportErrorKind::Full,
            format!(
                "the message was not stored: RabbitMQ refuses it for `{target}`; most often the queue is full"
            ),
        ),
    };
    Err(TransportError::new(kind, message))
}
