//! The publishers of a transport: messages of the service, for the work queue or for any other target.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::future::join_all;
use redrive_core::transport::{Outgoing, Publish};
use redrive_core::{Message, TransportError, TransportErrorKind};

use crate::convert::{self, Form};
use crate::copy_store::{Waiting, is_missing, stored};
use crate::delay::{Delay, MAX_WAIT, whole_millis};
use crate::publish::Caller;
use crate::shared::Shared;
use crate::topology::Route;

/// Publishes to one route, until its transport is closed.
#[derive(Debug)]
pub(crate) struct RoutePublisher {
    shared: Arc<Shared>,
    route: Route,
}

impl RoutePublisher {
    pub(crate) fn new(shared: &Arc<Shared>, route: Route) -> Self {
        Self { shared: Arc::clone(shared), route }
    }
}

#[async_trait]
impl Publish for RoutePublisher {
    fn destination(&self) -> &str {
        self.route.target()
    }

    fn to(&self, queue: &str) -> Arc<dyn Publish> {
        Arc::new(Self::new(&self.shared, Route::queue(queue)))
    }

    async fn publish(&self, messages: Vec<Outgoing>) -> Vec<Result<(), TransportError>> {
        // Published at the same time, so that the pool puts them into one batch.
        join_all(messages.into_iter().map(|message| publish(&self.shared, &self.route, message))).await
    }

    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// Publishes a message, and waits until it is in a queue.
async fn publish(shared: &Shared, route: &Route, outgoing: Outgoing) -> Result<(), TransportError> {
    let Outgoing { message, wait, .. } = outgoing;
    let is_work = *route == Route::queue(shared.queue());
    let copies = &shared.copies;
    match (wait.is_zero(), is_work) {
        (true, true) => copies.publish_declaring(route, message, Form::Published, Caller::Other).await,
        (true, false) => copies.publish_once(route, message, Form::Published, Caller::Other).await,
        (false, true) => Box::pin(publish_later(shared, message, wait)).await,
        (false, false) => Err(unsupported(format!(
            "what waits comes back to the work queue `{}`, and `{route}` is another destination: take the publisher of a \
             transport of its own",
            shared.queue()
        ))),
    }
}

/// Publishes into a delay queue. Before the transport is open the delay queues of the policies are not known: only those of the
/// options, and the spare ones.
async fn publish_later(shared: &Shared, mut message: Message, wait: Duration) -> Result<(), TransportError> {
    if let Delay::Staged(_) = &shared.options.delay {
        return Err(unsupported(format!(
            "with Delay::Staged, what waits comes back through an exchange, to every queue that is bound there, and is lost \
             where none is: publish to `{}` without a delay",
            shared.queue()
        )));
    }
    if wait > MAX_WAIT {
        return Err(unsupported("RabbitMQ holds a message back for ten years at most".to_owned()));
    }
    // An expiration would end the wait early.
    convert::expiration_as_header(&mut message);
    let copies = &shared.copies;
    let (hop, message) = copies.planned(&message, wait)?;
    let (form, caller) = (Form::Published, Caller::Other);
    if copies.facts.strategy().hops().is_empty() {
        // A consumer elsewhere may have declared a delay queue for this wait.
        let route = Route::queue(shared.plan.names.rung(whole_millis(hop)));
        let answer = copies.publish(&route, message, form, caller).await;
        return if is_missing(&answer) { Err(copies.no_delay_queue(wait)) } else { stored(answer?, &route) };
    }
    copies.store_waiting(Waiting { wait: hop, message, origin: None, form, caller }).await
}

fn unsupported(message: String) -> TransportError {
    TransportError::new(TransportErrorKind::Unsupported, message)
}
