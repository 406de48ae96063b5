//! Stores messages in the queues, and declares a queue of redrive's own if it is missing.
//!
//! | module | does |
//! |---|---|
//! | [`waiting`] | stores a message in a delay queue |

mod waiting;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redrive_core::{Message, TransportError, TransportErrorKind};

use crate::connections::ConnectionAccess;
use crate::convert::Form;
use crate::delivery_channel::DeliveryChannels;
use crate::error;
use crate::facts::TransportFacts;
use crate::frames::Answer;
use crate::prepare::QueuePreparation;
use crate::publish::Caller;
use crate::topology::{Plan, Route};
pub(crate) use waiting::Waiting;

/// Stores copies and published messages for one transport.
#[derive(Debug)]
pub(crate) struct CopyStore {
    plan: Arc<Plan>,
    pub(crate) facts: Arc<TransportFacts>,
    queues: Arc<QueuePreparation>,
    connections: Arc<ConnectionAccess>,
    deliveries: Arc<DeliveryChannels>,
    /// True once a warning told that waits are late.
    told_late: AtomicBool,
}

impl CopyStore {
    pub(crate) fn new(
        plan: Arc<Plan>,
        facts: Arc<TransportFacts>,
        queues: Arc<QueuePreparation>,
        connections: Arc<ConnectionAccess>,
        deliveries: Arc<DeliveryChannels>,
    ) -> Self {
        Self { plan, facts, queues, connections, deliveries, told_late: AtomicBool::new(false) }
    }

    /// Stores a copy: when this succeeds, the broker has confirmed it and it is in its queue.
    pub(crate) async fn store(
        &self,
        route: &Route,
        copy: Message,
        form: Form,
        caller: Caller,
    ) -> Result<(), TransportError> {
        self.queues.wait_quorum_ready(route).await;
        self.publish_declaring(route, copy, form, caller).await
    }

    /// Publishes a message, and waits until it is in a queue. Declares missing queues of redrive's own.
    pub(crate) async fn publish_declaring(
        &self,
        route: &Route,
        message: Message,
        form: Form,
        caller: Caller,
    ) -> Result<(), TransportError> {
        let since = self.queues.declarations().ended();
        let answer = self.publish(route, message.clone(), form, caller).await;
        if !(is_missing(&answer) && self.queues.declares(route)) {
            return stored(answer?, route);
        }
        // Boxed: few messages need this, and their futures should not reserve room for it.
        let kind = answer.map_or_else(|error| error.kind(), |_| TransportErrorKind::Unroutable);
        Box::pin(self.declare_and_publish(route, message, form, caller, since, kind)).await
    }

    /// `since`: the number of declarations when the message was published in vain. `kind`: of the error if it cannot be declared.
    async fn declare_and_publish(
        &self,
        route: &Route,
        message: Message,
        form: Form,
        caller: Caller,
        since: u64,
        kind: TransportErrorKind,
    ) -> Result<(), TransportError> {
        // These channels are subscribed to a work queue that is gone; later channels are not.
        let is_work = *route == Route::queue(&self.plan.names.work);
        let channels = if is_work { self.deliveries.in_use() } else { Vec::new() };
        let declaring = self.queues.declare_missing(route);
        let declared = self.queues.declarations().share(route, since, declaring).await.map_err(|error| {
            let message = format!("the message was not stored: {error}");
            TransportError::new(kind, message).with_source(error)
        })?;
        if declared {
            // RabbitMQ 3.10 may not tell the consumer of a deleted quorum queue that is declared again immediately.
            channels.iter().for_each(|channel| channel.end());
        }
        self.queues.wait_quorum_ready(route).await;
        self.publish_once(route, message, form, caller).await
    }

    /// Publishes a message, and waits until it is in a queue. Declares nothing.
    pub(crate) async fn publish_once(
        &self,
        route: &Route,
        message: Message,
        form: Form,
        caller: Caller,
    ) -> Result<(), TransportError> {
        stored(self.publish(route, message, form, caller).await?, route)
    }

    pub(crate) async fn publish(
        &self,
        route: &Route,
        message: Message,
        form: Form,
        caller: Caller,
    ) -> Result<Answer, TransportError> {
        self.connections.publishing()?.publish(route, message, form, caller).await
    }

    pub(crate) fn no_delay_queue(&self, wait: Duration) -> TransportError {
        let message = format!(
            "no delay queue of `{}` holds a message for {}: name this wait in the consumer's retry policy, or with \
             `Options::wait`",
            self.plan.names.work,
            humantime::format_duration(wait)
        );
        TransportError::new(TransportErrorKind::Unsupported, message)
    }
}

/// Returns true if no queue or exchange exists for the message.
pub(crate) fn is_missing(answer: &Result<Answer, TransportError>) -> bool {
    match answer {
        Ok(answer) => matches!(answer, Answer::Returned(_)),
        Err(error) => error::is_missing_exchange(error),
    }
}

/// Only [`Answer::Stored`] means that the message is in the queue.
pub(crate) fn stored(answer: Answer, route: &Route) -> Result<(), TransportError> {
    let target = route.target();
    let (kind, message) = match answer {
        Answer::Stored => return Ok(()),
        Answer::Returned(text) => {
            let message = format!(
                "the message was not stored: `{target}` leads to no queue ({text}); declare the queue"
            );
            let returned = TransportError::new(TransportErrorKind::Unroutable, message);
            // Through an exchange, other routing keys may lead somewhere.
            return Err(if route.exchange.is_empty() { returned } else { returned.unclear() });
        }
        Answer::Refused => (
            TransportErrorKind::Full,
            format!(
                "the message was not stored: RabbitMQ refuses it for `{target}`; most often the queue is full"
            ),
        ),
    };
    Err(TransportError::new(kind, message))
}
