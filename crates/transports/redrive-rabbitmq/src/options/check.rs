//! Checks for options that contradict each other, or that no broker could follow. Pure.

use redrive_core::{TransportError, TransportErrorKind};

use super::Options;
use crate::delay::DeadLetters;
use crate::topology::DeadLetterExchange;

/// Maximum length of a name in AMQP; the names of rungs also contain their wait.
const LONGEST_NAME: usize = 255;
const LONGEST_RUNG_SUFFIX: usize = "-315360000000ms".len();

impl Options {
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        let refuse = |message: String| Err(TransportError::new(TransportErrorKind::Unsupported, message));
        let plan = self.plan()?;
        #[cfg(feature = "management")]
        if let Some(url) = &self.management_url {
            crate::management::Management::at(url, self.connection.tls.cert_chain.as_deref())?;
        }
        let names = &plan.names;
        for name in [&names.work, &names.dead_letters, &names.parking] {
            if name.is_empty() || name.len() > LONGEST_NAME {
                return refuse(format!(
                    "`{name}` is no name for a queue: it must have 1 to {LONGEST_NAME} bytes"
                ));
            }
        }
        if names.retry_prefix.len() + LONGEST_RUNG_SUFFIX > LONGEST_NAME {
            let most = LONGEST_NAME - LONGEST_RUNG_SUFFIX;
            return refuse(format!(
                "the names of the delay queues begin with `{}`, which is too long: set a retry_prefix of at most {most} bytes",
                names.retry_prefix
            ));
        }
        if names.work == names.dead_letters
            || names.work == names.parking
            || names.dead_letters == names.parking
        {
            return refuse(format!(
                "work, dead-letter and parking queue must be three queues, but are `{}`, `{}` and `{}`",
                names.work, names.dead_letters, names.parking
            ));
        }
        for (argument, option) in [("x-queue-type", "queue_type"), ("x-delivery-limit", "delivery_limit")] {
            if self.arguments.contains_key(argument) {
                return refuse(format!(
                    "redrive must know `{argument}`, and cannot when it is an argument: set it with `{option}`"
                ));
            }
        }
        if self.dead_letter_exchange.as_ref().is_some_and(DeadLetterExchange::is_unnamed) {
            return refuse(
                "a dead-letter exchange needs a name: without one leave `dead_letter_exchange` out"
                    .to_owned(),
            );
        }
        if self.dead_letter_exchange.is_some()
            && let Some(argument) = self.arguments.keys().find(|name| name.starts_with("x-dead-letter-"))
            && argument != "x-dead-letter-strategy"
        {
            return refuse(format!(
                "`{argument}` is an argument, and `dead_letter_exchange` says where dead letters go: keep one of them"
            ));
        }
        if let Some((exchange, _)) = self.bindings.iter().find(|(exchange, _)| exchange.is_empty()) {
            return refuse(format!(
                "`{}` cannot be bound to the exchange `{exchange}`: every queue is bound to the default exchange already",
                names.work
            ));
        }
        if let Some(dead_letters) = &self.dead_letter_exchange
            && let Some((exchange, key)) =
                self.bindings.iter().find(|(exchange, key)| dead_letters.leads_to(exchange, key, &names.work))
        {
            return refuse(format!(
                "dead letters of `{}` would come back to it: it is bound to their exchange `{exchange}` with the key `{key}`; \
                 take another exchange, or another key of a direct or topic exchange",
                names.work
            ));
        }
        self.connection.check()?;
        if self.delivery_limit == Some(0) {
            return refuse(
                "a delivery limit of 0 hands each message out once: ask for at least 1".to_owned(),
            );
        }
        if self.dead_letters == DeadLetters::Broker && !self.broker_dead_letters() {
            return refuse(format!(
                "DeadLetters::Broker needs a work queue that dead-letters into `{}`, and `{}` is not known to: say \
                 `native_dead_letter(true)` if it does, by an argument or a policy",
                names.dead_letters, names.work
            ));
        }
        self.delay.contradiction(&plan, &self.more_waits).map_or(Ok(()), refuse)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_timeout_that_is_over_at_once_is_refused() {
        for options in [
            Options::new("orders").confirm_timeout(Duration::ZERO),
            Options::new("orders").connect_timeout(Duration::ZERO),
        ] {
            assert!(options.check().unwrap_err().to_string().contains("timeout of zero"));
        }
    }

    #[test]
    fn an_argument_does_not_contradict_an_option() {
        for argument in ["x-queue-type", "x-delivery-limit"] {
            let refused = Options::new("orders").argument(argument, 2_i64).check().unwrap_err();
            assert_eq!(refused.kind(), TransportErrorKind::Unsupported);
        }
        Options::new("orders").argument("x-max-length", 2_i64).check().unwrap();
    }

    #[cfg(feature = "config")]
    #[test]
    fn a_configuration_names_the_shelves_that_it_names() {
        let mut queues = redrive_core::options::ShelfQueues::default();
        queues.dead_letter_queue = Some("failed".to_owned());
        let names = Options::new("orders").shelves(queues).plan().unwrap().names;
        assert_eq!((&*names.dead_letters, &*names.parking), ("failed", "orders--parking-lot"));
        let mut queues = redrive_core::options::ShelfQueues::default();
        queues.parking_queue = Some("parked".to_owned());
        let names = Options::new("orders").dead_letter_queue("kept").shelves(queues).plan().unwrap().names;
        assert_eq!((&*names.dead_letters, &*names.parking), ("kept", "parked"));
    }

    #[test]
    fn dead_letters_go_one_way_and_exchanges_have_names() {
        for options in [
            Options::new("orders")
                .dead_letter_exchange("orders.dlx")
                .argument("x-dead-letter-exchange", "dlx"),
            Options::new("orders").dead_letter_exchange(""),
            Options::new("orders").bind("", ["orders"]),
            Options::new("orders").dead_letter_exchange("shop").bind("shop", ["orders"]),
            Options::new("orders")
                .dead_letter_exchange(DeadLetterExchange::fanout("shop"))
                .bind("shop", ["new"]),
            Options::new("orders")
                .dead_letter_exchange(DeadLetterExchange::topic("shop"))
                .bind("shop", ["#"]),
        ] {
            assert_eq!(options.check().unwrap_err().kind(), TransportErrorKind::Unsupported);
        }
        let one_exchange = DeadLetterExchange::direct("shop").key("orders.failed");
        Options::new("orders").dead_letter_exchange(one_exchange).bind("shop", ["orders"]).check().unwrap();
    }
}
