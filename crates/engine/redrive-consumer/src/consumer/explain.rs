//! Explains what a consumer does with messages that fail.

use redrive_core::engine::Simulation;
use redrive_core::plan::Setting;
use redrive_core::transport::{Finding, Outline};
use redrive_core::{Message, RetryPlan, Transport};

use super::preflight::Preflight;
use super::{ConsumerError, Runner, Settings};

impl<T: Transport> Runner<T> {
    /// Returns what this consumer does with a message that fails: each attempt and wait, where the message rests, the ends, the
    /// limits of the broker and what does not fit them. Asks no broker, and changes nothing: an example message without body and
    /// headers fails in the consumer's own [stages](redrive_core::Stage).
    ///
    /// Layers that are no stages (`tower::timeout`, …) are left out.
    ///
    /// ```
    /// use redrive_consumer::Consumer;
    /// use redrive_core::secs;
    /// use redrive_core::transport::{Facts, Needs, Outline, Unconnected};
    ///
    /// # async fn ship() {}
    /// // In a service: RabbitMq::options("orders").unconnected()?
    /// let transport = Unconnected::new("orders", |_needs: &Needs| Outline::new(Facts::new("nats")));
    /// let plan = Consumer::new(transport).with_dead_letter_backoff([secs(1), secs(10)]).handler(ship).explain();
    ///
    /// let transient = &plan.routes[0].courses[0];
    /// assert_eq!((transient.steps.len(), transient.longest()), (3, secs(11)));
    /// println!("{plan}");
    /// ```
    #[must_use]
    pub fn explain(&self) -> RetryPlan {
        self.explain_message(&Message::new("").with_id("example"))
    }

    /// Explains this message, for stages of the service that use its headers or properties.
    #[must_use]
    pub fn explain_message(&self, message: &Message) -> RetryPlan {
        self.plan(message, &self.transport.outline(&self.settings.needs), false)
    }

    /// Compares what this consumer needs with the broker, and returns its [plan](Self::explain) with everything that is wrong,
    /// doubtful, or could not be checked. Changes nothing at the broker: nothing is declared, published or received. The consumer
    /// can be run afterwards, and checks everything again.
    ///
    /// A consumer that [starts](RetryPlan::starts) according to the plan may still be refused when it runs: the broker may change in
    /// between, and the findings name what could not be checked.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    ///
    /// If the broker cannot be asked. What it would refuse is a finding, not an error.
    pub async fn preflight(&self) -> Result<RetryPlan, ConsumerError> {
        let answer = self.transport.preflight(&self.settings.needs).await;
        let outline =
            answer.map_err(|error| ConsumerError::Start { queue: self.queue().to_owned(), error })?;
        Ok(self.plan(&Message::new("").with_id("example"), &outline, true))
    }

    fn plan(&self, message: &Message, outline: &Outline, asked: bool) -> RetryPlan {
        let (queue, settings) = (self.queue(), &self.settings);
        let preflight = Preflight::new(queue, settings, settings.ledger.is_some());
        let simulation = Simulation {
            queue,
            message,
            stages: &settings.stages,
            outline,
            needs: &settings.needs,
            longest_hold: preflight.longest_hold(&outline.facts),
            header_budget: settings.header_budget,
        };
        let mut findings = preflight.findings(&outline.facts);
        findings.extend(outline.findings.iter().cloned());
        findings.extend(unseen(settings.other_layers));
        simulation.plan(shown(settings), findings, asked)
    }
}

/// Returns the settings as the consumer applies them, defaults included.
fn shown(settings: &Settings) -> Vec<Setting> {
    let or = |value: Option<String>, none: &str| value.unwrap_or_else(|| none.to_owned());
    let time = |time| humantime::format_duration(time).to_string();
    let rate = settings.rate_limit.as_ref().map(ToString::to_string);
    let ledger = settings.ledger.as_ref().map(|path| path.display().to_string());
    let shown = [
        ("handled at once", settings.concurrency.to_string()),
        ("in flight", settings.needs.prefetch.to_string()),
        ("rate limit", or(rate, "none")),
        ("longest handling", or(settings.longest_handling.map(time), "not known")),
        ("grace at shutdown", time(settings.grace)),
        ("gives up after", or(settings.give_up_after.map(time), "never")),
        ("ledger", or(ledger, "none")),
    ];
    shown.map(|(name, value)| Setting::new(name, value)).into()
}

fn unseen(layers: usize) -> Option<Finding> {
    let are = match layers {
        0 => return None,
        1 => "1 tower layer is",
        _ => &format!("{layers} tower layers are"),
    };
    Some(Finding::unchecked(format!(
        "{are} not in this plan: errors of layers inside of the preset (a timeout) are retried as the handler's are, but retries and \
         dispositions of their own are not shown. A stage is shown: add it with `stage` or `with_dead_letter_backoff`"
    )))
}
