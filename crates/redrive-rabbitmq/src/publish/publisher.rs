//! The publishers of a transport: messages of the service, for the work queue or for any other target.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::future::join_all;
use redrive_core::{Message, Outgoing, Planning, Publish, Settlement, TransportError, TransportErrorKind};

use super::pool::Caller;
use super::store::{is_missing, stored};
use crate::convert::{self, Form};
use crate::delay::{Delay, DelayStrategy, MAX_WAIT, whole_millis};
use crate::shared::Shared;
use crate::topology::{Part, Route};

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
/// options are declared.
async fn publish_later(shared: &Shared, message: Message, wait: Duration) -> Result<(), TransportError> {
    let copies = &shared.copies;
    let strategy = strategy(shared)?;
    let (route, message) = delayed(shared, &*strategy, message, wait)?;
    if copies.facts.knows_needs() {
        return copies.publish_declaring(&route, message, Form::Published, Caller::Other).await;
    }
    let answer = copies.publish(&route, message.clone(), Form::Published, Caller::Other).await;
    if !is_missing(&answer) {
        return stored(answer?, &route);
    }
    let is_named = |part: &Part| route.exchange.is_empty() && part.is_queue(&route.routing_key);
    let named = strategy.parts().into_iter().find(is_named);
    let Some(named) = named.filter(|_| shared.options.topology.declares_own()) else {
        return Err(copies.no_delay_queue(wait));
    };
    // The queue that the message comes back to must exist before the message waits.
    copies.queues.declare_parts(copies.queues.work_parts().into_iter().chain([named]).collect()).await?;
    copies.queues.wait_quorum_ready().await;
    copies.publish_once(&route, message, Form::Published, Caller::Other).await
}

fn strategy(shared: &Shared) -> Result<Arc<dyn DelayStrategy>, TransportError> {
    let delay = &shared.options.delay;
    if let Delay::Staged(_) = delay {
        return Err(unsupported(format!(
            "with Delay::Staged, what waits comes back through an exchange, to every queue that is bound there, and is lost \
             where none is: publish to `{}` without a delay",
            shared.queue()
        )));
    }
    let facts = &shared.facts;
    Ok(if facts.knows_needs() {
        facts.strategy()
    } else {
        delay.strategy_before_needs(&shared.plan, &shared.options.more_waits)
    })
}

/// Returns the route into a delay queue, and the message with the headers for the wait.
fn delayed(
    shared: &Shared,
    strategy: &dyn DelayStrategy,
    mut message: Message,
    wait: Duration,
) -> Result<(Route, Message), TransportError> {
    if wait > MAX_WAIT {
        return Err(unsupported("RabbitMQ holds a message back for ten years at most".to_owned()));
    }
    // An expiration would end the wait early.
    convert::expiration_as_header(&mut message);
    let mut facts = shared.facts.facts();
    facts.delays.hop_durations = Some(strategy.hops());
    let planning = Planning::new(SystemTime::now(), &facts);
    let Settlement::Reschedule { wait: hop, mut copy } = Settlement::moved(&message, wait, &planning) else {
        let message = "the headers leave no room for the time when the message is due";
        return Err(TransportError::new(TransportErrorKind::TooLarge, message));
    };
    // If no wait is named, a consumer elsewhere may have declared a delay queue for this one.
    let names = &shared.plan.names;
    let elsewhere = || strategy.hops().is_empty().then(|| Route::queue(names.rung(whole_millis(hop))));
    let route = strategy.route(hop, &mut copy).or_else(elsewhere);
    route.map(|route| (route, copy)).ok_or_else(|| shared.copies.no_delay_queue(wait))
}

fn unsupported(message: String) -> TransportError {
    TransportError::new(TransportErrorKind::Unsupported, message)
}
