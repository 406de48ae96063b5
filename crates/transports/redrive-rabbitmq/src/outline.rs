//! What the transport would do with messages that fail, without asking the broker. Pure.

use std::sync::Arc;

use redrive_core::transport::{Finding, Needs, Origin, Outline, Rest, Settlement, Unconnected};
use redrive_core::{Message, Shelf, TransportError};

use crate::delay::DelayStrategy;
use crate::facts::{ActiveNeeds, TransportFacts};
use crate::options::Options;
use crate::topology::{Names, Plan, Route};

impl Options {
    /// Creates a transport that exists only as these options, to explain (`Runner::explain`) a consumer without a broker.
    /// Uses the defaults for what only the broker knows (its version, settings by policies).
    ///
    /// ```
    /// use redrive_consumer::Consumer;
    /// use redrive_core::secs;
    /// use redrive_rabbitmq::RabbitMq;
    ///
    /// # async fn ship() {}
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let orders = RabbitMq::options("orders").unconnected()?;
    /// let plan = Consumer::new(orders).with_dead_letter_backoff([secs(1), secs(10)]).handler(ship).explain();
    /// assert!(plan.to_string().contains("`orders--retry-1000ms`"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If the options contradict each other.
    pub fn unconnected(self) -> Result<Unconnected, TransportError> {
        self.check()?;
        let plan = Arc::new(self.plan()?);
        let queue = plan.names.work.clone();
        let facts = TransportFacts::new(Arc::new(self), Arc::clone(&plan));
        Ok(Unconnected::new(queue, move |needs: &Needs| outline(&facts, &plan, &facts.prepared(needs))))
    }
}

/// Returns the outline for a transport that serves these needs.
pub(crate) fn outline(facts: &TransportFacts, plan: &Arc<Plan>, active: &ActiveNeeds) -> Outline {
    let (strategy, plan) = (active.strategy(), Arc::clone(plan));
    let caveats = strategy.caveats().into_iter().map(Finding::warning);
    let outline = Outline::new(facts.facts_for(active))
        .resting(move |settlement| rest(&plan.names, &*strategy, settlement));
    caveats.fold(outline, Outline::with)
}

/// Returns where a settlement leaves its message, and the AMQP methods that carry it out.
fn rest(names: &Names, strategy: &dyn DelayStrategy, settlement: &Settlement) -> Rest {
    let queue = |name: &str| Rest::at(format!("`{name}`"));
    match settlement {
        Settlement::Complete => queue(&names.work).by(["ack"]),
        Settlement::Release => queue(&names.work).by(["nack"]),
        Settlement::RetryInPlace { .. } => {
            Rest::at(format!("`{}`, held back by the broker", names.work)).by(["reject"])
        }
        Settlement::NativeDeadLetter => {
            Rest::at(format!("`{}`, moved by the broker", names.dead_letters)).by(["reject"])
        }
        Settlement::Shelve { shelf, .. } => queue(shelf_name(names, *shelf)).by(COPY),
        Settlement::Reschedule { wait, .. } if wait.is_zero() => queue(&names.work).by(COPY),
        Settlement::Reschedule { wait, copy } => {
            let origin = Origin::new(&*names.work, "", &*names.work);
            let route = strategy.route_from(&origin, *wait, &mut Message::clone(copy));
            let place = route
                .map_or("no delay queue holds it that long".to_owned(), |route: Route| format!("`{route}`"));
            Rest::at(place).held_for(strategy.held_for(*wait).unwrap_or(*wait)).by(COPY)
        }
    }
}

/// The copy is published and confirmed, then the original is acknowledged.
const COPY: [&str; 2] = ["publish", "ack"];

fn shelf_name(names: &Names, shelf: Shelf) -> &str {
    names.shelf(shelf).unwrap_or(&names.dead_letters)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redrive_consumer::Consumer;
    use redrive_core::plan::Case;
    use redrive_core::{DeadLetterBackoff, Exponential, RetryPlan, secs};

    use super::*;
    use crate::{Delay, Native};

    async fn ship() {}

    fn explained(options: Options) -> RetryPlan {
        let transport = options.unconnected().expect("options that fit");
        let policy = Exponential::from(secs(1)).attempts(6);
        Consumer::new(transport).with_dead_letter_backoff(policy).handler(ship).explain()
    }

    fn places(plan: &RetryPlan) -> Vec<String> {
        let transient = &plan.routes[0].courses[0];
        transient.steps.iter().map(|step| step.rests[0].place.clone()).collect()
    }

    #[test]
    fn a_ladder_rests_in_the_queue_of_each_wait() {
        let plan = explained(Options::new("orders"));
        let rungs = [1000, 2000, 4000, 8000, 16000].map(|wait| format!("`orders--retry-{wait}ms`"));
        assert_eq!(places(&plan), [&rungs[..], &["`orders--dead-letters`".to_owned()]].concat());
        let transient = &plan.routes[0].courses[0];
        assert_eq!((transient.longest(), transient.operations()), (secs(31), 12));
        assert!(plan.starts(), "{plan}");
    }

    #[test]
    fn what_a_queue_holds_longer_than_asked_counts() {
        let staged = crate::Staged::back_to("shop").stage("wait.10s", secs(10)).stage("wait.1m", secs(60));
        let plan = explained(Options::new("orders").delay(staged));
        let transient = &plan.routes[0].courses[0];
        // 1, 2, 4 and 8 s rest for 10 s, 16 s in two hops of 10 s.
        assert_eq!(transient.longest(), secs(60), "{plan}");
        assert_eq!(transient.steps[4].rests[0].times, 2, "{plan}");
    }

    #[test]
    fn the_broker_itself_holds_back_where_it_can_and_warns_of_what_it_cannot() {
        let native = Delay::from(Native::between(secs(1), secs(10)));
        let plan = explained(Options::new("orders").delay(native));
        let in_place = "`orders`, held back by the broker".to_owned();
        let places = places(&plan);
        assert_eq!(places[..2], [in_place.clone(), in_place]);
        assert!(places[2].contains("orders--retry-"), "4 s are longer than 3 s: {plan}");
        assert!(plan.findings.iter().any(|finding| finding.text.contains("longer than the 10s")), "{plan}");
    }

    #[test]
    fn a_limit_that_the_attempts_do_not_fit_is_refused() {
        let options = Options::new("orders").delivery_limit(3);
        let consumer = |options: Options| {
            let preset = DeadLetterBackoff::new([Duration::from_secs(1)]).poison_after(5);
            Consumer::new(options.unconnected().unwrap())
                .with_dead_letter_backoff(preset)
                .handler(ship)
                .explain()
        };
        let plan = consumer(options);
        assert!(!plan.starts());
        assert!(plan.to_string().contains("raise the queue's delivery limit above 5"), "{plan}");
        let plan = consumer(Options::new("orders"));
        assert!(plan.starts(), "{plan}");
        let cases: Vec<_> = plan.routes[0].courses.iter().flat_map(|course| &course.cases).collect();
        assert!(cases.contains(&&Case::Poison(6)) && cases.contains(&&Case::Redriven(3)), "{cases:?}");
    }
}
