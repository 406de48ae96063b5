//! The outline: what the transport does with failed messages. It is computed from the options, without asking the broker.

use redrive_core::transport::{Finding, Needs, Outline, Rest, Settlement, Unconnected};
use redrive_core::{Shelf, TransportError};

use crate::options::Options;

impl Options {
    /// Returns a transport with these options that is not connected, to explain (`Runner::explain`) a consumer
    /// without a namespace.
    ///
    /// ```
    /// use redrive_consumer::Consumer;
    /// use redrive_core::secs;
    /// use redrive_servicebus::ServiceBus;
    ///
    /// # async fn ship() {}
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let orders = ServiceBus::options("orders").unconnected()?;
    /// let plan = Consumer::new(orders).with_dead_letter_backoff([secs(1), secs(10)]).handler(ship).explain();
    /// assert!(plan.to_string().contains("`orders`, scheduled"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the options contradict each other.
    pub fn unconnected(self) -> Result<Unconnected, TransportError> {
        self.check(None)?;
        Ok(Unconnected::new(self.entity.path(), move |needs: &Needs| outline(&self, needs)))
    }
}

/// Returns the outline for a consumer with these needs.
pub(crate) fn outline(options: &Options, needs: &Needs) -> Outline {
    let of = options.clone();
    let outline = Outline::new(options.facts()).resting(move |settlement| rest(&of, settlement));
    let refused = options.unmet(needs).into_iter().map(Finding::unmet);
    refused.chain(options.warning().map(Finding::warning)).fold(outline, Outline::with)
}

/// Returns where a settlement leaves its message, and the requests that carry it out.
fn rest(options: &Options, settlement: &Settlement) -> Rest {
    let path = options.entity.path();
    let in_sessions = options.sessions.is_some();
    let dead_letters = format!("`{}`", options.entity.dead_letter_path());
    match settlement {
        Settlement::Complete => Rest::at(format!("`{path}`")).by(["complete"]),
        Settlement::Release => Rest::at(format!("`{path}`")).by(["release"]),
        Settlement::RetryInPlace { .. } => {
            Rest::at(format!("`{path}`, under its lock, which is renewed")).by(["abandon"])
        }
        Settlement::Reschedule { .. } if in_sessions => {
            Rest::at(format!("`{path}`, while its session rests")).by(["abandon"])
        }
        Settlement::Reschedule { wait, .. } => {
            let target = options.retry_target().unwrap_or("no queue: name one with `retry_queue`");
            let scheduled = if wait.is_zero() { "" } else { ", scheduled" };
            Rest::at(format!("`{target}`{scheduled}")).by(["send", "complete"])
        }
        Settlement::NativeDeadLetter => Rest::at(dead_letters).by(["dead-letter"]),
        Settlement::Shelve { shelf, .. } => {
            let parking = options.parking_queue.as_deref().filter(|_| *shelf == Shelf::Parking);
            match parking.or_else(|| options.dead_letter_target()) {
                Some(queue) => Rest::at(format!("`{queue}`")).by(["send", "complete"]),
                None if *shelf == Shelf::Parking => {
                    Rest::at(format!("{dead_letters}, marked as parked")).by(["dead-letter"])
                }
                None => Rest::at(dead_letters).by(["dead-letter"]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redrive_consumer::Consumer;
    use redrive_core::{DeadLetterBackoff, Exponential, RetryPlan, secs};

    use super::*;
    use crate::Entity;
    use crate::options::Sessions;

    async fn ship() {}

    fn explained(options: Options) -> RetryPlan {
        let policy = Exponential::from(secs(1)).attempts(6);
        let transport = options.unconnected().expect("options that fit");
        Consumer::new(transport).with_dead_letter_backoff(policy).handler(ship).explain()
    }

    fn place(plan: &RetryPlan, step: usize) -> &str {
        &plan.routes[0].courses[0].steps[step].rests[0].place
    }

    #[test]
    fn copies_are_scheduled_and_the_broker_dead_letters() {
        let plan = explained(Options::new("orders"));
        assert_eq!(place(&plan, 0), "`orders`, scheduled");
        assert_eq!(place(&plan, 5), "`orders/$DeadLetterQueue`");
        assert_eq!(plan.routes[0].courses[0].operations(), 5 * 2 + 1, "{plan}");
        assert!(plan.starts(), "{plan}");
        let back = Options::new(Entity::subscription("orders", "billing")).retry_queue("back");
        assert_eq!(place(&explained(back), 0), "`back`, scheduled");
    }

    #[test]
    fn locks_and_sessions_keep_the_message_where_it_is() {
        let plan = explained(Options::new("orders").hold_lock_up_to(secs(4)));
        assert!(place(&plan, 2).contains("under its lock"), "{plan}");
        assert_eq!(place(&plan, 3), "`orders`, scheduled", "8 s are longer");
        let plan = explained(Options::new("orders").sessions(Sessions::concurrent(1)));
        assert!(place(&plan, 4).contains("its session rests"), "{plan}");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_sentence() {
        let refused = |options: Options| {
            let preset = DeadLetterBackoff::new([Duration::from_secs(1); 4]);
            let transport = options.unconnected().unwrap();
            let plan = Consumer::new(transport).with_dead_letter_backoff(preset).handler(ship).explain();
            assert!(!plan.starts(), "{plan}");
            plan.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let in_session = Options::new("orders").sessions(Sessions::concurrent(1)).max_delivery_count(5);
        assert!(refused(in_session).contains("counts towards the entity's MaxDeliveryCount, which is 5"));
        let subscription = Options::new(Entity::subscription("orders", "billing"));
        assert!(refused(subscription).contains("name a separate queue with `Options::retry_queue`"));
    }
}
