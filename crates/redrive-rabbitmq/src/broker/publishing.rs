//! Messages that are no copies: published by the service, into the work queue or anywhere else.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redrive_core::{
    DEFAULT_HEADER_BUDGET, Message, Outgoing, Planning, Settlement, TransportError, TransportErrorKind,
};

use super::{Broker, is_missing, stored};
use crate::convert;
use crate::delay::{Delay, LONGEST, Mode, Way, whole_millis};
use crate::publish::AlarmTime;
use crate::topology::{Part, Topology};

impl Broker {
    /// Publishes a message, and waits until it lies in a queue.
    pub(crate) async fn publish(&self, way: &Way, outgoing: Outgoing) -> Result<(), TransportError> {
        let Outgoing { message, wait, .. } = outgoing;
        // Persistent unless the message says otherwise.
        let persistent = message.properties().persistent.unwrap_or(true);
        let is_to_work = *way == Way::queue(self.queue());
        match (wait.is_zero(), is_to_work) {
            (true, true) => self.publish_to(way, message, persistent, AlarmTime::Counts).await,
            (true, false) => self.publish_once(way, message, persistent).await,
            (false, true) => Box::pin(self.publish_later(message, wait, persistent)).await,
            (false, false) => Err(unsupported(format!(
                "what waits comes back to the work queue `{}`, and `{way}` is another destination: take the publisher of a \
                 transport of its own",
                self.queue()
            ))),
        }
    }

    async fn publish_once(
        &self,
        way: &Way,
        message: Message,
        persistent: bool,
    ) -> Result<(), TransportError> {
        let answer = self.publisher()?.publish(way, message, persistent, AlarmTime::Counts).await?;
        stored(answer, way.shown())
    }

    /// Publishes into a delay queue. Before the start it is not known which delay queues the policies will ask for, and only
    /// those that the options name are declared.
    async fn publish_later(
        &self,
        message: Message,
        wait: Duration,
        persistent: bool,
    ) -> Result<(), TransportError> {
        let mode = self.mode_for_publishers()?;
        let (way, message) = self.delayed(&*mode, message, wait)?;
        if self.is_started() {
            return self.publish_to(&way, message, persistent, AlarmTime::Counts).await;
        }
        let answer = self.publisher()?.publish(&way, message.clone(), persistent, AlarmTime::Counts).await;
        if !is_missing(&answer) {
            return stored(answer?, way.shown());
        }
        let is_named = |part: &Part| way.exchange.is_empty() && part.is_queue(&way.routing_key);
        let named = mode.parts().into_iter().find(is_named);
        let Some(named) = named.filter(|_| self.options.topology == Topology::Declare) else {
            return Err(self.no_delay_queue(wait));
        };
        // Where the message comes back to is there before it waits.
        self.declare_parts(self.work_parts().into_iter().chain([named]).collect()).await?;
        self.until_grown_up().await;
        self.publish_once(&way, message, persistent).await
    }

    fn mode_for_publishers(&self) -> Result<Arc<dyn Mode>, TransportError> {
        let delay = &self.options.delay;
        if let Delay::Staged(_) = delay {
            return Err(unsupported(format!(
                "with Delay::Staged, what waits comes back through an exchange, to every queue that is bound there, and is lost \
                 where none is: publish to `{}` without a delay",
                self.queue()
            )));
        }
        Ok(if self.is_started() { self.mode() } else { delay.as_named(&self.plan, &self.options.more_waits) })
    }

    /// Where a message goes to wait, and what is written on it for that.
    fn delayed(
        &self,
        mode: &dyn Mode,
        mut message: Message,
        wait: Duration,
    ) -> Result<(Way, Message), TransportError> {
        if wait > LONGEST {
            return Err(unsupported("RabbitMQ holds a message back for ten years at most".to_owned()));
        }
        // In a delay queue it would end the wait early.
        convert::expiration_as_header(&mut message);
        let mut facts = self.facts();
        facts.delays.hops = Some(mode.hops());
        let planning =
            Planning { now: SystemTime::now(), facts: &facts, header_budget: DEFAULT_HEADER_BUDGET };
        let Settlement::Reschedule { wait: hop, mut copy } = Settlement::moved(&message, wait, &planning)
        else {
            let message = "the headers leave no room for the time when the message is due";
            return Err(TransportError::new(TransportErrorKind::TooLarge, message));
        };
        // Where no wait is named, a consumer elsewhere may have declared the queue of this one.
        let elsewhere =
            || mode.hops().is_empty().then(|| Way::queue(self.plan.names.rung(whole_millis(hop))));
        let way = mode.way(hop, &mut copy).or_else(elsewhere);
        way.map(|way| (way, copy)).ok_or_else(|| self.no_delay_queue(wait))
    }
}

fn unsupported(message: String) -> TransportError {
    TransportError::new(TransportErrorKind::Unsupported, message)
}
