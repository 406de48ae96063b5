//! The facts of a transport, and the checks of its options before it receives the first message.

use redrive_core::transport::{Facts, HeaderLimit, InPlace, NativeDeadLetter, Needs, OpenError, UnmetNeed};
use redrive_core::{TransportError, TransportErrorKind};
use redrive_transport::header_size;

use super::{Backend, Options, ReceiveMode};
use crate::entity::Entity;

/// The most bytes that properties and headers of a copy may take: Service Bus allows 64 KiB, and encoding adds a little.
const MAX_HEADER_BYTES: usize = 48 * 1024;

/// The smallest `MaxDeliveryCount` with which the crash of a process keeps no other message from its handler: the layers stay one
/// below the broker's limit, and reject a message that is delivered once more.
const MIN_DELIVERY_COUNT: u32 = 3;

/// The most sessions that are held over one connection: Azure allows 5000 links on it, and other links are needed too.
const MAX_SESSIONS: usize = 4000;

impl Options {
    /// Refuses options that contradict each other, without asking the broker. `entity_path` is the entity of a connection string
    /// that is for one entity only.
    pub(crate) fn check(&self, entity_path: Option<&str>) -> Result<(), TransportError> {
        let entity = &self.entity;
        self.check_queues()?;
        #[cfg(feature = "rest")]
        self.check_rest()?;
        if self.backend == Backend::Amqp && self.dead_letter_queue.is_some() {
            return Err(refused(format!(
                "`dead_letter_queue` is for the REST API only: with AMQP, dead letters of `{entity}` go to its own dead-letter \
                 queue; leave it out"
            )));
        }
        if self.receive_mode == ReceiveMode::ReceiveAndDelete {
            return Err(refused(format!(
                "`{entity}` cannot be consumed with `ReceiveAndDelete`: a message would be gone when its handler fails or the \
                 process crashes; use `ReceiveMode::PeekLock`"
            )));
        }
        if let Some(path) = entity_path
            && !path.eq_ignore_ascii_case(&entity.path())
            && !matches!(entity, Entity::Subscription { topic, .. } if path.eq_ignore_ascii_case(topic))
        {
            return Err(refused(format!(
                "the connection string is for the entity `{path}` only, and the options consume `{entity}`: use the connection \
                 string of the namespace, or that of `{entity}`"
            )));
        }
        if self.sessions.is_some() && self.intakes() > MAX_SESSIONS {
            return Err(refused(format!(
                "the options consume {} sessions of `{entity}` at a time, and one connection carries {MAX_SESSIONS} at most: \
                 lower `Sessions::concurrent`, and run more processes",
                self.intakes()
            )));
        }
        if let (Some(sessions), Some(count)) = (self.sessions, self.prefetch_count)
            && count < sessions.concurrent
        {
            return Err(refused(format!(
                "the options consume {} sessions of `{entity}` at a time with one message each, and `prefetch_count` allows \
                 {count} messages in flight: remove `prefetch_count`, or set `Sessions::concurrent({count})`",
                sessions.concurrent
            )));
        }
        if let (Some(hold), longest) = (self.hold_lock_up_to, self.max_lock_renewal)
            && hold > longest
        {
            return Err(refused(format!(
                "`hold_lock_up_to` is {}, but a lock of `{entity}` is renewed for {} only: raise `max_lock_renewal`, or lower \
                 `hold_lock_up_to`",
                humantime::format_duration(hold),
                humantime::format_duration(longest),
            )));
        }
        Ok(())
    }

    /// Refuses a queue that is used for two things. A parked copy in a queue that is consumed would be handled again, and each message
    /// of one queue would be in flight twice.
    fn check_queues(&self) -> Result<(), TransportError> {
        let entity = &self.entity;
        let work = match entity {
            Entity::Queue(name) => name,
            Entity::Subscription { topic, .. } => topic,
        };
        let (retry, parking) = (self.retry_queue.as_deref(), self.parking_queue.as_deref());
        let is = |queue: Option<&str>, other: &str| queue.is_some_and(|queue| is_same_queue(queue, other));
        for (option, queue) in [("retry_queue", retry), ("parking_queue", parking)] {
            if is(queue, work) || is(queue, &entity.path()) {
                return Err(refused(format!(
                    "`{option}` is `{work}`, from which `{entity}` is consumed: name another queue, or leave the option out"
                )));
            }
        }
        if let Some(retry) = retry.filter(|retry| is(parking, retry)) {
            return Err(refused(format!(
                "`retry_queue` and `parking_queue` of `{entity}` are both `{retry}`, and parked messages would be handled again: \
                 name two queues"
            )));
        }
        Ok(())
    }

    /// Refuses needs that the transport cannot meet.
    pub(crate) fn check_needs(&self, needs: &Needs) -> Result<(), OpenError> {
        let mut unmet = needs.unmet(&self.entity.path(), &self.facts());
        unmet.extend(self.unmet(needs));
        if unmet.is_empty() { Ok(()) } else { Err(OpenError::Refused(unmet)) }
    }

    /// Returns the unmet needs that the facts do not show.
    pub(crate) fn unmet(&self, needs: &Needs) -> Vec<UnmetNeed> {
        let mut unmet = Vec::from_iter(self.unmet_by_pause(needs));
        unmet.extend(self.unmet_in_sessions(needs));
        unmet.extend(self.unmet_by_delivery_count(needs));
        let retries = needs.attempts.is_some() || !needs.waits.is_empty();
        let longest_held = self.hold_lock_up_to.unwrap_or_default();
        let copies =
            retries && self.sessions.is_none() && needs.waits.last().is_none_or(|&wait| wait > longest_held);
        if let (Entity::Subscription { .. }, None, true) = (&self.entity, &self.retry_queue, copies) {
            unmet.push(self.ruled_out_by(
                "Options::retry_queue",
                format!(
                    "retries of the subscription `{}` would be copies sent to its topic, and reach every other subscription: \
                     name a separate queue with `Options::retry_queue`",
                    self.entity
                ),
            ));
        }
        #[cfg(feature = "rest")]
        unmet.extend(self.unmet_by_rest());
        unmet
    }

    /// Refuses a policy whose waits hold a session too long. This is no fact of the broker: a fact would also cut the longer waits
    /// that an error or a handler asks for.
    fn unmet_by_pause(&self, needs: &Needs) -> Option<UnmetNeed> {
        let longest = self.sessions.map(|_| self.longest_rest())?;
        let wait = needs.waits.last().copied().filter(|&wait| wait > longest)?;
        let system = self.facts().system;
        Some(UnmetNeed::WaitTooLong { queue: self.entity.path(), system, wait, longest })
    }

    /// Refuses too many attempts in sessions: each attempt is a delivery of the same message, and one delivery must be left for a
    /// crash.
    fn unmet_in_sessions(&self, needs: &Needs) -> Option<UnmetNeed> {
        let (entity, limit) = (&self.entity, self.max_delivery_count);
        let attempts = needs.attempts.filter(|&attempts| self.sessions.is_some() && attempts >= limit)?;
        let asked = match attempts {
            u32::MAX => "without a known limit".to_owned(),
            attempts => format!("{attempts} times"),
        };
        let sentence = format!(
            "the retry policy tries a message of `{entity}` {asked}, and in a session each attempt counts towards the \
             entity's MaxDeliveryCount, which is {limit} (`Options::max_delivery_count`): limit the policy's attempts to \
             fewer, or raise both"
        );
        Some(self.ruled_out_by("Options::max_delivery_count", sentence))
    }

    /// Refuses a `MaxDeliveryCount` below 3 if nobody set the limit of deliveries. Of two deliveries, the handler would get only
    /// one: everything that a crashed process had in flight would be rejected without being handled.
    fn unmet_by_delivery_count(&self, needs: &Needs) -> Option<UnmetNeed> {
        let (entity, limit) = (&self.entity, self.max_delivery_count);
        let gives_way = needs.deliveries.is_some() && needs.deliveries_give_way;
        (gives_way && limit < MIN_DELIVERY_COUNT).then(|| {
            let sentence = format!(
                "the MaxDeliveryCount of `{entity}` is {limit} (`Options::max_delivery_count`): everything that a crashed \
                 process had in flight would be dead-lettered, unhandled, as the suspected cause; raise it to \
                 {MIN_DELIVERY_COUNT} or more"
            );
            self.ruled_out_by("Options::max_delivery_count", sentence)
        })
    }

    /// Creates the unmet need for a setting that must change.
    pub(super) fn ruled_out_by(&self, setting: &'static str, sentence: String) -> UnmetNeed {
        UnmetNeed::Setting { queue: self.entity.path(), setting, sentence }
    }

    /// Returns a warning for the log when the transport is opened. The setting is accepted, because somebody chose it.
    pub(crate) fn warning(&self) -> Option<String> {
        let limit = self.max_delivery_count;
        (limit < MIN_DELIVERY_COUNT).then(|| {
            format!(
                "MaxDeliveryCount is {limit}: messages that a crashed process had in flight may be dead-lettered together with \
                 the one that caused the crash; raise it to {MIN_DELIVERY_COUNT} or more"
            )
        })
    }

    pub(crate) fn facts(&self) -> Facts {
        let mut facts = Facts::new("servicebus");
        facts.limits.deliveries = Some(self.max_delivery_count);
        facts.limits.hold = Some(self.max_lock_renewal);
        facts.dead_letter = NativeDeadLetter::LastResort;
        facts.limits.headers = Some(HeaderLimit::new(MAX_HEADER_BYTES, header_size));
        if self.holds_locks() {
            facts.delays.in_place = self.hold_lock_up_to.map(|longest| InPlace::Any { longest });
        }
        if self.sessions.is_some() {
            // A session that ends with its connection, for example in a crash, counts no delivery.
            facts.counting.deliveries = false;
        }
        #[cfg(feature = "rest")]
        self.limit_to_rest(&mut facts);
        facts
    }
}

/// Returns true if two names are one queue: Service Bus ignores case, and slashes at the ends.
fn is_same_queue(one: &str, other: &str) -> bool {
    one.trim_matches('/').eq_ignore_ascii_case(other.trim_matches('/'))
}

pub(super) fn refused(message: String) -> TransportError {
    TransportError::new(TransportErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use redrive_core::transport::{Planning, Settlement};
    use redrive_core::{Delivery, Disposition, Message};

    use super::*;
    use crate::options::Sessions;

    fn retries() -> Needs {
        let mut needs = Needs::none();
        needs.attempts = Some(5);
        needs.waits.insert(Duration::from_secs(1));
        needs
    }

    #[test]
    fn receive_and_delete_is_refused_with_the_reason() {
        let options = Options::new("orders").receive_mode(ReceiveMode::ReceiveAndDelete);
        let error = options.check(None).expect_err("it loses messages").to_string();
        assert!(error.contains("gone") && error.contains("PeekLock"), "{error}");
    }

    #[test]
    fn amqp_needs_no_queue_for_dead_letters() {
        let mut options = Options::new("orders");
        options.dead_letter_queue = Some("dead".to_owned());
        let error = options.check(None).expect_err("it would do nothing").to_string();
        assert!(error.contains("leave it out"), "{error}");
    }

    #[test]
    fn each_queue_is_for_one_thing() {
        let orders = || Options::new("Shop/Orders");
        let billing = || Options::new(Entity::subscription("orders", "billing"));
        for (options, part) in [
            (orders().parking_queue("shop/orders"), "`parking_queue` is `Shop/Orders`"),
            (orders().retry_queue("Shop/Orders/"), "`retry_queue` is"),
            (orders().retry_queue("back").parking_queue("BACK"), "both `back`"),
            (billing().retry_queue("Orders"), "`retry_queue` is `orders`"),
            (billing().parking_queue("orders/subscriptions/billing"), "`parking_queue` is"),
        ] {
            for backend in backends() {
                let error = options.clone().backend(backend).check(None).expect_err(part).to_string();
                assert!(error.contains(part), "{error}");
            }
        }
        assert!(orders().retry_queue("back").parking_queue("parked").check(None).is_ok());
        assert!(billing().retry_queue("back").parking_queue("parked").check(None).is_ok());
    }

    fn backends() -> Vec<Backend> {
        vec![
            Backend::Amqp,
            #[cfg(feature = "rest")]
            Backend::Rest,
        ]
    }

    #[cfg(feature = "config")]
    #[test]
    fn a_configuration_names_the_shelves_that_have_queues() {
        let mut queues = redrive_core::options::ShelfQueues::default();
        queues.parking_queue = Some("parked".to_owned());
        let options = Options::new("orders").shelves(queues.clone());
        assert!(options.check(None).is_ok());
        assert_eq!(options.parking_queue.as_deref(), Some("parked"));
        queues.dead_letter_queue = Some("dead".to_owned());
        assert!(Options::new("orders").shelves(queues).check(None).is_err(), "by AMQP it would do nothing");
    }

    #[test]
    fn a_key_of_another_entity_is_refused() {
        assert!(Options::new("orders").check(Some("Orders")).is_ok());
        assert!(Options::new("orders").check(None).is_ok());
        let subscription = Options::new(Entity::subscription("orders", "billing"));
        assert!(subscription.check(Some("orders")).is_ok());
        assert!(Options::new("orders").check(Some("payments")).is_err());
    }

    #[test]
    fn retries_of_a_subscription_need_a_queue_of_their_own() {
        let options = Options::new(Entity::subscription("orders", "billing"));
        let error = options.check_needs(&retries()).expect_err("they would reach others").to_string();
        assert!(error.contains("retry_queue"), "{error}");
        assert!(options.check_needs(&Needs::none()).is_ok());
        assert!(options.clone().retry_queue("r").check_needs(&retries()).is_ok());
        assert!(options.hold_lock_up_to(Duration::from_secs(1)).check_needs(&retries()).is_ok());
        assert!(Options::new("orders").check_needs(&retries()).is_ok());
    }

    #[test]
    fn hand_outs_must_stay_below_the_brokers_limit() {
        let mut needs = Needs::none();
        needs.deliveries = Some(10);
        assert!(Options::new("orders").check_needs(&needs).is_err());
        assert!(Options::new("orders").max_delivery_count(11).check_needs(&needs).is_ok());
    }

    #[test]
    fn a_delivery_count_below_three_is_refused_where_nobody_chose_a_limit() {
        let mut needs = Needs::none();
        needs.deliveries = Some(10);
        needs.deliveries_give_way = true;
        let with = |count| Options::new("orders").max_delivery_count(count);
        let error = with(2).check_needs(&needs).expect_err("innocents would be shelved").to_string();
        assert!(error.contains("raise it to 3"), "{error}");
        assert!(with(3).check_needs(&needs).is_ok() && with(3).warning().is_none());
        (needs.deliveries, needs.deliveries_give_way) = (Some(1), false);
        assert!(with(2).check_needs(&needs).is_ok() && with(2).warning().is_some());
    }

    #[test]
    fn a_lock_is_not_held_longer_than_it_is_renewed() {
        let options = Options::new("orders").hold_lock_up_to(Duration::from_secs(301));
        assert!(options.check(None).is_err());
    }

    #[test]
    fn attempts_in_sessions_must_stay_below_the_brokers_limit() {
        let options = Options::new("orders").sessions(Sessions::concurrent(1)).max_delivery_count(6);
        let mut needs = retries();
        assert!(options.check_needs(&needs).is_ok());
        needs.attempts = Some(6);
        let error = options.check_needs(&needs).expect_err("a death would be one too many").to_string();
        assert!(error.contains("6 times") && error.contains("MaxDeliveryCount"), "{error}");
        needs.attempts = Some(u32::MAX);
        assert!(options.check_needs(&needs).is_err());
        assert!(
            Options::new("orders").max_delivery_count(6).check_needs(&needs).is_ok(),
            "each copy is counted from 0"
        );
    }

    #[test]
    fn a_session_rests_no_longer_than_said() {
        let options = Options::new("orders").sessions(Sessions::concurrent(1));
        let mut needs = retries();
        needs.waits.insert(Duration::from_secs(300));
        assert!(options.check_needs(&needs).is_ok());
        let short = options.clone().hold_lock_up_to(Duration::from_secs(299));
        let error = short.check_needs(&needs).expect_err("it is longer").to_string();
        assert!(error.contains("5m") && error.contains("4m 59s"), "{error}");
        needs.waits.insert(Duration::from_secs(301));
        assert!(options.check_needs(&needs).is_err());
        assert!(options.max_lock_renewal(Duration::from_secs(600)).check_needs(&needs).is_ok());
    }

    #[test]
    fn a_session_rests_for_as_long_as_a_handler_asks() {
        let facts = Options::new("orders").sessions(Sessions::concurrent(1)).facts();
        let delivery = Delivery::new(Message::new(""), "orders", SystemTime::now());
        let asked = Duration::from_secs(3600);
        let planning = Planning::new(SystemTime::now(), &facts);
        let planned = Settlement::plan(&delivery, Disposition::Snooze(asked), &planning);
        assert!(matches!(planned, Settlement::Reschedule { wait, .. } if wait == asked), "{planned:?}");
    }

    #[test]
    fn each_session_has_a_message_in_flight() {
        let options = Options::new("orders").sessions(Sessions::concurrent(8));
        assert!(options.clone().prefetch_count(8).check(None).is_ok());
        let error = options.prefetch_count(7).check(None).expect_err("too few").to_string();
        assert!(error.contains("concurrent(7)"), "{error}");
        let many = Options::new("orders").sessions(Sessions::concurrent(4001));
        let error = many.check(None).expect_err("too many").to_string();
        assert!(error.contains("4000"), "{error}");
    }

    #[test]
    fn retries_in_sessions_of_a_subscription_reach_no_other() {
        let options = Options::new(Entity::subscription("orders", "billing"));
        assert!(options.sessions(Sessions::concurrent(1)).check_needs(&retries()).is_ok());
    }
}
